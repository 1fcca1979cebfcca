"""What is wrong or unusual about stored scales, zero points and the order of columns."""

from collections.abc import Iterator

import torch
from torch import Tensor

from quantcore.checkpoints.findings.record import CheckpointFinding, error, note, warning
from quantcore.checkpoints.layouts.block_floats import GLOBAL_SCALE, SCALE_CODE, BlockFloats
from quantcore.checkpoints.layouts.gguf.blocks import Gguf
from quantcore.checkpoints.layouts.gptq import Gptq
from quantcore.checkpoints.protocol.layout import GROUP_INDEX, SCALE, ZERO_POINT, Layout
from quantcore.checkpoints.rows import boxes
from quantcore.diagnosis import index, number, percent
from quantcore.wording import count

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
    yield from _e8m0(layout)
    yield from _group_index(layout)
    yield from _scales(layout)
    yield from _powers_of_two(layout)


def _remarks(layout: Layout) -> Iterator[CheckpointFinding]:
    """Decisions against the config or without it, which other readers may make differently."""
    for sentence in layout.notes():
        if sentence in layout.remarks:
            yield CheckpointFinding("config_contradicted", "error", sentence, tensors=(layout.name,))
        elif sentence in layout.assumptions:
            yield CheckpointFinding("assumed", "warning", sentence, tensors=(layout.name,))
        elif isinstance(layout, Gptq):
            yield CheckpointFinding("gptq_version", "error", sentence, tensors=(layout.name,))
        else:
            yield CheckpointFinding("stored_apart", "note", sentence, tensors=(layout.name,))


def _zero_points(layout: Layout) -> Iterator[CheckpointFinding]:
    """GPTQ zero points on which readers disagree."""
    if not isinstance(layout, Gptq):
        return
    zero_point = layout.fields[ZERO_POINT].read()
    middle, is_v1 = 1 << (layout.bits - 1), layout.version == "gptq"
    if layout.config_symmetric:
        others = zero_point != middle
        if zero_point.numel() and bool(others.any()) and not layout.notes():
            yield error(
                layout,
                "zero_points_differ",
                f"is symmetric according to its config, so every zero point should be {middle}, but it has other values for "
                f"{_share(others)} of them, such as {int(zero_point[others][0])}; kernels for symmetric weights ignore all of them.",
            )
        return
    if is_v1 and zero_point.numel() and bool((zero_point == middle + 1).all()):
        yield warning(
            layout,
            "gptq_version",
            f"stores zeros of {middle} everywhere, the middle of the codes as v2 stores it, but the config says v1, so "
            f"its zero points are {middle + 1}; if the weights are wrong, set checkpoint_format to gptq_v2.",
        )
    largest = (1 << layout.bits) - 1
    wrapped = zero_point == 0
    if is_v1 and bool(wrapped.any()):
        yield warning(
            layout,
            "zero_point_wraps",
            f"stores {largest}, which is 0 in v1, for {_share(wrapped)} of its zero points; some readers add 1 without "
            f"wrapping and get {largest + 1}, others carry into the next zero point. Store it as gptq_v2.",
        )


def _global_scale(layout: Layout) -> Iterator[CheckpointFinding]:
    """A global scale that was stored as its inverse."""
    if not isinstance(layout, BlockFloats) or GLOBAL_SCALE not in layout.fields:
        return
    field = layout.fields[GLOBAL_SCALE]
    value = float(field.read().reshape(-1)[0])
    name = field.piece.name.rpartition(".")[2]
    if layout.global_scale == "multiplies" and value > 1:
        yield error(
            layout,
            "global_scale",
            f"has a {name} of {number(value)}, which multiplies; it should be max |w| / 2688, so a value above 1 "
            "looks like its inverse, which compressed-tensors stores.",
        )
    if layout.global_scale == "divides" and 0 <= value < 1:
        yield error(
            layout,
            "global_scale",
            f"has a {name} of {number(value)}, which divides; it should be 2688 / max |w|, so a value below 1 "
            "looks like its inverse, which ModelOpt stores.",
        )


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
        yield error(
            layout,
            "e8m0_nan",
            f"has {count(int(found.sum()), 'E8M0 scale')} of 255, first at {_first(found)}: NaN in the OCP standard, "
            "2^128 for readers that only shift the bits.",
        )


def _group_index(layout: Layout) -> Iterator[CheckpointFinding]:
    """Columns that are not in the order of their groups."""
    if GROUP_INDEX not in layout.fields:
        return
    found = layout.fields[GROUP_INDEX].read()
    falls = found[1:] < found[:-1]
    if not bool(falls.any()):
        return
    at = int(falls.nonzero()[0, 0]) + 1
    fact = (
        f"has an unsorted g_idx: column {at} belongs to group {int(found[at])}, the one before it to group "
        f"{int(found[at - 1])}"
    )
    if isinstance(layout, Gptq) and layout.desc_act:
        yield note(
            layout, "g_idx_unsorted", f"{fact} (desc_act); readers that ignore g_idx get wrong values."
        )
    elif isinstance(layout, Gptq):
        yield warning(
            layout,
            "g_idx_unsorted",
            f"{fact}, but the config says that desc_act is false; readers that trust it take the columns in order.",
        )
    else:
        yield warning(
            layout,
            "g_idx_unsorted",
            f"{fact}; compressed-tensors 0.20 and later read the columns in order, so they get most values wrong.",
        )


def _scales(layout: Layout) -> Iterator[CheckpointFinding]:
    """Scales that are not finite, 0 or negative."""
    nonfinite, negative, total = _Marked(), _Marked(), 0
    zeros = 0
    for start, scale in _scale_boxes(layout):
        nonfinite.add(~scale.isfinite(), start)
        negative.add(scale < 0, start)
        zeros += int((scale == 0).sum())
        total += scale.numel()
    if nonfinite.count:
        yield error(
            layout,
            "scale_nonfinite",
            f"has {count(nonfinite.count, 'NaN or infinite scale')}, first at {nonfinite.first} of the grid of blocks; the "
            "values there are wrong.",
        )
    if total and zeros == total:
        yield warning(layout, "scale_zero", "has only scales of 0, so its values do not depend on its codes.")
    # those of MLX and ggml are signed, and nested ones of bitsandbytes are rounded
    unusual = layout.symmetric and SCALE in layout.fields and not isinstance(layout, Gguf)
    if unusual and negative.count:
        yield warning(
            layout,
            "scale_negative",
            f"has {count(negative.count, 'negative scale')} ({percent(negative.count / total)}), first at {negative.first} of "
            "the grid of blocks; its format does not write negative scales.",
        )


class _Marked:
    """The number of marked entries over boxes of rows, and the index of the first."""

    def __init__(self) -> None:
        self.count, self.first = 0, ""

    def add(self, mask: Tensor, start: int) -> None:
        """Count the marks of a box whose first row is ``start``."""
        n = int(mask.sum())
        if n and not self.count:
            place = mask.nonzero()[0].tolist()
            self.first = index((place[0] + start, *place[1:]) if place else ())
        self.count += n


def _scale_boxes(layout: Layout) -> Iterator[tuple[int, Tensor]]:
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
    bits = scale.view(torch.int32)
    if scale.numel() >= FEW and bool((bits & 0x7FFFFF == 0).all()) and bool((scale != 1).any()):
        yield warning(
            layout,
            "scales_powers_of_two",
            f"has float32 scales that are all powers of two ({count(scale.numel(), 'scale')}), as in E8M0 (ue8m0); if they "
            "were rounded after the codes were computed, values are too large or too small by a factor of up to 2.",
        )


def _share(mask: Tensor) -> str:
    n = int(mask.sum())
    return f"{n:,} ({percent(n / mask.numel())})"


def _first(mask: Tensor) -> str:
    return index(tuple(mask.nonzero()[0].tolist()))
