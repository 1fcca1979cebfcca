"""A finding in one short sentence: true of the tensor, with no number that the long one has not, and short."""

import math
import re

import numpy as np
import pytest
import torch
from grid import for_each

import quantcore as qc
from quantcore.diagnosis import in_brief
from quantcore.tensors import Generated, generate

LOOSER = re.compile(r"^(?:Columns?|Rows?) (?P<places>[\d, and]+) (?:is|are)(?: up to)? (?P<times>[\d.]+)× larger: the others lose (?P<lost>[\d.]+) dB\.$")


def sqnr(x: np.ndarray, error: np.ndarray) -> float:
    return float(10 * np.log10((x.astype(np.float64) ** 2).sum() / (error.astype(np.float64) ** 2).sum()))


@for_each(
    ("seed", "axis", "places", "factor"),
    [(0, 1, [4], 12), (1, 0, [2], 40), (2, 1, [3, 9], 25), (3, 1, [0], 300)],
)
def test_an_outlier_channel_in_brief_is_true(seed: int, axis: int, places: list[int], factor: float) -> None:
    """Ratio and loss are measured anew with numpy: the others with the outliers' scale, and with their own."""
    x = np.random.default_rng(seed).uniform(-1, 1, (16, 16)).astype(np.float32)
    np.moveaxis(x, axis, 0)[places] *= factor
    finding = next(f for f in qc.diagnose(qc.apply(x, qc.Scheme.parse("int8 symmetric"))) if f.kind == "outlier_channel")
    said = LOOSER.match(in_brief(finding, 2))
    assert said, in_brief(finding, 2)
    assert sorted(map(int, re.findall(r"\d+", said["places"]))) == places
    assert in_brief(finding, 2).startswith(("Row", "Column")[axis])
    others = np.delete(x, places, axis)
    ratio = np.abs(np.take(x, places, axis)).max() / np.abs(others).max()
    assert float(said["times"]) == pytest.approx(ratio, rel=0.06)

    def of_others(scale: float) -> float:
        return sqnr(others, others - np.clip(np.round(others / scale), -128, 127) * scale)

    lost = of_others(np.abs(others).max() / 127.5) - of_others(np.abs(x).max() / 127.5)
    assert float(said["lost"]) == pytest.approx(lost, abs=1.1)  # rounded to a whole dB, and s to float32


def test_what_is_lost_next_to_an_exact_result_is_said_without_a_difference() -> None:
    x = torch.ones(8, 8)
    x[:, 3] = torch.linspace(40, 50, 8)
    finding = next(f for f in qc.diagnose(qc.apply(x, qc.Scheme.parse("int8 symmetric"))) if f.kind == "outlier_channel")
    assert math.isinf(finding.facts["sqnr_without"])
    with_it = qc.decibels(finding.facts["sqnr_with"])
    assert in_brief(finding, 2) == f"Column 3 is 50× larger: the others have {with_it} instead of exact."


def test_the_first_page_is_in_brief() -> None:
    result = qc.apply(generate(Generated()), qc.Scheme.parse("int4 symmetric"))
    assert in_brief(qc.diagnose(result)[0], 2) == "Column 4 is 8.3× larger: the others lose 19 dB."
