"""The way of one element as four pictures, ÷ s, round, clamp and · s, among others of its block."""

import base64
import html
import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

import quantcore as qc
from quantcore.analysis import elements_of
from quantcore.figures import style

WIDE, HIGH, EDGE = 240, 76, 10  # of a picture, in its own units
TOP, FOOT = 16, 58  # where its two axes are
OTHERS = 24  # elements of the block that are drawn faintly
ALL = 40  # codes: if the block spans more, those around the element are drawn


@dataclass(frozen=True)
class CodeWay:
    """Where an element stands among the codes.

    Attributes:
        places: before rounding, rounded, and its code.
        others: the place before rounding and the code of elements of its block, one per row.
        ends: the lowest and the highest code.
        added: the zero point that is added after rounding.
    """

    places: tuple[float, float, float]
    others: np.ndarray
    ends: tuple[int, int]
    added: int


def markup(result: qc.Quantized, trace: qc.Trace, theme: str) -> str:
    """Return the four pictures as HTML; empty if the code does not come from dividing and rounding."""
    way = _way(result, trace)
    if way is None:
        return ""
    window = _window(way)
    pictures = (
        _divided(way, window),
        _moved(way, 0, window),
        _moved(way, 1, window),
        _back(way, window),
    )
    cells = (
        f"<figure><figcaption><b>{name}</b> {'<br>'.join(map(html.escape, texts))}</figcaption>"
        f'<img alt="" src="{_picture(drawing, theme)}"></figure>'
        for (name, texts), drawing in zip(_captions(trace).items(), pictures, strict=True)
    )
    return f'<div class="qs-path">{"".join(cells)}</div>'


def _way(result: qc.Quantized, trace: qc.Trace) -> CodeWay | None:
    fmt = result.scheme.format
    lines: dict[str, list[float]] = {}
    for line in trace.coding:
        lines.setdefault(line.name, []).append(float(line.value))
    numbers = [*lines.get("u", ()), *lines.get("v", ()), trace.scale, trace.zero_point]
    usable = isinstance(fmt, qc.IntFormat) and trace.overflow != "searched" and "u" in lines and "v" in lines
    if not usable or not all(map(math.isfinite, numbers)) or trace.scale == 0:
        return None
    assert isinstance(fmt, qc.IntFormat)
    rounded = lines["v"][-1]
    added = round(rounded - lines["v"][0])  # a zero point is added before or after rounding
    before = lines["u"][-1] + added
    elements = (
        elements_of(values, result.scheme.granularity, trace.block) for values in (result.x, result.codes)
    )
    x, codes = (values.reshape(-1) for values in elements)
    some = np.unique(np.linspace(0, len(x) - 1, OTHERS).astype(int))
    at = x[some].double().numpy() / trace.scale + trace.zero_point
    others = np.stack([at, codes[some].double().numpy()], 1)[np.isfinite(at)]
    return CodeWay((before, rounded, float(trace.code)), others, (fmt.qmin, fmt.qmax), added)


def _window(way: CodeWay) -> tuple[float, float]:
    """Return which codes are drawn: all that occur, or those around the element."""
    every = [*way.others.ravel(), *way.places, *way.ends]
    low, high = min(every) - 0.6, max(every) + 0.6
    if high - low > ALL:
        low, high = min(way.places) - 3.6, max(way.places) + 3.6
    return low, high


def _captions(trace: qc.Trace) -> dict[str, list[str]]:
    """Return the steps of the trace by picture, such as ``5 / 0.71 = 7``."""
    steps = trace.steps()
    names = [step.name for step in steps]
    start = names.index("zero point z") + 1
    round_ = next(i for i, name in enumerate(names) if name.startswith("round"))
    code = next(i for i, name in enumerate(names) if name.startswith("code q"))
    spans = {
        "÷ s": (start, round_),
        "round": (round_, code),
        "clamp": (code, code + 1),
        "· s": (code + 1, None),
    }
    return {
        name: [f"{step.formula} = {step.value}" for step in steps[first:stop]]
        for name, (first, stop) in spans.items()
    }


def _divided(way: CodeWay, window: tuple[float, float]) -> Iterable[str]:
    """Draw x above, without codes, and below it x/s among them: the same place in another unit."""
    yield _axis(TOP, window, ())
    yield _axis(FOOT, window, _codes(way, window), way.added)
    yield from _ways(way.others[:, 0], way.others[:, 0], window)
    yield _chosen(way.places[0], way.places[0], window)


def _moved(way: CodeWay, step: int, window: tuple[float, float]) -> Iterable[str]:
    """Draw what rounding (0) or clamping (1) moves."""
    at, code = way.others.T
    rounded = np.where(np.abs(at - code) <= 1, code, np.rint(at))
    yield _axis(TOP, window, _codes(way, window), way.added * (step == 0))
    yield _axis(FOOT, window, _codes(way, window, beyond=step == 0))
    yield from _ways(at if step == 0 else rounded, rounded if step == 0 else code, window)
    yield _chosen(way.places[step], way.places[step + 1], window)


def _back(way: CodeWay, window: tuple[float, float]) -> Iterable[str]:
    """Draw the code above, and below it its value beside x: what lies between them is the error."""
    yield _axis(TOP, window, _codes(way, window, beyond=False))
    yield _axis(FOOT, window, ())
    yield from _ways(way.others[:, 1], way.others[:, 1], window)
    x, _, code = way.places
    first, last = (_across(place, window) for place in (x, code))
    yield f'<path class="error" d="M{first:.1f} {FOOT}H{last:.1f}"/>'
    yield f'<circle class="x" cx="{first:.1f}" cy="{FOOT}" r="4.5"/>'
    yield _chosen(code, code, window)


def _codes(way: CodeWay, window: tuple[float, float], *, beyond: bool = True) -> range:
    """Return the codes in the window; ``beyond``: also integers that are not codes."""
    first, last = math.ceil(window[0]), math.floor(window[1])
    if not beyond:
        first, last = max(first, way.ends[0]), min(last, way.ends[1])
    return range(first, last + 1, 1 + (last - first) // (2 * ALL))


def _across(place: float, window: tuple[float, float]) -> float:
    low, high = window
    return EDGE + (place - low) / (high - low) * (WIDE - 2 * EDGE)


def _axis(y: int, window: tuple[float, float], ticks: Iterable[int], added: int = 0) -> str:
    """Draw an axis; its ticks point outwards, with numbers, less what was added, on as many as fit."""
    ticks = list(ticks)
    out = -1 if y == TOP else 1
    marks = "".join(f"M{_across(tick, window):.1f} {y}v{4 * out}" for tick in ticks)
    every = max(1, math.ceil(len(ticks) / 9))
    shown = [tick for tick in ticks if (tick - added) % every == 0]
    foot = y + (16 if out > 0 else -7)
    words = "".join(
        f'<text x="{_across(tick, window):.1f}" y="{foot}">{tick - added}</text>'.replace(">-", ">−")
        for tick in shown
    )
    return f'<path class="dim" d="M{EDGE} {y}H{WIDE - EDGE}"/><path class="line" d="{marks}"/>{words}'


def _ways(above: np.ndarray, below: np.ndarray, window: tuple[float, float]) -> Iterable[str]:
    low, high = window
    for start, stop in zip(above, below, strict=True):
        if low <= start <= high and low <= stop <= high:
            first, last = _across(start, window), _across(stop, window)
            yield f'<path class="other" d="M{first:.1f} {TOP}L{last:.1f} {FOOT}"/>'


def _chosen(above: float, below: float, window: tuple[float, float]) -> str:
    start, stop = _across(above, window), _across(below, window)
    return (
        f'<path class="own" d="M{start:.1f} {TOP}L{stop:.1f} {FOOT}"/>'
        f'<circle cx="{start:.1f}" cy="{TOP}" r="3.5"/><circle cx="{stop:.1f}" cy="{FOOT}" r="3.5"/>'
    )


def _picture(drawing: Iterable[str], theme: str) -> str:
    """Return a picture as an address: Streamlit removes SVG from HTML."""
    ink, line, fill, dim = (colors[theme] for colors in (style.INK, style.LINE, style.FILL, style.DIM))
    rules = f"""path{{fill:none}} .dim{{stroke:{dim}}} .line{{stroke:{line};stroke-width:1.5}}
.other{{stroke:{dim};stroke-opacity:.6}} .own{{stroke:{fill};stroke-width:2.5}} circle{{fill:{fill}}}
.x{{fill:none;stroke:{ink};stroke-width:1.5}} .error{{stroke:{line};stroke-width:5;stroke-opacity:.7}}
text{{fill:{ink};font:9.5px sans-serif;text-anchor:middle}}"""
    size = f'xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDE} {HIGH}"'
    svg = f"<svg {size}><style>{rules}</style>{''.join(drawing)}</svg>"
    return "data:image/svg+xml;base64," + base64.b64encode(svg.encode()).decode()
