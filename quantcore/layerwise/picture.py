"""The errors of a model as a table in HTML: weights in rows, schemes in columns, the SQNR as color."""

import html
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from quantcore.analysis import decibels
from quantcore.figures import colors_at, inks_on, palette, short_scheme
from quantcore.layerwise.roles import kind_text
from quantcore.layerwise.table import WeightError, WeightRow
from quantcore.tensors import HALF
from quantcore.wording import count, joined, printable

Taken = Mapping[str, str] | None
STYLE = Path(__file__).with_name("picture.css").read_text(encoding="utf-8")
_DOCUMENT = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>Sensitivity</title>
<style>
:root {{
  color-scheme: light dark; --st-background-color: Canvas; --st-text-color: CanvasText;
  --st-border-color: GrayText; --qs-small: .875rem;
}}
body {{ font-family: system-ui, sans-serif; }}
{style}
.qs-layers {{ max-height: calc(100vh - 6rem); }}
</style>
<p>{caption} The error of each weight when it alone is quantized.</p>
<div class="qs-layers" data-live>{table}</div>
</html>
"""


def document(
    rows: Sequence[WeightRow],
    schemes: Sequence[str],
    is_grouped: bool = False,
    taken: Taken = None,
) -> str:
    """Return the picture as a file of its own, for light and dark displays; arguments: as for `layers`."""
    table = layers(rows, schemes, is_grouped, taken=taken)
    return _DOCUMENT.format(style=STYLE, caption=caption(rows, schemes, taken), table=table)


def caption(rows: Sequence[WeightRow], schemes: Sequence[str], taken: Taken = None) -> str:
    """Say what the picture shows."""
    said = f"SQNR (dB) of {count(len(rows), 'weight')} under {count(len(schemes), 'scheme')}."
    halves = [dtype for dtype in HALF if any(row.storage == f"plain {dtype}" for row in rows)]
    if halves:
        said += f" Weights in {joined(halves)} are quantized as each scheme's library does in that dtype."
    if not taken:
        return said
    return f"{said} ✓: the choice within the budget; weights without it keep their stored format."


def layers(
    rows: Sequence[WeightRow],
    schemes: Sequence[str],
    is_grouped: bool = False,
    chosen: tuple[WeightRow, int] | None = None,
    taken: Taken = None,
) -> str:
    """Return the table; `STYLE` is its style, for an element of the class qs-layers around it.

    Args:
        rows: with a cell per scheme.
        is_grouped: whether adjacent rows of one kind have a heading.
        chosen: a row and the position of a scheme; their cell is outlined.
        taken: the scheme of each weight within a budget, whose cell is marked.
    """
    values = [[cell.sqnr_db for cell in row.cells] for row in rows]
    heads = "".join(
        f'<th scope="col" title="{_text(scheme)}">{_text(short_scheme(scheme))}</th>' for scheme in schemes
    )
    lines, kind = [], None
    for number, (row, styles) in enumerate(zip(rows, _colors(values), strict=True)):
        if is_grouped and row.kind != kind:
            kind = row.kind
            said = _text(kind_text(kind))
            lines.append(f'<tr class="qs-kind"><th colspan="{len(schemes) + 1}">{said}</th></tr>')
        name = re.sub(r"([._])", r"\1<wbr>", _text(row.name.removesuffix(".weight")))
        title = f"{_text(kind_text(row.kind))}, {'×'.join(map(str, row.shape))}"
        lines.append(f'<tr data-row="{number}"><th scope="row" title="{title}">{name}</th>')
        for i, (scheme, cell, style) in enumerate(zip(schemes, row.cells, styles, strict=True)):
            mark = "qs-chosen " if chosen == (row, i) else ""
            mark += "qs-taken" if (taken or {}).get(row.name) == scheme else ""
            lines.append(_cell(cell, style, mark))
        lines.append("</tr>")
    head = f"<thead><tr><th>{_legend(values)}</th>{heads}</tr></thead>"
    return f'<table role="grid">{head}<tbody>{"".join(lines)}</tbody></table>'


def _colors(sqnr_db: Sequence[Sequence[float]]) -> list[list[str]]:
    """Return the CSS of each cell: its color, and the ink that is read best on it.

    Args:
        sqnr_db: of shape (weights, schemes); cells without a number get no color, those without an error that
            of the highest number.
    """
    values = np.array(sqnr_db, np.float64)
    finite = values[np.isfinite(values)]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)
    scale = [[1 - place, color] for place, color in reversed(palette("sequential"))]
    colors = colors_at(np.nan_to_num(values, nan=low, posinf=high, neginf=low), low, high, scale)
    return [
        ["" if np.isnan(value) else f"background:rgb({r},{g},{b});color:{ink}"
         for value, (r, g, b), ink in zip(row, own.tolist(), inks_on(own), strict=True)]
        for row, own in zip(values, colors, strict=True)
    ]  # fmt: skip


def _legend(values: Sequence[Sequence[float]]) -> str:
    """Return which colors stand for which SQNR."""
    finite = [value for row in values for value in row if math.isfinite(value)]
    if not finite:
        return "SQNR (dB)"
    colors = ",".join(color for _, color in reversed(palette("sequential")))
    bar = f'<i style="background:linear-gradient(90deg,{colors})"></i>'
    return f"SQNR (dB){bar}<small><span>{min(finite):.1f}</span><span>{max(finite):.1f}</span></small>"


def _cell(cell: WeightError, style: str, mark: str) -> str:
    half = (cell.sqnr_high - cell.sqnr_low) / 2
    if cell.problem or math.isnan(cell.sqnr_db):
        number, hint = "–", cell.problem or "not defined"
    elif half > 0 and math.isfinite(half):
        number = f"{cell.sqnr_db:.1f} ± {half:.1f}"
        hint = f"{cell.said}; the exact number takes about {cell.seconds:.2g} s on one core"
    else:
        number, hint = decibels(cell.sqnr_db).removesuffix(" dB"), ""
    title = f' title="{_text(hint)}"' if hint else ""
    return f'<td class="{mark}" style="{style}"{title}>{number}</td>'


def _text(text: str) -> str:
    return html.escape(printable(text, 400))
