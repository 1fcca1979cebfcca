
"""The program of a scheme: run on blocks and read on one, it gives the same numbers."""

import itertools
import math

import numpy as np
import torch
from parts import in_parts

import quantcore as qc
from quantcore.conventions import CONVENTIONS
from quantcore.expressions import Number, Term, Text
from quantcore.programs import Program, ProgramLine, parameters_program, program
from quantcore.qparams import parameters

ENDS = [0.0, 1e-45, 1e-40, 2.0**-126, 1e-10, 5e-5, 0.3, 1.0, 2.7, 127.0, 448.0, 7e4, 3e38, math.inf, math.nan]
RANGES = [
    (a, b) for a in [*ENDS, *(-end for end in ENDS)] for b in [*ENDS, *(-end for end in ENDS)] if not a > b
]
LOW, HIGH = torch.tensor(RANGES).T
FORMATS = [qc.IntFormat(2), qc.IntFormat(4, signed=False), qc.IntFormat(8)]


def reader(numbers):
    """Numbers by name, each written as its name."""
    return lambda name: (
        Term(Text(name), Text(name), Text(name), np.float32(numbers[name])) if name in numbers else None
    )


@in_parts(11)
def test_one_block_is_read_as_all_are_computed(part):
    """Every line of scale and zero point, read on numbers, gives what the tensors have, in every convention."""
    picked = part(range(0, len(RANGES), 37))
    for (name, convention), fmt, symmetric in part(itertools.product(CONVENTIONS.items(), FORMATS, (True, False))):
        lines = parameters_program(symmetric, fmt, convention)
        found = parameters(LOW, HIGH, symmetric, fmt, convention)
        for i in picked:
            start = reader(dict(zip(("low", "high"), RANGES[i], strict=True)))
            with np.errstate(all="ignore"):
                s, z = (lines.read(one, reader(lines.constants), start).value for one in ("s", "z"))
            of = name, fmt, symmetric, RANGES[i]
            assert np.array_equal(np.float32(s), found.scale[i].numpy(), equal_nan=True), of
            expected = float(found.zero_point[i])
            assert float(z) == expected or math.isnan(expected), of


def test_what_is_not_asked_for_is_not_computed():
    lines = program(qc.Scheme.parse("uint4 asymmetric hqq"))
    assert [line.name for line in lines.needed(("1/s",))] == ["1/s", "1/s"]
    assert [line.name for line in lines.needed(("s",), known=("1/s",))] == ["raw", "s"]
    (scale,) = lines.run(("s",), {"raw": torch.tensor([0.5])})
    assert scale.tolist() == [0.5]
    assert lines.run(("no such name",), {}) == [None]


def test_a_name_is_bound_again():
    """A line reads the result of the line before, as in code."""
    x = qc.expressions.Name("x")
    lines = Program(
        [ProgramLine("x", x + 1.0), ProgramLine("y", x * 2.0), ProgramLine("x", x + 10.0)], ("x",), {}
    )
    assert [t.tolist() for t in lines.run(("x", "y"), {"x": torch.tensor([1.0])})] == [[12.0], [4.0]]


def test_a_dtype_is_that_of_each_operation():
    """1 + 2^-9 is lost in bfloat16 before it is multiplied; in float64 it is kept."""
    x = qc.expressions.Name("x")
    start = torch.tensor([2.0**-9])
    for dtype, expected in ((torch.bfloat16, 512.0), (torch.float32, 513.0), (torch.float64, 513.0)):
        (found,) = Program([ProgramLine("y", (x + 1.0) * 512.0, dtype)], ("x",), {}).run(("y",), {"x": start})
        assert found.item() == expected, dtype


def test_what_if_a_line_were_different():
    lines = program(qc.Scheme.parse("int8 asymmetric textbook"))
    wrong = lines.changed("z", Number(0), "the zero point is omitted")
    low, high = torch.tensor([-1.0]), torch.tensor([3.0])
    right = lines.run(("s", "z"), {"low": low, "high": high})
    assert right[1].item() == -64
    assert wrong.run(("s", "z"), {"low": low, "high": high}) == [right[0], 0]
    assert str(wrong.line("z")) == "z = 0  # the zero point is omitted"


def test_sources():
    """A line says where the library does so, if its record does."""
    lines = program(qc.Scheme.parse("int8 symmetric torchao"))
    assert lines.line("s").source == "torchao/quantization/quant_primitives.py:1532, finfo.smallest_normal"
    assert "in float64" in str(program(qc.Scheme.parse("int8 symmetric onnxruntime")))
