"""The controls that open a checkpoint: examples, paths, uploads, addresses, cold links, and error messages."""

import hashlib
import struct

import pytest
from app_page import said, the_app, widget
from checkpoint_cases import case
from grid import for_each
from loopback_host import file, internet, redirect
from parts import some
from streamlit.testing.v1 import AppTest

from pages.models.opening import compared, guarded, opened, uploads
from pages.models.opening.opened import location_of
from pages.models.opening.uploads import CheckpointFile
from pages.serving import remote
from quantcore.checkpoints import EXAMPLES, MemoryFolder, open_checkpoint
from quantcore.errors import QuantError

RELEASE = case("gptq_v1_4bit_g128_sym").release
NAMED = "gptq_v1_4bit_g128_sym/checkpoint"


def at_page(page: str = "checkpoint", **parameters: str) -> AppTest:
    at = the_app(page)
    for key, value in parameters.items():
        at.query_params[key] = value
    return at.run()


def meters(at: AppTest) -> list[str]:
    return [caption.value for caption in at.caption if caption.value.endswith(" read")]


def assert_opened(at: AppTest, count: int = 1) -> None:
    assert not at.exception
    assert said(at.error) == []
    assert len(meters(at)) == count


@for_each("address", [NAMED, f"{NAMED}/model.safetensors", str(RELEASE), *some((f"example:{n}" for n in EXAMPLES), 9)])
def test_cold_links(address):
    at = at_page(ck=address)
    assert_opened(at)
    assert widget(at, "ck").value == address


def test_two_checkpoints(monkeypatch):
    monkeypatch.setattr(compared, "AT_ONCE", 0)
    at = at_page("compare-checkpoints", ck="example:minilm-gptq", ck_original="example:minilm")
    assert_opened(at, 2)


OF_ONE_KIND = [
    ("/etc/passwd", "is not a path inside the folder"),
    ("http://127.0.0.1/model.safetensors", "does not open http:// addresses"),
    ("https://host.example/model.safetensors", "does not open https:// addresses"),
    ("s3://bucket/x", "does not open s3:// addresses"),
]


@for_each(
    ("address", "words"),
    [
        *(pytest.param(*case, marks=pytest.mark.slow) for case in OF_ONE_KIND),
        ("../secret", "is not a path inside the folder"),
        pytest.param("file:///etc/passwd", "does not open file:// addresses", marks=pytest.mark.slow),
        ("none", "There is no file or folder"),
        ("example:none", "There is no example 'none'"),
        ("upload:x", "There are no files yet"),
        pytest.param(
            "filecache::https://host.example/x.npy", "is not a path inside the folder", marks=pytest.mark.slow
        ),
        ("bad_truncated/checkpoint", "truncated"),
        ("# <b>*x*</b> $y$", "There is no file or folder"),
    ],
)
def test_what_is_wrong_is_one_sentence_and_what_was_typed_stays(address, words):
    at = at_page(ck=address)
    assert not at.exception
    (sentence,) = said(at.error) + said(at.info)
    assert words in sentence
    assert "Traceback" not in sentence
    assert meters(at) == []
    assert widget(at, "ck").value == address


def test_another_is_typed():
    at = at_page(ck="none")
    widget(at, "ck").set_value(NAMED).run()
    assert_opened(at)


# Handles


def test_a_handle_is_shared_until_the_files_change(tmp_path):
    folder = tmp_path / "a"
    folder.mkdir()
    for path in RELEASE.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())

    def handle():
        return location_of("a", tmp_path).open(lambda done, of: None)

    first = handle()
    assert handle() is first
    (folder / "config.json").write_bytes((folder / "config.json").read_bytes() + b" ")
    second = handle()
    assert second is not first
    assert second.key != first.key
    assert second.total_bytes == sum(
        (folder / n).stat().st_size for n in ("model.safetensors", "config.json")
    )


def test_handles_are_bounded(tmp_path, monkeypatch):
    assert opened._handles._most == opened.MOST
    monkeypatch.setattr(opened._handles, "_most", 3)
    for i in range(5):
        (tmp_path / f"{i}.safetensors").write_bytes((RELEASE / "model.safetensors").read_bytes())
        location_of(f"{i}.safetensors", tmp_path).open(lambda done, of: None)
    assert sum(len(group.entries) for group in opened._handles._groups.values()) == 3
    assert opened._handles.bytes > 0


def test_few_handles_of_many_tensors_are_kept(tmp_path, monkeypatch):
    """Each makes collections of garbage longer; the last is kept however many it has."""
    for name in "abc":
        (tmp_path / f"{name}.safetensors").write_bytes((RELEASE / "model.safetensors").read_bytes())
    read = lambda name: location_of(f"{name}.safetensors", tmp_path).open(lambda done, of: None)  # noqa: E731
    many = len(read("a").checkpoint.release.stored)
    for fitting, kept in ((2.5, [True, True]), (0.5, [True, False])):
        monkeypatch.setattr(opened, "TENSOR", int(opened.MOST_BYTES / fitting / many))
        for name in "abc":
            location_of(f"{name}.safetensors", tmp_path).forget()
        handles = {name: read(name) for name in "abc"}
        assert [read(name) is handles[name] for name in "cb"] == kept, fitting


def test_headers_wait_for_their_turn(tmp_path, monkeypatch):
    """Memory for headers is requested while they are read, so that a large one waits like other large work."""
    asked = []
    need = opened.turn.Turn.need
    monkeypatch.setattr(
        opened.turn.Turn, "need", lambda self, size, *a, **k: asked.append(size) or need(self, size, *a, **k)
    )
    location_of("example:minilm-gptq", tmp_path).forget()
    handle = location_of("example:minilm-gptq", tmp_path).open(lambda done, of: None)
    assert asked
    assert asked[-1] >= opened.HEADERS * handle.checkpoint.counter.total
    assert handle.checkpoint.counter.most_derived == opened.turn.GATE.largest() // 4


def test_headers_too_long_to_be_kept_are_refused(tmp_path, monkeypatch):
    """Otherwise the cache would not keep the handle, and each run would open it again."""
    monkeypatch.setattr(opened, "MOST_BYTES", 1000 * opened.HEADERS)
    (tmp_path / "m.safetensors").write_bytes(struct.pack("<Q", 2000) + b"{}".ljust(2000))
    with pytest.raises(QuantError, match="headers take more than 1.0 kB, the limit here"):  # noqa: RUF043
        location_of("m.safetensors", tmp_path).open(lambda done, of: None)


# Uploads


def held(*names: str) -> dict[str, CheckpointFile]:
    content = {name: (RELEASE / name).read_bytes() for name in names}
    return {name: CheckpointFile(data, hashlib.sha256(data).hexdigest()) for name, data in content.items()}


def digests(found: dict[str, CheckpointFile]) -> dict[str, str]:
    return {name: each.sha256 for name, each in found.items()}


def test_the_text_of_a_link():
    there = digests(held("model.safetensors", "config.json"))
    text = uploads.text_of(there)
    assert uploads.parse(text) == there
    assert uploads.parse("") == {}
    odd = {"a b&c=é#%.gguf": "0" * 64}
    assert uploads.parse(uploads.text_of(odd)) == odd


@for_each(
    "text",
    [
        "x",
        "0" * 64,
        f"{'0' * 64}:",
        f"{'0' * 63}g:a",
        f"{'0' * 64}:..",
        f"{'0' * 64}:a/{'1' * 64}:a",
        "/",
        f"{'0' * 64}:a\\b",
    ],
)
def test_a_damaged_link(text):
    with pytest.raises(QuantError, match="list of uploaded files is damaged"):
        uploads.parse(text)


def test_a_page_says_that_its_link_is_damaged():
    at = at_page(ck="upload:x", ck_files="/")
    assert not at.exception
    assert "damaged" in said(at.error)[0]


def test_a_cold_link_asks_for_its_files_by_name_and_digest():
    wanted = digests(held("model.safetensors", "config.json"))
    at = at_page(ck="upload:model.safetensors and 1 more", ck_files=uploads.text_of(wanted))
    (sentence,) = said(at.info)
    for name, digest in wanted.items():
        assert f"{name} (SHA-256 {digest[:12]}…)" in sentence
    assert sentence.endswith("upload them.")
    assert meters(at) == []


def test_other_files_are_named():
    wanted = digests(held("model.safetensors", "config.json"))
    other = {"model.safetensors": CheckpointFile(b"x", "f" * 64)}
    assert (
        "The uploaded model.safetensors (SHA-256 ffffffffffff…) has the same name, but is another file."
        in uploads.request(other, wanted)
    )
    assert "The uploaded x.gguf (SHA-256 ffffffffffff…) is another file." in uploads.request(
        {"x.gguf": other["model.safetensors"]}, wanted
    )
    assert uploads.request(held("config.json"), wanted).endswith(
        f"upload {uploads.named({'model.safetensors': wanted['model.safetensors']})} too."
    )
    assert uploads.wanted_of(other, wanted) is None
    assert uploads.wanted_of(held("config.json"), wanted) is None


def test_a_file_under_another_name_is_the_file():
    there = held("model.safetensors")["model.safetensors"]
    wanted = {"model.safetensors": there.sha256}
    assert uploads.wanted_of({"model(1).safetensors": there}, wanted) == {"model.safetensors": there.data}


@for_each(
    "name",
    [
        "..",
        "a/b.gguf",
        "/etc/passwd.gguf",
        "C:a.gguf",
        "a\0.gguf",
        "notes.txt",
        "a/../../b.exe",
        "x" * 300 + ".gguf",
        "\u202ea.gguf",
        "",
    ],
)
def test_names_of_uploads_that_are_refused(name):
    with pytest.raises(QuantError):
        uploads.check_name(name)


def test_uploads_are_read_without_copies():
    """Only what is read is copied, so that the arrays are writable."""
    data = (RELEASE / "model.safetensors").read_bytes()
    folder = MemoryFolder({"model.safetensors": data, "config.json": (RELEASE / "config.json").read_bytes()})
    checkpoint = open_checkpoint(folder)
    assert checkpoint.tensors.keys() == open_checkpoint(RELEASE).tensors.keys()
    source = folder.opened["model.safetensors"]
    assert source._data.obj is data
    read = source.read(0, 8)
    assert not read.readonly
    read[0] = 255 - read[0]
    assert bytes(source.read(0, 8)) == data[:8]


# Hosts


@pytest.fixture
def net(monkeypatch):
    with internet() as net:
        client = net.client("https://host.example cdn.example")
        monkeypatch.setattr(remote, "current", lambda: client)
        net.routes["/m/model.safetensors"] = redirect("https://cdn.example/signed")
        net.routes["/signed"] = file((RELEASE / "model.safetensors").read_bytes())
        net.routes["/m/config.json"] = file((RELEASE / "config.json").read_bytes())
        yield net


ADDRESS = "https://host.example/m/model.safetensors"


def test_a_cold_link_to_a_host(net):
    at = at_page(ck=ADDRESS)
    assert_opened(at)
    requests = len(net.requests)
    at.run()
    assert_opened(at)
    assert len(net.requests) == requests  # the handle is cached
    widget(at, "_ck_again").click().run()
    assert_opened(at)
    assert len(net.requests) > requests


def test_a_host_that_is_not_allowed(net):
    at = at_page(ck="https://other.example/model.safetensors")
    (sentence,) = said(at.error)
    assert "other.example is not one of the hosts" in sentence
    assert "(host.example)" in sentence
    assert not net.connections


def test_a_host_whose_name_leads_inside(net):
    net.addresses["host.example"] = ["127.0.0.1"]
    at = at_page(ck=f"{ADDRESS}?again")
    assert "does not have public addresses only" in said(at.error)[0]
    assert not net.connections


def test_nothing_is_said_before_anything_is_chosen_but_what_can_be(net):
    at = at_page()
    assert_opened(at, 0)
    options = widget(at, "ck").options
    assert {f"example:{name}" for name in EXAMPLES} <= set(options)
    assert NAMED in options
    assert "https://" in widget(at, "ck").placeholder


# Uploads on the page


def uploaded(at: AppTest, *given: tuple[str, bytes]) -> AppTest:
    widget(at, "_ck_upload").set_value(
        [(name, data, "application/octet-stream") for name, data in given]
    ).run()
    assert not at.exception
    return at


BOTH = [(name, (RELEASE / name).read_bytes()) for name in ("model.safetensors", "config.json")]


def test_files_are_opened_and_stand_in_the_link():
    at = uploaded(at_page(ck="example:minilm"), *BOTH)
    assert_opened(at)
    assert widget(at, "ck").value == "upload:model.safetensors and 1 more"
    assert uploads.parse(widget(at, "ck_files").value) == digests(held("model.safetensors", "config.json"))
    asked = "The link asks whoever opens it for config.json (SHA-256 "
    assert [text for text in said(at.markdown) if text.startswith(asked)]
    widget(at, "ck").set_value("example:minilm").run()
    assert_opened(at)
    assert not [text for text in said(at.markdown) if text.startswith(asked)]
    assert "upload:model.safetensors and 1 more" in widget(at, "ck").options


def test_a_link_is_not_taken_over_by_another_file():
    wanted = uploads.text_of(digests(held("model.safetensors", "config.json")))
    at = uploaded(at_page(ck="upload:x", ck_files=wanted), ("model.safetensors", b"x"), BOTH[1])
    assert "has the same name, but is another file" in said(at.info)[0]
    assert widget(at, "ck_files").value == wanted
    widget(at, "_ck_other").click().run()
    assert "does not begin like" in said(at.error)[0]
    assert widget(at, "ck_files").value != wanted


def test_of_two_files_of_one_name_the_link_means_one():
    wanted = uploads.text_of(digests(held("model.safetensors", "config.json")))
    at = uploaded(at_page(ck="upload:x", ck_files=wanted), ("model.safetensors", b"x"), *BOTH)
    assert_opened(at)
    at = uploaded(at_page(), ("model.safetensors", b"x"), *BOTH)
    assert said(at.error) == ["Two files are named 'model.safetensors'; remove one."]
    uploaded(at, *BOTH)
    assert_opened(at)


def test_files_that_are_not_a_checkpoint():
    at = uploaded(at_page(), ("config.json", b"{}"))
    assert "has no file that can be read" in said(at.error)[0]
    (sentence,) = said(uploaded(at_page(), ("..", b""), *BOTH).error)
    assert "is not a plain file name" in sentence


def test_files_are_removed():
    at = uploaded(at_page(), *BOTH)
    widget(at, "_ck_upload").set_value([]).run()
    assert not at.exception
    assert not widget(at, "ck").value
    assert not widget(at, "ck_files").value
    assert meters(at) == []


def test_a_guest_gets_many_headers_in_one_step_and_no_more_than_a_file_has():
    """What it asks for is not believed: members that lie over each other could ask for a file many times."""
    source = MemoryFolder({"a.npz": bytes(range(256)) * 4096}).open("a.npz")
    assert guarded._joined(source, [(0, 2), (5, 0), (254, 4)]) == bytes([0, 1, 254, 255, 0, 1])
    for ranges in ([(0, 1)] * 20_001, [(0, 1 << 20)] * 65):
        with pytest.raises(QuantError, match=r"^'a\.npz' has too many parts; save it again, in several files\.$"):
            guarded._joined(source, ranges)
