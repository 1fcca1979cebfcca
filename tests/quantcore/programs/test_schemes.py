"""The program of a scheme, from a block's range to the value of a code, gives what `apply` gives for the tensor."""

import pytest
import torch
from parts import some_rows

import quantcore as qc
from quantcore.granularity import cells_of
from quantcore.qparams import find_qparams, ranges
from tests.support.grid import for_each

CALLS = [
    f"{fmt} per_channel(0) {name}"
    for name in qc.CONVENTIONS
    for fmt in ("int8 symmetric", "uint4 asymmetric", "e4m3fn symmetric", "nf4 symmetric")
]
OTHERS = [
    "uint4 asymmetric per_group(8) half_quadratic hqq",
    "int8 symmetric given(0.1)",
    "uint8 asymmetric given(0.1, 3) torch.quantize_per_tensor",
    "e4m3fn given(0.1) torchao.float8",
    "int4 symmetric per_group(8) textbook(overflow=wrap)",
]
X = torch.randn(6, 32, generator=torch.Generator().manual_seed(1))
X[1:4] *= torch.tensor([[0.0], [1e20], [-1e-30]])
NONFINITE = X.clone()
NONFINITE[0, 3], NONFINITE[4, 5], NONFINITE[5, 0] = torch.nan, torch.inf, -torch.inf


def start(result, program):
    """What the program starts from, and what it can't compute of one block, for every element."""
    own, params = result.computed, result.params
    if own.range_setting.gives_parameters or own.range_setting.searches_codes:
        before = find_qparams(result.x, own, result.blocks, result.importance)
        numbers = {"s": before.scale, "raw": before.scale, "z": before.zero_point.float()}
    else:
        numbers = dict(zip(("low", "high"), ranges(result.x, own), strict=True))
    of_tensor = {"ŝ": params.scale, "ẑ": params.zero_point, "1/s": params.inverse, "level": params.coded}
    if own.scales is not None:
        numbers |= {name: number for name, number in of_tensor.items() if program.binds(name)}
    if own.range_setting.moves_zero_point:
        numbers["z"] = params.zero_point if params.coded_zero is None else params.coded_zero
    spread = {
        name: p.reshape(1) if p.numel() == 1 else cells_of(p, result.blocked_shape, result.block)
        for name, p in numbers.items()
        if p is not None and (name in program.given or program.binds(name))
    }
    if own.range_setting.searches_codes and own.rules.storage.quantize_with == "searched":
        spread["q"] = coded(result)
    mean = {"mean": params.center} if "mean" in program.given else {}
    return {"x": result.x.reshape(result.blocked_shape), **spread, **mean}


def coded(result):
    """The codes, or the values of the codes of a float or a codebook."""
    fmt, codes = result.scheme.format, result.codes.reshape(result.blocked_shape)
    return codes.float() if isinstance(fmt, qc.IntFormat) else fmt.decode(codes)


@for_each(
    ("scheme", "x"),
    [
        *((qc.Scheme.parse(text), X) for text in CALLS),
        *some_rows(((qc.Scheme.parse(text), NONFINITE) for text in CALLS), 11),
        *((qc.Scheme.parse(text), X) for text in OTHERS),
        *((qc.Scheme.parse(text), X.to(torch.bfloat16)) for text in ("uint8 asymmetric brevitas", *CALLS[::11])),
        *some_rows(((qc.Scheme.parse(text), X.to(torch.bfloat16)) for text in CALLS[::3]), 99),
        *some_rows(((qc.Scheme.parse(text), X.to(torch.float64)) for text in CALLS[::5]), 5),
        *some_rows(((s, X) for name, s in qc.PRESETS.items() if name.startswith(("torchao", "hqq", "bits"))), 5),
        *some_rows(((s, X.repeat(1, 8)) for name, s in qc.PRESETS.items() if name.startswith("gguf")), 5),
    ],
)
def test_a_program_gives_what_apply_gives(scheme, x):
    try:
        result = qc.quantization.apply_quietly(x, scheme)
    except qc.QuantError:  # the library does not have it
        return
    program = qc.program(result.scheme, result.dtype)
    q, value = program.run(("q", "x̂"), start(result, program))
    shape = result.blocked_shape
    assert torch.equal((q + torch.zeros(shape)).nan_to_num(), coded(result).nan_to_num())
    assert torch.allclose(value, result.dequantized.reshape(shape), rtol=0, atol=0, equal_nan=True)


def test_what_if_the_zero_point_were_left_out():
    whole = qc.program(qc.Scheme.parse("uint8 asymmetric"))
    numbers = {name: torch.tensor([n]) for name, n in (("low", -1.0), ("high", 1.55), ("x", 0.5))}
    assert whole.run(("q",), numbers)[0].item() == 150
    assert whole.changed("z", qc.expressions.Number(0), "it is omitted").run(("q",), numbers)[0].item() == 50


def test_what_needs_the_whole_tensor_is_asked_for():
    whole = qc.program(qc.PRESETS["torchao.nvfp4"])
    numbers = {name: torch.tensor([n]) for name, n in (("low", -1.0), ("high", 6.0), ("x", 3.0))}
    with pytest.raises(qc.QuantError, match=r"^ŝ is computed for the whole tensor"):
        whole.run(("x̂",), numbers)
    numbers["ŝ"] = torch.tensor([1.0])
    with pytest.raises(qc.QuantError, match=r"^1/s is computed"):
        whole.run(("x̂",), numbers)
    numbers["1/s"] = torch.tensor([1.0])
    assert whole.run(("x̂",), numbers)[0].item() == 3.0


def test_a_library_that_refuses_the_dtype():
    refusing = qc.Scheme.parse("uint8 asymmetric torch.quantize_per_tensor")
    with pytest.raises(qc.QuantError, match="float16"):
        qc.program(refusing, torch.float16)
