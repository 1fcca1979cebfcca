"""What is wrong or unusual about stored scales, zero points and the order of columns."""

from collections.abc import Iterator

import torch
from torch import Tensor

from quantcore.checkpoints.findings.group_index import of_group_index
from quantcore.checkpoints.findings.record import CheckpointFinding, error, finding_of, note, warning
from quantcore.checkpoints.layouts.block_floats import GLOBAL_SCALE, SCALE_CODE, BlockFloats
from quantcore.checkpoints.layouts.gguf.blocks import Gguf
from quantcore.checkpoints.layouts.gptq import Gptq
from quantcore.checkpoints.protocol.layout import SCALE, ZERO_POINT, Layout
from quantcore.checkpoints.rows import boxes
from quantcore.checkpoints.statement import Facts

E8M0_NAN = 255
FEW = 8  # fewer scales than this can all be powers of two by chance


def of_parameters(layout: Layout) -> Iterator[CheckpointFinding]:
    """Yield the findings that need only the parameters of a quantized weight.

    Raises:
        QuantError: they can't be read.
    """
    yield from _remarks(layout)
    yield from _zero_points(layout)
    yield from _global_scale(layout)
    powers = list(_e8m0(layout))
    yield from powers
    yield from of_group_index(layout)
    yield from (found for found in _scales(layout) if not (powers and found.kind == "scale_nonfinite"))
    yield from _powers_of_two(layout)


def _remarks(layout: Layout) -> Iterator[CheckpointFinding]:
    """Decisions against the config or without it, which other readers may make differently."""
    for said in layout.statements():
        yield finding_of(said.severity, said.kind, (layout.name,), said.words, said.facts)


def _zero_points(layout: Layout) -> Iterator[CheckpointFinding]:
    """GPTQ zero points on which readers disagree."""
    if not isinstance(layout, Gptq):
        return
    zero_point = layout.fields[ZERO_POINT].read()
    if not zero_point.numel():
        return
    if layout.config_symmetric:
        yield from _not_symmetric(layout, zero_point)
        return
    middle, is_v1 = 1 << (layout.bits - 1), layout.version == "gptq"
    if is_v1 and bool((zero_point == middle + 1).all()):
        words = (
            "{stores} zeros of {middle} everywhere, the middle of the codes as v2 stores it, but the config says v1, so "
            "{its} zero points are {zero_point}; if the weights are wrong, set checkpoint_format to gptq_v2."
        )
        yield warning(layout, "gptq_version", words, middle=middle, zero_point=middle + 1)
    elif bool((zero_point == middle).all()):
        words = (
            "{is} asymmetric according to the config (sym is false), but every zero point is {middle}, so {it} {is} "
            "symmetric; the values are the same."
        )
        yield note(layout, "config_unused", words, middle=middle, says="sym false")
    largest = (1 << layout.bits) - 1
    wrapped = zero_point == 0
    if is_v1 and bool(wrapped.any()):
        words = (
            "{stores} {stored}, which is 0 in v1, for {zeros} ({share:%}) of {its} zero points; some readers add 1 without "
            "wrapping and get {unwrapped}, others carry into the next zero point. Store {it} as gptq_v2."
        )
        facts: Facts = {"stored": largest, "unwrapped": largest + 1, **_share(wrapped)}
        # the zero point of weights that are all positive: what AutoGPTQ and GPTQModel write
        yield note(layout, "zero_point_wraps", words, **facts)


def _not_symmetric(layout: Gptq, zero_point: Tensor) -> Iterator[CheckpointFinding]:
    middle = 1 << (layout.bits - 1)
    others = zero_point != middle
    if bool(others.any()):
        words = (
            "{is} symmetric according to the config, so every zero point should be {middle}, but {zeros} ({share:%}) of "
            "{its} zero points have other values, such as {example}; kernels for symmetric weights ignore all of them."
        )
        facts: Facts = {"middle": middle, "example": int(zero_point[others][0]), **_share(others)}
        yield error(layout, "zero_points_differ", words, **facts)


def _share(mask: Tensor) -> Facts:
    n = int(mask.sum())
    return {"zeros": n, "share": n / mask.numel()}


def _global_scale(layout: Layout) -> Iterator[CheckpointFinding]:
    """A global scale that was stored as its inverse."""
    if not isinstance(layout, BlockFloats) or GLOBAL_SCALE not in layout.fields:
        return
    field = layout.fields[GLOBAL_SCALE]
    value = float(field.read().reshape(-1)[0])
    facts: Facts = {"piece": field.piece.name.rpartition(".")[2], "value": value}
    if layout.global_scale == "multiplies" and value > 1:
        words = (
            "{has} a {piece} of {value}, which multiplies; it should be max |w| / 2688, so a value above 1 looks like its "
            "inverse, which compressed-tensors stores."
        )
        yield error(layout, "global_scale", words, **facts)
    if layout.global_scale == "divides" and 0 <= value < 1:
        words = (
            "{has} a {piece} of {value}, which divides; it should be 2688 / max |w|, so a value below 1 looks like its "
            "inverse, which ModelOpt stores."
        )
        yield error(layout, "global_scale", words, **facts)


def _e8m0(layout: Layout) -> Iterator[CheckpointFinding]:
    """E8M0 scales of 255, which are NaN in OCP's standard and 2^128 for some readers."""
    field = layout.fields.get(SCALE_CODE)
    powers = (
        isinstance(layout, BlockFloats) and field is not None and field.piece.dtype in ("U8", "F8_E8M0")
    ) or (isinstance(layout, Gguf) and layout.kind.name == "MXFP4")
    if field is None or not powers:
        return
    found = field.read() == E8M0_NAN
    if bool(found.any()):
        words = (
            "{has} {scales:E8M0 scale} of 255, first at {first}: NaN in the OCP standard, 2^128 for readers that only "
            "shift the bits."
        )
        first = tuple(found.nonzero()[0].tolist())
        yield error(layout, "e8m0_nan", words, scales=int(found.sum()), first=first)


def _scales(layout: Layout) -> Iterator[CheckpointFinding]:
    """Scales that are not finite or negative; of zeros, see `extremes`."""
    nonfinite, negative, total = _Marked(), _Marked(), 0
    for start, scale in scale_boxes(layout):
        nonfinite.add(~scale.isfinite(), start)
        negative.add(scale < 0, start)
        total += scale.numel()
    if nonfinite.count:
        words = "{has} {scales:NaN or infinite scale}, first at {first} of the grid of blocks; the values there are wrong."
        yield error(layout, "scale_nonfinite", words, scales=nonfinite.count, first=nonfinite.first)
    # those of MLX and ggml are signed, and nested ones of bitsandbytes are rounded
    unusual = layout.symmetric and SCALE in layout.fields and not isinstance(layout, Gguf)
    if unusual and negative.count:
        words = (
            "{has} {scales:negative scale} ({share:%}), first at {first} of the grid of blocks; {its} format does not write "
            "negative scales."
        )
        facts: Facts = {"scales": negative.count, "share": negative.count / total, "first": negative.first}
        yield warning(layout, "scale_negative", words, **facts)


class _Marked:
    """The number of marked entries over boxes of rows, and the index of the first."""

    def __init__(self) -> None:
        self.count = 0
        self.first: tuple[int, ...] = ()

    def add(self, mask: Tensor, start: int) -> None:
        """Count the marks of a box whose first row is ``start``."""
        n = int(mask.sum())
        if n and not self.count:
            place = mask.nonzero()[0].tolist()
            self.first = (place[0] + start, *place[1:]) if place else ()  # of one scale that has no axes
        self.count += n


def scale_boxes(layout: Layout) -> Iterator[tuple[int, Tensor]]:
    """Yield the effective scales in block form, in boxes of rows, each with its first row."""
    if layout.blocks.blocked_shape != layout.shape or layout.blocks.block[:1] != (1,):
        scale = layout.scale()
        if scale is not None:
            yield 0, scale
        return
    for box in boxes(layout):
        scale = layout.parameters(box).scale
        if scale is None:
            return
        yield box.start, scale
        if scale.numel() == 1 < layout.shape[0]:  # one scale for all rows
            return


def _powers_of_two(layout: Layout) -> Iterator[CheckpointFinding]:
    """Scales in float32 that E8M0 could store."""
    field = layout.fields.get(SCALE)
    if field is None or isinstance(layout, Gguf) or field.piece.dtype != "F32":
        return
    scale = field.read().contiguous()
    powers = (scale.view(torch.int32) & 0x7FFFFF == 0) & (scale != 0)
    if scale.numel() >= FEW and bool((powers | (scale == 0)).all()) and int((powers & (scale != 1)).sum()):
        words = (
            "{has} float32 scales that are all powers of two ({scales:scale}), as in E8M0 (ue8m0); if they were rounded "
            "after the codes were computed, values are too large or too small by a factor of up to 2."
        )
        yield warning(layout, "scales_powers_of_two", words, scales=int(powers.sum()))
