"""What rounding does to a gradient: fake quantization over x, and its slopes."""

from dataclasses import dataclass
from typing import Any

import numpy.typing as npt
import plotly.graph_objects as go
import torch

from quantcore.figures.style import DIM, FILL, LINE, base_layout
from quantcore.figures.typography import TEXT
from quantcore.formats import IntFormat
from quantcore.granularity import PerChannel
from quantcore.qparams import QParams
from quantcore.range_setting import Given
from quantcore.scheme import Scheme
from quantcore.training import fake_quantize

SAMPLES = 1201
SYMBOLS = {"rounding": "∂x̂/∂x", "through": "∂x̂/∂x", "to_scale": "∂x̂/∂s"}

Array = npt.NDArray[Any]


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


def slope(found: Slopes, which: str, *, theme: str = "light", size: float = TEXT, height: int = 280) -> go.Figure:
    """Return x̂ over x above, and one of the slopes below: "rounding", "through" or "to_scale"."""
    axis: dict[str, Any] = {"nticks": 6, "automargin": True}
    layout = base_layout(theme, height + height // 2, size) | {
        "xaxis": axis | {"anchor": "y2", "title": _title("x", size)},
        "yaxis": axis | {"domain": [0.46, 1], "title": _title("x̂", size)},
        "yaxis2": axis | {"domain": [0, 0.36], "title": _title(SYMBOLS[which], size)},
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
            hovertemplate=f"x %{{x:.4~g}}: {SYMBOLS[which]} %{{y:.4~g}}<extra></extra>",
        ),
    ]
    return go.Figure(traces, layout)


def _title(text: str, size: float) -> dict[str, Any]:
    return {"text": text, "standoff": size // 2}
