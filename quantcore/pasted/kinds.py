"""The kinds of mistakes that are looked for, by stable name, and the lesson that explains each."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Kind:
    """``title``: a short label; ``lesson``: the lesson's page; ``step``: the step in it, "" for the first."""

    title: str
    lesson: str = "mistakes"
    step: str = ""


KINDS = {
    "cast-without-clamp": Kind("Cast without a clamp", step="cast-without-clamp"),
    "clamp-bounds": Kind("Clamp bounds of another type", step="clamp-of-another-type"),
    "divisor": Kind("Divisor too large for the codes", step="range-without-minimum"),
    "unused-codes": Kind("Codes left unused", "scale"),
    "zero-point-left-out": Kind("Asymmetric scale without a zero point", step="zero-point-left-at-zero"),
    "zero-point-range": Kind("Zero point for another code range", "zero_point"),
    "zero-point-sign": Kind("Zero point with the wrong sign", "zero_point"),
    "zero-point-not-rounded": Kind("Zero point not rounded", "zero_point", "zero"),
    "zero-point-not-clamped": Kind("Zero point may overflow its type", "zero_point", "zero"),
    "zero-point-after-clamp": Kind("Zero point added after the clamp", step="cast-without-clamp"),
    "float-zero-point": Kind("Floating-point zero point", "zero_point", "zero"),
    "zero-point-forgotten": Kind("Zero point not subtracted when dequantizing", step="zero-point-forgotten"),
    "zero-point-added": Kind("Zero point added when dequantizing", step="zero-point-added"),
    "zero-point-not-added": Kind("Zero point subtracted but never added", step="zero-point-forgotten"),
    "zero-point-after-scale": Kind("Zero point subtracted after scaling", step="zero-point-after-scale"),
    "negatives-lost": Kind("Unsigned codes without a zero point", step="negatives-lost"),
    "percentile-of-signed-values": Kind("Percentile of x instead of |x|", step="percentile-of-signed-values"),
    "max-of-signed-values": Kind("Maximum of x instead of |x|", "scale"),
    "truncated": Kind("Truncated instead of rounded", step="truncated"),
    "multiplied": Kind("Multiplied instead of divided", "scale"),
    "wrong-axis": Kind("Scales along the wrong axis", "granularity"),
    "quantized-twice": Kind("Quantized twice", step="quantized-twice"),
    "clamp-in-place": Kind("Input modified in place", step="clamp-in-place"),
    "dequantize-overflow": Kind("q - z overflows the codes' type", "zero_point"),
    "scale-in-float16": Kind("Scale in float16", step="scale-in-float16"),
    "zero-scale": Kind("Scale can be 0", "scale"),
}
