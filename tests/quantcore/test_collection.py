"""Pausing Python's garbage collection: the pause ends with its last user, and restores the previous setting."""

import gc
import threading

import pytest
import torch
from safetensors.torch import save_file

from quantcore import QuantError
from quantcore.checkpoints import listing, open_checkpoint
from quantcore.collection import uncollected


def test_it_ends_with_the_last_of_several_threads():
    inside, leave = threading.Event(), threading.Event()

    def other():
        with uncollected():
            inside.set()
            leave.wait(10)

    thread = threading.Thread(target=other)
    with uncollected():
        thread.start()
        inside.wait(10)
        first = gc.isenabled()
    second = gc.isenabled()
    leave.set()
    thread.join()
    assert (first, second, gc.isenabled()) == (False, False, True)


def test_it_ends_with_an_error():
    with pytest.raises(QuantError), uncollected():
        raise QuantError("")
    assert gc.isenabled()


def test_what_was_off_stays_off():
    gc.disable()
    try:
        with uncollected():
            assert not gc.isenabled()
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_listing_many_tensors_is_not_interrupted(tmp_path):
    """Listing a thousand tensors takes few collections; with one per 700 new objects it would be 20."""
    save_file({f"t{i}": torch.zeros(1) for i in range(1_000)}, tmp_path / "model.safetensors")
    gc.collect()
    thresholds = gc.get_threshold()
    gc.set_threshold(700, 10, 10)  # Python's own; the tests' are higher
    try:
        before = [generation["collections"] for generation in gc.get_stats()]
        found = listing(open_checkpoint(tmp_path).tensors)
        after = [generation["collections"] for generation in gc.get_stats()]
    finally:
        gc.set_threshold(*thresholds)
    assert len(found) == 1_000
    assert sum(after) - sum(before) < 10
