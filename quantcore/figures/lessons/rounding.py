"""Values and their codes on a line, the error against x, clipping against rounding."""

from typing import Any

import numpy as np
import numpy.typing as npt
import plotly.graph_objects as go
import torch

from quantcore.analysis import RangeCurve
from quantcore.figures.distribution import grid_values
from quantcore.figures.style import (
    DIM,
    FAINT,
    FILL,
    INK,
    LEGEND_ABOVE,
    LINE,
    band_at,
    base_layout,
    line_at,
    unchecked,
)
from quantcore.figures.typography import TEXT
from quantcore.quantization import Quantized, dequantize, quantize
from quantcore.scheme import Scheme
from quantcore.wording import signed

MAX_LABELS = 33  # marks labeled with their codes; beyond that, every n-th
SAMPLES = 1201
TUBE, MARK, BULB = 3.2, 3.4, 5.6  # of the size of type: how wide a thermometer is, and how long its marks
MERCURY = {"light": "rgb(205,65,65)", "dark": "rgb(235,95,95)"}

Array = npt.NDArray[Any]
Trace = dict[str, Any]


def _scatter(**drawn: Any) -> Trace:
    return {"type": "scatter", **drawn}


def rounding_line(
    result: Quantized,
    *,
    span: tuple[float, float] | None = None,
    theme: str = "light",
    size: float = TEXT,
) -> go.Figure:
    """Return x at the bottom, the values of the codes at the top, and a line from each element to its code.

    Args:
        result: of one block and integer codes.
        span: from where to where the axis reaches; None: as far as is drawn.
        size: font size in px.
    """
    return unchecked(*_line(result, span, theme, size))


def _line(
    result: Quantized, span: tuple[float, float] | None, theme: str, size: float
) -> tuple[list[Trace], dict[str, Any]]:
    """Return the traces and the layout of `rounding_line`: connections, marks, elements."""
    codes = list(range(result.scheme.format.qmin, result.scheme.format.qmax + 1))
    marks = grid_values(result, (0,) * result.scale.dim())
    x, x_hat = (t.reshape(-1).numpy() for t in (result.x, result.dequantized))
    every = -(-len(codes) // MAX_LABELS)
    labels = [signed(str(c)) if i % every == 0 or i + 1 == len(codes) else "" for i, c in enumerate(codes)]
    layout = base_layout(theme, 280, size) | {
        "xaxis": {"title": {"text": "x and x̂"}} | ({"range": list(span)} if span else {}),
        "yaxis": {
            "tickvals": [0, 1],
            "ticktext": ["x", "code q"],
            "range": [-0.35, 1.5],
            "showgrid": False,
            "zeroline": False,
        },
        "margin": {"l": 40 + 2 * size, "r": 12, "t": 8, "b": 24 + 2 * size},
    }
    line = {"color": LINE[theme], "width": 2}
    traces = [
        _connections(x, x_hat, theme),
        _scatter(
            x=marks,
            y=np.ones(len(marks)),
            mode="markers+text",
            text=labels,
            textposition="top center",
            customdata=codes,
            marker={"symbol": "line-ns", "size": 14, "line": line},
            hovertemplate="code %{customdata} represents %{x:.6~g}<extra></extra>",
        ),
        _scatter(
            x=x,
            y=np.zeros(len(x)),
            mode="markers",
            customdata=np.stack([result.codes.reshape(-1).numpy(), x_hat, x - x_hat], axis=1),
            marker={"color": FILL[theme], "size": max(9, size * 0.75)},
            hovertemplate="x %{x:.6~g}, code %{customdata[0]}, x̂ %{customdata[1]:.6~g}, "
            "error %{customdata[2]:.4~g}<extra></extra>",
        ),
    ]
    return traces, layout


def thermometer(
    result: Quantized,
    chosen: int,
    *,
    codes: bool = True,
    span: tuple[float, float] | None = None,
    theme: str = "light",
    size: float = TEXT,
) -> go.Figure:
    """Return `rounding_line` on a thermometer that lies on its side: its marks are the values of the codes.

    Args:
        result: of readings in °C.
        chosen: the reading up to which the mercury stands.
        codes: whether lines lead from each reading to its mark.
        span: of the lowest and the highest mark that the axis has room for; None: of this thermometer's.
    """
    (connections, on_scale, readings), layout = _line(result, None, theme, size)
    marks, reading = on_scale["x"], float(result.x.reshape(-1)[chosen])
    low, high = float(marks[0]), float(marks[-1])
    first, last = span or (low, high)
    pad = 0.03 * (last - first)
    bulb, end = low - 1.6 * pad, high + pad
    tube = {"ysizemode": "pixel", "yanchor": 1, "y0": -TUBE * size / 2, "y1": TUBE * size / 2}
    glass = {"type": "rect", "x0": bulb, "x1": end, "layer": "below"} | tube
    mercury = glass | {"x1": min(max(reading, bulb), end), "fillcolor": MERCURY[theme]}
    layout["shapes"] = [
        glass | {"line": {"color": DIM[theme], "width": 2}, "fillcolor": FAINT[theme]},
        mercury | {"line": {"width": 0}},
    ]
    layout["xaxis"] = {"title": {"text": "°C"}, "range": [first - 3.5 * pad, last + pad]}
    layout["yaxis"] |= {
        "ticktext": ["reading x", "code q" if codes else "mark"],
        "ticklabelstandoff": round(BULB * size / 2),  # left of the bulb
        "range": [-0.3, 1.55],
    }
    layout["margin"] |= {"l": 24 + (4 + BULB / 2) * size}
    ball = {"size": BULB * size, "color": MERCURY[theme], "line": {"color": DIM[theme], "width": 2}}
    # longer than the tube is wide: seen on mercury and on glass (Plotly draws it longer than its size)
    long = {"symbol": "line-ns", "size": MARK * size, "line": {"width": 2, "color": INK[theme]}}
    on_scale |= {"marker": long, "mode": "markers", "cliponaxis": False}
    above = {"size": 1.45 * MARK * size, "opacity": 0}
    if not codes:
        connections |= {"x": [], "y": []}
        readings["hovertemplate"] = "%{x:.6~g} °C<extra></extra>"
        layout |= _one_step([float(mark) for mark in marks], layout["shapes"], theme)
    traces = [
        connections, on_scale, readings,
        _scatter(x=[bulb], y=[1], mode="markers", marker=ball, hoverinfo="skip", cliponaxis=False),
        _scatter(
            x=marks, y=np.ones(len(marks)), text=on_scale["text"], mode="markers+text", marker=above,
            textposition="top center", cliponaxis=False, hoverinfo="skip",
        ),
    ]  # fmt: skip
    return unchecked(traces, layout)


def _one_step(marks: list[float], shapes: list[Trace], theme: str) -> dict[str, Any]:
    """Return the shapes and annotations of the distance of two marks in the middle, with its number."""
    at = len(marks) // 2
    first, second = marks[at - 1 : at + 1]
    line = {"color": DIM[theme], "width": 1, "dash": "dot"}
    ends = [
        {"type": "line", "x0": mark, "x1": mark, "y0": 0.35, "y1": 1, "line": line, "layer": "below"}
        for mark in (first, second)
    ]
    arrow = {"arrowhead": 2, "arrowside": "end+start", "arrowwidth": 2, "arrowcolor": INK[theme], "text": ""}
    words = f"one step: {second - first:.4g} °C"
    return {
        "shapes": [*shapes, *ends],
        "annotations": [
            {"x": second, "ax": first, "y": 0.45, "ay": 0.45, "axref": "x", "ayref": "y", **arrow},
            {"x": (first + second) / 2, "y": 0.43, "yanchor": "top", "text": words, "showarrow": False},
        ],
    }


def error_bars(
    values: Array, *, limit: float | None = None, theme: str = "light", size: float = TEXT
) -> go.Figure:
    """Return a bar for each error, above or below 0.

    Args:
        values: the errors, of shape (n,).
        limit: half a step, drawn as lines that no error crosses unless it is clipped; None: no lines.
    """
    layout = base_layout(theme, 280, size) | {
        "xaxis": {"title": {"text": "element"}, "dtick": 1},
        "yaxis": {"title": {"text": "error x − x̂"}},
        "margin": {"l": 40 + 3 * size, "r": 12, "t": 8, "b": 24 + 2 * size},
        "bargap": 0.4,
    }
    if limit is not None:
        layout["shapes"] = [line_at("y", y, {"color": DIM[theme], "dash": "dash"}) for y in (-limit, limit)]
        place = {"xref": "paper", "x": 1, "xanchor": "right", "y": limit, "yanchor": "bottom"}
        layout["annotations"] = [place | {"text": f"half a step, {limit:.3g}", "showarrow": False}]
        layout["yaxis"] |= {"range": [-1.3 * limit, 1.3 * limit]}
    colors = [FILL[theme] if v >= 0 else LINE[theme] for v in values]
    bars: Trace = {
        "type": "bar",
        "x": list(range(len(values))),
        "y": values,
        "marker": {"color": colors},
        "text": [signed(f"{v:.3g}") for v in values],
        "textposition": "outside",
        "constraintext": "none",  # Plotly would shrink or turn what is wider than its bar
        "textangle": 0,
        "cliponaxis": False,
        "hovertemplate": "element %{x}: error %{y:.4~g}<extra></extra>",
    }
    return unchecked([bars], layout)


def _connections(x: Array, x_hat: Array, theme: str) -> Trace:
    """Draw a line from each x at height 0 to its x̂ at height 1."""
    ends = np.stack([x, x_hat, np.full_like(x, np.nan)], axis=1).reshape(-1)
    heights = np.tile(np.array([0.0, 1.0, np.nan]), len(x))
    line = {"color": DIM[theme], "width": 1}
    return _scatter(x=ends, y=heights, mode="lines", line=line, hoverinfo="skip")


def error_curve(result: Quantized, span: tuple[float, float] | None = None) -> tuple[Array, Array]:
    """Return x over ``span``, or over the representable range and a fifth beyond it, and the error of each x.

    For a result of one block.
    """
    marks = grid_values(result, (0,) * result.scale.dim())
    beyond = 0.2 * (marks[-1] - marks[0])
    first, last = span or (float(marks[0] - beyond), float(marks[-1] + beyond))
    x = torch.linspace(first, last, SAMPLES)
    scheme = Scheme(result.scheme.format, result.scheme.symmetric, convention=result.scheme.convention)
    scale, zero_point = result.scale.reshape(-1)[0], result.params.zero_point.reshape(-1)[0]
    x_hat = dequantize(quantize(x, scale, zero_point, scheme), scale, zero_point, scheme)
    return x.numpy(), (x - x_hat).numpy()


def error_against_x(
    result: Quantized,
    *,
    span: tuple[float, float] | None = None,
    theme: str = "light",
    size: float = TEXT,
) -> go.Figure:
    """Return the error over x: a sawtooth within the representable range, a ramp where values are clipped.

    Args:
        span: from where to where the axis reaches; None: as far as is drawn.
    """
    x, error = error_curve(result, span)
    marks = grid_values(result, (0,) * result.scale.dim())
    own = (result.x.reshape(-1).numpy(), result.error.reshape(-1).numpy())
    layout = base_layout(theme, 280, size) | {
        "xaxis": {"title": {"text": "x"}} | ({"range": list(span)} if span else {}),
        "yaxis": {"title": {"text": "error x − x̂"}},
        "shapes": [band_at("x", float(marks[0]), float(marks[-1]), LINE[theme])],
        "margin": {"l": 40 + 3 * size, "r": 12, "t": 8, "b": 24 + 2 * size},
    }
    return unchecked(
        [
            _scatter(x=x, y=error, mode="lines", line={"color": LINE[theme], "width": 1.5}, hoverinfo="skip"),
            _scatter(
                x=own[0],
                y=own[1],
                mode="markers",
                marker={"color": FILL[theme], "size": max(8, size * 0.6)},
                hovertemplate="x %{x:.6~g}, error %{y:.4~g}<extra></extra>",
            ),
        ],
        layout,
    )


def clipping_against_rounding(
    curve: RangeCurve, chosen: float, *, theme: str = "light", size: float = TEXT
) -> go.Figure:
    """Return the error for ranges up to min-max and its two parts, with the chosen range marked."""
    colors = {"rounding": FILL[theme], "clipping": LINE[theme], "total": INK[theme]}
    shown = curve.fractions <= 1
    values = {"rounding": curve.rounding[shown], "clipping": curve.clipping[shown], "total": curve.mse[shown]}
    layout = base_layout(theme, 300, size) | {
        "xaxis": {"title": {"text": "range ±"}},
        "yaxis": {
            "title": {"text": "mean squared error"},
            # show the minimum and the full range, not the steep rise for ranges that are too narrow
            "range": [0, max(3.0 * float(values["total"].min()), 1.1 * float(values["total"][-1]))],
        },
        "shapes": [line_at("x", chosen, {"color": DIM[theme], "width": 2, "dash": "dot"})],
        "margin": {"l": 50 + 3 * size, "r": 12, "t": 8, "b": 24 + 2 * size},
        **LEGEND_ABOVE,
    }
    return unchecked(
        [
            _scatter(
                x=curve.widths[shown],
                y=y,
                name=name,
                mode="lines",
                line={"color": colors[name], "width": 3, "dash": "dash" if name == "total" else "solid"},
                hovertemplate=f"range ±%{{x:.4~g}}: {name} %{{y:.3~g}}<extra></extra>",
            )
            for name, y in values.items()
        ],
        layout,
    )
