"""Cards: their pictures show every cell that they are given."""

import base64
import io

import numpy as np
from grid import for_each
from PIL import Image

from pages.shared import cards


@for_each(("rows", "columns", "side"), [(4, 4, 24), (16, 24, 6), (2, 30, 4), (9, 3, 10)])
def test_a_picture_shows_all_cells_as_squares(rows, columns, side):
    cells = np.random.default_rng(0).integers(0, 256, (rows, columns, 3), dtype=np.uint8)
    png = base64.b64decode(cards._address(cells).partition(",")[2])
    drawn = np.asarray(Image.open(io.BytesIO(png)))
    assert drawn.shape == (96, 144, 4)
    middles = drawn[side // 2 :: side, side // 2 :: side][:rows, :columns]
    assert (middles[..., :3] == cells).all()
    assert (drawn[..., 3] == 255).sum() == rows * columns * side**2
