"""The notebooks of docs/ run, show what is stored in them, and say what they show."""

import re

import pytest
from card_text import Text
from grid import for_each
from notebooks import FOLDER, NOTEBOOKS, read, run, text_of

each_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
# what a sentence can only have from a cell: a number with decimals, or how many of how many
NUMBER = r"\d+\.\d+|\d[\d,]* of \d[\d,]*\d"


def readable(outputs):
    """What the outputs of a cell say by their kinds, cards without their styles and pictures."""
    said = []
    for output in outputs:
        data = output.get("data", {"stdout": output.get("text")})
        said += [
            (kind, Text("".join(text)).text if kind == "text/html" else "".join(text))
            for kind, text in data.items()
        ]
    return said


def cells(path, kind):
    return [cell for cell in read(path)["cells"] if cell["cell_type"] == kind]


def test_there_are_three():
    assert len(NOTEBOOKS) == 3


LONG = {"plan_by_output", "choose_a_scheme"}  # whose calls have tests of their own


@for_each(
    "path", [pytest.param(p, id=p.stem, marks=[pytest.mark.slow] * (p.stem in LONG)) for p in NOTEBOOKS]
)
def test_cells_show_what_is_stored(path, monkeypatch):
    monkeypatch.delenv("QUANTSCOPE_APP", raising=False)
    stored = [readable(cell["outputs"]) for cell in cells(path, "code")]
    assert any(stored)
    assert [readable(outputs) for outputs in run(read(path))] == stored


@each_notebook
def test_sentences_name_what_the_cells_show(path):
    codes = cells(path, "code")
    shown = [text_of(cell) for cell in codes]
    shown += [text for cell in codes for _, text in readable(cell["outputs"])]
    said = {number for cell in cells(path, "markdown") for number in re.findall(NUMBER, text_of(cell))}
    assert said
    assert said - set(re.findall(NUMBER, "\n".join(shown))) == set()


@each_notebook
def test_cards_read_without_styles_and_pictures(path):
    shown = [dict(readable(cell["outputs"])) for cell in cells(path, "code")]
    cards = [(each["text/plain"], each["text/html"]) for each in shown if "text/html" in each]
    assert cards
    for line, card in cards:
        assert card.startswith((line.split()[0], "Arithmetic of element")), card
        assert len(card) > 60, card


@each_notebook
def test_the_file_is_small_and_its_links_lead_somewhere(path):
    notebook = read(path)
    assert path.stat().st_size <= 100_000
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    names = [cell["id"] for cell in notebook["cells"]]
    assert len(set(names)) == len(names)
    for cell in cells(path, "markdown"):
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", text_of(cell)):
            assert (FOLDER / target).exists(), target
