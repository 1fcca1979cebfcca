"""Images in the browser: as the tensor, by upload and by paste; and pictures of maps and charts for slides."""

import base64
import io
import re
from pathlib import Path
from typing import Any
from urllib.parse import unquote
from xml.etree import ElementTree

import numpy as np
import pytest
from page_rest import REST, SHOWN, expect
from PIL import Image

import quantcore as qc
from quantcore.tensors import EXAMPLES, encode

COLORS = np.random.default_rng(1).integers(0, 256, (6, 9, 3), np.uint8)
LEVELS = (COLORS.astype(int) @ [299, 587, 114] + 500) // 1000  # BT.601; see tests/quantcore/tensors/test_images.py
SVG = "{http://www.w3.org/2000/svg}"
# Color of a place 3 px inside the upper left corner of each cell of a map, where no number is; rows of "r,g,b"
CORNERS = """(number) => {
    const root = document.querySelector(".qs-maps"), canvas = root.querySelector("canvas"), pen = canvas.getContext("2d");
    const full = document.querySelector(".qs-plot")._fullLayout, name = number ? number + 1 : "";
    const x = full["xaxis" + name], y = full["yaxis" + name], width = root.shown.width, height = root.shown.values.codes.length / width;
    return Array.from({ length: height }, (_, row) => Array.from({ length: width }, (_, column) => {
        const at = [x._offset + x.d2p(column - 0.5) + 3, y._offset + y.d2p(row - 0.5) + 3].map((px) => Math.round(px * devicePixelRatio));
        return [...pen.getImageData(at[0], at[1], 1, 1).data].slice(0, 3).join();
    }));
}"""


def png(colors: np.ndarray = COLORS) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(colors).save(stream, "PNG")
    return stream.getvalue()


def expect_image(app: Any, levels: np.ndarray) -> None:
    """The maps show these levels, as grey of that level, in square cells."""
    app.wait(f"(x) => {REST} && JSON.stringify(x) === JSON.stringify({SHOWN}('x'))", levels.tolist())
    assert app.maps(CORNERS, 0) == [[f"{v},{v},{v}" for v in row] for row in levels.tolist()]
    assert_square(app)


def assert_square(app: Any) -> tuple[float, float]:
    """Width and height of a pixel are equal; returns how many columns and rows are seen."""
    width, height, columns, rows = app.maps("""() => {
        const { xaxis, yaxis } = document.querySelector('.qs-plot')._fullLayout, span = ({ range }) => Math.abs(range[1] - range[0]);
        return [xaxis._length, yaxis._length, span(xaxis), span(yaxis)];
    }""")
    assert width / columns == pytest.approx(height / rows, rel=0.02)
    return columns, rows


@pytest.mark.slow  # by default, other files are dropped in test_history.py
def test_a_pasted_or_uploaded_image_is_grey_and_its_link_holds_it(app: Any, tmp_path: Path) -> None:
    app.open()
    an_image_is_pasted_anywhere(app)
    (tmp_path / "photo.jpg").write_bytes(png(COLORS[::-1]))  # a name of another kind
    app.page.locator("input[type=file]").first.set_input_files(tmp_path / "photo.jpg")
    expect_image(app, LEVELS[::-1])
    expect(app.key("tensor_controls").get_by_text("0.299 R + 0.587 G + 0.114 B")).to_be_visible()
    app.expect_parameter("file", "photo.jpg")
    app.expect_parameter("t", encode(LEVELS[::-1].astype(np.float32)))
    (tmp_path / "broken.png").write_bytes(png()[:-30])
    app.page.locator("input[type=file]").first.set_input_files(tmp_path / "broken.png")
    expect(app.page.get_by_test_id("stAlert")).to_contain_text("'broken.png' can't be read as a PNG, JPEG or WebP image")


def paste(app: Any, where: str, text: str = "") -> None:
    """Paste the image, as from a browser's "Copy image", while the focus is in an element."""
    app.page.evaluate(
        """([where, image, text]) => {
            const clipboard = new DataTransfer(), data = Uint8Array.from(atob(image), (c) => c.charCodeAt(0));
            clipboard.items.add(new File([data], "image.png", { type: "image/png" }));
            if (text) clipboard.setData("text/plain", text);
            document.querySelector(where).dispatchEvent(new ClipboardEvent("paste", { clipboardData: clipboard, bubbles: true, cancelable: true }));
        }""",
        [where, base64.b64encode(png()).decode(), text],
    )  # fmt: skip


def an_image_is_pasted_anywhere(app: Any) -> None:
    field, before = ".st-key-_scheme_text input", app.page.url
    paste(app, field, "int8")  # text beside the image belongs to the field
    app.rest()
    assert app.page.url == before
    paste(app, "body")
    expect_image(app, LEVELS)
    app.expect_parameter("src", "upload")
    app.expect_parameter("file", "image.png")


@pytest.mark.slow  # by default, images are read without a browser
def test_an_example_image_is_shown_and_its_script_loads_it(app: Any) -> None:
    name = "still-life-160x160"
    app.open(src="example", ex=name, codes="unsigned", mode="asymmetric", bits="8", tab="Code")
    levels = EXAMPLES[name].load()
    np.testing.assert_array_equal(app.map("x"), levels)
    error = app.map("error")
    assert 0 < np.abs(error).max() <= levels.max() / 255 / 2 * 1.001  # half a step of 0 to the lightest
    expect(app.page.get_by_text(f"x = qc.tensors.EXAMPLES['{name}'].load()")).to_be_visible()
    app.drag((20, 60), (140, 100))  # a narrow box: more than it is seen, in the shape of the image
    app.wait("document.querySelector('.qs-plot')._fullLayout.xaxis.range[0] > 0.5")
    columns, rows = assert_square(app)
    assert (columns, rows) == (pytest.approx(120, abs=5), pytest.approx(120, abs=5))


def downloaded(app: Any, act: Any) -> bytes:
    with app.page.expect_download() as download:
        act()
    return Path(download.value.path()).read_bytes()


def texts(svg: ElementTree.Element) -> list[str]:
    return ["".join(text.itertext()) for text in svg.iter(f"{SVG}text")]


def background(app: Any, svg: ElementTree.Element) -> tuple[str, str]:
    """That of the page, and that of a picture, which covers all of it."""
    rect = next(svg.iter(f"{SVG}rect"))
    assert (rect.get("width"), rect.get("height")) == (svg.get("width"), svg.get("height"))
    page = app.page.evaluate("getComputedStyle(document.querySelector('[data-testid=stApp]')).backgroundColor")
    return page, rect.get("fill", "")


@pytest.mark.slow  # by default, a chart is tested
def test_the_maps_as_pictures_for_slides(app: Any, server: str) -> None:
    app.open(shape="5x6", bits="3", learn_large="false", tab="Export")
    shown = [app.maps(CORNERS, number) for number in range(4)]
    written = downloaded(app, lambda: app.page.locator(".st-key-_picture_svg button").first.click())
    svg = ElementTree.fromstring(written)
    width, height = (float(svg.get(side, 0)) for side in ("width", "height"))
    assert background(app, svg) == ("rgb(255, 255, 255)",) * 2
    # the cells of each map, in its own clip
    maps = [clip for clip in svg.iter(f"{SVG}svg") if len(clip.findall(f"{SVG}rect[@shape-rendering]")) > 0]
    assert len(maps) == 4
    for clip, expected in zip(maps, shown, strict=True):
        fills = [rect.get("fill", "")[4:-1] for rect in clip.iter(f"{SVG}rect")]
        assert fills == [color for row in expected for color in row]
    codes = app.map("codes").astype(int).ravel().tolist()
    assert texts(maps[1]) == [str(code).replace("-", "−") for code in codes]
    # small print: the scheme, and a link that opens the view
    assert any("int3 symmetric per_tensor min_max textbook" in text for text in texts(svg))
    (link,) = svg.iter(f"{SVG}a")
    assert "".join(texts(link)) == link.get("href") == app.page.url
    assert unquote(link.get("href", "")).startswith(server)
    assert {"Original x", "Codes q", "Dequantized x̂", "Error x − x̂", "0", "5"} <= set(texts(svg))

    picture = Image.open(io.BytesIO(downloaded(app, lambda: app.page.locator(".st-key-_picture_png button").first.click())))
    assert (picture.format, picture.size) == ("PNG", (2 * width, 2 * height))
    pixels = np.asarray(picture.convert("RGB"))
    assert pixels[0, 0].tolist() == [255, 255, 255]
    inner = svg.findall(f"{SVG}svg")[0]
    x0, y0 = (float(inner.get(side, 0)) for side in "xy")
    for clip, expected in zip(maps, shown, strict=True):
        left, top = x0 + float(clip.get("x", 0)), y0 + float(clip.get("y", 0))
        for rect, color in zip(clip.iter(f"{SVG}rect"), [c for row in expected for c in row], strict=True):
            at = [round(2 * (start + float(rect.get(side, 0)) + 4)) for start, side in ((top, "y"), (left, "x"))]
            assert np.abs(pixels[at[0], at[1]] - np.array(color.split(","), int)).max() <= 1
    other = app.beside(link.get("href"))  # the small print leads to the view
    np.testing.assert_array_equal(other.map("codes").astype(int).ravel(), codes)
    other.page.emulate_media(color_scheme="dark")
    other.tab("Export")
    other.rest()
    dark = ElementTree.fromstring(
        downloaded(other, lambda: other.page.locator(".st-key-_picture_svg button").first.click())
    )
    page, picture_ = background(other, dark)
    assert page == picture_ != "rgb(255, 255, 255)"


@pytest.mark.slow  # by default, the table with these decimals is tested
def test_wide_cells_show_four_decimals_as_printed_tensors_do(app: Any) -> None:
    app.page.set_viewport_size({"width": 1280, "height": 720})
    app.open(dist="normal", shape="4x4", tab="Export")
    x = app.map("x")
    svg = ElementTree.fromstring(downloaded(app, lambda: app.page.locator(".st-key-_picture_svg button").first.click()))
    maps = [clip for clip in svg.iter(f"{SVG}svg") if len(clip.findall(f"{SVG}rect[@shape-rendering]")) > 0]
    assert texts(maps[0]) == [f"{v:.4f}".replace("-", "−") for v in x.ravel()]
    app.type("shape", "4x12")  # narrower cells
    app.wait(f"{REST} && {SHOWN}('x')[0].length === 12")
    svg = ElementTree.fromstring(downloaded(app, lambda: app.page.locator(".st-key-_picture_svg button").first.click()))
    maps = [clip for clip in svg.iter(f"{SVG}svg") if len(clip.findall(f"{SVG}rect[@shape-rendering]")) > 0]
    assert max(map(len, texts(maps[0]))) <= 5


def the_menu_of_a_picture_closes_and_many_cells_are_an_image_in_it(app: Any, scheme: qc.Scheme) -> None:
    button = app.page.get_by_role("button", name="Picture").first
    for leave in (lambda: app.page.keyboard.press("Escape"), lambda: app.page.locator(".st-key-summary").click()):
        button.focus()
        app.page.keyboard.press("Enter")
        expect(app.page.get_by_role("button", name="PNG")).to_be_visible()
        leave()
        expect(app.page.get_by_role("button", name="PNG")).to_have_count(0)
    app.page.locator(".qs-maps").hover()
    button.click()
    assert downloaded(app, lambda: app.button("PNG")).startswith(b"\x89PNG")
    app.page.locator(".qs-maps").hover()
    button.click()
    svg = ElementTree.fromstring(downloaded(app, lambda: app.button("SVG")))
    images = [image.get("href", "") for image in svg.iter(f"{SVG}image")]
    assert len(images) == 4
    data = qc.views.map_data(qc.apply(app.map("x"), scheme))
    colors = qc.figures.scales_of_maps(data, scheme.format)["codes"]
    codes, drawn = app.map("codes"), np.asarray(Image.open(io.BytesIO(base64.b64decode(images[1].partition(",")[2]))).convert("RGB"))
    step = drawn.shape[0] // codes.shape[0], drawn.shape[1] // codes.shape[1]
    assert drawn.shape[:2] == (codes.shape[0] * step[0], codes.shape[1] * step[1])
    cells = drawn[step[0] // 2 :: step[0], step[1] // 2 :: step[1]].astype(int)
    places = (codes - colors["zmin"]) / (colors["zmax"] - colors["zmin"])
    stops = np.array([at for at, _ in colors["colorscale"]])
    parts = np.array([[int(n) for n in re.findall(r"\d+", color)] for _, color in colors["colorscale"]])
    for channel in range(3):
        assert np.abs(cells[..., channel] - np.interp(places, stops, parts[:, channel])).max() <= 1


def a_chart_as_a_picture(app: Any, words: str) -> None:
    """Of any page; a link that is too long is not printed, but named."""
    chart = app.page.locator(".stPlotlyChart").first
    chart.hover()
    expect(app.page.locator(".modebar-btn[data-title*=Download]")).to_have_count(0)  # this is its only one
    chart.get_by_role("button", name="Picture").click()
    size = app.page.evaluate("(({ width, height }) => [width, height])(document.querySelector('.stPlotlyChart .js-plotly-plot')._fullLayout)")
    svg = ElementTree.fromstring(downloaded(app, lambda: app.button("SVG")))
    print_ = " ".join(texts(svg))
    assert {"elements", "value"} <= set(texts(svg))
    assert words in print_
    (link,) = svg.iter(f"{SVG}a")
    assert link.get("href") == app.page.url
    assert re.search(r"\(the link has [\d,]{5} characters, too many to print\)", "".join(texts(link)))
    assert float(svg.get("width", 0)) == pytest.approx(size[0] + 24, abs=1)
    assert float(svg.get("height", 0)) > size[1]
