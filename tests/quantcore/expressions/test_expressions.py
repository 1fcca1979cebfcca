"""Each operation, and random trees of them, give the same bits on tensors, on one number, and as code in torch and NumPy."""

import itertools
import math
import random
from fractions import Fraction

import numpy as np
import torch
from grid import for_each
from parts import some

from quantcore import expressions as ex
from quantcore.expressions import nodes
from quantcore.numerics import ROUNDINGS

A, B, C = (ex.Name(name) for name in "abc")
EDGES = [
    0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 0.49999997, 3e38, -3e38, 1e-45, -1e-40, 2.0**-126, 2.0**31,
    -(2.0**31), 2.0**31 - 128, 8388609.0, 0.1, -0.3, 7.25, float("inf"), float("-inf"), float("nan"),
]  # fmt: skip
FLOATS = {
    "add": A + B, "subtract": A - B, "multiply": A * B, "divide": A / B,
    "min": ex.MINIMUM(A, B), "max": ex.MAXIMUM(A, B), "magnitude": ex.MAGNITUDE(A), "negative": ex.NEGATIVE(A),
    "larger": ex.LARGER(A, B), "grouped": ex.GROUPED(A * B) * A,
    "float16": ex.to(torch.float16)(A), "bfloat16": ex.to(torch.bfloat16)(A),
    **{rule: ex.rounded(rule)(A) for rule in [*ROUNDINGS, *ex.DEFINITIONS]},
}  # fmt: skip
INTEGERS = {
    "mod": A % 16, "shift": A >> 3, "ones": ex.ONES(A), "entry": ex.entry((3, -1, 4, -1, 5, -9, 2, 6))(A % 8),
}  # fmt: skip


def float16(x):
    with np.errstate(all="ignore"):
        return np.float32(np.float16(x))


def bfloat16(x):
    if np.isnan(x):
        return np.float32(x)
    bits = int(np.float32(x).view(np.uint32))
    return np.uint32((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000).view(np.float32)


def same(mine, theirs):
    mine, theirs = (np.asarray(n, np.float32).reshape(-1) for n in (mine, theirs))
    both_nan = np.isnan(mine) & np.isnan(theirs)
    zeros = (mine == 0) & (theirs == 0)  # the sign that min, max and clamp choose is free
    return bool((both_nan | zeros | (mine.view(np.int32) == theirs.view(np.int32))).all())


def on_numbers(expression, **values):
    return ex.Element(lambda name: ex.named(name, values[name])).of(expression).value


def as_numpy(expression, **values):
    helpers = {"np": np, "float16": float16, "bfloat16": bfloat16, "ones": lambda n: int(n).bit_count()}
    with np.errstate(all="ignore"):
        return eval(ex.written(expression, "numpy"), helpers | values)


def defined():
    """The functions of `DEFINITIONS`, as a script defines them."""
    found = {}
    exec("".join(ex.DEFINITIONS.values()), found)
    return found


def as_torch(expression, **values):
    helpers = {
        "torch": torch, **defined(), "ones": lambda n: sum(((n >> i) & 1 for i in range(31)), n * 0),
        "float16": lambda x: x.half().float(), "bfloat16": lambda x: x.bfloat16().float(),
    }  # fmt: skip
    return eval(ex.written(expression, "torch"), helpers | values)


@for_each("name", some(FLOATS, 13))
def test_operations_on_floats(name):
    expression = FLOATS[name]
    pairs = np.array(list(itertools.product(EDGES, EDGES)), np.float32)
    tensors = {n: torch.from_numpy(np.ascontiguousarray(pairs[:, i])) for i, n in enumerate("ab")}
    plain = ex.run(expression, tensors)
    memory = ex.run(expression, tensors, torch.empty(len(pairs)))
    assert same(plain, memory)
    assert same(plain, as_torch(expression, **{n: t.clone() for n, t in tensors.items()}))
    for i, (a, b) in enumerate(pairs):
        assert same(plain[i], on_numbers(expression, a=a, b=b)), (a, b)
        if name not in ex.DEFINITIONS:  # NumPy has no such function
            assert same(plain[i], as_numpy(expression, a=a, b=b)), (a, b)


@for_each("name", INTEGERS)
def test_operations_on_integers(name):
    expression, values = INTEGERS[name], [*range(300), 2**16 - 1, 2**31 - 1]
    found = ex.run(expression, {"a": torch.tensor(values, dtype=torch.int32)})
    assert found.tolist() == [on_numbers(expression, a=n) for n in values] == [as_numpy(expression, a=n) for n in values]
    assert as_torch(expression, a=torch.tensor(values, dtype=torch.int32)).tolist() == found.tolist()


@for_each("exponent", [-149, -127, -126, -1, 0, 1, 127, 128, 200])
def test_powers_of_two_are_exact(exponent):
    power = ex.POWER_OF_TWO(A)
    exact = np.float32(np.inf) if exponent > 127 else np.float32(float(Fraction(2) ** exponent))
    assert same(exact, ex.run(power, {"a": torch.tensor([exponent], dtype=torch.int32)}))
    assert same(exact, on_numbers(power, a=exponent))
    with np.errstate(over="ignore"):
        assert same(exact, as_numpy(power, a=exponent))


@for_each(
    ("operation", "infinity", "nan"),
    [(ex.EXPONENT, 128, np.nan), (ex.EXPONENT_CEIL, 128, np.nan), (ex.EXPONENT_OR_INFINITY, np.inf, np.inf)],
)
def test_exponents_of_magnitudes(operation, infinity, nan):
    values = np.array([0, 1e-45, 1e-39, 2.0**-126, 0.99999994, 1, 1.0000001, 3.9999998, 4, 3e38], np.float32)
    ceil = operation is ex.EXPONENT_CEIL
    exact = [math.ceil(math.log2(v)) if ceil else math.frexp(v)[1] - 1 for v in values.tolist()[3:]]
    exact = [-127, -126 if ceil else -127, -126 if ceil else -127, *exact, infinity, nan]
    values = np.append(values, np.float32([np.inf, np.nan]))
    assert same(exact, ex.run(operation(A), {"a": torch.from_numpy(values)}))
    assert same(exact, [on_numbers(operation(A), a=v) for v in values])
    assert ex.written(operation(A)) == f"{'ceil' if ceil else 'floor'}(log2(a))"


def test_powers_of_two_of_floats():
    exponents = np.float32([-np.inf, -300, -149, -3, 0, 127, 128, np.inf, np.nan])
    exact = np.float32([0, 0, 2.0**-149, 0.125, 1, 2.0**127, np.inf, np.inf, np.nan])
    assert same(exact, ex.run(ex.POWER_OF_TWO(A), {"a": torch.from_numpy(exponents)}))
    assert same(exact, [on_numbers(ex.POWER_OF_TWO(A), a=e) for e in exponents])


def test_fused_multiply_add_rounds_once():
    random_ = np.random.default_rng(3)
    x, s, z = (random_.normal(size=400).astype(np.float32) for _ in range(3))
    x[:8], s[:8], z[:8] = 1e-30, 1e-12, [0, -0.0, 1e-45, 2**-126, 1, -1, 3e38, np.inf]
    fused = ex.FUSED(A, B, C)
    differs = 0
    for a, b, c in zip(x, s, z, strict=True):
        one = on_numbers(fused, a=a, b=b, c=c)
        tensors = ex.run(fused, {"a": torch.tensor([a, a]), "b": torch.tensor([b]), "c": torch.tensor([c])}, torch.empty(2))
        assert same([one, one], tensors)
        with np.errstate(all="ignore"):
            differs += not same(one, a * b + c)
    assert differs > 40  # two roundings give something else


BINARY = [nodes.ADD, nodes.SUBTRACT, nodes.MULTIPLY, nodes.DIVIDE, ex.MINIMUM, ex.MAXIMUM]
UNARY = [ex.MAGNITUDE, ex.NEGATIVE, ex.to(torch.float16), ex.to(torch.bfloat16), ex.rounded("half_even"), ex.rounded("floor")]


def trees(random_, depth):
    """A random expression of floats a and b, with constants and integers c on the right of arithmetic."""
    if depth == 0:
        return random_.choice([A, B])
    operation = random_.choice(BINARY + UNARY)
    first = trees(random_, depth - 1)
    if operation in UNARY:
        return operation(first)
    exact = [ex.Number(3), ex.Number(0.5), ex.Number(-2), C, C - 3, C % 4] if operation in BINARY[:4] else []
    return operation(first, random_.choice([trees(random_, depth - 1), *exact]))


@for_each("seed", range(60))
def test_random_trees(seed):
    random_ = random.Random(seed)
    tree = trees(random_, 1 + seed % 4)
    values = [random_.choice(EDGES) for _ in range(2)]
    a, b, c = np.float32(values[0]), np.float32(values[1]), random_.randrange(-8, 16)
    one = on_numbers(tree, a=a, b=b, c=c)
    count = 5
    elements = torch.full((count,), float(a))
    blocks = {"a": elements, "b": torch.tensor([b]), "c": torch.tensor([c], dtype=torch.int8)}
    assert same(np.full(count, one, np.float32), ex.run(tree, blocks, torch.empty(count)))
    codes = {"a": torch.tensor([a]), "b": torch.tensor([b]), "c": torch.full((count,), c, dtype=torch.int8)}
    assert same(np.full(count, one, np.float32), ex.run(tree, codes, torch.empty(count)))
    assert same(one, as_numpy(tree, a=a, b=b, c=c))
    assert same(one, as_torch(tree, a=torch.tensor(a), b=torch.tensor(b), c=torch.tensor(c)))


def test_a_named_result_is_computed_once_and_is_a_line():
    double = ex.Let("d", A + A, "twice")
    found = ex.Element(lambda name: ex.named(name, 3))
    assert found.of(double * double).value == 36
    assert [str(line) for line in found.lines] == ["d = a + a = 3 + 3 = 6"]
    assert [line.note for line in found.lines] == ["twice"]


def test_where_shows_what_is_taken():
    choice = ex.Where(A, 0, ex.Let("w", ex.Number(1), "none"), ex.Let("w", B / A))
    for a, value in ((0, 1), (4, 2)):
        found = ex.Element(lambda name, a=a: ex.named(name, {"a": a, "b": 8}[name]))
        assert found.of(choice).value == value
        assert len(found.lines) == 1
    run = ex.run(choice, {"a": torch.tensor([0.0, 4.0]), "b": torch.tensor([8.0, 8.0])})
    assert run.tolist() == [1, 2]


def test_nothing_is_added_where_a_number_is_absent():
    total = ex.rounded("half_even")(A / B + C)
    numbers = {"a": torch.tensor([5.0, 7.0]), "b": torch.tensor([2.0]), "c": None}
    assert ex.run(total, numbers, torch.empty(2)).tolist() == [2, 4]
    assert ex.written(total, "torch", {"c": ""}) == "torch.round(a / b)"
    assert ex.written(total, names={"a": "x", "b": "s", "c": "z"}) == "round(x / s + z)"


def test_without_a_number_nothing_is_added_subtracted_or_fused():
    for tree, rest in ((A / B + C, "a / b"), ((A - C) * B, "a · b"), (ex.FUSED(A, B, C), "a · b"), (A * (B + C) + C, "a · b"), (C + A, "a")):
        assert ex.written(ex.without(tree, "c")) == rest
    assert ex.written(ex.without(A + (B + C), "b", "c")) == "a"
    assert ex.written(ex.without(A / B, "c")) == "a / b"


def test_a_fused_operation_is_shown_as_the_sum_that_is_rounded_once():
    found = ex.Element(lambda name: ex.named(name, np.float32(-0.5))).of(ex.FUSED(A, B + 1, C))
    assert (found.names.text, found.numbers.text) == ("a · (b + 1) + c", "(-0.5) · ((-0.5) + 1) + (-0.5)")
    assert found.note == "rounded once"


def test_a_name_that_binds_loosely_is_put_in_parentheses():
    inverse = ex.Name("1/s", ex.PRODUCT)
    assert ex.written(A * inverse) == "a · (1/s)"
    assert ex.written(ex.FUSED(A, inverse, B)) == "fma(a, 1/s, b)"
    assert ex.written(A * inverse, "torch", {"1/s": "inverse"}) == "a * inverse"


def test_parentheses():
    assert ex.written((A - B) * C) == "(a - b) · c"
    assert ex.written(A - (B - C)) == "a - (b - c)"
    assert ex.written(A - B - C) == "a - b - c"
    assert ex.written((A % 16) * B) == "(a mod 16) · b"
    assert ex.written(ex.POWER_OF_TWO(A - 127)) == "2^(a - 127)"
    line = ex.Element(lambda name: ex.named(name, np.float32(-0.5)))
    assert line.of(A - B).numbers.text == "(-0.5) - (-0.5)"
    assert line.of(ex.to(torch.float16)(A)).numbers.text == "float16(-0.5)"


@for_each("dtype", [torch.bfloat16, torch.float16])
def test_elements_of_16_bits_are_computed_as_torch_does(dtype):
    """Every number of the dtype, in blocks of 64 and of 8, with a parameter of the dtype and with one of more digits."""
    every, halves = torch.arange(1 << 16).to(torch.int16).view(dtype), ex.to(dtype)
    torch.manual_seed(0)

    def check(of, x, s, expected):
        found = ex.run(of, {"a": x, "b": s}, torch.empty(x.shape))
        assert same(found, expected.float()), (ex.written(of), x.shape)

    for of in (A + B, A - B, A * B, A / B):
        for width in (64, 8):
            x = every.view(-1, width)
            fine = torch.randn(len(x), 1).exp()
            s, torchs = fine.to(dtype), of.operation.on_tensors
            check(halves(of), x, s.float(), torchs(x, s))
            check(halves(halves(of) - B), x, s.float(), torchs(x, s) - s)
            check(halves(of), x, fine, torchs(x.float(), fine).to(dtype))
            check(
                halves(halves(of) - B), x, fine, (torchs(x.float(), fine).to(dtype).float() - fine).to(dtype)
            )
            check(of * B, x, fine, torchs(x.float(), fine) * fine)
