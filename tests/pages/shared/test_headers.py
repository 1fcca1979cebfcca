"""Table headings are words, and numbers fit into their columns."""

import json
import re

import numpy as np
import pandas as pd
import pytest
from grid import for_each

import quantcore as qc
from pages.compare.schemes import views as sweep_results
from pages.explore.explore import tabs
from pages.explore.formats import views as format_bits
from pages.shared import tables
from quantcore.analysis.sweep import METRICS
from tests.pages.explore import test_explore as test_app

NUMBERS = {
    "tiny": [6.948e-5, -1.5e-5, 0.0],
    "mixed": [6.948e-5, -12.5, 0.1],
    "huge": [1.25e6, -3.0625e6, 17.5],
    "vast": [3.5e38, -1.0, 0.5],
    "integers": [-128.0, 127.0, 0.0],
    "none": [np.nan, np.inf],
}


def every_frame():
    x = np.random.default_rng(0).normal(size=(4, 6)).astype(np.float32)
    for text in ("int4 per_channel", "int4 per_channel aimet.Quantize", "uint4 asymmetric given(0.1, 3)"):
        yield tabs.scale_table(qc.apply(x, qc.Scheme.parse(text)))
    yield qc.library_table(x, qc.Scheme.parse("int4"), qc.CONVENTIONS["torchao"])
    yield qc.sweep(x, [qc.Scheme()], output=qc.outputs.output_measure(x, x))[sweep_results.COLUMNS[1:]].assign(name="a")
    yield pd.DataFrame([format_bits.row("int4", qc.INT4, 2.6, "half_even")])
    yield pd.DataFrame(columns=["method", "low", "high", "SQNR", "MSE", "clipped"])


def test_every_column_that_is_shown_has_words():
    seen = set()
    for frame in every_frame():
        found = tables.columns(frame)
        assert list(found) == list(frame.columns)
        for name, config in found.items():
            assert config["label"] == tables.label(name)
            seen.add(name)
    assert {"offset", "codes that differ", "clipped_fraction", "refused", "epsilon", "zero_point"} <= seen
    for head in map(tables.label, (*METRICS, *tables.LABELS)):
        assert re.match(r"[A-Z]|max \|error\|", head)  # words, not names from code
        assert "_" not in head


@for_each("kind", NUMBERS)
@for_each("digits", [4, 6, 9])
def test_no_number_is_wider_than_its_column(kind, digits):
    values = np.array(NUMBERS[kind])
    shown = tables.number_format(values, digits)
    room = tables.width(values, shown, "Scale")
    for value in values[np.isfinite(values)]:
        text = tables.written(value, shown)
        assert float(text) == pytest.approx(value, rel=10.0 ** (1 - digits))
        assert len(text) * 6.5 + 16 <= room  # px: a digit measures 6 in Chromium, plus the cell's padding
        assert len(text) <= digits + 8


def test_the_tables_of_a_page_have_them() -> None:
    at = test_app.opened(tab="Scales", per="channel")
    (table,) = at.dataframe
    config = json.loads(table.proto.columns)
    assert config["zero_point"]["label"] == "Zero point"
    assert config["mse"]["label"] == "MSE"
