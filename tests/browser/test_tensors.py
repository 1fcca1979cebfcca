"""The user's own tensors in the browser: pasted, typed into the grid, uploaded; and exported."""

import contextlib
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
import torch
from page_rest import REST, SHOWN, at_rest, expect
from parts import Part, in_parts
from playwright.sync_api import TimeoutError

import quantcore as qc
from pages.shared.curriculum import LESSONS
from quantcore import tensors

DEFAULT = "int4 symmetric per_tensor min_max textbook"
HOSTILE = '<iframe srcdoc="<script>top.hacked=1</script>"></iframe><img src=x onerror="hacked=1"><script>hacked=1</script>'


def wait_for(app: Any, x: np.ndarray) -> None:
    """Wait until the maps show x."""
    app.wait(
        f"(x) => {REST} && JSON.stringify(x) === JSON.stringify({SHOWN}('x'))",
        [[float(v) for v in row] for row in x],
    )


def assert_codes(app: Any, x: np.ndarray, scheme: str = DEFAULT) -> None:
    wait_for(app, x)
    app.expect_scheme(scheme)
    np.testing.assert_array_equal(app.map("codes"), qc.apply(x, qc.Scheme.parse(scheme)).codes.numpy())


def assert_link_holds(app: Any, x: np.ndarray) -> None:
    """The link contains the values, and others who open it see them."""
    app.expect_parameter("t", tensors.encode(x))
    other = app.beside(app.page.url)
    assert_codes(other, x)
    other.close()


def alert(app: Any) -> Any:
    return app.page.get_by_test_id("stAlert")


def expect_alert(app: Any, words: str) -> None:
    """Wait until this is the only alert; earlier ones may still be there for a moment."""
    expect(alert(app).filter(has_text=words)).to_be_visible()
    expect(alert(app)).to_have_count(1)


@pytest.mark.slow  # tested without a browser
def test_bfloat16(app: Any) -> None:
    """A cold link shows the codes of the library in bfloat16, and Back returns to them from another choice."""
    x = np.random.default_rng(7).normal(size=(6, 8)).astype(np.float32)
    scheme = "int8 symmetric per_channel min_max torchao"
    half = torch.from_numpy(x).bfloat16()
    codes, as_float32 = (qc.apply(v, qc.Scheme.parse(scheme)).codes for v in (half, half.float()))
    assert not torch.equal(codes, as_float32)

    def assert_half() -> None:
        wait_for(app, half.float().numpy())
        np.testing.assert_array_equal(app.map("codes"), codes.numpy())
        expect(app.page.get_by_text("rounded to bfloat16: 48 of 48 values changed")).to_be_attached()

    link = {"src": "paste", "t": tensors.encode(x), "bits": "8", "per": "channel", "library": "torchao"}
    app.open(**link, dtype="bfloat16")
    assert_half()
    app.expect_parameter("t", link["t"])
    app.choose("dtype", "float32")
    assert_codes(app, x, scheme)
    app.expect_parameter("dtype", None)
    app.page.go_back()
    assert_half()
    app.expect_parameter("dtype", "bfloat16")


@pytest.mark.slow  # tested without a browser
def test_paste_with_a_mistake_and_without(app: Any) -> None:
    app.open()
    app.choose("src", "paste")
    expect_alert(app, "There is no tensor yet")
    app.type("_pasted", "1.5 2\n3 x4")
    expect_alert(app, "'x4' at line 2, column 3 is not a number")
    expect(app.input("_pasted")).to_have_value("1.5 2\n3 x4")
    app.type("_pasted", "1.5 2\n3 4")
    x = np.array([[1.5, 2], [3, 4]], np.float32)
    assert_codes(app, x)
    expect(alert(app)).to_have_count(0)
    assert_link_holds(app, x)
    app.choose("src", "generate")
    app.expect_parameter("t", None)
    app.choose("src", "paste")
    assert_codes(app, x)  # what was typed is still there


@pytest.mark.slow  # the grid is Streamlit's; what is typed is tested without a browser
def test_typing_into_the_grid(app: Any) -> None:
    x = np.array([[1, 2, 3], [-4, 5.5, 6]], np.float32)
    app.open(src="edit", t=tensors.encode(x))
    assert_codes(app, x)

    def type_into(row: int, column: int, text: str) -> None:
        # columns are 64 px wide, to the right of the row numbers; three rows including the header
        box = app.page.get_by_test_id("stDataFrame").locator("canvas").first.bounding_box()
        place = box["x"] + 46 + 64 * column + 15, box["y"] + box["height"] / 3 * (row + 1.5)
        editor = app.page.locator("#portal textarea")
        for _ in range(5):  # the grid is a canvas, so there is no way to tell when it has been redrawn
            app.page.mouse.click(*place)
            app.page.keyboard.press("Enter")
            with contextlib.suppress(TimeoutError):
                editor.wait_for(timeout=5_000)
                break
        editor.fill(text)
        editor.press("Enter")

    for row, column, text in [(0, 0, "-8"), (1, 2, "7.25"), (1, 1, "-2.5e-3")]:
        type_into(row, column, text)
        x[row, column] = np.float32(text)
        assert_codes(app, x)
    assert_link_holds(app, x)
    type_into(0, 1, "one")
    expect_alert(app, "row 0, column 1 contains 'one', which is not a number")
    type_into(0, 1, "1")
    x[0, 1] = 1
    assert_codes(app, x)
    app.type("_grid_rows", "3")
    x = np.vstack([x, np.zeros((1, 3), np.float32)])
    assert_codes(app, x)


def upload(app: Any, name: str, data: bytes) -> None:
    app.page.get_by_test_id("stFileUploaderDropzoneInput").set_input_files(
        {"name": name, "mimeType": "application/octet-stream", "buffer": data}
    )


def npy(x: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.save(stream, x)
    return stream.getvalue()


@pytest.mark.slow  # tested without a browser; by default, a file is dropped in test_history.py
def test_upload(app: Any) -> None:
    app.open(src="upload")
    expect_alert(app, "There is no tensor yet")
    x = np.array([[0.25, -3, 2], [7, 1, -1]], np.float32)
    upload(app, "x.npy", npy(x.astype(np.float64)))
    assert_codes(app, x)
    assert_link_holds(app, x)
    several = {"first": x.T.copy(), "second": np.array([[5, -5]], np.float16), "<b>third</b>": x[:1] * 2}
    app.page.get_by_test_id("stFileUploader").get_by_role("button", name="Remove").first.click()
    upload(app, "several.safetensors", safetensors.numpy.save(several))
    picker = app.page.get_by_test_id("stSidebar").get_by_role("combobox", name="Tensor in the file")
    expect(picker).to_be_visible()
    for name, dtype in [("second", "float16"), ("<b>third</b>", "float32"), ("first", "float32")]:
        picker.click()
        app.page.get_by_role("option").filter(has_text=name).click()
        assert_codes(app, several[name].astype(np.float32))
        expect(picker).to_have_value(name)
        expect(app.page.get_by_text(f"elements, {dtype}")).to_be_visible()


BOTH = {"tensor", "scheme"}
# Every page by its title in the navigation, and what its sidebar shows
PAGES: dict[str, dict[str, set[str]]] = {
    "Tensors": {"Ranges": BOTH, "Formats": set()},
    "Outputs": {"Layer": BOTH, "Methods": BOTH},
    "Compare": {"Libraries": BOTH, "Match": {"tensor"}},
    "Learn": {lesson.title: set() for lesson in LESSONS.values()},
}
SLUGS = {title: "learn-" + title.lower().replace(" ", "-") for title in PAGES["Learn"]}


def at_page(app: Any, title: str) -> None:
    app.wait("(end) => location.pathname.endsWith(end)", "/" + SLUGS.get(title, title.lower()))
    at_rest(app.page)


def go(app: Any, section: str, title: str) -> None:
    app.page.get_by_test_id("stTopNavSection").filter(has_text=section).click()
    app.page.get_by_role("menuitem", name=title, exact=True).click()
    at_page(app, title)


@pytest.mark.slow  # tested without a browser
@in_parts(5)
def test_uploaded_tensor_is_there_after_a_walk_through_the_pages(app: Any, part: Part) -> None:
    """A tensor other than the file's first is chosen; at the end, a click on a scheme leads back."""
    several = {
        f"layers.{i}.weight": np.full((2, 3), i, np.float32) + np.eye(2, 3, dtype=np.float32)
        for i in range(3)
    }
    name, x = "layers.1.weight", several["layers.1.weight"]
    app.open(src="upload", bits="5", seed="1")
    upload(app, "several.safetensors", safetensors.numpy.save(several))
    picker = app.input("tensor")
    assert_codes(app, several["layers.0.weight"], DEFAULT.replace("4", "5"))
    app.choose("tensor", name)
    assert_codes(app, x, DEFAULT.replace("4", "5"))
    for section, titles in PAGES.items():
        # lessons are all alike here, as they show neither tensor nor scheme
        for title, shown in part(titles.items()) if section == "Learn" else titles.items():
            go(app, section, title)
            for control_of in BOTH:
                control = app.key("src" if control_of == "tensor" else "library")
                expect(control).to_be_visible() if control_of in shown else expect(control).to_be_hidden()
            expect(app.page.get_by_test_id("stSidebar")).to_be_visible(visible=bool(shown))
    go(app, "Compare", "Schemes")
    point = app.page.locator(".st-key-sw_chart .scatterlayer .trace path.point").first
    point.wait_for()
    at_rest(app.page)
    box = point.bounding_box()
    app.page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    at_page(app, "")
    wait_for(app, x)
    expect(picker).to_have_value(name)
    app.tick("borders")  # any control
    wait_for(app, x)
    expect(picker).to_have_value(name)
    app.expect_parameter("tensor", name)
    app.expect_parameter("file", "several.safetensors")
    app.expect_parameter("t", tensors.encode(x))
    app.page.go_back()  # undoes the tick
    wait_for(app, x)
    expect(picker).to_have_value(name)
    app.page.get_by_test_id("stSidebar").get_by_role("button", name="Remove").first.click()
    expect_alert(app, "There is no tensor yet")


@pytest.mark.slow  # tested without a browser
def test_infinite_number_in_a_link(app: Any) -> None:
    app.open(seed="1e309", bits="5")
    app.expect_scheme(DEFAULT.replace("4", "5"))
    expect_alert(app, "can't be used and is ignored: seed=1e309")
    app.expect_parameters(bits="5")


@pytest.mark.slow  # tested without a browser
@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        ("x.npy", b"\x80\x04\x95pickle", "is a pickle"),
        ("x.csv", b"1,2\n3,four\n", "line 2, column 3"),
    ],
)
def test_upload_that_cannot_be_read(app: Any, name: str, data: bytes, words: str) -> None:
    app.open(src="upload")
    upload(app, name, data)
    expect_alert(app, words)


@pytest.mark.slow  # the content is tested without a browser
def test_downloads(app: Any, new_app: Callable[..., Any], tmp_path: Path) -> None:
    scheme = "uint5 asymmetric per_group(8, axis=1) min_max textbook"
    app.open(bits="5", codes="unsigned", mode="asymmetric", per="group", tab="Export", seed="3")
    app.expect_scheme(scheme)
    result = qc.apply(tensors.generate(tensors.Generated(seed=3)), qc.Scheme.parse(scheme))

    def download(button: str) -> Path:
        with app.page.expect_download() as waiting:
            app.button(button)
        path = tmp_path / waiting.value.suggested_filename
        waiting.value.save_as(path)
        return path

    with np.load(download("NumPy .npz"), allow_pickle=False) as npz:
        assert (str(npz["scheme"]), str(npz["dtype"])) == (scheme, "float32")
        arrays = {name: npz[name] for name in npz.files if name not in ("scheme", "dtype")}
    assert arrays.keys() == {"x", "codes", "scale", "zero_point", "dequantized"}
    for read in (arrays, safetensors.numpy.load_file(download(".safetensors"))):
        for name in ("x", "codes", "scale", "zero_point", "dequantized"):
            np.testing.assert_array_equal(read[name], getattr(result, name).numpy())
    for label, name in [("original", "x"), ("codes", "codes"), ("error", "error")]:
        read = np.loadtxt(download(f"{label} .csv"), delimiter=",", dtype=np.float32)
        np.testing.assert_array_equal(read, getattr(result, name).numpy().astype(np.float32))

    file = download("Figure .html")
    offline = new_app("http://nowhere")
    offline.page.route(
        "**/*", lambda route: route.continue_() if route.request.url == file.as_uri() else route.abort()
    )
    offline.page.goto(file.as_uri())
    expect(offline.page.locator(".plotly-graph-div .main-svg").first).to_be_visible()
    codes = offline.page.evaluate(
        "document.querySelector('.plotly-graph-div').calcdata[1][0].z.map((row) => Array.from(row))"
    )
    np.testing.assert_array_equal(codes, result.codes.numpy())


def unharmed(app: Any) -> None:
    app.rest()
    assert app.page.evaluate("window.hacked") is None
    expect(app.page.locator("iframe")).to_have_count(0)
    expect(app.page.locator("img[src=x]")).to_have_count(0)


@pytest.mark.slow  # by default, scripts in the link are tested
def test_script_in_a_pasted_text_or_a_files_name_is_text(app: Any) -> None:
    app.open(src="paste")
    app.type("_pasted", HOSTILE)
    expect(alert(app).filter(has_text="line 1").first).to_be_visible()
    unharmed(app)
    app.choose("src", "upload")
    upload(app, f"{HOSTILE.replace('/', '')}.csv", b"1,2\n3,x\n")
    expect(alert(app).filter(has_text="'x'").first).to_be_visible()
    unharmed(app)


def script_in_a_link_is_text(app: Any) -> None:
    """Scripts in the link are shown, never run."""
    app.open(bits=HOSTILE, cell=HOSTILE, tab=HOSTILE, src="paste", t=HOSTILE, **{HOSTILE: HOSTILE})
    expect(alert(app).filter(has_text="iframe").first).to_be_visible()
    unharmed(app)


def script_in_a_field_is_text(app: Any) -> None:
    """Scripts in the scheme or in an element are shown, never run."""
    app.type("_pasted", "1 2")
    app.expect_scheme(DEFAULT)
    app.type("_scheme_text", HOSTILE)
    expect(alert(app).filter(has_text="srcdoc").first).to_be_visible()
    expect(app.input("_scheme_text")).to_have_value(HOSTILE)
    unharmed(app)
    app.type("cell", HOSTILE)
    expect(alert(app).filter(has_text="integers").first).to_be_visible()
    unharmed(app)
