"""More bits than the values need."""

from collections.abc import Iterator

from quantcore.analysis import decibels
from quantcore.diagnosis.context import Context
from quantcore.diagnosis.kind import FindingExample, kind
from quantcore.diagnosis.record import Finding, Gain
from quantcore.formats import MIN_BITS, IntFormat
from quantcore.wording import count

SAME_DB = 0.5  # a narrower format may lose this much
ROUNDED_DB = 130.0  # beyond this the error is float32 rounding
BIT_DB = 6.02


@kind(
    FindingExample(
        "More bits than the values need",
        "0.3, 0, -0.3, 0.3\n-0.3, 0.3, 0, 0\n0, -0.3, 0.3, -0.3\n0.3, 0.3, -0.3, 0",
        "int8 symmetric",
    ),
    ("scale", "bits"),
    finite=True,
    severity="note",
)
def spare_bits(context: Context) -> Iterator[Finding]:
    """Find more bits than needed: fewer give the same quality."""
    report = context.report
    fmt = context.scheme.format
    usual = BIT_DB * fmt.bits + 24  # values spread over a step never get this close
    if report.clipped or report.sqnr_db < usual or not context.largest.any():
        return
    best = None
    for bits in range(fmt.bits - 1, MIN_BITS - 1, -1):
        trial = context.trial(context.changed(format=IntFormat(bits, fmt.signed, fmt.narrow)))
        if trial and trial.sqnr_db >= min(report.sqnr_db - SAME_DB, ROUNDED_DB):
            best = trial
    if best is None:
        return
    yield spare_bits.finding(
        f"x uses only {count(report.codes_used, 'code')}: {count(best.scheme.format.bits, 'bit')} instead "
        f"of {fmt.bits} are enough. SQNR: {decibels(report.sqnr_db)} with {fmt.bits} bits, "
        f"{decibels(best.sqnr_db)} with {best.scheme.format.bits}.",
        fix=best.scheme,
        gain=Gain("bits per element", context.bits, best.bits_per_element),
        facts={
            "codes_used": report.codes_used,
            "bits": best.scheme.format.bits,
            "sqnr_db": report.sqnr_db,
            "sqnr_db_after": best.sqnr_db,
        },
    )
