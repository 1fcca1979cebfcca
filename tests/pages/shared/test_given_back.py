"""What the cache has forgotten is gone, however long sessions stay open: none of them holds a tensor or its results."""

import dataclasses
import gc
import io
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pytest
import torch
from app_page import script_of, the_app
from streamlit.testing.v1 import AppTest

import quantcore as qc
from pages.models.opening import examples
from pages.registry import PAGES
from pages.serving.work.byte_cache import ByteCache
from pages.shared.computing import cache
from pages.sidebar.match_fields import TEXT, write
from quantcore import tensors

SIDE = 24
SHAPE = {"dist": "normal", "shape": f"{SIDE}x{SIDE}"}
EXAMPLE = next(iter(examples.EXAMPLE_CARDS))
# By address: the link of a page that draws maps, and the result that it draws
OPENED: dict[str, tuple[dict[str, str], str]] = {
    "": (SHAPE, "map "),
    "ranges": (SHAPE, "map "),
    "layer": (SHAPE, "map "),
    "schemes": (SHAPE | {"sw_set": "custom"}, "result "),
    "libraries": (SHAPE, "compare int4"),
    "match": (SHAPE, "match int4"),
    "checkpoint": ({"ck": f"example:{EXAMPLE}", "ck_tensor": examples.EXAMPLE_CARDS[EXAMPLE].tensor}, "maps "),
}
# by default, the first page: the others have the same caches, and some of them compute for a second
LONG = OPENED.keys() - {""}


class Watched(ByteCache):
    """A cache that remembers, weakly, every array and tensor of a map's size that it has handed out."""

    def __init__(self) -> None:
        super().__init__(lambda: 1 << 30)
        self.handed: dict[int, tuple[str, weakref.ref[Any]]] = {}
        self.asked: set[str] = set()

    def get(self, tensor: str, what: str, make: Callable[[], Any], *rest: Any, **more: Any) -> Any:
        value = super().get(tensor, what, make, *rest, **more)
        self.asked.add(what)
        for each in large_parts(value):
            self.handed[id(each)] = what, weakref.ref(each)
        return value

    def alive(self) -> list[str]:
        """The results of which something is still held, after all have been forgotten."""
        self._groups.clear()
        gc.collect()
        return sorted({what for what, each in self.handed.values() if each() is not None})


def large_parts(value: Any, seen: set[int] | None = None) -> Iterator[Any]:
    """The arrays and tensors in a result that are as large as a map, and the objects that own their memory."""
    seen = set() if seen is None else seen
    if id(value) in seen or isinstance(value, str | bytes | int | float | type(None)) or callable(value):
        return
    seen.add(id(value))
    if isinstance(value, np.ndarray):
        while isinstance(value.base, np.ndarray):
            value = value.base
        if value.size >= SIDE * SIDE:
            yield value
    elif isinstance(value, torch.Tensor):
        if value.numel() >= SIDE * SIDE:
            yield value
    elif isinstance(value, Mapping):
        for each in list(value.values()):
            yield from large_parts(each, seen)
    elif isinstance(value, list | tuple | set):
        for each in value:
            yield from large_parts(each, seen)
    elif dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            yield from large_parts(getattr(value, field.name, None), seen)


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Watched:
    """A cache of all results, large and small, that nothing else has used."""
    own = Watched()
    monkeypatch.setattr(cache, "_small", own)
    monkeypatch.setattr(cache, "_large", own)
    return own


def opened(url: str, parameters: dict[str, str], watched: Watched) -> AppTest:
    """A session that has the page open."""
    at = the_app()
    at.query_params.update(parameters)
    at.run()
    if url:
        watched.asked.clear()  # what the first page has drawn
        at.switch_page(script_of(url))
        at.query_params.update(parameters)
        if url == "match":
            x = tensors.generate(tensors.Generated("normal", (SIDE, SIDE), 0, ()))
            at.session_state[TEXT] = write(qc.apply(x, qc.Scheme.parse("int4")).codes.numpy())
        at.run()
    if url == "schemes":
        at.multiselect(key="sw_maps").set_value(list(at.dataframe[0].value["name"][:2])).run()
    assert not at.exception
    assert [each.value for each in at.error] == []
    return at


def test_every_page_that_draws_maps_is_opened() -> None:
    assert {page.url_path for page in PAGES if page.maps} <= OPENED.keys()


@pytest.mark.parametrize("url", [pytest.param(u, marks=[pytest.mark.slow] * (u in LONG)) for u in OPENED])
def test_open_sessions_hold_nothing_that_the_cache_has_forgotten(url: str, watched: Watched) -> None:
    link, drawn = OPENED[url]
    own = "shape" in link and url != "match"  # whose search takes seconds: one for all
    count = 1 if url in ("layer", "libraries", "checkpoint") else 2  # one of these shows as much as two
    links = [link | ({"seed": str(seed)} if own else {}) for seed in range(count)]
    sessions = [opened(url, each, watched) for each in links]
    assert any(what.startswith(drawn) for what in watched.asked), watched.asked
    assert any(what.startswith(drawn) for what, _ in watched.handed.values())
    assert watched.alive() == []
    assert all(session.main.children for session in sessions)  # they are open to the end


def test_a_session_keeps_of_an_uploaded_tensor_the_file_alone(watched: Watched) -> None:
    x = tensors.generate(tensors.Generated("normal", (SIDE, SIDE), 0, ()))
    file = io.BytesIO()
    np.save(file, x)
    at = the_app()
    at.query_params["src"] = "upload"
    at.run()
    at.file_uploader[0].upload("x.npy", file.getvalue()).run()
    assert not at.exception
    assert [each.value for each in at.error] == []
    assert len(watched.handed) >= 2
    assert watched.alive() == []
    at.run()  # and reads it from there again
    assert not at.exception
    assert [each.value for each in at.error] == []
