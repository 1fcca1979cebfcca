"""What CONTRIBUTING.md and the documents in docs/ name is there: paths, links, packages, lines of code."""

import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from tests.test_architecture import LINE

ROOT = Path(__file__).resolve().parent.parent
AT_ROOT = [ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "CHANGELOG")]
DOCUMENTS = [*AT_ROOT, *sorted((ROOT / "docs").glob("*.md"))]
TOP = {path.name for path in ROOT.iterdir()}
each_document = pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)


def prose(document):
    """The text of a document without its blocks of code."""
    return re.sub(r"^```.*?^```$", "", document.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)


def paths(text):
    """Each path in backticks: what begins with a folder or is a file at the root, and paths to sources."""
    for word in " ".join(re.findall(r"`([^`\n]+)`", text)).split():
        first, slash, rest = word.partition("/")
        if (first in TOP and (slash or "." in first)) or rest.endswith((".py", ".md", ".json")):
            yield word


@each_document
def test_paths_exist(document):
    missing = [path for path in paths(prose(document)) if "<" not in path and not any(ROOT.glob(path))]
    assert missing == []


@each_document
def test_functions_are_where_a_document_says(document):
    """In ``name` in `path``` and ``name` (`path`)``, the module defines the function, class or constant."""
    text = prose(document).replace("\n", " ")
    for names, path in re.findall(r"`([\w.]+)`(?: in |,? \()`([^`]+\.py)`", text):
        source = (ROOT / path).read_text("utf-8")
        *_, name = names.split(".")
        assert re.search(rf"^ *(def |class )?{name}\b", source, re.MULTILINE), f"{names} is not in {path}"


def anchor(heading):
    """The anchor of a heading, as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


@each_document
def test_links_lead_somewhere(document):
    for target in re.findall(r"\]\((?!https?:)([^)\s]+)\)", prose(document)):
        name, _, fragment = target.partition("#")
        linked = document.parent / name if name else document
        assert linked.exists(), target
        if fragment:
            headings = re.findall(r"^#+ (.+)$", linked.read_text("utf-8"), re.MULTILINE)
            assert fragment in map(anchor, headings), target


def test_the_picture_has_every_package_above_what_it_may_import():
    text = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    boxes = dict(re.findall(r'^ +(\w+)\["([^"]+)"\]$', text, re.MULTILINE))
    (chain,) = re.findall(r"^ +(\w+(?: --> \w+)+)$", text, re.MULTILINE)
    rows = [boxes.pop(box).split(", ") for box in chain.split(" --> ")]
    assert boxes == {}
    assert sorted(package for row in rows for package in row) == sorted(LINE)
    for above, below in pairwise(rows):
        highest, lowest = max(map(LINE.get, below)), min(map(LINE.get, above))
        assert highest < lowest, (above, below)


def test_the_diffs_stand_in_the_tree():
    """A diff may leave lines out (``...``), but what it adds and what is around it are lines of the file."""
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    diffs = re.findall(r"^```diff\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    assert diffs
    for part in re.split(r"^(?=\+\+\+ )", "".join(diffs), flags=re.MULTILINE)[1:]:
        name, *lines = part.splitlines()
        there = (ROOT / name.removeprefix("+++ ")).read_text("utf-8").splitlines()
        for line in lines:
            assert line[0] == "-" or line[1:] in there or line[1:].strip() == "...", f"{name}: {line}"


@pytest.mark.slow  # 10 s
def test_links_of_the_api_reference(tmp_path):
    """The README's command builds a page for each module that it names, and their links lead somewhere."""
    pytest.importorskip("pdoc")
    (command,) = re.findall(r"^pdoc .*", (ROOT / "README.md").read_text("utf-8"), re.MULTILINE)
    command = f"{sys.executable} -m {command} -o {tmp_path}"
    built = subprocess.run(["bash", "-c", command], cwd=ROOT, capture_output=True, text=True, check=True)
    assert "Warn" not in built.stderr
    built = tmp_path.rglob("*.html")
    pages = {path.relative_to(tmp_path).as_posix(): path.read_text("utf-8") for path in built}
    assert {"quantcore.html", "quantcore/checkpoints.html", "quantcore/figures.html"} <= set(pages)
    ids = {name: set(re.findall(r'\bid="([^"]+)"', page)) for name, page in pages.items()}
    for name, page in pages.items():
        for target in re.findall(r'<a [^>]*href="(?!https?:|\$)([^"]+)"', page):
            path, _, fragment = target.partition("#")
            at = (tmp_path / name).parent.joinpath(path).resolve()
            linked = at.relative_to(tmp_path).as_posix() if path else name
            assert linked in pages, f"{name}: {target}"
            assert not fragment or fragment in ids[linked], f"{name}: {target}"
