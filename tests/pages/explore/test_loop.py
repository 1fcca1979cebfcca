"""The loop of the maps from 8 to 2 bits, read from the file that is saved."""

import io

import numpy as np
import pytest
from app_page import the_app
from parts import some
from PIL import Image

import quantcore as qc
from pages.explore.explore import loop
from pages.shared.state.selection import generated
from quantcore import tensors
from quantcore.analysis import View

X = tensors.Generated("normal", (2, 5), seed=3)


def frames(scheme: str, theme: str = "light") -> list[Image.Image]:
    file = loop.gif(generated(X), qc.Scheme.parse(scheme), View(), "http://localhost:8501/?dist=normal", theme)
    image = Image.open(io.BytesIO(file))
    found = []
    for n in range(image.n_frames):
        image.seek(n)
        found.append(image.convert("RGB"))
    return found


@pytest.mark.parametrize("theme", some(["dark", "light"], 2))
def test_each_frame_shows_the_codes_of_its_width(theme: str) -> None:
    shown = frames("int4 symmetric", theme)
    assert len(shown) == 7
    x = tensors.generate(X)
    for bits, frame in zip(range(8, 1, -1), shown, strict=True):
        codes = qc.apply(x, qc.Scheme(qc.IntFormat(bits))).codes.numpy()
        left, top = loop.GAP + loop.WIDE + loop.GAP, 2 * loop.GAP + 2 * loop.TITLE
        colors: dict[int, set[tuple[int, ...]]] = {}
        for (row, column), code in np.ndenumerate(codes):  # near a cell's corner, where no number is written
            at = left + column * loop.WIDE // 5 + 4, top + 4 + row * (int(loop.WIDE * 2 / 5 / loop.STRETCH) // 2)
            colors.setdefault(int(code), set()).add(frame.getpixel(at))
        assert all(len(found) == 1 for found in colors.values()), "one code, one color"
        if bits <= 4:
            assert len({found.pop() for found in colors.values()}) == len(np.unique(codes)), "and no other's"


def test_widths_that_the_library_does_not_have_are_left_out() -> None:
    assert len(frames("int8 symmetric torch.quantize_per_tensor")) == 1


def test_it_is_offered_for_integers() -> None:
    for fmt, disabled in (("integers", False), ("nf4", True)):
        at = the_app()
        at.query_params["tab"], at.query_params["format"], at.query_params["shape"] = "Export", fmt, "2x3"
        at.run()
        (button,) = [b for b in at.get("download_button") if "Loop" in b.proto.label]
        assert button.proto.disabled == disabled
