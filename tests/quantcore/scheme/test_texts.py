"""Links and scheme texts give the results that they have always given."""

import json
import warnings

import texts
from grid import for_each
from parts import some
from places import DATA

import quantcore as qc

SCHEMES = json.loads((DATA / "scheme_texts.json").read_text(encoding="utf-8"))
LINKS = json.loads((DATA / "links.json").read_text(encoding="utf-8"))


@for_each("text", some(SCHEMES, 13))
def test_scheme_text(text):
    with warnings.catch_warnings(action="ignore"):
        scheme = qc.Scheme.parse(text)
        assert texts.outcome(texts.tensor(), scheme) == SCHEMES[text]
        # and its text today means the same
        assert qc.Scheme.parse(str(scheme)) == scheme


@for_each("number", some(range(len(LINKS)), 131), ids=lambda n: f"{LINKS[n]['page'] or 'explore'}-{n}")
def test_link(number):
    link = LINKS[number]
    at = texts.opened(link["page"], link["parameters"])
    assert texts.view(at, link["parameters"]) == link["view"]
