"""Paths that visitors type: nothing outside the operator's folder is opened or listed, nor its existence revealed."""

import os
import socket
from pathlib import Path

import pytest
from checkpoint_cases import case
from grid import for_each

from pages.serving import models_folder
from pages.serving.models_folder import checkpoints_in, confined
from pages.serving.settings import SettingError, Settings
from quantcore.checkpoints import LocalFolder, open_checkpoint
from quantcore.errors import QuantError

MODEL = (case("gptq_v1_4bit_g128_sym").release / "model.safetensors").read_bytes()
INDEX = b'{"weight_map": {"w": "model.safetensors"}}'


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The operator's folder, next to one that must stay private."""
    for folder in (tmp_path / "secret", tmp_path / "models" / "a", tmp_path / "models" / "b c"):
        folder.mkdir(parents=True)
        (folder / "model.safetensors").write_bytes(MODEL)
        (folder / "config.json").write_text("{}")
    (tmp_path / "models-2").mkdir()
    return (tmp_path / "models").resolve()


def opened(root: Path, typed: str) -> int:
    return len(open_checkpoint(*confined(root, typed)).tensors)


def refused(root: Path, typed: str) -> str:
    with pytest.raises(QuantError) as caught:
        opened(root, typed)
    return str(caught.value)


@for_each(
    "typed",
    [
        "a",
        "a/",
        "./a",
        "a/model.safetensors",
        "a//model.safetensors",
        " a ",
        "b c",
        "{root}/a",
        "{root}/a/model.safetensors",
    ],
)
def test_what_lies_inside_is_opened(root, typed):
    assert opened(root, typed.format(root=root)) > 0


def test_the_folder_itself(root):
    (root / "model.safetensors").write_bytes(MODEL)
    assert opened(root, ".") == opened(root, "") == opened(root, str(root)) > 0


OUTSIDE = (
    "..", "../secret", "../secret/model.safetensors", "a/../../secret", "a/..", "a/../a", "./../secret", "a/./../../secret",
    "../models/a", "/", "/etc/passwd", "/etc", "{root}/..", "{root}/../secret", "{root}-2", "{root}2", "//etc/passwd",
    "C:\\Windows\\win.ini", "C:/Windows", "c:secret", "..\\secret", "a\\..\\..\\secret", "\\\\server\\share", "a\x00b", "a\nb", "a\x1bb",
)  # fmt: skip


@for_each("typed", OUTSIDE)
def test_what_lies_outside_is_refused_in_one_sentence(root, typed):
    said = refused(root, typed.format(root=root))
    assert "is not a path inside the folder" in said


@for_each("typed", ["../secret", "/etc/passwd", "{root}/../secret", "..\\secret"])
def test_what_lies_outside_is_not_looked_at(root, typed, monkeypatch):
    """The message does not depend on whether something exists, as the file system is not asked."""

    def asked(*_, **__):
        raise AssertionError("the file system was accessed")

    for name in ("realpath", "lexists", "isdir", "isfile", "exists"):
        monkeypatch.setattr(os.path, name, asked)
    assert "is not a path inside" in refused(root, typed.format(root=root))


@for_each(
    "typed",
    ["none", "a/none", "a/model.safetensors/x", "．．/secret", "․․", "a\u2215model.safetensors", "a\u202e", "~", "~root", "a" * 300,
     "\ud800", "a/\udcff", "%2e%2e/secret", "$HOME", "*"],
)  # fmt: skip
def test_what_is_not_there(root, typed):
    assert "There is no file or folder" in refused(root, typed)


def test_a_long_path(root):
    assert "5,000 characters" in refused(root, "a/" * 2500)


def test_special_files_are_not_opened(root):
    os.mkfifo(root / "pipe.safetensors")
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(root / "s.safetensors"))
        for name in ("pipe.safetensors", "s.safetensors"):
            assert "There is no file or folder" in refused(root, name)
    (root / "zero.safetensors").symlink_to("/dev/zero")
    assert "is not a path inside" in refused(root, "zero.safetensors")


@pytest.mark.parametrize("target", ["{secret}", "../secret", "{nothing}", "/proc/self/root{secret}"])
def test_links_to_folders_outside(root, target):
    """The message is the same whether the target exists or not."""
    names = {"secret": root.parent / "secret", "nothing": root.parent / "nothing"}
    (root / "link").symlink_to(target.format(**names))
    for typed in ("link", "link/model.safetensors", "link/nothing"):
        assert "is not a path inside" in refused(root, typed)


def test_links_out_and_back_in(root):
    (root.parent / "secret" / "back").symlink_to(root / "a")
    (root / "out").symlink_to(root.parent / "secret")
    assert "is not a path inside" in refused(root, "out/back")


def test_links_inside(root):
    (root / "link").symlink_to("a")
    (root / "file.safetensors").symlink_to(root / "a" / "model.safetensors")
    assert opened(root, "link") > 0
    assert opened(root, "file.safetensors") > 0


def test_links_in_a_circle(root):
    (root / "one").symlink_to("two")
    (root / "two").symlink_to("one")
    assert "There is no file or folder" in refused(root, "one")


HIDDEN = {
    "itself.gguf": "itself.gguf",
    "around.safetensors": "a/../around.safetensors",
    "below a file.gguf": "model.safetensors/x",
    "too long.gguf": "x" * 300,
    "nothing.safetensors": "nothing",
}


def with_hidden_links(folder: Path) -> None:
    for name, target in HIDDEN.items():
        (folder / name).symlink_to(target)
    (folder / "closed").mkdir(mode=0)
    (folder / "closed.txt").touch(mode=0)
    if not os.access(folder / "closed.txt", os.R_OK):  # root may read everything
        (folder / "in closed.gguf").symlink_to("closed/model.gguf")
        (folder / "to closed.safetensors").symlink_to("closed.txt")


@pytest.mark.parametrize("folder", [".", "a"])
def test_a_link_that_leads_nowhere_hides_only_itself(root, folder):
    """In the menu, in a release, and where the folder itself is opened."""
    (root / "model.safetensors").write_bytes(MODEL)
    tensors, files = opened(root, folder), LocalFolder(root / folder).names
    checkpoints_in.clear()
    shown = checkpoints_in(root)
    assert "model.safetensors" in shown
    with_hidden_links(root / folder)
    (root / folder / "other").symlink_to("other")
    checkpoints_in.clear()
    assert checkpoints_in(root) == shown
    assert opened(root, folder) == tensors
    assert set(LocalFolder(root / folder).names) - {"closed.txt"} == set(files)


def test_no_sentence_shows_where_the_folder_is(root):
    """Whatever the operating system says, at any step from the menu to the bytes."""
    with_hidden_links(root / "a")
    (root / "a" / "model.safetensors").unlink()
    (root / "a" / "model.safetensors").symlink_to("model.safetensors")
    (root / "a" / "config.json").unlink()
    (root / "a" / "config.json").mkdir()
    said = [refused(root, typed) for typed in ("a", "a/model.safetensors", "a/config.json", "../x", "none")]
    folder = LocalFolder(root / "a", within=root)
    for name in (*HIDDEN, "model.safetensors", "config.json", "none", "\0", "\ud800", "x" * 300, "a/b"):
        with pytest.raises(QuantError) as caught:
            folder.open(name)
        said.append(str(caught.value))
    gone = LocalFolder(root / "b c", within=root)
    model = gone.open("model.safetensors")
    (root / "b c").rename(root / "moved")
    for act in (
        lambda: gone.names,
        lambda: model.read(0, 8),
        lambda: gone.open("model.safetensors.index.json"),
    ):
        with pytest.raises(QuantError) as caught:
            act()
        said.append(str(caught.value))
    assert [sentence for sentence in said if str(root.parent) in sentence] == []
    assert "The folder can't be listed: No such file or directory." in said


def test_a_folder_that_is_gone_is_empty(root):
    """The operator's mistake is named when the app starts, with the path; visitors are not told it."""
    options = Settings(models=str(root))
    models_folder.chosen_by(options)
    root.rename(root.parent / "away")
    there = models_folder.chosen_by(options)
    checkpoints_in.clear()
    assert checkpoints_in(there) == []
    for typed in ("a", "."):
        assert "There is no file or folder" in refused(there, typed)


@for_each("address", ["x" * 300, "a\ud800", "~nobody-here/x", "{root}/itself", "{root}/file/x"])
def test_an_address_that_leads_nowhere_gets_a_sentence(tmp_path, address):
    """In a notebook and on the command line, too."""
    (tmp_path / "itself").symlink_to("itself")
    (tmp_path / "file").touch()
    with pytest.raises(QuantError, match="check the path"):
        open_checkpoint(address.format(root=tmp_path))


@pytest.mark.parametrize(
    "name", ["config.json", "model.safetensors", "model.safetensors.index.json", "quantize_config.json"]
)
@pytest.mark.parametrize("there", [True, False])
def test_files_of_a_release_that_are_links_outside(root, name, there):
    """The release does not open, and the message does not reveal whether the target exists."""
    (root / "a" / name).unlink(missing_ok=True)
    (root / "a" / name).symlink_to(root.parent / "secret" / ("model.safetensors" if there else "nothing"))
    assert refused(root, "a") == (
        f"'{name}' is a symbolic link to a file outside the folder, so it is not opened; put the file itself into the folder."
    )


def test_a_release_whose_blobs_lie_outside(root):
    """In Hugging Face's cache, links from snapshots to blobs are followed if the operator's folder contains both."""
    blobs, snapshot = root / "models--x" / "blobs", root / "models--x" / "snapshots" / "0123"
    blobs.mkdir(parents=True)
    snapshot.mkdir(parents=True)
    (blobs / "abc").write_bytes(MODEL)
    (snapshot / "model.safetensors").symlink_to("../../blobs/abc")
    assert opened(root, "models--x/snapshots/0123") > 0
    assert "outside the folder" in refused(snapshot, ".")
    assert "outside the folder" in refused(snapshot.parent, "0123")


def test_shards_outside(root):
    """An index in the operator's folder that names files outside of it."""
    shards = [
        "../../secret/model.safetensors",
        str(root.parent / "secret" / "model.safetensors"),
        "../b c/model.safetensors",
    ]
    for shard in shards:
        text = '{"weight_map": {"w": "%s", "v": "model.safetensors"}}' % shard  # noqa: UP031
        (root / "a" / "model.safetensors.index.json").write_text(text)
        kinds = [p.kind for p in open_checkpoint(*confined(root, "a")).problems if "w" in p.tensors]
        assert kinds == ["outside"]


def test_a_folder_that_becomes_a_link_is_not_followed(root):
    """Even between check and opening: only the resolved file is opened, without following links."""
    folder = LocalFolder(root / "a", within=root)
    (root / "a" / "model.safetensors").unlink()
    (root / "a" / "model.safetensors").symlink_to(root.parent / "secret" / "model.safetensors")
    with pytest.raises(QuantError, match="outside the folder"):
        folder.open("model.safetensors")


# The menu


def test_the_menu(root):
    release = case("gguf_split").release
    for part in sorted(release.iterdir() if release.is_dir() else release.parent.glob("*.gguf")):
        (root / part.name).write_bytes(b"")
    (root / "one.gguf").write_bytes(b"")
    (root / ".hidden").mkdir()
    (root / ".hidden" / "two.gguf").write_bytes(b"")
    (root / "out").symlink_to(root.parent / "secret")
    (root / "out.gguf").symlink_to(root.parent / "secret" / "model.safetensors")
    (root / "in.gguf").symlink_to("one.gguf")
    (root / "notes.txt").write_text("")
    checkpoints_in.clear()
    shown = checkpoints_in(root)
    assert {"a", "b c", "one.gguf", "in.gguf"} <= set(shown)
    assert len([name for name in shown if "-of-" in name]) == 1
    assert not [
        name for name in shown if "out" in name or "hidden" in name or "secret" in name or "notes" in name
    ]


def test_the_walk_is_bounded(root, monkeypatch):
    for i in range(30):
        deep = root / f"f{i}" / "x" / "y"
        deep.mkdir(parents=True)
        (deep / "m.gguf").write_bytes(b"")
    checkpoints_in.clear()
    assert len(checkpoints_in(root)) == 32
    for name, limit in (("MOST", 5), ("MAX_SEEN", 40), ("MAX_DEPTH", 1), ("MAX_SECONDS", 0)):
        with monkeypatch.context() as patch:
            patch.setattr(models_folder, name, limit)
            checkpoints_in.clear()
            assert len(checkpoints_in(root)) <= 5
    checkpoints_in.clear()


# The setting


def test_the_setting(root):
    assert models_folder.chosen_by(Settings()) is None
    assert models_folder.chosen_by(Settings(models="OFF")) is None
    assert models_folder.chosen_by(Settings(models=str(root))) == root
    (root / "itself").symlink_to("itself")
    for path in (str(root / "a" / "config.json"), str(root / "itself"), "~nobody-here/x", "x" * 300, "a\0b"):
        with pytest.raises(SettingError, match="which is not a folder"):
            models_folder.chosen_by(Settings(models=path))
