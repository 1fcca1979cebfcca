"""A checkpoint in the browser: from the overview to a cell and back, by mouse and by the links on the way."""

import re
from typing import Any

import numpy as np
import pytest
from page_rest import REST, SHOWN, expect

from quantcore.checkpoints import EXAMPLES, open_checkpoint

NAME = "encoder.layer.0.output.dense.weight"
TABLE = "[data-testid=stDataFrame] canvas"


def opened(app: Any, **parameters: str) -> None:
    """Open the page by a cold link."""
    query = "&".join(f"{key}={value}" for key, value in parameters.items())
    app.page.goto(f"{app.address}/checkpoint?{query}")
    app.wait(f"{REST} && document.querySelector('.qs-treemap[data-painted], .qs-maps[data-painted]')")


def test_from_the_whole_to_a_cell_and_back(app: Any) -> None:
    opened(app, ck="example:minilm-gptq")
    a_tile_opens_its_tensor(app)
    app.expect_maps()
    app.wait(f"{REST}")
    app.drag((93, 120), (150, 350))
    app.wait("/^9\\d:1\\d\\d$/.test(new URLSearchParams(location.search).get('ck_rows'))")
    app.wait(f"{REST}")
    rows, columns = (
        tuple(map(int, re.search(rf"{key}=(\d+)%3A(\d+)", app.page.url).groups()))
        for key in ("ck_rows", "ck_cols")
    )
    codes = open_checkpoint(EXAMPLES["minilm-gptq"]).tensors[NAME].codes().numpy()
    app.wait(f"{REST} && {SHOWN}('codes')?.length === {rows[1] - rows[0]}")
    np.testing.assert_array_equal(app.map("codes"), codes[slice(*rows), slice(*columns)])
    app.click(rows[0] + 1, columns[0] + 2, 1)
    app.expect_parameter("ck_cell", f"{rows[0] + 1}, {columns[0] + 2}")
    expect(
        app.page.get_by_text(f"Where element ({rows[0] + 1}, {columns[0] + 2}) comes from")
    ).to_be_visible()
    app.wait(f"{REST}")
    app.button("All tensors")
    app.expect_parameter("ck_tensor", None)


def a_tile_opens_its_tensor(app: Any) -> None:
    box = app.page.locator(".qs-treemap").bounding_box()
    app.page.mouse.click(box["x"] + 0.6 * box["width"], box["y"] + 0.6 * box["height"])
    app.expect_parameter("ck_tensor", NAME)


@pytest.mark.slow  # the table is Streamlit's own; by default, a tile opens its tensor
def test_a_row_of_what_was_found_opens_its_tensor_and_what_was_sought_stays(app: Any) -> None:
    opened(app, ck="example:minilm-gptq")
    app.type("ck_search", "output dense weight")
    names = open_checkpoint(EXAMPLES["minilm-gptq"]).tensors
    found = sum(all(word in name for word in ("output", "dense", "weight")) for name in names)
    expect(app.page.get_by_text(re.compile(rf"^{found} tensors?\. Click a row"))).to_be_visible()
    app.expect_parameter("ck_search", "output dense weight")
    app.wait(f"{REST} && document.querySelector('{TABLE}')")
    box = app.page.locator(TABLE).first.bounding_box()
    app.page.mouse.click(box["x"] + 60, box["y"] + 50)
    app.expect_parameter("ck_tensor", NAME)
    app.expect_maps()
    app.page.go_back()
    app.expect_parameter("ck_tensor", None)
    app.wait(f"{REST} && document.querySelector('.qs-treemap[data-painted]')")
    expect(app.input("ck_search")).to_have_value("output dense weight")


@pytest.mark.slow  # by default, what the link opens is tested without a browser, and tiles without their colors
def test_a_cold_link_restores_the_cell_with_the_original_and_tiles_have_their_errors(app: Any) -> None:
    cell = "99, 856"
    place = {"ck_tensor": NAME, "ck_rows": "90:106", "ck_cols": "850:866", "ck_cell": cell}
    opened(app, ck="example:minilm-gptq", ck_original="example:minilm", ck_color="SQNR", **place)
    expect(app.page.locator(".qs-maps .qs-title")).to_have_count(4)
    expect(app.page.locator("rect.qs-selected")).to_have_count(4)
    expect(app.page.get_by_text(f"Where element ({cell}) comes from")).to_be_visible()
    app.point(99, 856, 3)
    texts = app.page.locator(".qs-tip:visible span")
    expect(texts.nth(1)).to_have_text(f"({cell})")
    assert {"element", "error"} <= set(texts.all_inner_texts())
    app.button("All tensors")
    app.wait("document.querySelector('.qs-treemap[data-painted]')")
    a_tile_is_drawn_with_its_errors(app)


def a_tile_is_drawn_with_its_errors(app: Any) -> None:
    tile = app.page.locator(".qs-textured", has_text="dense.weight").locator("path.surface")
    pattern = re.search(r"#(qs-tile-\d+)", tile.evaluate("path => path.style.fill")).group(1)
    colors = app.page.locator(f"#{pattern} image").evaluate(
        """async (shown) => {
            const image = Object.assign(new Image(), { src: shown.getAttribute("href") });
            await image.decode();
            const canvas = Object.assign(document.createElement("canvas"), { width: image.width, height: image.height }), context = canvas.getContext("2d");
            context.drawImage(image, 0, 0);
            return [image.width, image.height, ...context.getImageData(0, 0, image.width, image.height).data];
        }"""
    )
    drawn = np.array(colors[2:]).reshape(colors[1], colors[0], 4)[..., :3].astype(int)
    error = [open_checkpoint(EXAMPLES[name]).tensors[NAME].read().double().numpy() for name in ("minilm", "minilm-gptq")]
    cells = np.square(error[0] - error[1]).reshape(24, 16, 24, 64).mean((1, 3))
    assert drawn.shape == (24, 24, 3)
    # the smaller the error, the lighter the color: the ends of the scale hold many
    order = np.argsort(cells.ravel())
    light = drawn.sum(-1).ravel()[order]
    assert (np.diff(light) <= 0).all()
    assert len(set(light.tolist())) > 100
