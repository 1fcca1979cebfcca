"""Bars of a few quantities, and the quality of a layer's output against a setting."""

from collections.abc import Mapping, Sequence

import plotly.graph_objects as go

from quantcore.figures.style import DIM, FILL, INK, LEGEND_ABOVE, LINE, base_layout, line_at, unchecked
from quantcore.figures.typography import TEXT


def bars(
    values: Mapping[str, float],
    texts: Sequence[str],
    axis: str,
    *,
    theme: str = "light",
    size: float = TEXT,
) -> go.Figure:
    """Return horizontal bars in this order from the top; the first, which others are compared with, differs.

    Args:
        values: name -> length.
        texts: what stands after each bar.
        axis: what is measured, with its unit.
    """
    names = list(values)[::-1]
    drawn = go.Bar(
        y=names,
        x=[values[name] for name in names],
        text=list(texts)[::-1],
        orientation="h",
        textposition="outside",
        cliponaxis=False,
        constraintext="none",
        marker={"color": [FILL[theme]] * (len(names) - 1) + [LINE[theme]]},
        hovertemplate="%{y}: %{text}<extra></extra>",
    )
    layout = base_layout(theme, 280, size) | {
        "xaxis": {"title": {"text": axis}, "range": [0, 1.35 * max(values.values())]},
        "yaxis": {"showgrid": False, "automargin": True},
        "margin": {"l": 24, "r": 12, "t": 8, "b": 24 + 2 * size},
        "bargap": 0.35,
    }
    return go.Figure([drawn], layout)


def quality_against(
    x: Sequence[float],
    curves: Mapping[str, Sequence[float]],
    chosen: float,
    axis: str,
    *,
    theme: str = "light",
    size: float = TEXT,
) -> go.Figure:
    """Return the output's SQNR against a setting, the chosen one marked.

    Args:
        curves: name -> dB for each x; at most three.
        axis: the name of the setting.
    """
    styles = ((INK[theme], "solid"), (LINE[theme], "dot"), (FILL[theme], "dash"))
    traces = [
        {
            "type": "scatter",
            "x": list(x),
            "y": list(values),
            "name": name,
            "mode": "lines",
            "line": {"color": color, "width": 3, "dash": dash},
            "hovertemplate": f"{axis} %{{x:.3~g}}, {name}: %{{y:.2f}} dB<extra></extra>",
        }
        for (name, values), (color, dash) in zip(curves.items(), styles, strict=False)
    ]
    layout = base_layout(theme, 300, size) | {
        "xaxis": {"title": {"text": axis}},
        "yaxis": {"title": {"text": "SQNR of the output (dB)"}},
        "shapes": [line_at("x", chosen, {"color": DIM[theme], "width": 2, "dash": "dot"})],
        "margin": {"l": 40 + 3 * size, "r": 12, "t": 8, "b": 24 + 2 * size},
        **LEGEND_ABOVE,
    }
    return unchecked(traces, layout)
