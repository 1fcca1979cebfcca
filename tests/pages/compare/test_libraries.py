"""Compare → Libraries without a browser: the table that compares all libraries."""

import json

import pytest
from app_page import the_app
from grid import for_each
from parts import some

import quantcore as qc
from pages.compare.libraries.controls import EXAMPLES

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


@for_each("example", some(EXAMPLES), ids=lambda e: e.title)
def test_table_of_all_libraries(example) -> None:
    at = the_app("libraries")
    at.run()
    at.selectbox(key="_lib_example").select(example.title).run()
    assert not at.exception
    assert not at.error
    frame = at.dataframe[0].value
    found = qc.compare(
        qc.tensors.parse(example.tensor),
        qc.Scheme.parse(example.scheme),
        *(qc.CONVENTIONS[name] for name in (example.a, example.b)),
    )
    rows = frame.set_index("library")["codes that differ"]
    assert (rows[example.a], rows[example.b]) == (0, int(found.differs.sum()))
    shown = {name: column["label"] for name, column in json.loads(at.dataframe[0].proto.columns).items()
             if column.get("label")}  # fmt: skip
    assert shown == {
        "library": "Library",
        "scale": "Scale of the first block",
        "codes that differ": f"Codes that differ from {example.a}",
        "zero_point": "Zero point",
        "sqnr_db": "SQNR (dB)",
        "mse": "MSE",
        "max_abs_error": "max |error|",
    }
