"""Generated tensors: the values that a link's seed gives, their statistics, and what is refused."""

import math
import tracemalloc

import numpy as np
import pytest
from grid import for_each
from parts import some

from quantcore.errors import QuantError
from quantcore.tensors import DISTRIBUTIONS, Generated, content_hash, generate, parse_shape
from quantcore.tensors.generate import BLOCK
from quantcore.tensors.limits import MAX_ELEMENTS

# mean and standard deviation for the defaults, from each distribution's formulas
MOMENTS = {
    "normal": (0, 1),
    "uniform": (0, 2 / math.sqrt(12)),
    "laplace": (0, math.sqrt(2)),
    "student_t": (0, math.sqrt(4 / (4 - 2))),
    "log_normal": (math.exp(0.5), math.sqrt((math.e - 1) * math.e)),
    "bimodal": (0, math.sqrt(1 + 3**2)),
    "relu": (1 / math.sqrt(2 * math.pi), math.sqrt(0.5 - 1 / (2 * math.pi))),
    "sparse": (0, math.sqrt(0.1)),
}


@for_each("name", DISTRIBUTIONS)
@for_each("shape", [(), (1,), (5,), (3, 4), (2, 3, 4, 1, 2, 2)])
def test_shape_dtype_and_repetition(name: str, shape: tuple[int, ...]) -> None:
    x = generate(Generated(name, shape, seed=3))
    assert x.dtype == np.float32
    assert x.shape == shape
    assert x.flags.c_contiguous
    np.testing.assert_array_equal(x, generate(Generated(name, shape, seed=3)))


@for_each("name", DISTRIBUTIONS)
def test_seed_changes_the_values(name: str) -> None:
    seeds = [content_hash(generate(Generated(name, (4, 64), seed=seed))) for seed in range(5)]
    assert len(set(seeds)) == 5


@for_each(("name", "moments"), MOMENTS.items())
def test_moments(name: str, moments: tuple[float, float]) -> None:
    x = generate(Generated(name, (1000, 1000))).astype(np.float64)
    # five standard errors of the mean; with heavy tails, the standard deviation converges slowly
    assert abs(x.mean() - moments[0]) < 5 * moments[1] / 1000
    assert x.std() == pytest.approx(moments[1], rel=0.03)


# What existing links show; fails if NumPy changes a stream.
FIRST_VALUES = {
    "outlier_channel": [1.117622, -1.3871249, -0.4265716, -0.80358726, 7.2171326],
    "outlier_element": [1.117622, -1.3871249, -0.4265716, -0.80358726, 0.60142773],
    "normal": [1.117622, -1.3871249, -0.4265716, -0.80358726, 0.60142773],
    "uniform": [0.7012484, 0.27392328, 0.022272944, -0.4604267, -0.38434124],
    "laplace": [0.17901412, 1.6729258, 0.8389453, 1.1623659, -0.3868944],
    "student_t": [1.0543908, -1.1125106, -0.4213166, -0.99842644, 0.9339427],
    "log_normal": [3.0575747, 0.24979246, 0.6527431, 0.44772, 1.8247222],
    "bimodal": [4.117622, 1.6128751, 2.5734284, 2.1964128, -2.3985722],
    "relu": [1.117622, 0.0, 0.0, 0.0, 0.60142773],
    "sparse": [0.0, 0.0, 0.0, 0.0, 0.0],
}


@for_each(("name", "expected"), FIRST_VALUES.items())
def test_values_stay_what_links_show(name: str, expected: list[float]) -> None:
    assert FIRST_VALUES.keys() == DISTRIBUTIONS.keys()
    x = generate(Generated(name, (8, 8), seed=0)).reshape(-1)
    np.testing.assert_array_equal(x[:5], np.array(expected, dtype=np.float32))


def test_default_shows_that_one_scale_for_all_fails() -> None:
    x = generate(Generated()).astype(np.float64)
    assert x.shape == (8, 8)

    def sqnr_db(scale: np.ndarray) -> float:
        error = x - np.round(x / scale) * scale
        return float(10 * np.log10((x**2).sum() / (error**2).sum()))

    per_tensor, per_column = np.abs(x).max() / 7, np.abs(x).max(axis=0) / 7
    assert sqnr_db(per_column) > sqnr_db(per_tensor) + 10
    assert (np.round(x / per_tensor) == 0).mean() > 0.5


def test_parameters_change_what_they_say() -> None:
    def make(name: str, **parameters: float) -> np.ndarray:
        return generate(Generated(name, (256, 256), parameters=tuple(parameters.items()))).astype(np.float64)

    assert make("normal", mean=5, std=0.1).mean() == pytest.approx(5, abs=0.01)
    assert make("normal", mean=5, std=0.1).std() == pytest.approx(0.1, rel=0.02)
    uniform = make("uniform", low=2, high=3)
    assert uniform.min() >= 2
    assert uniform.max() <= 3
    assert np.abs(make("laplace", scale=3)).mean() == pytest.approx(3, rel=0.02)
    assert np.abs(make("student_t", df=2)).max() > 5 * np.abs(make("student_t", df=100)).max()
    assert np.log(make("log_normal", sigma=0.5)).std() == pytest.approx(0.5, rel=0.02)
    assert np.abs(make("bimodal", separation=20)).min() > 4
    assert (make("sparse", density=0.25) != 0).mean() == pytest.approx(0.25, abs=0.01)
    assert (make("sparse", density=0) == 0).all()
    assert (make("sparse", density=1) != 0).all()
    assert (make("relu") >= 0).all()
    element = make("outlier_element", factor=40)
    assert (element == 40).sum() == 1
    assert (np.abs(element) > 8).sum() == 1
    column = make("outlier_channel", factor=20)
    plain = make("outlier_channel", factor=1)
    changed = (column != plain).all(axis=0)
    assert changed.sum() == 1
    np.testing.assert_allclose(column[:, changed], 20 * plain[:, changed], rtol=1e-6)
    np.testing.assert_array_equal(column[:, ~changed], plain[:, ~changed])


def test_blocks_join_into_one_stream() -> None:
    n = BLOCK + 7
    x = generate(Generated("normal", (n,), seed=5))
    expected = np.random.Generator(np.random.PCG64(5)).standard_normal(n, dtype=np.float32)
    np.testing.assert_array_equal(x, expected)


@for_each("name", some(DISTRIBUTIONS, 6))
def test_memory_is_the_tensor_and_a_few_blocks(name: str) -> None:
    shape = (8 * BLOCK // 1024, 1024)
    tracemalloc.start()
    try:
        generate(Generated(name, shape))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4 * 8 * BLOCK + 6 * 4 * BLOCK


@for_each("name", DISTRIBUTIONS)
def test_records_describe_their_controls(name: str) -> None:
    kind = DISTRIBUTIONS[name]
    assert kind.label
    assert kind.help
    for parameter in kind.parameters:
        assert parameter.low <= parameter.default <= parameter.high
        assert parameter.help.endswith(".")
        for value in (parameter.low, parameter.high):
            if name != "uniform":
                x = generate(Generated(name, (64, 64), parameters=((parameter.name, value),)))
                assert np.isfinite(x).all()
    assert Generated(name).values() == {p.name: p.default for p in kind.parameters}


def test_spec_is_hashable_and_flat() -> None:
    spec = Generated("normal", (2, 3), 1, (("std", 2.0),))
    assert spec == Generated("normal", (2, 3), 1, (("std", 2.0),))
    assert {spec: 1}[spec] == 1
    assert spec.values() == {"mean": 0, "std": 2.0}


@for_each(
    ("arguments", "words"),
    [
        ({"distribution": "gauss"}, ["'gauss'", "normal", "sparse"]),
        ({"shape": (0, 4)}, ["Axis 0", "(0, 4)", "at least 1"]),
        ({"shape": (4, -1)}, ["Axis 1", "-1"]),
        ({"shape": (2.5,)}, ["Axis 0", "'2.5'", "integer"]),
        ({"shape": (True,)}, ["Axis 0", "integer"]),
        ({"shape": (10**6, 10**6)}, ["58,720,256", "smaller"]),
        ({"shape": (10**30,)}, ["58,720,256"]),
        ({"shape": (1,) * 7}, ["7 axes", "at most 6"]),
        ({"seed": -1}, ["seed", "'-1'"]),
        ({"seed": 2**63}, ["seed"]),
        ({"seed": 1.5}, ["seed", "'1.5'"]),
        ({"seed": True}, ["seed"]),
        ({"parameters": (("mean", 1.0),)}, ["outlier_channel", "'mean'", "factor"]),
        ({"parameters": (("factor", 0.5),)}, ["factor", "'0.5'", "1 to 10000"]),
        ({"parameters": (("factor", math.nan),)}, ["factor", "'nan'"]),
        ({"parameters": (("factor", "3"),)}, ["factor", "'3'"]),
        ({"parameters": (("factor", True),)}, ["factor"]),
        ({"distribution": "relu", "parameters": (("a", 1.0),)}, ["relu", "none"]),
    ],
)
def test_spec_refuses(arguments: dict[str, object], words: list[str]) -> None:
    with pytest.raises(QuantError) as caught:
        Generated(**arguments)  # type: ignore[arg-type]
    assert [w for w in words if w not in str(caught.value)] == [], caught.value


@for_each(("low", "high"), [(1.0, 1.0), (2.0, 1.0)])
def test_uniform_refuses_an_empty_range(low: float, high: float) -> None:
    with pytest.raises(QuantError, match="low < high"):
        generate(Generated("uniform", parameters=(("low", low), ("high", high))))


def test_largest_shape_is_allowed() -> None:
    assert MAX_ELEMENTS == 4096 * 14336
    assert Generated(shape=(4096, 14336)).shape == (4096, 14336)
    with pytest.raises(QuantError):
        Generated(shape=(4096 * 14336 + 1,))


@for_each(
    ("text", "expected"),
    [
        ("64x128", (64, 128)),
        ("64X128", (64, 128)),
        ("64×128", (64, 128)),
        ("64*128", (64, 128)),
        ("64, 128", (64, 128)),
        (" 64  128 ", (64, 128)),
        ("(64,128)", (64, 128)),
        ("[64, 128]", (64, 128)),
        ("torch.Size([64, 128])", (64, 128)),
        ("(64,)", (64,)),
        ("64", (64,)),
        ("2 x 3 x 4", (2, 3, 4)),
        ("()", ()),
    ],
)
def test_parse_shape(text: str, expected: tuple[int, ...]) -> None:
    assert parse_shape(text) == expected


@for_each(
    ("text", "words"),
    [
        ("", ["empty"]),
        ("axb", ["'a'", "integer"]),
        ("64xfoo", ["'foo'", "integer"]),
        ("64.0x2", ["'64.0'", "integer"]),
        ("1e3", ["'1e3'"]),
        ("64x", ["missing"]),
        ("x64", ["missing"]),
        ("64,,2", ["missing"]),
        ("64x0", ["Axis 1", "at least 1"]),
        ("-3x4", ["Axis 0", "-3"]),
        ("1000000x1000000", ["(1000000, 1000000)", "58,720,256"]),
        ("9" * 150, ["58,720,256"]),
        ("1" * 5000, ["too long"]),
        ("1x1x1x1x1x1x1", ["7 axes"]),
        ("(64", ["'(64'"]),
        ("٣x4", ["'٣'"]),
    ],
)
def test_parse_shape_refuses(text: str, words: list[str]) -> None:
    with pytest.raises(QuantError) as caught:
        parse_shape(text)
    assert [w for w in words if w not in str(caught.value)] == [], caught.value
