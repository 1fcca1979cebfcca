"""A card of HTML for each kind of result: inline styles only, so that it needs nothing of its page."""

import re
from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from quantcore.analysis import Report, block_errors, decibels
from quantcore.diagnosis import Finding
from quantcore.granularity import block_name
from quantcore.matching import Matches
from quantcore.notebook.kinds import Writers
from quantcore.notebook.lines import line, preset_of
from quantcore.notebook.links import link
from quantcore.notebook.numbers import EXACT, NumbersShown, codes_used, numbers, percent, signed
from quantcore.notebook.pictures import pictures
from quantcore.quantization import Quantized
from quantcore.scheme import Scheme, compression_ratio
from quantcore.tracing import Trace
from quantcore.wording import count, printable

if TYPE_CHECKING:
    from quantcore.checkpoints import Checkpoint, CheckpointTensor
    from quantcore.checkpoints.comparison import CheckpointComparison
    from quantcore.comparison import Comparison
    from quantcore.layerwise import Table

CARDS = Writers()
_ROWS = 12  # of a table; a checkpoint has thousands
_EDGE = "1px solid rgba(128,128,128,.45)"  # seen on light and dark pages
_CHIP = f"display:inline-block;margin:2px 4px 2px 0;padding:0 8px;border:{_EDGE};border-radius:10px"
_TABLE = "border-collapse:collapse;font-size:13px"
_CELL = "padding:2px 12px 2px 0;text-align:left;vertical-align:top"
_SHORT, _WHOLE = 24, f"{_CELL};white-space:nowrap"  # characters up to which a cell is one line
_PARAGRAPH = '<p style="margin:6px 0">'  # marimo has paragraphs without a margin


def card(of: Any) -> str:
    """Return the card of a result; its line alone if there is no more to show. Never raises an error."""
    body = CARDS.write(of)
    text = (body or f"<p>{escape(line(of))}</p>").replace("<p>", _PARAGRAPH)  # those of results are escaped
    return f'<div style="font-family:system-ui,sans-serif;font-size:13px;line-height:1.45">{text}</div>'


def _heading(text: str, chips: Iterable[str] = ()) -> str:
    made = " ".join(f'<span style="{_CHIP}">{escape(printable(chip))}</span>' for chip in chips)
    return f"<p><b>{escape(printable(text))}</b> {made}</p>"


def _table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table whose first column names its rows."""
    top = "".join(f'<th style="{_WHOLE}">{escape(text)}</th>' for text in head)
    lines = ["".join(map(_cell, row)) for row in rows]
    body = "".join(f"<tr>{cells}</tr>" for cells in lines)
    table = f'<table style="{_TABLE}"><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>'
    return f'<div style="overflow-x:auto">{table}</div>'


def _cell(content: object) -> str:
    text = printable(str(content), 400)
    return f'<td style="{_WHOLE if len(text) <= _SHORT else _CELL}">{escape(text)}</td>'


def _more(total: int, what: str) -> str:
    return f"<p>And {count(total - _ROWS, what)} more.</p>" if total > _ROWS else ""


def chips(scheme: Scheme) -> list[str]:
    """Return the parts of a scheme's text, such as ``int4``, ``symmetric``, ``per_group(32)``."""
    if name := preset_of(scheme):
        return [name]
    return re.findall(r"(?:[^\s(]|\((?:[^()]|\([^()]*\))*\))+", str(scheme))


@CARDS.of("Scheme")
def _scheme(scheme: Scheme) -> str:
    return _heading("Scheme", chips(scheme)) + link(scheme)


@CARDS.of("Quantized")
def _quantized(result: Quantized) -> str:
    shape = list(result.codes.shape)
    of = f"{str(result.dtype).removeprefix('torch.')} {shape}"
    if not result.codes.numel():
        return _heading(f"Quantized {of}", chips(result.scheme))
    found = numbers(result)
    maps = pictures(result, found.report.max_abs_error_index)
    warned = "".join(f"<p>⚠ {escape(sentence)}</p>" for sentence in result.warnings)
    parts = (_metrics(result, found), _worst_block(result), warned, maps, link(result.scheme, result))
    return _heading(f"Quantized {of}", chips(result.scheme)) + "".join(parts)


def _metrics(result: Quantized, found: NumbersShown) -> str:
    report, mark, shape = found.report, found.mark, tuple(result.codes.shape)
    row = {
        "SQNR": mark + decibels(report.sqnr_db),
        "MSE": f"{mark}{report.mse:.4g}",
        "MAE": f"{mark}{report.mae:.4g}",
        "max |error|": f"{'≥ ' if mark else ''}{report.max_abs_error:.4g}",
        "bits per element": f"{found.bits:.4g}",
        "compression": f"{compression_ratio(result.scheme, shape):.3g}×",
        "clipped": mark + percent(report.clipped_fraction),
        "codes": codes_used(result, found).removeprefix("codes "),
    }
    sampled = "<p>≈ and ≥: of a sample; qc.report(result) measures all elements.</p>" if mark else ""
    return _table(list(row), [list(row.values())]) + sampled


def _worst_block(result: Quantized) -> str:
    """Name the block with the largest error; a large tensor's are not looked for."""
    if result.blocks.count < 2 or result.codes.numel() > EXACT:
        return ""
    errors = block_errors(result).nan_to_num(nan=-1.0)
    place = tuple(int(i[0]) for i in (errors == errors.max()).nonzero(as_tuple=True))
    name = block_name(result.blocks.bounds(place), tuple(result.codes.shape))
    scale = signed(result.scale[place].item(), 6)
    of, mse = count(result.blocks.count, "block"), f"{errors[place].item():.4g}"
    return f"<p>Worst of {of}: {name}, MSE {mse}, scale {scale}.</p>"


@CARDS.of("Report")
def _report(report: Report) -> str:
    names = ("sqnr_db", "mse", "mae", "rmse", "max_abs_error", "cosine")
    rows: list[Sequence[object]] = [
        [name, f"{getattr(report, name):.6g}", report.undefined.get(name, "")] for name in names
    ]
    at = f"at {report.max_abs_error_index}"
    rows[4] = [*rows[4][:2], at if report.max_abs_error_index is not None else rows[4][2]]
    rows.append(["clipped", f"{report.clipped:,}", percent(report.clipped_fraction)])
    rows.append(["codes used", f"{report.codes_used:,}", f"of {report.codes_available:,}"])
    return _heading("Report") + _table(("metric", "value", ""), rows)


@CARDS.of("Trace")
def _trace(trace: Trace) -> str:
    rows = [[step.name, step.formula, step.value] for step in trace.steps()]
    heading = _heading(f"Arithmetic of element {trace.index}", chips(trace.scheme))
    return heading + _table(("step", "formula", "value"), rows)


@CARDS.of("Finding")
def _finding(finding: Finding) -> str:
    fix = f"<p>Fix: {escape(str(finding.fix))} ({escape(str(finding.gain))})</p>" if finding.fix else ""
    return (
        _heading(f"Finding: {finding.severity}", [finding.kind]) + f"<p>{escape(finding.sentence)}</p>{fix}"
    )


@CARDS.of("Matches")
def _matches(matches: Matches) -> str:
    found = matches.candidates
    rows = [
        [
            c.scheme,
            str(c.dtype).removeprefix("torch."),
            f"{c.differing:,}",
            "; ".join((*c.notes, *c.explanations)),
        ]
        for c in found[:_ROWS]
    ]
    said = f"Matches: {len(matches.exact):,} exact, {count(matches.tried, 'scheme')} tried"
    mistakes = "".join(f"<p>Known mistake: {escape(mistake.title)}</p>" for mistake in matches.mistakes)
    table = _table(("scheme", "dtype", "codes that differ", "notes"), rows) if rows else ""
    return _heading(said) + table + _more(len(found), "candidate") + mistakes


@CARDS.of("Comparison")
def _comparison(comparison: "Comparison") -> str:
    reasons = comparison.reasons
    head = _heading(line(comparison))
    rows = [[reason.kind, f"{reason.count:,}", reason.sentence] for reason in reasons[:_ROWS]]
    return (
        head
        + (_table(("reason", "codes", "first of them"), rows) if rows else "")
        + _more(len(reasons), "reason")
    )


@CARDS.of("Checkpoint")
def _checkpoint(checkpoint: "Checkpoint") -> str:
    tensors = sorted(checkpoint.tensors.items(), key=lambda item: -item[1].num_bytes)
    rows = [[name, list(t.shape), t.storage, f"{t.num_bytes:,}"] for name, t in tensors[:_ROWS]]
    problems = "".join(
        f"<p>⚠ {escape(printable(str(problem), 400))}</p>" for problem in checkpoint.problems[:_ROWS]
    )
    table = _table(("tensor, the largest first", "shape", "stored as", "bytes"), rows)
    return _heading(line(checkpoint)) + problems + table + _more(len(tensors), "tensor")


@CARDS.of("CheckpointTensor")
def _tensor(tensor: "CheckpointTensor") -> str:
    rows: list[list[object]] = [
        ["shape", list(tensor.shape)],
        ["stored as", tensor.storage],
        ["bytes", f"{tensor.num_bytes:,}"],
    ]
    return _heading(f"CheckpointTensor {tensor.name}") + _table(("", ""), rows)


@CARDS.of("CheckpointComparison")
def _of_checkpoints(comparison: "CheckpointComparison") -> str:
    pairs = comparison.pairing.pairs
    rows = [[pair.original, pair.other, list(pair.shape)] for pair in pairs[:_ROWS]]
    return (
        _heading(line(comparison)) + _table(("original", "other", "shape"), rows) + _more(len(pairs), "pair")
    )


@CARDS.of("Table")
def _sensitivity(table: "Table") -> str:
    measured = list(table.rows.values()) or list(table.estimates.values())
    rows = [
        [row.name, list(row.shape), *(cell.said for cell in row.cells), row.reason]
        for row in measured[:_ROWS]
    ]
    head = ("weight", "shape", *table.schemes, "left alone because")
    width = len(head)
    rows = [[*row[:2], *row[2:-1], *[""] * (width - len(row)), row[-1]] for row in rows]
    return _heading(line(table)) + _table(head, rows) + _more(len(measured), "weight")
