"""Tensors of one's own in the browser: pasted, typed into the grid, uploaded; and files out again."""

import contextlib
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
from playwright.sync_api import TimeoutError, expect

import quantcore as qc
from quantcore import tensors

DEFAULT = "int4 symmetric per_tensor min_max textbook"
HOSTILE = '<iframe srcdoc="<script>top.hacked=1</script>"></iframe><img src=x onerror="hacked=1"><script>hacked=1</script>'


def wait_for(app: Any, x: np.ndarray) -> None:
    """Wait until the maps show x."""
    app.page.wait_for_function(
        """(x) => JSON.stringify(x) ===
            JSON.stringify(document.querySelector(".qs-plot")?.data?.[0].z.map((row) => Array.from(row)))""",
        arg=[[float(v) for v in row] for row in x],
    )
    app.rest()


def assert_codes(app: Any, x: np.ndarray, scheme: str = DEFAULT) -> None:
    wait_for(app, x)
    app.expect_scheme(scheme)
    np.testing.assert_array_equal(app.map("codes"), qc.apply(x, qc.Scheme.parse(scheme)).codes.numpy())


def assert_link_holds(app: Any, x: np.ndarray) -> None:
    """The values stand in the link, and whoever opens it sees them."""
    app.expect_parameter("t", tensors.encode(x))
    other = app.beside(app.page.url)
    assert_codes(other, x)
    other.page.close()


def alert(app: Any) -> Any:
    return app.page.get_by_test_id("stAlert")


def expect_alert(app: Any, words: str) -> None:
    """Wait until this is said, and nothing beside it: what was said before may stand for a moment yet."""
    expect(alert(app).filter(has_text=words)).to_be_visible()
    expect(alert(app)).to_have_count(1)


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


def test_typing_into_the_grid(app: Any) -> None:
    x = np.array([[1, 2, 3], [-4, 5.5, 6]], np.float32)
    app.open(src="edit", t=tensors.encode(x))
    assert_codes(app, x)

    def type_into(row: int, column: int, text: str) -> None:
        # columns are 64 px wide, right of the row numbers; three rows with the header
        box = app.page.get_by_test_id("stDataFrame").locator("canvas").first.bounding_box()
        place = box["x"] + 46 + 64 * column + 15, box["y"] + box["height"] / 3 * (row + 1.5)
        editor = app.page.locator("#portal textarea")
        for _ in range(5):  # the grid is a canvas: from outside it can't be seen when it is drawn anew
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
    expect_alert(app, "row 0, column 1 holds 'one', which is no number")
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
    for name, dtype in [("second", "F16"), ("<b>third</b>", "F32"), ("first", "F32")]:
        picker.click()
        app.page.get_by_role("option").filter(has_text=name).click()
        assert_codes(app, several[name].astype(np.float32))
        expect(picker).to_have_value(f"{name} {several[name].shape} {dtype}")


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


def test_downloads(app: Any, new_app: Callable[..., Any], tmp_path: Path) -> None:
    scheme = "uint5 asymmetric per_group(4, axis=1) min_max textbook"
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
        assert str(npz["scheme"]) == scheme
        arrays = {name: npz[name] for name in npz.files if name != "scheme"}
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


def test_script_in_a_text_is_text(app: Any) -> None:
    """Pasted, in the link, in the scheme, in the name of a file: shown, never run."""

    def unharmed() -> None:
        app.rest()
        assert app.page.evaluate("window.hacked") is None
        expect(app.page.locator("iframe")).to_have_count(0)
        expect(app.page.locator("img[src=x]")).to_have_count(0)

    app.open(bits=HOSTILE, cell=HOSTILE, tab=HOSTILE, src="paste", t=HOSTILE, **{HOSTILE: HOSTILE})
    expect(alert(app).filter(has_text="iframe").first).to_be_visible()
    unharmed()
    app.type("_pasted", HOSTILE)
    expect(alert(app).filter(has_text="line 1").first).to_be_visible()
    unharmed()
    app.type("_pasted", "1 2")
    app.expect_scheme(DEFAULT)
    app.type("_scheme_text", HOSTILE)
    expect(alert(app).filter(has_text="srcdoc").first).to_be_visible()
    expect(app.input("_scheme_text")).to_have_value(HOSTILE)
    unharmed()
    for key in ("rows", "cell"):
        app.type(key, HOSTILE)
        expect(alert(app).filter(has_text="whole numbers").first).to_be_visible()
        unharmed()
    app.choose("src", "upload")
    upload(app, f"{HOSTILE.replace('/', '')}.csv", b"1,2\n3,x\n")
    expect(alert(app).filter(has_text="'x'").first).to_be_visible()
    unharmed()
