"""Links and scheme texts of earlier versions still give the same results."""

import json
import warnings
from pathlib import Path

import old_texts
import pytest
from parts import some

import quantcore as qc

DATA = Path(__file__).parent / "data"
SCHEMES = json.loads((DATA / "old_schemes.json").read_text(encoding="utf-8"))
LINKS = json.loads((DATA / "old_links.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("text", SCHEMES)
def test_scheme_text(text):
    with warnings.catch_warnings(action="ignore"):
        scheme = qc.Scheme.parse(text)
        assert old_texts.outcome(old_texts.tensor(), scheme) == SCHEMES[text]
        # and its text today means the same
        assert qc.Scheme.parse(str(scheme)) == scheme


@pytest.mark.parametrize(
    "number", some(range(len(LINKS))), ids=lambda n: f"{LINKS[n]['page'] or 'explore'}-{n}"
)
def test_link(number):
    link = LINKS[number]
    at = old_texts.opened(link["page"], link["parameters"])
    assert old_texts.view(at, link["parameters"]) == link["view"]
