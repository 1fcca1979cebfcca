"""How a torch script computes the ranges of blocks and expands the parameters of blocks to elements."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from quantcore.granularity import PerTensor, Shape, grid_shape
from quantcore.notation import write_call, write_value
from quantcore.qparams import ranges
from quantcore.quantization import Quantized
from quantcore.range_setting import Fixed, MinMax, Percentile, RangeSetting
from quantcore.snippets.script import render
from quantcore.tensors import array_source

_FIXED = """
# {{ comment }}
{% for name, value in ends %}
{{ name }} = {{ value }}
{% endfor %}
"""
_MEASURED = """
# {{ layout.comment }}
{% for line in layout.before %}
{{ line }}
{% endfor %}
{% for line in ends %}
{{ line }}
{% endfor %}
"""


@dataclass(frozen=True)
class RangeTemplate:
    """How the script computes one bound of the ranges.

    ``extreme`` and ``percentile`` are templates for an expression with one number per block, in block form;
    {x} is ``source`` or its magnitudes, {end} is amin or amax, {p} is the percentile.
    ``before``: lines that come first. ``target``: a template for the assignment.
    """

    comment: str
    source: str
    extreme: str
    percentile: str
    before: tuple[str, ...] = ()
    target: str = "{} = "


def range_dtype(result: Quantized, of_x: torch.dtype) -> torch.dtype:
    """Return the dtype of the lines of `low_high`; ``of_x``: that of x."""
    return of_x if result.scheme.range_setting.ends_are_elements else torch.float32


def low_high(result: Quantized, starts: tuple[str, ...]) -> str:
    """Return lines that bind the ranges of blocks, one number per block.

    For a percentile they call ``percentile(rows, p)``.

    Args:
        starts: "low" and "high", or "largest" alone, the largest magnitude.
    """
    setting = result.scheme.range_setting
    if not isinstance(setting, MinMax | Percentile) or _first_of_equal(result):
        return _as_numbers(result, starts)
    layout = _layout_of(result, starts)
    return render(_MEASURED, layout=layout, ends=[_end(layout, end, setting) for end in starts])


def _first_of_equal(result: Quantized) -> bool:
    """Whether of two ends of equal magnitude the first counts, which no minimum and maximum tells."""
    return result.scheme.symmetric and result.computed.rules.scale.symmetric_scale == "signed_amax"


def _as_numbers(result: Quantized, starts: tuple[str, ...]) -> str:
    """Write a range that is given, or found by a search, as numbers."""
    setting = result.scheme.range_setting
    if isinstance(setting, Fixed):
        ends: dict[str, Any] = {"low": setting.low, "high": setting.high}
        ends["largest"] = max(abs(setting.low), abs(setting.high))
        found = [(name, f"torch.tensor({ends[name]})") for name in starts]
        return render(_FIXED, comment="a fixed range", ends=found)
    low, high = (end.float() for end in ranges(result.x, result.computed))
    tensors = {"low": low, "high": high, "largest": torch.maximum(low.abs(), high.abs())}
    found = [(name, array_source(shortest(tensors[name]))) for name in starts]
    return render(_FIXED, comment=f"the range that {write_call(setting)} finds", ends=found)


def shortest(parameters: Tensor) -> Tensor:
    """Return one number if all are the same."""
    first = parameters.reshape(-1)[:1].reshape(())
    return first if bool((parameters == first).all()) else parameters


def _end(layout: RangeTemplate, end: str, setting: RangeSetting) -> str:
    """Return the line that binds one bound of the ranges."""
    source = f"{layout.source}.abs()" if end == "largest" else layout.source
    if isinstance(setting, Percentile):
        p = f"100 - {write_value(setting.p)}" if end == "low" else write_value(setting.p)
        return layout.target.format(end) + layout.percentile.format(x=source, p=p)
    return layout.target.format(end) + layout.extreme.format(x=source, end="amin" if end == "low" else "amax")


def _layout_of(result: Quantized, starts: tuple[str, ...]) -> RangeTemplate:
    """Choose the simplest form: the whole tensor, whole axes, an axis of blocks, or one block at a time."""
    shape, block = result.blocked_shape, result.block
    inner = tuple(i for i, b in enumerate(block) if b > 1)
    if isinstance(result.scheme.granularity, PerTensor):
        return RangeTemplate(
            "one range for the whole tensor", "x", "{x}.{end}()", "percentile({x}.flatten(), {p})"
        )
    if inner and all(block[i] == shape[i] for i in inner):
        return _whole_axes(shape, inner)
    short = any(n % b for n, b in zip(shape, block, strict=True))
    has_zero = starts == ("largest",) or result.computed.rules.range.zero_in_range == "both"
    if short and (isinstance(result.scheme.range_setting, Percentile) or not has_zero):
        return _one_at_a_time(shape, block, starts)
    return _last_axis(shape, block)


def spread_source(result: Quantized) -> str:
    """Return the expression that repeats parameters in block form for every element; "" if they broadcast.

    Blocks of (1, 4) on shape (8, 18) give ``.repeat_interleave(4, dim=1)[:, :18]``.
    """
    shape, block = result.blocked_shape, result.block
    axes = [i for i, (n, b) in enumerate(zip(shape, block, strict=True)) if 1 < b < n]
    repeats = "".join(f".repeat_interleave({block[i]}, dim={i})" for i in axes)
    if not any(shape[i] % block[i] for i in axes):
        return repeats
    cuts = [f":{n}" if i in axes and n % block[i] else ":" for i, n in enumerate(shape)]
    while cuts[-1] == ":":
        cuts.pop()
    return f"{repeats}[{', '.join(cuts)}]"


def _whole_axes(shape: Shape, inner: Shape) -> RangeTemplate:
    """Return the template of blocks that cover the axes ``inner``: one per channel."""
    outer = tuple(i for i in range(len(shape)) if i not in inner)
    grid = tuple(1 if i in inner else n for i, n in enumerate(shape))
    order = outer + inner
    permute = f".permute{order}" if list(order) != sorted(order) else ""
    return RangeTemplate(
        f"one range per index along axis {' and '.join(map(str, outer))}",
        "x",
        f"{{x}}.{{end}}({inner}, keepdim=True)",
        f"percentile({{x}}{permute}.flatten({len(outer)}), {{p}}).reshape({grid})",
    )


def _last_axis(shape: Shape, block: Shape) -> RangeTemplate:
    """Put the elements of each block on a new last axis."""
    before, source = [], "x"
    grid = grid_shape(shape, block)
    missing = [g * b - n for g, b, n in zip(grid, block, shape, strict=True)]
    if any(missing):
        widths = tuple(width for end in reversed(missing) for width in (0, end))
        # only for MinMax: zeros would shift a percentile
        before += [
            "# the last blocks are shorter: pad them with 0, which every range contains anyway",
            f"padded = torch.nn.functional.pad(x, {widths})",
        ]
        source = "padded"
    inner = [i for i, b in enumerate(block) if b > 1]
    if not inner:
        split = ".unsqueeze(-1)"
    elif len(inner) == 1:
        i = inner[0]
        move = f".movedim({i + 1}, -1)" if i + 1 < len(shape) else ""
        split = f".unflatten({i}, {(grid[i], block[i])}){move}"
    else:
        sizes = tuple(size for pair in zip(grid, block, strict=True) for size in pair)
        order = tuple(range(0, len(sizes), 2)) + tuple(range(1, len(sizes), 2))
        split = f".reshape{sizes}.permute{order}.flatten({len(shape)})"
    before.append(f"blocks = {source}{split}  # the elements of a block are on the last axis")
    comment = f"one range per block of {block}"
    return RangeTemplate(comment, "blocks", "{x}.{end}(-1)", "percentile({x}, {p})", tuple(before))


def _one_at_a_time(shape: Shape, block: Shape, ends: tuple[str, ...]) -> RangeTemplate:
    """Return the template of a loop over the blocks; the last ones are shorter."""
    grid = grid_shape(shape, block)
    ranges = ", ".join(f"range({g})" for g in grid)
    before = (
        f"{', '.join(ends)} = {', '.join(f'torch.empty({grid})' for _ in ends)}",
        f"for place in itertools.product({ranges}):",
        f"    block = x[tuple(slice(p * b, p * b + b) for p, b in zip(place, {block}))].flatten()",
    )
    comment = f"one range per block of {block}; the last blocks are shorter"
    return RangeTemplate(comment, "block", "{x}.{end}()", "percentile({x}, {p})", before, "    {}[place] = ")
