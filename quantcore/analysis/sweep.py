"""Many schemes on one tensor: the error and the storage cost of each."""

import itertools
import math
import os
import time
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from quantcore.analysis.metrics import Report, report
from quantcore.conventions import CONVENTIONS
from quantcore.errors import QuantError
from quantcore.formats import CODEBOOKS, FLOATS, Format, IntFormat
from quantcore.granularity import Granularity, PerBlock, PerChannel, PerGroup, PerTensor, as_shape
from quantcore.notation import write_call
from quantcore.numerics import held
from quantcore.quantization import Quantized, apply_quietly
from quantcore.range_setting import HalfQuadratic, MinMax, MinMse, Percentile, RangeSetting
from quantcore.scheme import PRESETS, Scheme, as_scheme, bits_per_element, unsupported_reason
from quantcore.wording import passed

if TYPE_CHECKING:
    import pandas as pd

METRICS = tuple(
    name for name in Report.__dataclass_fields__ if name not in ("max_abs_error_index", "undefined")
)
Measure = Callable[[Quantized], float]
_DEFAULT_FORMATS: tuple[Format, ...] = (
    *(IntFormat(bits) for bits in (2, 3, 4, 5, 6, 8)),
    *(CODEBOOKS[name] for name in ("ternary", "nf4", "iq4_nl")),
    *(FLOATS[name] for name in ("e2m1", "e2m3", "e3m2", "e4m3fn", "e5m2")),
)


@dataclass(frozen=True)
class Row:
    """One scheme of a sweep; ``index``: its position in the list.

    ``report``: None if the scheme is unsupported; ``refused``: why it is, else empty; ``seconds``: for apply
    and report; ``output_sqnr_db``: of the output of a layer, None if that was not asked for.
    """

    index: int
    scheme: Scheme
    bits_per_element: float
    report: Report | None
    refused: str
    seconds: float
    output_sqnr_db: float | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return a table's row: the scheme and its parts as text, every metric, bits per element, seconds."""
        scheme = self.scheme
        found = asdict(self.report) if self.report else {}
        return {
            "scheme": str(scheme),
            "format": str(scheme.format),
            "symmetric": scheme.symmetric,
            "granularity": write_call(scheme.granularity),
            "range_setting": write_call(scheme.range_setting),
            "convention": str(scheme.convention),
            "scales": "" if scheme.scales is None else str(scheme.scales),
            "bits_per_element": self.bits_per_element,
            **{name: found.get(name, math.nan) for name in METRICS},
            **({} if self.output_sqnr_db is None else {"output_sqnr_db": self.output_sqnr_db}),
            "seconds": self.seconds,
            "refused": self.refused,
        }


def sweep(
    x: Any, schemes: Iterable[Scheme | str], workers: int | None = None, *, output: Measure | None = None
) -> "pd.DataFrame":
    """Return one row per scheme, in order: its parts, every metric, bits per element and seconds.

    An unsupported scheme has the reason under ``refused`` and NaN for numbers.

    Args:
        output: if x is the weight of a layer, what measures the SQNR of its output in dB, for the column
            ``output_sqnr_db``: `quantcore.outputs.output_measure` of its activations.

    >>> import quantcore as qc
    >>> x = torch.randn(64, 64, generator=torch.Generator().manual_seed(0))
    >>> schemes = [qc.Scheme.parse(text) for text in ("int8", "int4", "int4 per_group(32)")]
    >>> qc.sweep(x, schemes)[["bits_per_element", "sqnr_db"]].round(2)
       bits_per_element  sqnr_db
    0              8.01    40.50
    1              4.01    15.47
    2              5.00    20.24

    Raises:
        QuantError: x is not a tensor of numbers.
    """
    import pandas as pd

    rows = sorted(sweep_rows(x, schemes, workers, output=output), key=lambda row: row.index)
    return pd.DataFrame([row.as_dict() for row in rows])


def sweep_rows(
    x: Any, schemes: Iterable[Scheme | str], workers: int | None = None, *, output: Measure | None = None
) -> Generator[Row, None, None]:
    """Yield the rows of `sweep` as they are computed, on ``workers`` threads (by default one per core).

    Memory does not grow with the number of schemes: a result is dropped once it is measured. Closing the
    iterator stops the work after the running schemes.

    >>> import quantcore as qc
    >>> x = torch.randn(64, 64, generator=torch.Generator().manual_seed(0))
    >>> schemes = [qc.Scheme.parse("int8"), qc.Scheme.parse("int4 per_group(32)")]
    >>> for row in qc.sweep_rows(x, schemes, workers=1):
    ...     print(row.scheme.format, qc.decibels(row.report.sqnr_db))
    int8 40.5 dB
    int4 20.2 dB
    """
    x, dtype = held(x)
    if isinstance(schemes, str | Scheme) or not isinstance(schemes, Iterable):
        raise QuantError(f"schemes is {passed(schemes)}; give a list of schemes or of their texts.")
    tasks = ((index, as_scheme(scheme), output) for index, scheme in enumerate(schemes))
    count = workers or _cores()
    with ThreadPoolExecutor(count, thread_name_prefix="sweep") as pool:
        # one more task than there are threads, so that no thread waits
        under_way: set[Future[Row]] = {
            pool.submit(measure, x, dtype, *t) for t in itertools.islice(tasks, count + 1)
        }
        try:
            while under_way:
                done, under_way = wait(under_way, return_when=FIRST_COMPLETED)
                under_way |= {pool.submit(measure, x, dtype, *t) for t in itertools.islice(tasks, len(done))}
                # those that ended while nobody looked come in order
                yield from sorted((future.result() for future in done), key=lambda row: row.index)
        finally:
            for future in under_way:
                future.cancel()


def _cores() -> int:
    """How many cores this process may use; possibly fewer than the machine has."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on Linux
        return os.cpu_count() or 1


def measure(x: Tensor, dtype: torch.dtype, index: int, scheme: Scheme, output: Measure | None = None) -> Row:
    """Quantize with one scheme and measure the error; ``dtype``: of x, as in `apply_quietly`."""
    start, of_output = time.perf_counter(), None if output is None else math.nan
    try:
        bits = bits_per_element(scheme.in_dtype(dtype), tuple(x.shape))
        result = apply_quietly(x, scheme, dtype=dtype)
        found = report(result)
        if output is not None:
            of_output = output(result)
    except QuantError as error:
        return Row(index, scheme, math.nan, None, str(error), time.perf_counter() - start, of_output)
    return Row(index, scheme, bits, found, "", time.perf_counter() - start, of_output)


def default_schemes(shape: tuple[int, ...]) -> list[Scheme]:
    """Return the schemes usually compared for a tensor of this shape, from few bits to many.

    Integers of 2 to 8 bits (symmetric and asymmetric), floats of 4 to 8 bits and codebooks; per-tensor,
    per-channel, per-group (also of 32 and 128 along axis 0) and per-block; with min-max, up to 4 bits also
    with min-MSE, and per-tensor and per-channel integers also with the 99.9th percentile. Then HQQ's schemes
    and every preset. Schemes that do not fit the shape are left out.
    """
    shape = as_shape(shape)
    granularities = _granularities(shape)
    candidates = [
        Scheme(fmt, symmetric, granularity, setting)
        for fmt in _DEFAULT_FORMATS
        for symmetric in ((True, False) if fmt.has_zero_point else (True,))
        for granularity in granularities
        for setting in _settings(fmt, granularity)
    ]
    hqq = [
        Scheme(IntFormat(bits, signed=False), False, granularity, HalfQuadratic(), CONVENTIONS["hqq"])
        for bits in (2, 3, 4, 8)
        for granularity in granularities
        if isinstance(granularity, PerChannel) or granularity == PerGroup(64)
    ]
    found = [scheme for scheme in (*candidates, *hqq, *PRESETS.values()) if _fits(scheme, shape)]
    return list(dict.fromkeys(found))


def _settings(fmt: Format, granularity: Granularity) -> list[RangeSetting]:
    found: list[RangeSetting] = [MinMax()]
    if fmt.bits <= 4:
        found.append(MinMse(20))
    if fmt.has_zero_point and isinstance(granularity, PerTensor | PerChannel):
        found.append(Percentile(99.9))
    return found


def _granularities(shape: tuple[int, ...]) -> list[Granularity]:
    if not shape:
        return [PerTensor()]
    groups: list[Granularity] = [PerGroup(size) for size in (16, 32, 64, 128) if size < shape[-1]]
    if len(shape) > 1:  # these are better where columns differ more than rows
        groups += [PerGroup(size, axis=0) for size in (32, 128) if size < shape[0]]
    blocks: list[Granularity] = []
    if len(shape) > 1 and min(shape[-2:]) > 32:
        blocks = [PerBlock((*(1,) * (len(shape) - 2), 32, 32))]
    return [PerTensor(), *(PerChannel(axis) for axis in range(len(shape))), *groups, *blocks]


def _fits(scheme: Scheme, shape: tuple[int, ...]) -> bool:
    try:
        return unsupported_reason(scheme, shape) is None
    except QuantError:
        return False


def frontier(bits: Iterable[float], gains: Iterable[float]) -> list[int]:
    """Return the indices on the Pareto frontier, by rising bits: no other has fewer bits and more gain.

    ``gains``: higher is better, as for ``sqnr_db``; negate an error. NaN is never on the frontier.

    >>> frontier(bits=[4.0, 8.0, 4.5, 8.0], gains=[18.0, 40.0, 17.0, 43.0])
    [0, 3]
    """
    points = [(b, -g, i) for i, (b, g) in enumerate(zip(bits, gains, strict=True)) if b == b and g == g]  # noqa: PLR0124
    best, found = math.inf, []
    for _, loss, i in sorted(points):
        if loss < best:
            best = loss
            found.append(i)
    return found
