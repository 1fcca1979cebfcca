"""The kinds of mistakes that are looked for, by stable names, and where each is explained."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Kind:
    """``title``: a few words; ``lesson``: the name of a lesson's page; ``step``: its step, "" for the first."""

    title: str
    lesson: str = "mistakes"
    step: str = ""


KINDS = {
    "cast-without-clamp": Kind("A cast without a clamp", step="cast-without-clamp"),
    "clamp-bounds": Kind("A clamp for another type", step="clamp-of-another-type"),
    "divisor": Kind("A divisor for other codes", step="range-without-minimum"),
    "unused-codes": Kind("Fewer codes than the clamp allows", "scale"),
    "zero-point-left-out": Kind("An asymmetric scale without a zero point", step="zero-point-left-at-zero"),
    "zero-point-range": Kind("A zero point for another range", "zero_point"),
    "zero-point-sign": Kind("A zero point with the wrong sign", "zero_point"),
    "zero-point-not-rounded": Kind("A zero point that is not rounded", "zero_point", "zero"),
    "zero-point-not-clamped": Kind("A zero point that may not fit its type", "zero_point", "zero"),
    "zero-point-after-clamp": Kind("A zero point added after the clamp", step="cast-without-clamp"),
    "float-zero-point": Kind("A zero point that stays a float", "zero_point", "zero"),
    "zero-point-forgotten": Kind("The zero point forgotten on the way back", step="zero-point-forgotten"),
    "zero-point-added": Kind("The zero point added on the way back", step="zero-point-added"),
    "zero-point-not-added": Kind("A zero point taken off that was never added", step="zero-point-forgotten"),
    "zero-point-after-scale": Kind("The zero point taken off after the scale", step="zero-point-after-scale"),
    "negatives-lost": Kind("Unsigned codes without a zero point", step="negatives-lost"),
    "percentile-of-signed-values": Kind(
        "A percentile of x instead of |x|", step="percentile-of-signed-values"
    ),
    "max-of-signed-values": Kind("The maximum of x instead of |x|", "scale"),
    "truncated": Kind("Truncated instead of rounded", step="truncated"),
    "multiplied": Kind("Multiplied instead of divided", "scale"),
    "wrong-axis": Kind("Scales along the wrong axis", "granularity"),
    "quantized-twice": Kind("Quantized twice", step="quantized-twice"),
    "clamp-in-place": Kind("A clamp that changes its input", step="clamp-in-place"),
    "dequantize-overflow": Kind("q - z computed in the codes' own type", "zero_point"),
    "scale-in-float16": Kind("A scale in float16", step="scale-in-float16"),
    "zero-scale": Kind("A scale that can be 0", "scale"),
}
