"""Checkpoints on other hosts are read only from the operator's hosts, at public addresses, over https."""

import gzip
import http.client
import json
import threading
import time
from urllib.parse import quote

import pytest
from checkpoint_cases import case
from gguf_bytes import ARRAY, STRING, gguf, info
from grid import for_each
from loopback_host import PUBLIC, Internet, file, internet, raw, redirect

import pages.serving.remote.client as client_module
from pages.serving.network import is_public
from pages.serving.remote.folders import locate
from pages.serving.remote.hosts import Url, host_of, parse_hosts
from pages.serving.settings import SettingError
from quantcore.checkpoints import open_checkpoint
from quantcore.errors import QuantError

HOSTS = "https://host.example cdn.example *.cdn.example"
MODEL = case("gptq_v1_4bit_g128_sym").release / "model.safetensors"
CONFIG = MODEL.parent / "config.json"
FILE = "https://host.example/a/model.safetensors"


@pytest.fixture
def net():
    with internet() as net:
        net.routes |= {
            "/a/model.safetensors": file(MODEL.read_bytes()),
            "/a/config.json": file(CONFIG.read_bytes()),
        }
        yield net


def opened(net: Internet, address: str = FILE, hosts: str = HOSTS, resolver=None):
    return open_checkpoint(*locate(net.client(hosts, resolver), address))


def refused(net: Internet, address: str, words: str, hosts: str = HOSTS, resolver=None) -> str:
    with pytest.raises(QuantError) as caught:
        opened(net, address, hosts, resolver)
    assert words in str(caught.value)
    assert str(caught.value).endswith(".")
    return str(caught.value)


def untouched(net: Internet) -> bool:
    return not net.requests and not net.connections and not net.resolved


# What is allowed


def test_a_file_with_its_config(net):
    checkpoint = opened(net)
    local = open_checkpoint(MODEL)
    assert checkpoint.format == "gptq"
    name = next(iter(local.tensors))
    assert (checkpoint.tensors[name].read() == local.tensors[name].read()).all()
    assert net.connections == [(PUBLIC, 443)] * len(net.connections)


def test_nothing_but_the_request_is_sent(net, monkeypatch):
    """No proxy, cookie or credentials are used, whatever the environment says; the Host header is the name."""
    for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "http_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    opened(net)
    for host, _, headers in net.requests:
        assert host == "host.example"
        assert set(headers) == {"Host", "User-Agent", "Accept-Encoding", "Range"}
        assert headers["Accept-Encoding"] == "identity"


def test_a_header_takes_a_few_requests(net):
    data = (case("gguf_model").release).read_bytes()
    net.routes["/m.gguf"] = file(data)
    checkpoint = opened(net, "https://host.example/m.gguf")
    assert len(checkpoint.tensors) == len(open_checkpoint(case("gguf_model").release).tensors)
    assert net.paths().count("/m.gguf") <= 3


def test_a_long_header_is_read_ahead(net):
    """A GGUF header of 1 MB, fifteen times the first request, takes a handful of requests."""
    words = [f"word{i}" for i in range(60_000)]
    net.routes["/m.gguf"] = file(
        gguf([info("w", (32,), 0, 0)], bytes(128), [("tokenizer.ggml.tokens", ARRAY, (STRING, words))])
    )
    assert list(opened(net, "https://host.example/m.gguf").tensors) == ["w"]
    assert len(net.requests) <= 8


def test_small_reads_in_a_row_are_read_ahead(net):
    data = bytes(range(256)) * 2**14
    net.routes["/w.npy"] = file(data)
    folder, _ = locate(net.client(HOSTS), "https://host.example/w.npy")
    source = folder.open("w.npy")
    assert b"".join(bytes(source.read(i, 2**14)) for i in range(0, len(data), 2**14)) == data
    assert len(net.requests) <= 6
    assert folder.counter.total == len(data)


def test_the_counter_says_what_was_sent(net):
    checkpoint = opened(net)
    sent = len(MODEL.read_bytes()) + len(CONFIG.read_bytes())  # both fit into the first request
    assert checkpoint.counter.total == sent
    next(iter(checkpoint.tensors.values())).read()
    assert checkpoint.counter.total == sent


def test_redirects_are_followed_once(net):
    """The final address is used directly the next time."""
    data = bytes(range(256)) * 8192
    net.routes["/big.npy"] = redirect("https://a.cdn.example/signed?key=1")
    net.routes["/signed?key=1"] = file(data)
    folder, _ = locate(net.client(HOSTS), "https://host.example/big.npy")
    source = folder.open("big.npy")
    for offset in (0, 500_000, 1_000_000):
        assert bytes(source.read(offset, 16)) == data[offset : offset + 16]
    assert net.paths() == ["/big.npy", *["/signed?key=1"] * 3]
    del net.routes["/signed?key=1"]  # the signed address has expired
    net.routes["/big.npy"] = redirect("https://cdn.example/signed?key=2")
    net.routes["/signed?key=2"] = file(data)
    assert bytes(source.read(1_500_000, 16)) == data[1_500_000:1_500_016]


# What is refused


@for_each(
    ("address", "words"),
    [
        ("https://other.example/model.safetensors", "other.example is not one of the hosts"),
        ("https://cdn.example/model.safetensors", "cdn.example is not one of the hosts"),
        ("https://host.example.evil.example/model.safetensors", "is not one of the hosts"),
        ("https://host.example:8443/model.safetensors", "host.example:8443 is not one of the hosts"),
        ("https://user:secret@host.example/model.safetensors", "user name"),
        ("https://host.example@evil.example/model.safetensors", "user name"),
        ("https://127.0.0.1/model.safetensors", "not a host name"),
        ("https://[::1]/model.safetensors", "not a host name"),
        ("https://[::ffff:127.0.0.1]/model.safetensors", "not a host name"),
        ("https://2130706433/model.safetensors", "not a host name"),
        ("https://0x7f.1/model.safetensors", "not a host name"),
        ("https://0x7f000001/model.safetensors", "not a host name"),
        ("https://127.1/model.safetensors", "not a host name"),
        ("https://localhost/model.safetensors", "localhost is not one of the hosts"),
        ("https://hоst.example/model.safetensors", "is not one of the hosts"),  # a Cyrillic letter
        ("https:///model.safetensors", "not a host name"),
        ("https://host.example:/model.safetensors", "port"),
        ("https://host.example:99999/model.safetensors", "port"),
        ("https://host.example/a b.safetensors", "a space"),
        ("https://host.example/a\r\nX: y/model.safetensors", "a space"),
        ("https://host.example\\@evil.example/model.safetensors", "backslash"),
        ("https://host.example/\u202emodel.safetensors", "invisible"),
        ("https://host.example/model.safetensors#x", "#"),
        ("https://host.example/", "can't be listed"),
        ("https://host.example/a/passwd", "can't be listed"),
        ("https://host.example/..%2fmodel.safetensors", "can't be listed"),
        ("https://" + "a" * 9000, "characters"),
        ("https://[host.example/model.safetensors", "URL"),
        ("http://host.example/a/model.safetensors", "does not open http://"),
        ("file:///etc/passwd", "does not open file://"),
        ("ftp://host.example/a", "does not open ftp://"),
        ("hf://owner/name", "does not open hf://"),
        ("s3://bucket/a", "does not open s3://"),
    ],
)
def test_addresses_that_are_refused_unasked(net, address, words):
    refused(net, address, words)
    assert untouched(net)


@for_each("host", ["HOST.Example", "host.example.", "host.example:443", "hOsT.eXaMpLe.:443"])
def test_one_host_has_several_spellings(net, host):
    assert opened(net, f"HTTPS://{host}/a/model.safetensors").format == "gptq"


def test_names_beyond_ascii(net):
    assert (
        opened(net, "https://bücher.example/a/model.safetensors", "https://bücher.example").format == "gptq"
    )
    assert net.requests[0][0] == "xn--bcher-kva.example"


def test_nothing_is_open_by_default(net):
    words = "This server does not open https:// addresses. Upload the files instead."
    assert refused(net, FILE, words, hosts="") == words
    refused(net, FILE, words, hosts="off")
    assert untouched(net)


PRIVATE = [
    "127.0.0.1",
    "127.8.9.1",
    "10.0.0.1",
    "172.16.0.1",
    "192.168.1.1",
    "169.254.169.254",
    "100.64.0.1",
    "0.0.0.0",
    "224.0.0.1",
    "255.255.255.255",
    "198.18.0.1",
    "192.0.0.9",
    "192.0.2.1",
    "::1",
    "::",
    "fe80::1",
    "fe80::1%eth0",
    "fc00::1",
    "fec0::1",
    "ff02::1",
    "::ffff:127.0.0.1",
    "::ffff:10.0.0.1",
    "::127.0.0.1",
    "64:ff9b::7f00:1",
    "64:ff9b::a9fe:a9fe",
    "64:ff9b:1::1",
    "2002:7f00:1::",
    "2002:a00:1::",
    "2001:0:7f00:1::",
    "::ffff:0:7f00:1",
    "2001:db8::1",
    "3fff::1",
    "100::1",
    "localhost",
    "2130706433",
]


@for_each("address", PRIVATE)
def test_addresses_that_are_not_public(address):
    assert not is_public(address)


@for_each("address", [PUBLIC, "2606:2800:21f::1", "::ffff:8.8.8.8", "64:ff9b::808:808", "2002:808:808::"])
def test_addresses_that_are_public(address):
    assert is_public(address)


@for_each(
    "addresses", [["10.0.0.1"], [PUBLIC, "127.0.0.1"], ["127.0.0.1", PUBLIC], ["::1"], []]
)
def test_names_that_lead_to_a_private_address(net, addresses):
    net.addresses["host.example"] = addresses
    said = refused(net, FILE, "host.example does not have public addresses only")
    assert not any(address in said for address in addresses)
    assert not net.connections


def test_first_public_then_private(net):
    """The name is resolved once per connection, which goes to the address that was checked."""
    answers = [[PUBLIC], ["127.0.0.1"]]
    given = []

    def rebinding(name, port):
        given.append(name)
        return answers[min(len(given), len(answers)) - 1]

    client = net.client(HOSTS, rebinding)
    url = Url.parse(FILE)
    client.part(url, 0, 8)
    assert (given, net.connections) == (["host.example"], [(PUBLIC, 443)])
    client.part(url, 8, 16)  # the same connection, so the name is not resolved again
    assert (given, net.connections) == (["host.example"], [(PUBLIC, 443)])
    client._connections._idle.clear()
    with pytest.raises(QuantError, match="public"):
        client.part(url, 16, 24)
    assert net.connections == [(PUBLIC, 443)]


def test_a_connection_never_resolves_the_name_itself(net):
    connection = net.client(HOSTS)._connections.open(host_of("host.example"))
    connection.close()
    with pytest.raises(http.client.NotConnected):
        connection.request("GET", "/")


def test_the_certificate_is_checked_against_the_name(net):
    net.routes["/model.safetensors"] = file(MODEL.read_bytes())
    refused(
        net, "https://stranger.example/model.safetensors", "certificate", hosts="https://stranger.example"
    )
    assert not net.requests


def test_a_host_without_tls(net):
    """A host that answers without TLS does not get a request."""
    import socket

    with socket.create_server(("127.0.0.1", 0)) as plain:
        net.port = plain.getsockname()[1]
        threading.Thread(
            target=lambda: plain.accept()[0].sendall(b"HTTP/1.1 200 OK\r\n\r\n"), daemon=True
        ).start()
        refused(net, FILE, "the connection failed")


@for_each(
    ("to", "words"),
    [
        ("https://other.example/model.safetensors", "other.example is not one of the hosts"),
        ("http://host.example/model.safetensors", "not a plain https one"),
        ("https://127.0.0.1/model.safetensors", "not a plain https one"),
        ("https://[::1]/x", "not a plain https one"),
        ("file:///etc/passwd", "not a plain https one"),
        ("//evil.example/x", "evil.example is not one of the hosts"),
        ("https://user@cdn.example/x", "not a plain https one"),
        ("https://cdn.example:22/x", "cdn.example:22 is not one of the hosts"),
        ("https://cdn.example.evil.example/x", "is not one of the hosts"),
        ("https://evilcdn.example/x", "is not one of the hosts"),
        ("", "redirects more than 5 times"),
        ("/a/model.safetensors", "redirects more than 5 times"),
        ("https://host.example/a/b\x80", "not a plain https one"),
        ("https://cdn.example/" + "a" * 60_000, "not a plain https one"),
    ],
)
def test_redirects_are_checked_in_the_same_way(net, to, words):
    net.requests.clear()
    net.routes["/a/model.safetensors"] = redirect(to)
    refused(net, FILE, words)
    assert len(net.requests) <= 6
    assert {host for host, _, _ in net.requests} == {"host.example"}


def test_a_redirect_to_a_name_with_a_private_address(net):
    net.routes["/a/model.safetensors"] = redirect("https://cdn.example/x")
    net.addresses["cdn.example"] = ["169.254.169.254"]
    refused(net, FILE, "cdn.example does not have public addresses only")
    assert [address for address, _ in net.connections] == [PUBLIC]


def test_redirects_in_a_circle(net):
    net.routes["/a/model.safetensors"] = redirect("https://cdn.example/x", 301)
    net.routes["/x"] = redirect("https://host.example/a/model.safetensors", 308)
    refused(net, FILE, "redirects more than 5 times")
    assert len(net.requests) == 6


# Malicious answers


def huge_whole(handler):
    handler.answer(200, b"x", Content_Length=str(10**12))


def endless(handler):
    handler.send_response(206)
    handler.send_header("Content-Range", "bytes 0-15/16")
    handler.send_header("Transfer-Encoding", "chunked")
    handler.end_headers()
    try:
        for _ in range(10_000):
            handler.wfile.write(b"10000\r\n" + b"x" * 0x10000 + b"\r\n")
    except OSError:
        handler.close_connection = True


def packed(handler):
    bomb = gzip.compress(bytes(10**7))
    handler.answer(206, bomb, Content_Encoding="gzip", Content_Range=f"bytes 0-{len(bomb) - 1}/{len(bomb)}")


def other_bytes(handler):
    handler.answer(206, b"x" * 16, Content_Range="bytes 16-31/64")


def more_bytes(handler):
    handler.answer(206, b"x" * 64, Content_Range="bytes 0-15/16")


def many_parts(handler):
    handler.answer(206, b"x" * 16, Content_Type="multipart/byteranges; boundary=x")


def ends_early(handler):
    handler.answer(206, b"x", Content_Length="16", Content_Range="bytes 0-15/16")
    handler.close_connection = True


def long_headers(handler):
    raw(b"HTTP/1.1 206 Partial\r\n" + b"X: y\r\n" * 10_000 + b"\r\n")(handler)


def long_line(handler):
    raw(b"HTTP/1.1 206 Partial\r\nX: " + b"y" * 10**6 + b"\r\n\r\n")(handler)


def not_http(handler):
    raw(b"SSH-2.0-OpenSSH_9.2\r\n")(handler)


@for_each(
    ("route", "words"),
    [
        (huge_whole, "does not send parts of a file"),
        (lambda h: h.answer(200, b"x", Content_Length="", Connection="close"), "does not send parts"),
        (endless, "sent more bytes"),
        (packed, "compressed"),
        (other_bytes, "different bytes"),
        (more_bytes, "more bytes"),
        (many_parts, "different bytes"),
        (lambda h: h.answer(206, b"x" * 16, Content_Range="bytes 0-15/*"), "different bytes"),
        (
            lambda h: h.answer(206, b"x" * 16, Content_Range="bytes 0-99999999999999999999/3"),
            "different bytes",
        ),
        (ends_early, "can't be read"),
        (long_headers, "does not answer as a web server"),
        (long_line, "does not answer as a web server"),
        (not_http, "does not answer as a web server"),
        (raw(b""), "can't be read"),
        (lambda h: h.answer(401), "sends no credentials"),
        (lambda h: h.answer(403), "sends no credentials"),
        (lambda h: h.answer(404), "has nothing at that address"),
        (lambda h: h.answer(429), "gets too many requests"),
        (lambda h: h.answer(500), "status 500"),
        (lambda h: h.answer(204), "status 204"),
    ],
)
def test_answers_made_to_harm(net, route, words):
    net.routes["/a/model.safetensors"] = route
    began = time.monotonic()
    refused(net, FILE, words)
    assert time.monotonic() - began < 60


@pytest.mark.parametrize("part", ["header", "body", "interim"])
def test_answers_that_never_end(net, part, monkeypatch):
    """Each byte comes in time but the answer never ends, so the request is given up."""
    monkeypatch.setattr(client_module, "ANSWER", 0.4)
    monkeypatch.setattr(client_module, "SLOWEST", 10**9)
    start = {
        "header": b"HTTP/1.1 206 Partial\r\nX: ",
        "body": b"HTTP/1.1 206 Partial\r\nContent-Range: bytes 0-9999/10000\r\nContent-Length: 10000\r\n\r\n",
        "interim": b"",
    }[part]

    def drip(handler):
        handler.close_connection = True
        try:
            handler.wfile.write(start)
            for _ in range(300):
                handler.wfile.write(b"HTTP/1.1 100 Continue\r\n\r\n" if part == "interim" else b"x")
                time.sleep(0.02)
        except OSError:
            pass

    net.routes["/a/model.safetensors"] = drip
    began = time.monotonic()
    refused(net, FILE, "it takes too long")
    assert time.monotonic() - began < 60


def test_a_small_file_may_come_whole(net):
    net.routes["/a/model.safetensors"] = lambda h: h.answer(200, MODEL.read_bytes(), ETag='"1"')
    net.routes["/a/config.json"] = lambda h: h.answer(200, CONFIG.read_bytes(), ETag='"1"')
    assert opened(net).format == "gptq"


def test_an_empty_file(net):
    net.routes["/a/model.safetensors"] = file(b"")
    refused(net, FILE, "does not begin like")


@pytest.mark.parametrize("change", [{"etag": '"2"'}, {"longer": b"x"}])
def test_a_file_that_changes_while_it_is_read(net, change):
    data = bytes(10**6)
    net.routes["/w.npy"] = file(data)
    folder, _ = locate(net.client(HOSTS), "https://host.example/w.npy")
    source = folder.open("w.npy")
    net.routes["/w.npy"] = file(data + change.get("longer", b""), change.get("etag", '"1"'))
    with pytest.raises(QuantError, match="has changed since it was opened; open the checkpoint again"):
        source.read(500_000, 16)


def test_a_connection_that_was_closed_is_opened_again(net):
    client = net.client(HOSTS)
    url = Url.parse(FILE)
    client.part(url, 0, 8)
    (_, idle), *_ = client._connections._idle[url.host]
    idle.sock.close()
    assert bytes(client.part(url, 8, 16).data) == MODEL.read_bytes()[8:16]
    (_, idle), *_ = client._connections._idle[url.host]
    idle.close()
    assert bytes(client.part(url, 16, 24).data) == MODEL.read_bytes()[16:24]
    assert net.resolved == ["host.example"] * 3


# Shards, a hub, a bucket

SHARDED = case("ct_sharded").release


def test_shards_beside_an_index(net):
    for path in SHARDED.iterdir():
        net.routes[f"/s/{path.name}"] = file(path.read_bytes())
    checkpoint = opened(net, "https://host.example/s/model.safetensors.index.json")
    assert checkpoint.tensors.keys() == open_checkpoint(SHARDED).tensors.keys()
    assert not checkpoint.problems
    del net.routes["/s/" + sorted(p.name for p in SHARDED.glob("*.safetensors"))[0]]
    kinds = {p.kind for p in opened(net, "https://host.example/s/model.safetensors.index.json").problems}
    assert kinds == {"missing_shard"}


def test_an_index_that_names_files_elsewhere(net):
    shards = [
        "../b.safetensors",
        "/b.safetensors",
        "https://other.example/b.safetensors",
        "a/../../b.safetensors",
    ]
    index = json.dumps(
        {"weight_map": {f"w{i}": shard for i, shard in enumerate([*shards, "model.safetensors"])}}
    )
    net.routes["/a/model.safetensors.index.json"] = file(index.encode())
    checkpoint = opened(net, "https://host.example/a/model.safetensors.index.json")
    assert [p.kind for p in checkpoint.problems if p.kind == "outside"] == ["outside"] * 4
    assert {path for path in net.paths() if "b.safetensors" in path} == set()


def test_an_index_of_many_files(net):
    """Nobody can make the server request a million files from a host."""
    index = json.dumps({"weight_map": {f"w{i}": f"{i}.safetensors" for i in range(1001)}})
    net.routes["/a/model.safetensors.index.json"] = file(index.encode())
    refused(net, "https://host.example/a/model.safetensors.index.json", "names 1,001 files")
    assert len(net.requests) == 1


COMMIT = "0123456789abcdef0123456789abcdef01234567"
HUB = "hf://hub.example *.cdn.example"
API = "/api/models/owner/name"


def listed_page(entries, more):
    return lambda handler: handler.answer(200, json.dumps(entries).encode(), Link=more)


@pytest.fixture
def hub(net):
    listed = []
    for path in sorted(SHARDED.iterdir()):
        listed.append({"type": "file", "path": path.name, "size": path.stat().st_size})
        where = f"/owner/name/resolve/{COMMIT}/{path.name}"
        net.routes[where] = redirect(f"https://a.cdn.example/{path.name}")
        net.routes[f"/{path.name}"] = file(path.read_bytes())
    hostile = [
        "../../x.safetensors",
        "..",
        "",
        "a/..",
        "b\0.safetensors",
        "C:x.safetensors",
        "x" * 300,
        7,
        None,
    ]
    listed += [{"type": "file", "path": path, "size": 1} for path in hostile]
    listed += [
        {"type": "directory", "path": "sub"},
        "text",
        {"type": "file"},
        {"type": "file", "path": "n", "size": -1},
    ]
    net.routes[f"{API}/revision/main"] = lambda h: h.answer(200, json.dumps({"sha": COMMIT}).encode())
    half = len(listed) // 2
    tree = f"{API}/tree/{COMMIT}"
    more = f'<https://hub.example{tree}?cursor=2>; rel="next"'
    net.routes[tree] = listed_page(listed[:half], more)
    net.routes[f"{tree}?cursor=2"] = listed_page(listed[half:], "")
    return net


def test_a_repository_of_a_hub(hub):
    checkpoint = opened(hub, "hf://owner/name", HUB)
    assert checkpoint.tensors.keys() == open_checkpoint(SHARDED).tensors.keys()
    assert {host for host, path, _ in hub.requests if path.startswith("/api")} == {"hub.example"}
    assert not any("x.safetensors" in path for path in hub.paths())
    folder, _ = locate(hub.client(HUB), "hf://owner/name")
    assert list(folder.names) == sorted(path.name for path in SHARDED.iterdir())


def test_a_file_of_a_repository(hub):
    name = next(SHARDED.glob("*.safetensors")).name
    checkpoint = opened(hub, f"hf://owner/name@main/{name}", HUB)
    assert checkpoint.tensors


@for_each(
    ("address", "words"),
    [
        ("hf://owner", "is not of the form"),
        ("hf://../name", "is not of the form"),
        ("hf://owner/..", "is not of the form"),
        ("hf://owner/name/../../x", "is not a path inside"),
        ("hf://owner/name@a?b", "is not of the form"),
        ("hf://owner/name@", "is not of the form"),
        ("hf://owner\\name", "is not of the form"),
        ("hf://user:secret@hub.example/owner/name", "is not of the form"),
        ("hf://datasets/owner/name\0", "is not a path inside"),
    ],
)
def test_addresses_of_a_hub_that_are_refused_unasked(net, address, words):
    refused(net, address, words, HUB)
    assert untouched(net)


def test_a_repository_that_is_not_there(net):
    refused(net, "hf://owner/other", "hub.example has nothing at that address (status 404)", HUB)


@for_each(
    ("body", "words"),
    [
        (b'{"sha": "../../x"}', "does not name the commit"),
        (b"[]", "does not name the commit"),
        (b"{", "is not JSON"),
        (b"\xff", "not a list of files"),
        (b"[" * 100_000, "nested too deep"),
        (b" " * (17 * 2**20), "the limit is"),
    ],
)
def test_what_a_hub_may_not_answer(net, body, words):
    net.routes[f"{API}/revision/main"] = lambda h: h.answer(200, body)
    refused(net, "hf://owner/name", words, HUB)


def test_a_list_without_end(net):
    net.routes[f"{API}/revision/main"] = lambda h: h.answer(200, json.dumps({"sha": COMMIT}).encode())
    tree = f"{API}/tree/{COMMIT}"
    net.routes[tree] = lambda h: h.answer(200, b"[]", Link=f'<{tree}>; rel="next"')
    refused(net, "hf://owner/name", "more than 20 pages", HUB)
    net.routes[tree] = lambda h: h.answer(200, b"[]", Link='<https://evil.example/>; rel="next"')
    refused(net, "hf://owner/name", "evil.example is not one of the hosts", HUB)


def test_a_file_of_another_size_than_listed(hub):
    hub.routes["/config.json"] = file(b"{}")
    refused(hub, "hf://owner/name", "config.json' has changed", HUB)


def entries(prefix, files):
    keys = "".join(f"<Contents><Key>{prefix}{n}</Key><Size>{s}</Size></Contents>" for n, s in files)
    return f'<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">{keys}'


def listing(handler, files, prefix="models/a/"):
    text = (
        entries(prefix, files[:2]) + "<NextContinuationToken>t+/=</NextContinuationToken></ListBucketResult>"
    )
    if "continuation-token=" in handler.path:
        assert "continuation-token=t%2B%2F%3D" in handler.path
        text = entries(prefix, files[2:]) + "</ListBucketResult>"
    assert f"prefix={quote(prefix, safe='')}" in handler.path
    handler.answer(200, text.encode())


def test_a_bucket(net):
    files = [(p.name, p.stat().st_size) for p in sorted(SHARDED.iterdir())]
    net.routes["/bucket"] = lambda h: listing(h, files)
    for name, _ in files:
        net.routes[f"/bucket/models/a/{name}"] = file((SHARDED / name).read_bytes())
    hosts = "s3://buckets.example"
    checkpoint = opened(net, "s3://bucket/models/a", hosts)
    assert checkpoint.tensors.keys() == open_checkpoint(SHARDED).tensors.keys()
    assert opened(net, f"s3://bucket/models/a/{files[-1][0]}", hosts).tensors
    for bad in ("s3://bucket/../x", "s3://b", "s3://bucket@evil/x", "s3://Bucket/x", "s3://bucket/a//b"):
        refused(net, bad, "; correct it", hosts)


def test_a_list_that_grows_when_it_is_read(net):
    """Nested XML entities that expand exponentially are not read at all."""
    bomb = b'<!DOCTYPE l [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;">]><l>&b;</l>'
    net.routes["/bucket"] = lambda h: h.answer(200, bomb)
    refused(net, "s3://bucket", "not a list of files", "s3://buckets.example")


# The setting


def test_the_setting():
    hosts = parse_hosts("https://A.example., hf://hub.example s3://b.example:9000\n*.cdn.example, c.example")
    assert hosts.schemes() == ["https", "hf", "s3"]
    assert hosts.https == {host_of("a.example")}
    for name in (
        "a.example",
        "hub.example",
        "b.example:9000",
        "x.cdn.example",
        "x.y.cdn.example",
        "c.example",
    ):
        assert hosts.reaches(host_of(name)), name
    for name in ("cdn.example", "x.a.example", "b.example", "xcdn.example", "x.cdn.example:8443", "example"):
        assert not hosts.reaches(host_of(name)), name


@for_each(
    "text",
    [
        "http://a.example",
        "ftp://a",
        "https://127.0.0.1",
        "*",
        "*.example",
        "a b@c",
        "hf://a.example hf://b.example",
        "10.1",
    ],
)
def test_settings_that_can_not_be_used(text):
    with pytest.raises(SettingError, match="QUANTSCOPE_MODEL_HOSTS"):
        parse_hosts(text)
