"""Numbers in traces read back as the float32 that is meant, for every dtype and every format."""

import numpy as np
import pytest
import test_trace_formulas as formulas
import torch

import quantcore as qc
from quantcore.numerics import decimal

RNG = np.random.default_rng(3)


@pytest.mark.parametrize(
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


@pytest.mark.parametrize(
    "fmt", [*qc.FLOATS, "codebook([0.123456789, -0.7654321, 1.3333333])", "float(7, 8)", "int16"]
)
@pytest.mark.parametrize("convention", ["textbook", "torchao.float8", "compressed_tensors.float8"])
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
