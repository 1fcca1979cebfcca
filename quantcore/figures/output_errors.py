"""How large a layer's error is in every output channel and for every token."""

from typing import Any

import numpy as np
import plotly.graph_objects as go
from torch import Tensor

from quantcore.analysis import MAX_CELLS
from quantcore.figures.style import FILL, LINE, base_layout, subplot_domain, title
from quantcore.outputs import LayerOutput


def output_errors(
    found: LayerOutput, chosen: tuple[int, int] | None = None, *, theme: str = "light"
) -> go.Figure:
    """Return the RMS error of every output channel and of every token, as bars side by side.

    A bar's number is in its ``customdata``, tokens after channels. Beyond 256, a bar shows the largest of
    several.

    Args:
        chosen: (token, channel) whose bars have another color.
    """
    square = found.error.double().square()
    sides = (
        ("output channel", square.mean(0).sqrt(), found.channel_sqnr_db, chosen and chosen[1]),
        ("token", square.mean(1).sqrt(), found.token_sqnr_db, chosen and chosen[0]),
    )
    layout: dict[str, Any] = base_layout(theme, 240) | {"annotations": [], "bargap": 0.1}
    traces, first = [], 0
    for i, (what, rms, sqnr, at) in enumerate(sides):
        axis, domain = "2" if i else "", subplot_domain(i, 2, 0.06)
        place, many = _largest(rms)
        here = [FILL[theme] if at is None or n // many != at // many else LINE[theme] for n in place]
        traces.append(
            go.Bar(
                x=place,
                y=rms.numpy()[place],
                text=[f"SQNR {value:.1f} dB" for value in sqnr.numpy()[place]],
                textposition="none",
                customdata=first + place,
                marker={"color": here, "line": {"width": 0}},
                name=f"RMS error of each {what}",
                hovertemplate=f"{what} %{{x}}<br>RMS error %{{y:.4~g}}<br>%{{text}}<extra></extra>",
                xaxis=f"x{axis}",
                yaxis=f"y{axis}",
            )
        )
        first += len(rms)
        more = "" if many == 1 else f", the largest of {many}"
        layout["annotations"].append(title(f"RMS error of each {what}{more}", domain[0], 1))
        ticks = {"tick0": 0, "dtick": 1} if len(rms) <= 16 else {}
        layout[f"xaxis{axis}"] = {"domain": domain, "anchor": f"y{axis}", "title": what, **ticks}
        layout[f"yaxis{axis}"] = {"anchor": f"x{axis}", "rangemode": "tozero"}
    return go.Figure(traces, layout)


def _largest(values: Tensor) -> tuple[np.ndarray[Any, Any], int]:
    """Return where the largest of every few values is, and how many these are: 1 for at most 256."""
    many = -(-len(values) // MAX_CELLS)
    padded = np.pad(values.numpy(), (0, -len(values) % many), constant_values=-1.0)
    rows = padded.reshape(-1, many)
    return np.arange(len(rows)) * many + rows.argmax(1), many
