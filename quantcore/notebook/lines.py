"""One line of text for each kind of result."""

from typing import TYPE_CHECKING, Any

from quantcore.analysis import Report, decibels
from quantcore.diagnosis import Finding
from quantcore.matching import Matches
from quantcore.notebook.kinds import Writers
from quantcore.notebook.numbers import codes_used, numbers, percent, quality, signed
from quantcore.quantization import Quantized
from quantcore.scheme import PRESETS, Scheme
from quantcore.tracing import Trace
from quantcore.wording import count, megabytes, printable

if TYPE_CHECKING:
    from quantcore.checkpoints import Checkpoint, CheckpointTensor
    from quantcore.checkpoints.comparison import CheckpointComparison
    from quantcore.comparison import Comparison
    from quantcore.layerwise import SensitivityStep, Table

LINES = Writers()
_MOST = 400  # characters; a name in a file may have any length


def line(of: Any) -> str:
    """Return the line of a result; only what needs no computation if that fails. Never raises an error."""
    found = LINES.write(of) or _plain(of)
    return printable(found, _MOST)


def _plain(of: Any) -> str:
    """Return what is known without any computation."""
    said = [type(of).__name__]
    for name in ("scheme", "shape", "name", "sentence"):
        try:
            value = getattr(of, name)
            said.append(str(list(value) if name == "shape" else value))
        except Exception:
            continue
    return " · ".join(said)


def preset_of(scheme: Scheme) -> str:
    """Return the name of the preset that is this scheme; "" if none is."""
    return next((name for name, preset in PRESETS.items() if preset == scheme), "")


@LINES.of("Scheme")
def _scheme(scheme: Scheme) -> str:
    return str(scheme)


@LINES.of("Quantized")
def _quantized(result: Quantized) -> str:
    of = f"{str(result.dtype).removeprefix('torch.')} {list(result.codes.shape)}"
    scheme = preset_of(result.scheme) or result.scheme
    if not result.codes.numel():
        return f"Quantized {scheme} · {of}"
    found = numbers(result)
    rest = f"{found.bits:.4g} bits · {codes_used(result, found)} · {quality(found)}"
    return f"Quantized {scheme} · {of} · {rest}"


@LINES.of("Report")
def _report(report: Report) -> str:
    at = "" if report.max_abs_error_index is None else f" at {report.max_abs_error_index}"
    return (
        f"Report SQNR {decibels(report.sqnr_db)} · MSE {report.mse:.4g} · MAE {report.mae:.4g} · "
        f"max |error| {report.max_abs_error:.4g}{at} · clipped {percent(report.clipped_fraction)} · "
        f"{report.codes_used:,} of {report.codes_available:,} codes used"
    )


@LINES.of("Trace")
def _trace(trace: Trace) -> str:
    return (
        f"Trace {trace.index} · {trace.scheme} · x {signed(trace.x, 7)} → code {signed(trace.code, 9)} → "
        f"x̂ {signed(trace.dequantized, 7)}, error {signed(trace.error)}"
    )


@LINES.of("Finding")
def _finding(finding: Finding) -> str:
    return f"Finding {finding.severity} {finding.kind}: {finding.sentence}"


@LINES.of("Matches")
def _matches(matches: Matches) -> str:
    tried = f"of {count(matches.tried, 'scheme')} tried"
    if not matches.candidates:
        return f"Matches · none {tried}"
    first = matches.candidates[0]
    differing = f", {count(first.differing, 'code')} differ" if first.differing else ""
    found = f"{len(matches.exact):,} exact" if matches.exact else "none exact, the nearest"
    return f"Matches · {found} {tried}: {first.scheme}{differing}"


@LINES.of("Comparison")
def _comparison(comparison: "Comparison") -> str:
    total, schemes = comparison.differs.numel(), f"{comparison.a.scheme} and {comparison.b.scheme}"
    return f"Comparison {schemes} · {comparison.count:,} of {count(total, 'code')} differ"


@LINES.of("Checkpoint")
def _checkpoint(checkpoint: "Checkpoint") -> str:
    size = megabytes(sum(tensor.num_bytes for tensor in checkpoint.tensors.values()))
    wrong = f" · {count(len(checkpoint.problems), 'problem')}" if checkpoint.problems else ""
    return f"Checkpoint {checkpoint.format} · {count(len(checkpoint.tensors), 'tensor')} · {size}{wrong}"


@LINES.of("CheckpointTensor")
def _tensor(tensor: "CheckpointTensor") -> str:
    return f"CheckpointTensor {tensor.name} {list(tensor.shape)} · {tensor.storage}"


@LINES.of("CheckpointComparison")
def _of_checkpoints(comparison: "CheckpointComparison") -> str:
    pairing = comparison.pairing
    alone = f"{count(len(pairing.unpaired), 'tensor')} without a partner"
    return f"CheckpointComparison · {count(len(pairing.pairs), 'pair')}, {alone}"


@LINES.of("Table")
def _table(table: "Table") -> str:
    schemes = ", ".join(table.schemes)
    done = f"{len(table.rows):,} of {count(len(table.names), 'weight')}"
    effects = f" · effects of {count(len(table.effects), 'group')}" if table.effects else ""
    return f"Sensitivity · {done} under {schemes}{effects}"


@LINES.of("SensitivityStep")
def _step(step: "SensitivityStep") -> str:
    what = step.row.name if step.row is not None else step.group or "nothing yet"
    return f"SensitivityStep · {what} · {step.done:,} of {step.total:,} bytes"
