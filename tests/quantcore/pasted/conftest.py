"""Pasted code is given processor time, of which looking for garbage among all that tests have loaded would take most."""

import gc

import pytest


@pytest.fixture(autouse=True, scope="module")
def nothing_to_look_through() -> None:
    gc.collect()
    gc.freeze()
