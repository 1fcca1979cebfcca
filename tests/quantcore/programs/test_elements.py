"""Codes and values in the dtype of x, compared with torch's own operations on tensors of that dtype."""

import torch

import quantcore as qc
from quantcore.conventions import TEXTBOOK
from quantcore.programs import code_program, value_program
from tests.support.grid import for_each

DTYPES = (torch.bfloat16, torch.float16, torch.float64)
# how a library writes each kernel in torch
CODES = {
    "A": lambda x, s, z: torch.round(x / s) + z,
    "B": lambda x, s, z: torch.round(x * (1 / s)) + z,
    "C": lambda x, s, z: torch.round(x / s + z),
    "D": lambda x, s, z: torch.round(x * (1 / s) + z),
    "H": lambda x, s, z: torch.round((x - z) / s),
}
VALUES = {
    "scaled": lambda q, s, z: (q - z) * s,
    "shifted": lambda q, s, z: q * s + z,
}


def numbers(dtype):
    g = torch.Generator().manual_seed(3)
    x = torch.cat([torch.randn(4000, generator=g) * 3, torch.tensor([0.0, -0.0, 1e-41, 6e-5, 300.5])]).to(
        dtype
    )
    s = (torch.rand(x.shape, generator=g) / 20 + 0.01).to(dtype)
    return x, s, torch.randint(-9, 9, x.shape, generator=g).to(dtype)


@for_each(("kernel", "dtype"), [(kernel, dtype) for kernel in CODES for dtype in DTYPES])
def test_codes_in_the_dtype_of_x(kernel, dtype):
    x, s, z = numbers(dtype)
    name = str(dtype).removeprefix("torch.")
    own = torch.float64 if dtype == torch.float64 else torch.float32
    found = {}
    for choice in (name, "float32"):
        program = code_program(qc.INT8, TEXTBOOK.changed(kernel=kernel, coding_dtype=choice))
        numbers_of = {"x": x, "s": s.to(own), "z": z.to(own)}
        found[choice] = program.write("v", numbers_of, torch.empty(x.shape, dtype=own))
    assert torch.equal(found[name], CODES[kernel](x, s, z).to(own))
    if dtype != torch.float64:
        assert torch.equal(found["float32"], CODES[kernel](x.float(), s.float(), z.float()))
        assert not torch.equal(found[name], found["float32"])  # or the tensor tells nothing


@for_each(("decoding", "dtype"), [(decoding, dtype) for decoding in VALUES for dtype in DTYPES[:2]])
def test_values_in_the_dtype_of_x(decoding, dtype):
    _, s, z = numbers(dtype)
    q = torch.arange(len(s)) % 256 - 128
    given = {"q": q.to(torch.int16), "s": s.float(), "z": z.float(), "mean": None}

    name = str(dtype).removeprefix("torch.")

    def found(choice):
        program = value_program(qc.INT8, TEXTBOOK.changed(**{choice: name}), decoding)
        return program.write("x̂", given, torch.empty(s.shape))

    value = VALUES[decoding]
    last = value(q.float(), s.float(), z.float()).to(dtype).float()
    assert torch.equal(found("decoding_dtype"), value(q.to(dtype), s, z).float())
    assert torch.equal(found("value_dtype"), last)
    assert decoding == "scaled" or not torch.equal(
        found("decoding_dtype"), last
    )  # of integers only the product rounds


def test_what_is_known_is_not_computed():
    """A stored 1/s is taken as it is; a stored scale of 0 gives the codes of 0, whatever x is."""
    program = code_program(qc.INT8, TEXTBOOK.changed(kernel="B"), stored=True)
    x = torch.tensor([3.0, -2.0])
    given = {"x": x, "s": torch.tensor([0.5, 0.0]), "z": None, "mean": None}
    assert program.write("v", given, torch.empty(2)).tolist() == [6, 0]
    assert program.write("v", given | {"1/s": torch.tensor([2.5, 1.0])}, torch.empty(2)).tolist() == [8, -2]


@for_each("rule", ["half_even", "floor"])
def test_lines_are_read_as_they_run(rule):
    text = str(code_program(qc.INT4, TEXTBOOK.changed(kernel="D", rounding=rule)))
    assert text.splitlines()[:2] == ["1/s = 1 / s", "u = x · (1/s)"]
