"""Numbers in traces read back as the float32 that is meant, for every dtype and every format."""

import math
from fractions import Fraction

import numpy as np
import torch
from grid import for_each
from parts import some

import quantcore as qc
from quantcore.numerics import apart, before_rounding, decimal
from tests.quantcore.tracing import test_formulas as formulas

RNG = np.random.default_rng(3)


@for_each(
    "dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2]
)
def test_every_bit_pattern_reads_back(dtype):
    size = dtype.itemsize * 8
    patterns = RNG.integers(0, 2**size, 4000) if size > 8 else np.arange(256)
    narrow = {8: np.uint8, 16: np.uint16, 32: np.uint32}[size]
    values = torch.from_numpy(patterns.astype(narrow)).view(dtype).to(torch.float32).numpy()
    for value in values:
        read = np.float32(decimal(float(value)))
        assert read.tobytes() == value.tobytes() or (np.isnan(read) and np.isnan(value)), (
            value,
            decimal(float(value)),
        )


@for_each(
    "fmt", some(["int16", "codebook([0.123456789, -0.7654321, 1.3333333])", *qc.FLOATS, "float(7, 8)"], 3)
)
@for_each("convention", ["textbook", "torchao.float8", "compressed_tensors.float8"])
def test_the_scale_of_every_format_is_the_value_of_its_formula(fmt, convention):
    x = torch.from_numpy((RNG.standard_normal((4, 16)) * 100).astype(np.float32)).abs()
    try:
        result = qc.apply(x, qc.Scheme.parse(f"{fmt} {convention} per_channel(0)"))
    except qc.QuantError:
        return
    for row in range(4):
        trace = qc.trace(result, (row, 3))
        (step,) = [step for step in trace.steps() if step.name == "scale s"]
        assert formulas.arithmetic(step.formula) == np.float32(step.value) == np.float32(trace.scale)


def test_a_number_shows_on_which_side_of_integers_and_ties_it_lies():
    for half in (*range(-40, 41), 1001, -1001):
        tie = np.float64(half / 2)
        for value in (np.nextafter(tie, -np.inf), tie, np.nextafter(tie, np.inf)):
            for near in {float(value), float(np.float32(tie) * (1 + np.float32(2.0**-23))), float(tie) + 1e-9}:
                shown = Fraction(before_rounding(near))
                for limit in (math.floor(2 * near), math.ceil(2 * near)):
                    assert (2 * shown > limit, 2 * shown < limit) == (2 * Fraction(near) > limit, 2 * Fraction(near) < limit)
    assert [before_rounding(value) for value in (2.25, 1 / 3, math.inf)] == ["2.25", "0.3333333", "inf"]


def test_a_number_shows_on_which_side_of_a_limit_it_lies():
    assert [apart(19.97, 20, digits=3), apart(20.0, 20, digits=3), apart(20.03, 20, digits=2)] == ["19.97", "20", "20.03"]
    assert apart(0.1 + 0.2, 0.3) == "0.30000000000000004"
