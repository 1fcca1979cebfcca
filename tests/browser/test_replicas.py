"""Pages in a browser behind nginx: a page whose replica is gone goes on at the other by itself."""

import io
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import BrowserContext, expect
from replicas import NGINX, Replica, cluster
from visitor import COOKIE

from quantcore import tensors

pytestmark = pytest.mark.skipif(NGINX is None, reason="there is no nginx: install it (Debian: nginx-light)")
GOES_ON = 5.0  # s, from a loss to the page as it was
SCHEME = "int6 symmetric per_channel min_max textbook"
PASTED = np.array([[0.5, -1.25, 3], [0.1, 1e-7, -3e5]], np.float32)
LARGE = np.random.default_rng(0).normal(size=(200, 200)).astype(np.float32)  # does not fit into a link

# Notes when the connection was lost, and when the first run after it had ended
WATCH = """() => {
    const app = document.querySelector("[data-testid=stApp]");
    const seen = window.seen = {};
    let ran = false;
    new MutationObserver(() => {
        const { testConnectionState: connection, testScriptState: script } = app.dataset;
        if (connection !== "CONNECTED") seen.lost ??= performance.now();
        else if (seen.lost && script === "running") ran = true;
        else if (ran && script === "notRunning") seen.back ??= performance.now();
    }).observe(app, { attributes: true });
}"""


@pytest.fixture(scope="module")
def behind_nginx(
    browser: BrowserContext, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, list[Replica]]]:
    with cluster(tmp_path_factory.mktemp("replicas")) as started:
        yield started


def replica_of(app: Any) -> str:
    (name,) = {cookie["value"] for cookie in app.page.context.cookies() if cookie["name"] == COOKIE}
    return str(name)


def upload(app: Any, name: str, x: np.ndarray) -> None:
    file = io.BytesIO()
    np.save(file, x)
    field = app.page.locator(".stSidebar input[type=file]")
    field.set_input_files({"name": name, "mimeType": "application/octet-stream", "buffer": file.getvalue()})


def test_pages_go_on_at_the_other_replica(
    new_app: Callable[..., Any], behind_nginx: tuple[str, list[Replica]]
) -> None:
    address, replicas = behind_nginx
    pasted, uploaded = new_app(address), new_app(address)
    pasted.open(src="paste", t=tensors.encode(PASTED), bits=6, per="channel", tab="Export")
    uploaded.open(src="upload", bits=6, per="channel")
    upload(uploaded, "weights.npy", LARGE)
    for app in (pasted, uploaded):
        app.expect_scheme(SCHEME)
    codes = pasted.map("codes")
    here = replica_of(pasted)
    for app in (pasted, uploaded):
        app.page.evaluate(WATCH)

    next(each for each in replicas if each.name == here).kill()
    for app in (pasted, uploaded):
        app.wait("window.seen.back")
        seconds = app.page.evaluate("(window.seen.back - window.seen.lost) / 1000")
        print(f"{seconds:.2f} s")
        assert seconds < GOES_ON
    assert replica_of(pasted) != here

    pasted.expect_scheme(SCHEME)
    np.testing.assert_array_equal(pasted.map("x"), PASTED)
    np.testing.assert_array_equal(pasted.map("codes"), codes)
    with pasted.page.expect_download() as download:
        pasted.button("NumPy .npz")
    with np.load(download.value.path()) as arrays:
        np.testing.assert_array_equal(arrays["codes"], codes)
    pasted.input("bits").focus()
    pasted.page.keyboard.press("ArrowRight")
    pasted.expect_scheme(SCHEME.replace("int6", "int7"))

    # nobody else has the file: the page asks for it by its name, in a field that is empty
    expect(uploaded.page.get_by_test_id("stAlert").filter(has_text="weights.npy")).to_be_visible()
    expect(uploaded.page.get_by_test_id("stFileUploaderFile")).to_have_count(0)
    upload(uploaded, "weights.npy", LARGE)
    uploaded.expect_scheme(SCHEME)
    np.testing.assert_array_equal(uploaded.map("x"), LARGE)
