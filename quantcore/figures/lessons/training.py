"""What training sees: digits and how they are read, accuracy over epochs and bits, and slopes of rounding."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import plotly.graph_objects as go
import torch

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
    log_ticks,
)
from quantcore.figures.typography import TEXT
from quantcore.formats import IntFormat
from quantcore.granularity import PerChannel
from quantcore.qparams import QParams
from quantcore.range_setting import Given
from quantcore.scheme import Scheme
from quantcore.training import FLOAT, Point, fake_quantize

SIDE = 8  # pixels of a digit, each way
METHOD_NAMES = {
    "ptq": "PTQ, after training",
    "qat": "QAT, straight-through",
    "lsq": "QAT, learned scales (LSQ)",
}
# Orange, blue and green of different lightness; symbols and dashes differ too
COLOURS = {"ptq": LINE, "qat": FILL, "lsq": {"light": "rgb(0,140,105)", "dark": "rgb(120,220,180)"}}
SYMBOLS = {"ptq": "circle", "qat": "square", "lsq": "diamond"}
DASHES = {"ptq": "solid", "qat": "dash", "lsq": "dot"}
OFFSETS = {"ptq": -0.08, "qat": 0.0, "lsq": 0.08}  # in bits, so that equal accuracies do not hide each other

Array = npt.NDArray[Any]
SAMPLES = 1201
DERIVATIVES = {"rounding": "∂x̂/∂x", "through": "∂x̂/∂x", "to_scale": "∂x̂/∂s"}


def digit_images(
    images: torch.Tensor,
    labels: Sequence[int],
    read: Sequence[int],
    *,
    across: int = 5,
    theme: str = "light",
    size: float = TEXT,
) -> go.Figure:
    """Return images in rows, each with the digit that the network reads below it, marked if it is wrong.

    Args:
        images: float32 of shape (n, 64), 0 to 1.
        labels, read: the true digit of each image, and the digit that a network reads.
        across: images in a row.
    """
    count, wide, high = len(labels), SIDE + 2, SIDE + 3
    rows, columns = max(1, -(-count // across)), max(1, min(count, across))
    z = np.full((rows * high, columns * wide), np.nan)
    corners = [(i // across * high, i % across * wide) for i in range(count)]
    for image, (top, left) in zip(images, corners, strict=True):
        z[top : top + SIDE, left : left + SIDE] = image.reshape(SIDE, SIDE).numpy()
    notes = [
        {
            "x": left + (SIDE - 1) / 2,
            "y": top + SIDE - 0.4,
            "yanchor": "top",
            "showarrow": False,
            "text": str(got) if got == label else f"<b>{got}</b>, not {label}",
            "font": {} if got == label else {"color": LINE[theme]},
        }
        for (top, left), label, got in zip(corners, labels, read, strict=True)
    ]
    axis = {"visible": False, "fixedrange": True}
    layout = base_layout(theme, 280, size) | {
        "annotations": notes,
        "xaxis": axis | {"constrain": "domain"},
        "yaxis": axis
        | {
            "range": [rows * high - 0.5, -0.5],
            "scaleanchor": "x",
            "constrain": "domain",
            "constraintoward": "top",
        },
        "margin": {"l": 4, "r": 4, "t": 4, "b": 4},
    }
    shades = [[0.0, FAINT[theme]], [1.0, INK[theme]]]
    picture = go.Heatmap(z=z, zmin=0, zmax=1, colorscale=shades, showscale=False, hoverinfo="skip")
    return go.Figure([picture], layout)


def accuracy_over_epochs(
    runs: dict[str, Sequence[float]],
    levels: dict[str, float],
    count: int,
    *,
    theme: str = "light",
    size: float = TEXT,
) -> go.Figure:
    """Return accuracy over epochs.

    Args:
        runs: "qat" or "lsq" -> accuracies from epoch 0, each 0 to 1.
        levels: name -> a constant accuracy, drawn as a horizontal line.
        count: epochs of a full run.
    """
    known = [*levels.values(), *(a for run in runs.values() for a in run)]
    low = 100 * min(known)
    ends = [low - (101 - low) * 0.15, 100 + (101 - low) * 0.04]  # no mark above 100 %
    layout = base_layout(theme, 280, size) | {
        "xaxis": _axis("epoch", size) | {"range": [-0.4, count + 0.4]},
        "yaxis": _axis("accuracy", size) | {"ticksuffix": " %", "range": ends},
        "margin": {"l": 8, "r": 8 + 8 * size, "t": 8, "b": 8},
        "shapes": [_horizontal_line(100 * y, theme) for y in levels.values()],
        "annotations": [
            {"x": 1, "xref": "paper", "xanchor": "left", "y": 100 * y, "text": f" {name}", "showarrow": False}
            for name, y in levels.items()
        ],
    }
    traces = [
        go.Scatter(
            x=list(range(len(run))),
            y=[100 * a for a in run],
            name=METHOD_NAMES[method],
            mode="lines+markers",
            line={"color": COLOURS[method][theme], "width": size / 6},
            marker={"size": max(8, size * 0.6), "symbol": SYMBOLS[method]},
            hovertemplate="epoch %{x}: %{y:.2f} %<extra></extra>",
        )
        for method, run in runs.items()
    ]
    return go.Figure(traces, layout)


def accuracy_against_bits(
    points: Sequence[Point],
    *,
    errors: bool = False,
    enough: float | None = None,
    theme: str = "light",
    size: float = TEXT,
) -> go.Figure:
    """Return each method's mean accuracy over seeds against bits, with bars from the worst to the best seed.

    Args:
        points: from `quantcore.training.summary`; the float network is drawn as a horizontal band.
        errors: draw the percentage of misread digits instead, on a logarithmic axis.
        enough: an accuracy, 0 to 1, to mark with a line; not with ``errors``.
    """
    what = "misread" if errors else "accuracy"
    widths = sorted({p.bits for p in points if p.method != FLOAT})
    axis = _axis(what, size) | {"ticksuffix": " %"}
    if errors:
        ends = [end for p in points for end in _mean_and_bounds(p, errors)]
        axis |= {"type": "log", **(log_ticks(min(ends), max(ends), " %") if ends else {})}
    else:
        axis |= {"range": [0, 102]}
    layout = base_layout(theme, 373, size) | {
        "xaxis": _axis("bits per code", size) | {"tickvals": widths},
        "yaxis": axis,
        "margin": {"l": 8, "r": 12, "t": 8, "b": 8},
        **LEGEND_ABOVE,
        "shapes": [s for p in points if p.method == FLOAT for s in _band(p, errors, theme)],
    }
    if enough is not None:
        layout["shapes"].append(line_at("y", 100 * enough, {"color": LINE[theme], "width": 2}))
    traces = [
        _method(method, [p for p in points if p.method == method], errors, theme, size)
        for method in METHOD_NAMES
        if any(p.method == method for p in points)
    ]
    return go.Figure(traces, layout)


def _method(method: str, points: list[Point], errors: bool, theme: str, size: float) -> go.Scatter:
    points = sorted(points, key=lambda p: p.bits)
    mean, low, high = np.array([_mean_and_bounds(p, errors) for p in points]).T
    return go.Scatter(
        x=[p.bits + OFFSETS[method] for p in points],
        y=mean,
        name=METHOD_NAMES[method],
        mode="lines+markers",
        line={"color": COLOURS[method][theme], "width": size / 6, "dash": DASHES[method]},
        marker={"size": max(9, size * 0.65), "symbol": SYMBOLS[method]},
        error_y={"array": high - mean, "arrayminus": mean - low, "thickness": size / 7, "width": size / 3},
        customdata=[[p.bits, a, b, p.seeds] for p, a, b in zip(points, low, high, strict=True)],
        hovertemplate=f"{METHOD_NAMES[method]}<br>%{{customdata[0]}} bits: %{{y:.2f}} %, "
        "%{customdata[1]:.2f} to %{customdata[2]:.2f} % over %{customdata[3]} seeds<extra></extra>",
    )


def _mean_and_bounds(p: Point, errors: bool) -> tuple[float, float, float]:
    """Mean, lowest and highest in percent; errors are at least 0.01 %, for the logarithmic axis."""
    if errors:
        return tuple(max(0.01, 100 - 100 * a) for a in (p.mean, p.highest, p.lowest))  # type: ignore[return-value]
    return 100 * p.mean, 100 * p.lowest, 100 * p.highest


def _band(p: Point, errors: bool, theme: str) -> list[dict[str, Any]]:
    mean, low, high = _mean_and_bounds(p, errors)
    return [band_at("y", low, high, DIM[theme], 0.25), _horizontal_line(mean, theme)]


def _horizontal_line(y: float, theme: str) -> dict[str, Any]:
    return line_at("y", y, {"color": DIM[theme], "width": 2, "dash": "dot"})


def _axis(name: str, size: float) -> dict[str, Any]:
    title = {"text": name, "standoff": size // 2}
    return {"title": title, "automargin": True}


@dataclass(frozen=True)
class Slopes:
    """Fake quantization as a function of x, and its slopes as autograd returns them.

    ``rounding``: ∂x̂/∂x with rounding's own derivative; ``through``: with the straight-through estimator;
    ``to_scale``: ∂x̂/∂s.
    """

    x: Array
    x_hat: Array
    rounding: Array
    through: Array
    to_scale: Array


def slopes(bits: int, scale: float) -> Slopes:
    """Differentiate symmetric fake quantization of ``bits`` bits over its range and beyond."""
    scheme = Scheme(IntFormat(bits), range_setting=Given(scale))
    qmin, qmax = scheme.format.qmin, scheme.format.qmax
    x = torch.linspace((qmin - 1.5) * scale, (qmax + 1.5) * scale, SAMPLES, requires_grad=True)
    plain = (x / scale).round().clamp(qmin, qmax) * scale
    (rounding,) = torch.autograd.grad(plain.sum(), x)
    x_hat = fake_quantize(x, scheme)
    (through,) = torch.autograd.grad(x_hat.sum(), x)
    # one scale per x, to get the slope at each x
    each = QParams(torch.full((SAMPLES, 1), scale, requires_grad=True), torch.zeros(SAMPLES, 1).int())
    rows = fake_quantize(x.detach().reshape(-1, 1), Scheme(IntFormat(bits), granularity=PerChannel(0)), each)
    (to_scale,) = torch.autograd.grad(rows.sum(), each.scale)
    found = (x, x_hat, rounding, through, to_scale.reshape(-1))
    return Slopes(*(t.detach().numpy() for t in found))


def slope(found: Slopes, which: str, *, theme: str = "light", size: float = TEXT) -> go.Figure:
    """Return x̂ over x above, and one of the slopes below: "rounding", "through" or "to_scale"."""
    few = {"nticks": 6}
    layout = base_layout(theme, 420, size) | {
        "xaxis": _axis("x", size) | few | {"anchor": "y2"},
        "yaxis": _axis("x̂", size) | few | {"domain": [0.46, 1]},
        "yaxis2": _axis(DERIVATIVES[which], size) | few | {"domain": [0, 0.36]},
        "margin": {"l": 8, "r": 12, "t": 8, "b": 8},
    }
    if which != "to_scale":
        layout["yaxis2"] |= {"range": [-0.25, 1.25], "tickvals": [0, 1]}
    thin = {"color": DIM[theme], "width": size / 10, "dash": "dot"}
    traces = [
        go.Scatter(x=found.x, y=found.x, mode="lines", line=thin, hoverinfo="skip"),
        go.Scatter(
            x=found.x,
            y=found.x_hat,
            mode="lines",
            line={"color": FILL[theme], "width": size / 6, "shape": "hv"},
            hovertemplate="x %{x:.4~g}: x̂ %{y:.4~g}<extra></extra>",
        ),
        go.Scatter(
            x=found.x,
            y=getattr(found, which),
            yaxis="y2",
            mode="lines",
            line={"color": LINE[theme], "width": size / 6},
            hovertemplate=f"x %{{x:.4~g}}: {DERIVATIVES[which]} %{{y:.4~g}}<extra></extra>",
        ),
    ]
    return go.Figure(traces, layout)
