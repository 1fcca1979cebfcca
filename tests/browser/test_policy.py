"""The content security policy allows everything that the pages do, and forbids the rest."""

import contextlib
import socket
import threading
from urllib.parse import urlsplit

import numpy as np
import pytest
from loops import finish
from page_rest import at_rest, expect
from parts import in_parts

from benchmarks.visitor import visit
from tests.browser.test_tensors import script_in_a_field_is_text, script_in_a_link_is_text

WATCH = "addEventListener('securitypolicyviolation', (e) => (window.forbidden ??= []).push(e.violatedDirective + ' ' + e.blockedURI))"


@pytest.fixture
def watched(new_app, server):
    app = new_app(server, own=True)
    app.page.add_init_script(WATCH)
    return app


def forbidden(page):
    """What the policy has blocked, except for WebAssembly, without which the protobuf reader silently works."""
    return [what for what in page.evaluate("window.forbidden ?? []") if "wasm-eval" not in what]


@pytest.mark.slow  # what a page does against the policy is an error in its console, which fails every test
@in_parts(5)
def test_every_page_and_tab_keeps_the_policy(watched, server, part):
    page = watched.page
    for address in part(finish(visit(urlsplit(server).netloc)).pages):
        page.goto(f"{server}/{address}" + "?learn_large=true" * address.startswith("learn-"))
        at_rest(page)
        for tab in page.get_by_role("tab").all():
            tab.click()
        at_rest(page)
        assert forbidden(watched.page) == [], address


@pytest.mark.slow  # as above
def test_maps_downloads_and_uploads_keep_the_policy(watched, tmp_path):
    watched.open(src="upload")
    np.save(tmp_path / "x.npy", np.eye(16, dtype=np.float32))
    watched.page.locator("input[type=file]").first.set_input_files(tmp_path / "x.npy")
    watched.rest()
    watched.click(3, 3)
    watched.tab("Export")
    with watched.page.expect_download():
        watched.button("NumPy .npz")
    assert forbidden(watched.page) == []


@pytest.mark.slow  # as above; by default, a picture of a chart is tested in test_ranges.py
def test_a_chart_is_downloaded_as_an_image(watched):
    watched.page.goto(f"{watched.address}/schemes")
    at_rest(watched.page)
    watched.page.get_by_role("button", name="Picture").first.click(force=True)
    with watched.page.expect_download() as download:
        watched.button("PNG")
    assert download.value.path().read_bytes()[:4] == b"\x89PNG"
    assert forbidden(watched.page) == []


def framed(app, address, around):
    """The app in a frame of a page at another address."""
    html = f'<iframe src="{address}/?dist=normal" width="1200" height="800"></iframe>'
    app.page.route(around, lambda route: route.fulfill(body=html, content_type="text/html"))
    app.page.goto(around)
    return app.page.frame_locator("iframe")


@pytest.mark.slow  # the header is tested without a browser
def test_it_works_in_a_frame_of_its_own_site(watched, server):
    inside = framed(watched, server, f"{server}/around.html")
    expect(inside.locator(".st-key-_scheme_text input")).to_be_visible()
    expect(inside.locator(".qs-maps[data-painted]")).to_be_visible()
    assert all(forbidden(frame) == [] for frame in watched.page.frames)


@pytest.mark.slow  # the header is tested without a browser
def test_it_is_not_shown_in_the_frame_of_another(watched, server):
    watched.expected += ["frame-ancestors", "left the machine", "Framing"]
    inside = framed(watched, server, "http://elsewhere.test/")
    watched.page.wait_for_timeout(2000)  # there is nothing to wait for
    assert inside.locator("[data-testid=stApp]").count() == 0


FORBIDDEN = {
    "document.body.append(Object.assign(document.createElement('script'), {text: 'window.ran = 1'}))": "script-src",
    "(0, eval)('window.ran = 1')": "script-src",
    "fetch('http://elsewhere.test/').catch(() => 0)": "connect-src",
    "document.body.append(Object.assign(new Image(), {src: 'http://elsewhere.test/x.png'}))": "img-src",
    "document.body.append(Object.assign(document.createElement('iframe'), {src: 'http://elsewhere.test/'}))": "frame-src",
    # last, since it removes the app
    "document.body.innerHTML += '<img src=x onerror=\"window.ran = 1\">'": "script-src-attr",
}


def test_scripts_in_a_link_are_text_and_what_no_page_does_is_forbidden(app):
    """One visit; a failure names its step."""
    script_in_a_link_is_text(app)
    assert app.complaints() == []  # what a page does against the policy is an error in its console
    app.page.evaluate(WATCH)
    what_no_page_does_is_forbidden(app)


@pytest.mark.slow  # by default, those in a link are tested
def test_scripts_in_fields_are_text(watched):
    script_in_a_link_is_text(watched)
    script_in_a_field_is_text(watched)
    assert forbidden(watched.page) == []


def what_no_page_does_is_forbidden(app):
    app.expected += ["Content Security Policy", "left the machine"]
    for act, directive in FORBIDDEN.items():
        app.page.evaluate("window.forbidden = []")
        app.page.evaluate(f"setTimeout(() => {{ {act} }})")
        app.wait("window.forbidden?.some((what) => !what.includes('wasm-eval'))")
        assert forbidden(app.page)[0].startswith(directive), act
        assert app.page.evaluate("window.ran") is None, act


@contextlib.contextmanager
def renaming_proxy(target):
    """Forwards connections to the server, and puts another name into each Host header, as many proxies do."""
    place = urlsplit(target)

    def copy(source, sink, old=b"", new=b""):
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data.replace(old, new) if old else data)
            sink.shutdown(socket.SHUT_WR)

    def forward(client):
        with client, socket.create_connection((place.hostname, place.port)) as behind:
            back = threading.Thread(target=copy, args=(behind, client))
            back.start()
            copy(client, behind, b"Host: 127.0.0.1:", b"Host: inside.example:")
            back.join()

    def accept():
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=forward, args=(listening.accept()[0],), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=accept, daemon=True).start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        listening.shutdown(socket.SHUT_RDWR)


@pytest.mark.slow  # what the page asks for then is tested without a browser
def test_a_page_behind_a_proxy_that_changes_the_host_says_what_to_set(new_app, server):
    with renaming_proxy(server) as address:
        app = new_app(address, own=True)
        app.expected += ["Unexpected response code: 403", "WebSocket onerror", "status of 403"]
        app.page.goto(f"{address}/ranges")
        said = app.page.get_by_role("alert")
        expect(said).to_contain_text(f"A page from {address} may not open a session")
        expect(said).to_contain_text("add the origin to server.corsAllowedOrigins")
        said.click(trial=True)  # nothing covers it
        app.page.close()
