"""Sharing on the page: tensors too large for a link, links that ask for a file, and the QR code."""

import hashlib
from pathlib import Path

import fsspec
import numpy as np
import pytest
import safetensors.numpy
import streamlit as st
from app_page import change, said, widget
from grid import for_each
from parts import some
from streamlit.testing.v1 import AppTest

from pages.serving import settings, tensor_store
from pages.shared.state import reach, sharing
from pages.sidebar.tensor_controls import write
from tests.pages.explore.test_explore import assert_clean, assert_codes, assert_one_sentence, opened, scheme

RNG = np.random.default_rng(0)
# Both are too large for a link, and A also for the maps, which show only a part of it
A, B = (RNG.normal(size=shape).astype(np.float32) for shape in ((64, 40), (50, 48)))
FILE = safetensors.numpy.save({"a": A, "b": B})
DIGEST = hashlib.sha256(FILE).hexdigest()


@pytest.fixture(autouse=True)
def store(tmp_path, monkeypatch):
    """A store of the test's own; ``store(…)`` applies other settings, as a restart of the server would."""
    monkeypatch.setattr(type(st.context), "ip_address", None)  # which AppTest replaces by a mock

    def with_settings(folder=str(tmp_path / "shared"), **more):
        for name, value in {"store": folder, **more}.items():
            monkeypatch.setenv(settings.PREFIX + name.upper(), value)
        settings.current.cache_clear()
        tensor_store.current.cache_clear()
        return Path(folder)

    with_settings()
    yield with_settings
    monkeypatch.undo()
    settings.current.cache_clear()
    tensor_store.current.cache_clear()
    fsspec.filesystem("memory").store.clear()


def uploaded(at: AppTest, data: bytes = FILE, name: str = "big.safetensors") -> AppTest:
    return at.file_uploader[0].upload(name, data).run()


def button(at: AppTest, label: str):
    return next((b for b in at.button if b.label == label), None)


def share(at: AppTest) -> AppTest:
    at = button(at, "Share this tensor").click().run()
    assert_clean(at)
    return at


def link_of(at: AppTest) -> dict[str, str]:
    """The parameters of the link, including those that only a browser writes, from bound controls."""
    found = dict(at.query_params)
    for key in ("src", "tensor", "bits"):
        if key in at.session_state and at.session_state[key] is not None:
            found[key] = str(at.session_state[key])
    return found


def test_nothing_is_stored_before_the_visitor_says_so(store):
    folder = store()
    at = uploaded(opened(src="upload"))
    assert_clean(at)
    assert "t" not in at.query_params
    assert not folder.exists()
    shown = " ".join(said(at.markdown))
    assert "too many for a link" in shown
    assert "stores its 10.2 kB on this server, for 30 days or until the space is needed" in shown
    assert "Anyone with the link can open it" in shown
    assert "The link names big.safetensors".lower() in shown.lower()


@pytest.mark.parametrize("where", ["folder", pytest.param("memory://test-sharing", marks=pytest.mark.slow)])
def test_a_shared_file_opens_with_its_scheme_for_who_has_no_file(store, where):
    if where != "folder":
        store(where)
    at = share(change(uploaded(opened(src="upload", bits="5")), "tensor", "b"))
    link = link_of(at)
    assert link["t"].startswith("shared.")
    assert len(link["t"]) == len("shared.") + 32
    assert button(at, "Share this tensor") is None
    assert any("Whoever opens this link sees the same tensor" in text for text in said(at.markdown))
    other = opened(**link)
    assert_codes(other, B)
    assert scheme(other).startswith("int5")
    assert "Shown: big.safetensors b" in said(other.caption)
    assert not other.warning
    assert link_of(change(other, "bits", 6))["t"] == link["t"]


@for_each("x", some([A, np.tile(np.arange(-9, 9, dtype=np.float32), (4000, 1))]))
def test_a_shared_paste_opens(x):
    """As text, unless that is too long for the field: the second paste has 72,000 numbers."""
    at = opened(src="paste", bits="3")
    at = share(change(at, "_pasted", write(x)))
    other = opened(**link_of(at))
    assert_clean(other)
    assert other.session_state["_current"].tensor.key == at.session_state["_current"].tensor.key
    assert (widget(other, "_pasted").value == "") == (x.size > 2**16)
    change(other, "_pasted", "1 2\n3 4")
    assert_codes(other, np.array([[1, 2], [3, 4]], np.float32))
    assert not other.query_params["t"].startswith("shared.")


def test_a_link_follows_what_is_shown_and_remembers_what_is_shared(store):
    at = share(uploaded(opened(src="upload")))
    first = link_of(at)["t"]
    change(at, "tensor", "b")
    assert "t" not in at.query_params
    second = link_of(share(at))["t"]
    assert second != first
    change(at, "tensor", "a")
    assert link_of(at)["t"] == first
    assert len(list(store().glob("*.safetensors"))) == 2
    change(at, "src", "generate")
    assert not {"t", "file", "sha256"} & at.query_params.keys()
    change(at, "src", "upload")
    assert link_of(at)["t"] == first


def test_a_small_tensor_is_never_offered_to_the_store():
    at = uploaded(opened(src="upload"), safetensors.numpy.save({"x": A[:3, :4]}))
    assert button(at, "Share this tensor") is None
    assert "sha256" not in at.query_params
    assert button(opened(), "Share this tensor") is None


def test_off_says_what_to_do_instead(store):
    link = link_of(share(uploaded(opened(src="upload"))))
    store("off")
    at = uploaded(opened(src="upload"))
    assert button(at, "Share this tensor") is None
    assert any("asks whoever opens it for that file: send it along" in text for text in said(at.markdown))
    pasted = change(opened(src="paste"), "_pasted", write(A))
    assert any("Download the .npz under Export and send the file" in text for text in said(pasted.markdown))
    assert_one_sentence(opened(**link), "sharing is off on this server", kind="warning")


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (lambda path: path.unlink(), "no longer stored"),
        pytest.param(lambda path: path.write_bytes(path.read_bytes()[:-1] + b"\x55"), "damaged", marks=pytest.mark.slow),
        pytest.param(lambda path: path.write_bytes(path.read_bytes() + b"\0"), "damaged", marks=pytest.mark.slow),
    ],
)
def test_damage_gets_one_sentence_and_the_rest_of_the_link_holds(store, harm, words):
    link = link_of(share(uploaded(opened(src="upload", bits="7"))))
    tensor_store.current.cache_clear()  # as if another process opened it
    (content,) = store().glob("*.safetensors")
    harm(content)
    at = opened(**link)
    assert_one_sentence(at, words, kind="warning")
    assert at.session_state["bits"] == 7
    (hint,) = said(at.info)
    assert f"the tensor a of the file big.safetensors (SHA-256 {DIGEST[:12]}…)" in hint
    assert link_of(at)["t"] == link["t"]  # so that a reload tries again
    assert_one_sentence(change(at, "bits", 6), words, kind="warning")
    uploaded(at)
    assert_codes(at, A)
    assert "t" not in at.query_params


@for_each("address", some(["../../etc/passwd", "", "%2e%2e/x", "A" * 32, "0" * 33], 3))
@for_each("source", some(["upload", "paste", "edit"]))
def test_an_address_that_is_none(source, address):
    at = opened(src=source, t=f"shared.{address}")
    assert not at.exception
    assert_one_sentence(at, "address of the shared tensor in this link is damaged", kind="warning")


def test_a_huge_tensor_does_not_go_into_the_grid():
    link = link_of(share(uploaded(opened(src="upload"))))
    at = opened(**link | {"src": "edit"})
    assert not at.exception
    assert any("The grid holds up to 16×16" in text for text in said(at.error))


def test_limits_are_said_and_nothing_is_stored(store):
    folder = store(store_visitor_mb="0.3")
    at = share(uploaded(opened(src="upload")))
    change(at, "tensor", "b")
    at = button(at, "Share this tensor").click().run()
    assert_one_sentence(at, "you would share more than 300.0 kB today", "tomorrow")
    assert len(list(folder.glob("*.safetensors"))) == 1
    assert button(at, "Share this tensor") is not None


def test_a_store_that_does_not_answer_gets_a_sentence(tmp_path, store):
    (tmp_path / "file").write_text("")
    store(str(tmp_path / "file" / "below"))
    at = button(uploaded(opened(src="upload")), "Share this tensor").click().run()
    assert_one_sentence(at, "can't be stored now")
    assert_one_sentence(opened(src="upload", t=f"shared.{'a' * 32}"), "can't be read now", kind="warning")


# Links that ask for a file


def asked() -> AppTest:
    """The page of a visitor who opens a link to tensor b of the file, which was not shared."""
    at = change(uploaded(opened(src="upload", bits="6")), "tensor", "b")
    link = link_of(at)
    assert link["sha256"] == DIGEST
    other = opened(**link)
    assert_clean(other)
    (hint,) = said(other.info)
    assert f"the tensor b of the file big.safetensors (SHA-256 {DIGEST[:12]}…)" in hint
    assert "upload the file in the sidebar" in hint
    return other


@pytest.mark.parametrize("name", some(["renamed.safetensors", "big.safetensors"]))
def test_the_file_restores_the_view(name):
    at = uploaded(asked(), FILE, name)
    assert widget(at, "tensor").value == "b"
    assert_codes(at, B)
    assert scheme(at).startswith("int6")
    assert not at.info


def test_another_file_is_not_taken_without_saying_so():
    at = asked()
    other = safetensors.numpy.save({"a": A + 1, "b": B + 1})
    for name in ("big.safetensors", "other.safetensors"):
        uploaded(at, other, name)
        assert_clean(at)
        (hint,) = said(at.info)
        assert "is another file" in hint
        assert ("has the same name" in hint) == (name == "big.safetensors")
        assert at.query_params["sha256"] == DIGEST
        assert at.query_params["file"] == "big.safetensors"
    uploaded(at, safetensors.numpy.save({"c": A, "d": A}), "third.safetensors")  # has no tensor of that name
    uploaded(at)  # now the right one
    assert_codes(at, B)
    assert widget(at, "tensor").value == "b"
    at = uploaded(asked(), other, "other.safetensors")
    button(at, "Show other.safetensors").click().run()
    assert_codes(at, B + 1)
    assert at.query_params["file"] == "other.safetensors"
    assert at.query_params["sha256"] == hashlib.sha256(other).hexdigest()
    uploaded(at, FILE, "third.safetensors")  # the link no longer asks for a file
    assert_codes(at, A)


def test_taking_the_other_file_away_asks_again():
    at = uploaded(asked(), safetensors.numpy.save({"a": A + 1}), "other.safetensors")
    at.file_uploader[0].set_value([]).run()
    (hint,) = said(at.info)
    assert "the tensor b of the file big.safetensors" in hint
    uploaded(at)
    assert_codes(at, B)


def test_a_link_without_a_digest_asks_by_name():
    """Links of earlier versions have no digest."""
    link = {"src": "upload", "file": "big.safetensors", "tensor": "b"}
    at = uploaded(opened(**link), FILE, "other.safetensors")
    assert "is another file" in said(at.info)[0]
    assert_codes(uploaded(opened(**link)), B)


def test_a_question_is_not_asked_after_another_source():
    at = asked()
    change(change(at, "src", "generate"), "src", "upload")
    uploaded(at, safetensors.numpy.save({"c": A + 1}), "other.safetensors")
    assert_codes(at, A + 1)


# The QR code


def test_the_qr_code_is_drawn_only_when_asked_for():
    at = opened(bits="5")
    assert not [e for e in at.get("html") if 'class="qs-qr"' in e.proto.body]
    button(at, "QR code").click().run()
    (drawn,) = [e.proto.body for e in at.get("html") if 'class="qs-qr"' in e.proto.body]
    assert 'alt="QR code of this link" src="data:image/svg+xml' in drawn


def test_the_qr_code_leads_phones_to_the_machines_own_address(monkeypatch):
    at = opened(bits="5")
    monkeypatch.setattr(sharing.link, "address", lambda: "http://127.0.0.1:8501/ranges?bits=5")
    monkeypatch.setattr(reach, "in_container", lambda: False)
    for own, address, sentence in [
        (
            "192.168.1.5",
            "http://192.168.1.5:8501/ranges?bits=5",
            "Phones open http://192.168.1.5:8501/ranges,",
        ),
        (None, "http://127.0.0.1:8501/ranges?bits=5", "Phones can't reach this address"),
    ]:
        monkeypatch.setattr(reach, "address_in_network", lambda own=own: own)
        button(at, "QR code").click().run()
        (drawn,) = [e.proto.body for e in at.get("html") if 'class="qs-qr"' in e.proto.body]
        assert f'<p class="qs-address">{address}</p>' in drawn
        assert sharing.qr(address) in drawn
        assert sentence in " ".join(e.value.replace("\\", "") for e in [*at.info, *at.warning])


def test_a_link_too_long_for_a_qr_code():
    at = change(opened(src="paste"), "_pasted", write(RNG.normal(size=(30, 30)).astype(np.float32)))
    button(at, "QR code").click().run()
    assert_one_sentence(at, "a QR code holds at most 2,953")


@for_each(
    ("page", "serves", "own", "phones"),
    [
        ("http://127.0.0.1:8501/app/", None, "192.168.1.5", "http://192.168.1.5:8501/app/"),
        ("http://localhost:8501/", "0.0.0.0", "192.168.1.5", "http://192.168.1.5:8501/"),
        ("http://localhost/", "::", "192.168.1.5", "http://192.168.1.5/"),
        ("http://localhost:8501/", "localhost", "192.168.1.5", "http://localhost:8501/"),
        ("http://localhost:8501/", None, None, "http://localhost:8501/"),
        ("http://localhost:8501/", None, "172.17.0.2", "http://localhost:8501/"),
        ("https://quant.example/app/", None, "192.168.1.5", "https://quant.example/app/"),
    ],
)
def test_phones_open_the_machines_own_address(monkeypatch, page, serves, own, phones):
    monkeypatch.setattr(reach, "address_in_network", lambda: own)
    monkeypatch.setattr(reach, "in_container", lambda: own == "172.17.0.2")
    monkeypatch.setattr(reach.st, "get_option", lambda name: serves)
    assert reach.for_phones(page) == phones
