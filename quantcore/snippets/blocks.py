"""How a torch script computes the ranges of blocks and expands the parameters of blocks to elements."""

from dataclasses import dataclass

from quantcore.granularity import PerTensor, Shape, grid_shape
from quantcore.notation import write_value
from quantcore.quantization import Quantized
from quantcore.range_setting import Fixed, Percentile
from quantcore.snippets.script import render

_FIXED = """
# a fixed range
{% if symmetric %}
high = torch.tensor({{ largest }})
{% else %}
low, high = torch.tensor({{ low }}), torch.tensor({{ high }})
low, high = low.clamp(max=0), high.clamp(min=0)  # the range includes 0
{% endif %}
"""
_MEASURED = """
# {{ layout.comment }}
{% for line in layout.before %}
{{ line }}
{% endfor %}
{% if not symmetric %}
{{ low }}
{% endif %}
{{ high }}
{% if not symmetric %}
low, high = low.clamp(max=0), high.clamp(min=0)  # the range includes 0
{% endif %}
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


def low_high(result: Quantized) -> str:
    """Return lines that bind low and high, one number per block; high alone for symmetric schemes.

    For a percentile they call ``percentile(rows, p)``.
    """
    setting, symmetric = result.scheme.range_setting, result.scheme.symmetric
    if isinstance(setting, Fixed):
        largest = max(abs(setting.low), abs(setting.high))
        return render(_FIXED, symmetric=symmetric, low=setting.low, high=setting.high, largest=largest)
    layout = _layout_of(result)
    return render(
        _MEASURED,
        layout=layout,
        symmetric=symmetric,
        low=_end(layout, "low", result),
        high=_end(layout, "high", result),
    )


def _end(layout: RangeTemplate, end: str, result: Quantized) -> str:
    """Return the line that binds one bound of the ranges."""
    source = f"{layout.source}.abs()" if result.scheme.symmetric else layout.source
    setting = result.scheme.range_setting
    if isinstance(setting, Percentile):
        p = f"100 - {write_value(setting.p)}" if end == "low" else write_value(setting.p)
        return layout.target.format(end) + layout.percentile.format(x=source, p=p)
    return layout.target.format(end) + layout.extreme.format(x=source, end="amin" if end == "low" else "amax")


def _layout_of(result: Quantized) -> RangeTemplate:
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
    if short and isinstance(result.scheme.range_setting, Percentile):
        return _one_at_a_time(shape, block, result.scheme.symmetric)
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


def _one_at_a_time(shape: Shape, block: Shape, symmetric: bool) -> RangeTemplate:
    """Return the template of a loop over the blocks; the last ones are shorter."""
    grid = grid_shape(shape, block)
    ends = ("high",) if symmetric else ("low", "high")
    ranges = ", ".join(f"range({g})" for g in grid)
    before = (
        f"{', '.join(ends)} = {', '.join(f'torch.empty({grid})' for _ in ends)}",
        f"for place in itertools.product({ranges}):",
        f"    block = x[tuple(slice(p * b, p * b + b) for p, b in zip(place, {block}))].flatten()",
    )
    comment = f"one range per block of {block}; the last blocks are shorter"
    return RangeTemplate(comment, "block", "{x}.{end}()", "percentile({x}, {p})", before, "    {}[place] = ")
