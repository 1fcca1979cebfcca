"""The scheme that a quantizer was meant to implement: what it does without its mistakes."""

from quantcore.code_reading.quantizer import Quantizer
from quantcore.code_reading.values.python import Num
from quantcore.code_reading.values.quantities import Real, Stat
from quantcore.conventions import TEXTBOOK, Convention
from quantcore.errors import QuantError
from quantcore.formats import IntFormat
from quantcore.granularity import PER_TENSOR, Granularity, PerBlock, PerChannel, PerGroup, Shape
from quantcore.range_setting import MIN_MAX, Given, Percentile, RangeSetting
from quantcore.scheme import Scheme


def intended_scheme(quantizer: Quantizer, shape: Shape) -> Scheme:
    """Return the scheme for a tensor of ``shape``.

    Raises:
        QuantError: the scale is unknown, or is taken along axes that the tensor does not have.
    """
    # an asymmetric range without any zero point: symmetric codes were meant
    around_zero = (
        not quantizer.zero
        and not quantizer.stored.of("add")
        and (quantizer.cast is None or quantizer.cast.dtype.signed)
    )
    symmetric = quantizer.span is None or (around_zero and not quantizer.names)
    fmt = _format(quantizer, symmetric)
    if not fmt.signed and quantizer.span is not None:
        symmetric = False
    scale = quantizer.codes.scale
    if isinstance(scale, Num):
        zero = round(quantizer.zero.get("scale", 0.0))
        return Scheme(fmt, zero == 0, PER_TENSOR, Given(float(scale.value), zero), _convention(quantizer))
    if not isinstance(scale, Real) or not scale.known or not (quantizer.single or quantizer.span):
        raise QuantError(
            "The code does not show the value of its scale, so its result on a tensor can't be computed."
        )
    stat = scale.terms[0][0]
    high = max((s for s, _ in scale.terms), key=lambda s: s.p or 0.0)
    setting: RangeSetting = MIN_MAX if high.p is None else Percentile(high.p)
    return Scheme(fmt, symmetric, _granularity(stat, shape), setting, _convention(quantizer))


def _convention(quantizer: Quantizer) -> Convention:
    """The textbook convention with the code's order of operations."""
    codes = quantizer.stored
    place = next(i for i, op in enumerate(codes.ops) if op.name == "round")
    first = any(op.name == "add" for op in codes.ops[:place])
    kernel = {(False, False): "A", (False, True): "C", (True, False): "B", (True, True): "D"}[
        codes.inverse, first
    ]
    return TEXTBOOK.changed(kernel=kernel)


def _format(quantizer: Quantizer, symmetric: bool) -> IntFormat:
    """The intended format: from the clamp if its bounds are those of a format, else from the type and the divisor."""
    cast = quantizer.cast
    clamp = quantizer.clamp.value if quantizer.clamp else (None, None)
    divisor = quantizer.single[1] if quantizer.single else None
    usual = {
        (f.qmin, f.qmax): f
        for bits in range(2, 17)
        for f in (IntFormat(bits, True), IntFormat(bits, False), IntFormat(bits, True, True))
    }
    if clamp in usual:
        return usual[clamp]
    bits = cast.dtype.bits if cast else 8
    signed = cast.dtype.signed if cast else symmetric
    if divisor is not None and not quantizer.clamp and divisor + 1 in (4, 8, 16, 32, 64, 128):
        bits = min(bits, int(divisor + 1).bit_length())
    return IntFormat(min(bits, 16), signed)


def _granularity(stat: Stat, shape: Shape) -> Granularity:
    rank, layout = len(shape), [how for how in stat.data.layout if not how.startswith("flatten")]
    if layout:
        return _layout_granularity(stat, layout, shape)
    if stat.axes is None or not rank:
        return PER_TENSOR
    if any(not -rank <= a < rank for a in stat.axes):
        raise QuantError(
            f"Line {stat.line}: the code reduces axis {', '.join(map(str, stat.axes))}, which a tensor of shape {shape} does not "
            "have; choose another tensor."
        )
    left = sorted(set(range(rank)) - {a % rank for a in stat.axes})
    if not left:
        return PER_TENSOR
    return (
        PerChannel(left[0])
        if len(left) == 1
        else PerBlock(tuple(1 if i in left else -1 for i in range(rank)))
    )


def _layout_granularity(stat: Stat, layout: list[str], shape: Shape) -> Granularity:
    how, _, where = layout[0].partition(":")
    numbers = [part.partition("=")[2] or part for part in where.split(",")]
    if len(layout) == 1 and all(n.lstrip("-").isdigit() for n in numbers):
        sizes = [int(n) for n in numbers]
        if how == "chunk" and len(sizes) in (1, 2):
            axis = sizes[1] if len(sizes) == 2 else 0
            if -len(shape) <= axis < len(shape) and sizes[0] > 0:
                length = -(-shape[axis] // sizes[0])
                return PerBlock(tuple(length if i == axis % len(shape) else -1 for i in range(len(shape))))
        if how in ("view", "reshape") and len(sizes) == 2 and sizes[0] == -1 and sizes[1] > 0:
            return PerGroup(sizes[1])
    raise QuantError(
        "The code reshapes the tensor in a way that can't be shown here; the findings still hold."
    )
