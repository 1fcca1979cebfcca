"""Of a large tensor, the original is seen before its codes are computed, and only until the maps are there."""

import io
from typing import Any

import numpy as np
import pytest
from app_page import change, the_app
from PIL import Image

from pages.maps import overview
from pages.shared.computing import cache
from quantcore import figures, tensors


@pytest.fixture
def happened(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the visitor gets to see, and that codes were computed, in order."""
    every: list[Any] = []
    markup, apply = overview.markup, cache.apply_quietly
    monkeypatch.setattr(overview, "LARGE", 10_000)
    monkeypatch.setattr(overview, "markup", lambda *given: (every.append(given), markup(*given))[1])
    monkeypatch.setattr(cache, "apply_quietly", lambda *x, **y: (every.append("codes"), apply(*x, **y))[1])
    return every


def test_the_original_is_seen_before_its_codes(happened: list[Any]) -> None:
    at = the_app()
    at.query_params.update({"src": "generate", "shape": "300,520", "seed": "81", "dist": "normal"})
    at.run()
    assert not at.exception
    first, second, third = happened
    assert first[0] == "300 × 520 elements are being generated…"
    assert len(first) == 2
    assert second[0] == "The codes of 300 × 520 elements are being computed…"
    assert third == "codes"
    x = tensors.generate(tensors.Generated("normal", (300, 520), seed=81))
    x = np.pad(x, ((0, 0), (0, 2))).reshape(150, 2, 174, 3).swapaxes(1, 2).reshape(150, 174, 6)
    cells = np.take_along_axis(x, np.abs(x).argmax(-1, keepdims=True), -1)[..., 0]
    most = float(np.abs(cells).max())
    wanted = figures.colors_at(cells, -most, most, figures.palette("diverging"))
    assert np.array_equal(np.array(Image.open(io.BytesIO(second[2]))), wanted)
    assert not any('class="qs-overview"' in element.proto.body for element in at.get("html"))
    change(at, "bits", 3)
    assert happened[3:] == ["codes"]  # the tensor is known
    change(at, "rows", "0:40")
    change(at, "seed", 82)
    assert [given if given == "codes" else len(given) for given in happened[4:]] == [2, "codes"]  # a part: in words alone
