"""Every metric against its formula in numpy's float64."""

import dataclasses
import math

import numpy as np
import pytest
import torch
from grid import for_each
from parts import some
from torch.utils._python_dispatch import TorchDispatchMode

import quantcore as qc
from quantcore.analysis.blocks import clipped
from quantcore.granularity.kinds import cells_of

WRAP = qc.TEXTBOOK.changed(overflow="wrap")
SCHEMES = [
    qc.Scheme(fmt, symmetric, granularity, setting, convention)
    for fmt in (qc.INT2, qc.IntFormat(4, narrow=True), qc.UINT8, qc.UINT16)
    for symmetric in (True, False)
    for granularity in (qc.PerTensor(), qc.PerChannel(-2), qc.PerGroup(7), qc.PerBlock((3, 4)))
    for setting, convention in (
        (qc.MinMax(), qc.TEXTBOOK),
        (qc.Percentile(80), qc.TEXTBOOK),
        (qc.Given(0.3, 1), WRAP),
        (qc.Fixed(-1, 2), WRAP),
    )
]


def randn(shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * 3


def expected_errors(x, x_hat):
    """The metrics by their formulas, from the error in float32, without quantcore."""
    error = (x - x_hat).astype(np.float64)
    a, b = x.astype(np.float64).ravel(), x_hat.astype(np.float64).ravel()
    sse = (error**2).sum()
    return {
        "mse": (error**2).mean(),
        "mae": np.abs(error).mean(),
        "sse": sse,
        "rmse": math.sqrt((error**2).mean()),
        "sqnr_db": 10 * math.log10((a**2).sum() / sse),
        "max_abs_error": np.abs(error).max(),
        "cosine": a @ b / (np.linalg.norm(a) * np.linalg.norm(b)),
    }


def check(found, expected):
    for name, value in expected.items():
        assert getattr(found, name) == pytest.approx(value, rel=1e-12), name


@for_each("shape", [(1,), (9,), (6, 10), (3, 4, 5), (2, 3, 4, 5), (1300, 700)])
def test_errors_of_two_tensors(shape):
    x = randn(shape, 1)
    x_hat = x + randn(shape, 2) * 0.1
    found = qc.errors(x, x_hat)
    check(found, expected_errors(x.numpy(), x_hat.numpy()))
    flat = np.abs((x - x_hat).numpy()).argmax()
    assert found.max_abs_error_index == tuple(int(i) for i in np.unravel_index(flat, shape))


def test_known_errors():
    found = qc.errors([[1.0, -2.0], [3.0, 0.0]], [[1.0, -2.5], [2.0, 0.5]])
    assert (found.sse, found.mse, found.mae, found.max_abs_error) == (1.5, 0.375, 0.5, 1.0)
    assert found.max_abs_error_index == (1, 0)
    assert found.sqnr_db == pytest.approx(10 * math.log10(14 / 1.5))


@for_each(
    ("x", "x_hat", "sqnr_db", "cosine"),
    [
        ([0, 0], [0, 0], math.nan, math.nan),
        ([1, 2], [1, 2], math.inf, 1),
        ([0, 0], [1, 0], -math.inf, math.nan),
        ([1, 0], [0, 0], 0, math.nan),
        ([3], [3], math.inf, 1),
        ([3], [2], 10 * math.log10(9), 1),
        ([1, 0], [-1, 0], 10 * math.log10(1 / 4), -1),
        ([1, 0], [0, 1], 10 * math.log10(1 / 2), 0),
        ([1e-30, 0], [2e-30, 0], 0, 1),
    ],
)
def test_where_a_ratio_has_no_value(x, x_hat, sqnr_db, cosine):
    x, x_hat = (np.array(v, dtype=np.float32) for v in (x, x_hat))
    found = qc.errors(x, x_hat)
    assert found.sqnr_db == pytest.approx(sqnr_db, abs=1e-6, nan_ok=True)
    assert found.cosine == pytest.approx(cosine, abs=1e-15, nan_ok=True)
    zero = [name for name, values in (("x", x), ("x̂", x_hat)) if not values.any()]
    expected = " and ".join(f"{name} is zero everywhere" for name in zero)
    undefined = {n for n, value in (("sqnr_db", sqnr_db), ("cosine", cosine)) if math.isnan(value)}
    assert found.undefined == dict.fromkeys(undefined, expected)


NUMBERS = [
    f.name for f in dataclasses.fields(qc.Report) if f.name not in ("undefined", "max_abs_error_index")
]
NAN, INF = math.nan, math.inf


@for_each(
    ("x", "scheme", "why"),
    [
        ([[1.0, NAN], [3.0, -1.0]], "int8 torchao", "x contains NaN"),
        ([[NAN, NAN]], "int8 torchao", "x contains NaN"),
        ([NAN], "int8 torchao", "x contains NaN"),
        ([[1.0, INF], [3.0, -1.0]], "int8 torchao", "x contains infinity"),
        ([[INF, NAN], [3.0, -INF]], "int8 torch.fake_quantize", "x contains NaN"),
        ([1.0, -2.0], "e8m0", "x̂ contains NaN"),
        ([0.0, 0.0], "int8 torchao", "x is zero everywhere"),
        ([0.0], "int4", "x is zero everywhere"),
        (0.0, "int4", "x is zero everywhere"),
        ([3.0], "int8 given(1)", ""),
        ([[0.7]], "int4", ""),
        ([1.0, 2.0, -3.5], "int4", ""),
    ],
)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_every_metric_is_a_number_or_has_a_reason(x, scheme, why):
    result = qc.apply(x, qc.Scheme.parse(scheme))
    found = qc.report(result)
    for name in NUMBERS:
        value = getattr(found, name)
        assert isinstance(value, float | int), name
        assert math.isnan(value) == (name in found.undefined), name
    assert all(reason.startswith(why) for reason in found.undefined.values())
    assert bool(found.undefined) == bool(why)
    assert set(found.undefined) <= set(NUMBERS)
    with np.errstate(invalid="ignore", over="ignore"):
        error = np.abs(np.asarray(x, np.float32) - result.dequantized.numpy()).astype(np.float64)
        expected = {
            "mse": (error**2).mean(),
            "mae": error.mean(),
            "max_abs_error": error.max(),
            "sse": (error**2).sum(),
        }
        for name, value in expected.items():
            assert getattr(found, name) == pytest.approx(value, rel=1e-12, nan_ok=True), name
    if np.isnan(error).any():
        assert found.max_abs_error_index is None
        assert found.clipped == 0 or "clipping_sse" not in found.undefined
        assert {"mse", "mae", "sse", "rmse", "sqnr_db", "max_abs_error", "cosine"} <= set(found.undefined)
    else:
        assert found.max_abs_error_index == np.unravel_index(error.argmax(), error.shape)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_nan_beyond_the_first_box_is_seen():
    x = randn((1100, 1000), 3)
    for place in ((1099, 3), (0, 0)):
        other = x.clone()
        other[place] = NAN
        result = qc.apply(other, qc.Scheme.parse("int8 per_channel(0) torchao"))
        found = qc.report(result)
        assert math.isnan(found.max_abs_error)
        assert found.max_abs_error_index is None
        assert bool(result.dequantized.isnan().any())
        assert found.undefined["mse"] == "x contains NaN and x̂ contains NaN"


@for_each(
    ("value", "digits", "text"),
    [(18.257, 1, "18.3 dB"), (18.257, 2, "18.26 dB"), (-3.0, 1, "-3.0 dB"), (INF, 2, "exact"),
     (-INF, 1, "-∞ dB"), (NAN, 1, "not defined")],
)  # fmt: skip
def test_decibels_as_pages_write_them(value, digits, text):
    assert qc.decibels(value, digits) == text
    assert qc.decibels(-0.04) == "-0.0 dB"  # one decimal by default


def test_a_tensor_without_elements_is_refused_in_words():
    for call in (lambda: qc.errors([], []), lambda: qc.apply(np.zeros((3, 0)), qc.Scheme())):
        with pytest.raises(qc.QuantError, match="no elements"):
            call()


def test_first_of_equal_worst_errors_is_named():
    x = torch.zeros(700, 900)
    for index in ((650, 3), (20, 800), (20, 5), (20, 899)):
        x[index] = -2.0
    assert qc.errors(x, torch.zeros_like(x)).max_abs_error_index == (20, 5)
    assert qc.errors(x.T, torch.zeros_like(x.T)).max_abs_error_index == (3, 650)
    by_column = qc.Scheme(qc.INT8, True, qc.PerChannel(1), qc.Given(100.0))
    assert qc.report(qc.apply(x, by_column)).max_abs_error_index == (20, 5)
    assert qc.errors(3.0, 2.0).max_abs_error_index == ()
    assert qc.errors([1, 2], [1, 2]).max_abs_error_index == (0,)


def test_shapes_that_differ():
    with pytest.raises(qc.QuantError, match=r"\(2, 3\), but x̂ has \(3, 2\)"):
        qc.errors(torch.ones(2, 3), torch.ones(3, 2))


@for_each(("x", "x_hat", "who"), [(1, math.nan, "x̂"), (math.inf, 1, "x"), (1, -math.inf, "x̂")])
def test_what_is_not_finite_is_not_compared(x, x_hat, who):
    with pytest.raises(qc.QuantError, match=rf"^{who} contains one (NaN|infinity) at index \(1,\)"):
        qc.errors([0.0, x], [0.0, x_hat])


@for_each("scheme", some(SCHEMES, 13), ids=str)
@for_each("shape", [(6, 10), (2, 3, 4, 5)])
def test_report(scheme, shape):
    if isinstance(scheme.granularity, qc.PerBlock) and len(shape) == 4:
        scheme = dataclasses.replace(scheme, granularity=qc.PerBlock((2, 2, 3, -1)))
    if isinstance(scheme.granularity, qc.PerGroup) and shape[-1] < 7:
        scheme = dataclasses.replace(scheme, granularity=qc.PerGroup(3))
    x = randn(shape, 3)
    result = qc.apply(x, scheme)
    found = qc.report(result)
    check(found, expected_errors(x.numpy(), result.dequantized.numpy()))
    scale = cells_of(result.scale, shape, result.block).numpy()
    zero_point = cells_of(result.zero_point, shape, result.block).numpy()
    before = np.rint(x.numpy() / scale) + zero_point.astype(np.float32)
    fmt = scheme.format
    outside = (before < fmt.qmin) | (before > fmt.qmax)
    square = result.error.numpy().astype(np.float64) ** 2
    assert found.clipped == outside.sum()
    assert found.clipped_fraction == outside.mean()
    assert found.clipping_sse == pytest.approx(square[outside].sum(), rel=1e-12)
    assert found.rounding_sse == pytest.approx(square[~outside].sum(), rel=1e-12)
    assert found.codes_used == len(np.unique(result.codes.numpy()))
    assert found.codes_available == fmt.qmax - fmt.qmin + 1
    alone = qc.errors(x, result.dequantized)
    assert found.max_abs_error_index == alone.max_abs_error_index
    check(
        found, {name: getattr(alone, name) for name in ("sse", "mae", "sqnr_db", "max_abs_error", "cosine")}
    )


def test_report_of_one_number():
    found = qc.report(qc.apply(3.0, qc.Scheme(range_setting=qc.Given(1.0, 126))))
    assert (found.clipped, found.clipped_fraction, found.codes_used) == (1, 1.0, 1)
    assert (found.sse, found.clipping_sse, found.rounding_sse, found.max_abs_error_index) == (4, 4, 0, ())


def test_clipping_does_not_swallow_rounding():
    # 1e30 is clipped; next to its square, the errors 0.25 and -0.25 would vanish in a difference of sums
    found = qc.report(qc.apply([1e30, 0.25, 0.75], qc.Scheme(range_setting=qc.Given(1.0))))
    assert found.rounding_sse == 0.125
    assert found.clipping_sse == found.sse > 1e59


def test_clipped_in_half_precision_are_those_that_the_library_clamps():
    """torchao rounds 1 / s and x / s in the dtype of x, so that other elements lie outside than in float32."""
    for dtype in (torch.bfloat16, torch.float16):
        x = torch.randn(64, 256, generator=torch.Generator().manual_seed(3)).to(dtype)
        result = qc.apply(x, qc.Scheme.parse("int8 per_channel(0) torchao"))
        before = (x * (1 / result.scale.to(dtype))).round()
        outside = (before < -128) | (before > 127)
        report = qc.report(result)
        assert report.clipped == int(outside.sum()) > 0, dtype
        assert report.clipping_sse == pytest.approx(float(result.error[outside].double().square().sum())), dtype
        blocks = [clipped(result, (row, 0)) for row in range(len(x))]
        assert blocks == outside.sum(1).tolist(), dtype


def test_wrapped_codes_count_as_clipped():
    scheme = qc.Scheme(range_setting=qc.Given(1.0), convention=WRAP)
    found = qc.report(qc.apply([127.0, 128.0, 129.0, -128.0], scheme))
    assert (found.clipped, found.clipping_sse, found.rounding_sse) == (2, 2 * 256.0**2, 0.0)
    assert found.codes_used == 3  # 128 wraps to -128


def test_sums_stand_in_float64():
    n = (1 << 24) + 1  # a float32 sum of ones would stop below this
    assert qc.errors(torch.ones(n), torch.zeros(n)).sse == n


def test_report_of_a_tensor_larger_than_a_box():
    x = randn((1000, 1300), 4)
    result = qc.apply(x, qc.Scheme(qc.INT4, True, qc.PerGroup(128), qc.Percentile(95)))
    found = qc.report(result)
    check(found, expected_errors(x.numpy(), result.dequantized.numpy()))
    flat = int(result.error.abs().argmax())
    assert found.max_abs_error_index == tuple(int(i) for i in np.unravel_index(flat, (1000, 1300)))
    assert found.codes_used == len(result.codes.unique())
    assert found.clipping_sse + found.rounding_sse == pytest.approx(found.sse, rel=1e-12)


def test_error_beyond_float32_is_said_not_raised():
    # x / s rounds to 2, and 2 · s overflows float32
    found = qc.report(qc.apply([3.4028235e38], qc.Scheme(range_setting=qc.Given(2.2e38))))
    assert (found.sqnr_db, found.max_abs_error, found.sse) == (-math.inf, math.inf, math.inf)
    assert math.isnan(found.cosine)


@for_each("scheme", SCHEMES[::4], ids=str)
def test_block_errors(scheme):
    x = randn((6, 10), 5)
    result = qc.apply(x, scheme)
    found = qc.block_errors(result)
    assert (found.shape, found.dtype) == (result.scale.shape, torch.float64)
    down, across = result.block
    square = result.error.numpy().astype(np.float64) ** 2
    for i, j in np.ndindex(*found.shape):
        part = square[i * down : (i + 1) * down, j * across : (j + 1) * across]
        assert found[i, j].item() == pytest.approx(part.mean(), rel=1e-12)


def test_block_errors_of_a_large_tensor_and_of_one_number():
    result = qc.apply(randn((1000, 1300), 6), qc.Scheme(qc.INT4, granularity=qc.PerTensor()))
    assert qc.block_errors(result).item() == pytest.approx(qc.report(result).mse, rel=1e-12)
    assert qc.block_errors(qc.apply(3.2, qc.Scheme(range_setting=qc.Fixed(-1, 1)))).shape == ()


class Largest(TorchDispatchMode):
    """Records the size in bytes of the largest new storage; views of ``known`` tensors do not count."""

    @classmethod
    def _should_skip_dynamo(cls):
        return False  # else PyTorch imports its compiler first, which takes 2 s

    def __init__(self, *known):
        super().__init__()
        self.bytes, self.known = 0, {tensor.untyped_storage().data_ptr() for tensor in known}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, tuple | list) else [out]:
            if isinstance(tensor, torch.Tensor) and tensor.untyped_storage().data_ptr() not in self.known:
                self.bytes = max(self.bytes, tensor.untyped_storage().nbytes())
        return out


@for_each("granularity", some([qc.PerTensor(), qc.PerChannel(1), qc.PerGroup(128), qc.PerBlock((700, 900))]))
def test_metrics_make_no_temporary_of_the_tensors_size(granularity):
    x = randn((1100, 2048), 7)
    result = qc.apply(x, qc.Scheme(qc.INT4, granularity=granularity))
    x_hat = result.dequantized
    with Largest(x, result.codes, x_hat) as largest:
        qc.report(result)
        qc.block_errors(result)
        qc.errors(x, x_hat)
    # boxes of about a million elements, in float64 at most
    assert 0 < largest.bytes <= 8 << 20 < x.nbytes
