"""The catalogue of mistakes: one record per kind, with its title, its sentences, its repair and its lesson."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class MistakeKind:
    """``title``: a short label; ``what``: what is wrong, and ``fix``: what to write instead, with facts of the case in
    braces; ``lesson``: the lesson's page; ``step``: the step in it, in "mistakes" a key of
    `quantcore.mistakes.CASES`, "" for the first; ``repair``: which operation's
    repair gives the right codes, "scale", "round", "zero", "late" or "cast", "" if it follows without a repair;
    ``certain``: False for what depends on the tensor."""

    title: str
    what: str
    fix: str
    lesson: str = "mistakes"
    step: str = ""
    repair: str = ""
    certain: bool = True


@dataclass(frozen=True)
class CodeFinding:
    """A mistake, or a note on something that depends on the tensor.

    ``kind``: a key of `KINDS`; ``line``: counted from 1, with its ``source``; ``what``: what is wrong, with the values
    found in the code; ``fix``: what to write instead; ``certain``: True for a mistake, False for a note;
    ``quantizer``: the index of the quantizer it belongs to, if any.
    """

    kind: str
    line: int
    what: str
    fix: str
    certain: bool
    source: str = ""
    quantizer: int | None = field(default=None, compare=False)


def finding(kind: str, line: int, certain: bool = True, /, **facts: str) -> CodeFinding:
    """Return the finding of a kind, with its sentences about this case."""
    of = KINDS[kind]
    return CodeFinding(kind, line, of.what.format(**facts), of.fix.format(**facts), certain and of.certain)


_DEQUANTIZE = "Dequantize with (codes - zero_point) * scale."
KINDS = {
    "cast-without-clamp": MistakeKind(
        "Cast without a clamp", "Nothing clamps the codes before the cast to {dtype}: {why} and wrap around.",
        "Clamp to {limits} before the cast.", step="cast-without-clamp", repair="cast",
    ),
    "clamp-bounds": MistakeKind(
        "Clamp bounds of another type",
        "The clamp{clamp} keeps {kept}, but {dtype} holds {limits}: codes outside that range wrap around in the cast{cast}.",
        "{fix} to {limits}.", step="clamp-of-another-type",
    ),
    "divisor": MistakeKind(
        "Divisor too large for the codes", "{scale} gives {reach}, but the codes are {codes}: {lost}.",
        "Divide by {most}.", step="range-without-minimum", repair="scale",
    ),
    "unused-codes": MistakeKind(
        "Codes left unused", "{scale} gives {reach}, though the clamp allows {codes}.",
        "Divide by {most} if all codes are meant to be used.", "scale", certain=False,
    ),
    "zero-point-left-out": MistakeKind(
        "Asymmetric scale without a zero point",
        "{scale} is the step of an asymmetric range, but the zero point is {zero}: codes run from min/scale to max/scale "
        "instead of covering the codes of the type.",
        "Add the zero point {low} - round(min / scale), or use max|x| with a symmetric scale.",
        step="zero-point-left-at-zero", repair="zero",
    ),
    "zero-point-range": MistakeKind(
        "Zero point for another code range",
        "With this zero point, min(x) gets the code {got}, but the codes begin at {low}: it is meant for a code range "
        "other than {codes}.",
        "Use zero_point = {low} - round(min / scale).", "zero_point", repair="zero",
    ),
    "zero-point-sign": MistakeKind(
        "Zero point with the wrong sign",
        "The zero point has the wrong sign: min(x) / scale is added to x / scale, so min(x) gets twice its code.",
        "Use zero_point = qmin - round(min / scale).", "zero_point", repair="zero",
    ),
    "zero-point-not-rounded": MistakeKind(
        "Zero point not rounded",
        "The zero point is not an integer, and its fraction is cut off {where}, which shifts the range by up to one step.",
        "Round the zero point: round(…).", "zero_point", "zero", "zero",
    ),
    "zero-point-not-clamped": MistakeKind(
        "Zero point may overflow its type",
        "If all values of x have the same sign, the zero point can lie outside {dtype} and wrap around in the cast.",
        "Let the range include 0, or clamp the zero point.", "zero_point", "zero", certain=False,
    ),
    "zero-point-after-clamp": MistakeKind(
        "Zero point added after the clamp",
        "The zero point is added after the clamp{clamp}, which therefore clips x / scale instead of the codes, and nothing "
        "keeps the sum in {limits} before its cast to {dtype}.",
        "Add the zero point first, then clamp, then cast.", step="cast-without-clamp", repair="late",
    ),
    "float-zero-point": MistakeKind(
        "Floating-point zero point",
        "The zero point stays a float, as in HQQ, so there may be no code for exactly 0.",
        "Round it if 0 must be exact.", "zero_point", "zero", certain=False,
    ),
    "zero-point-forgotten": MistakeKind(
        "Zero point not subtracted when dequantizing",
        "The codes include the zero point, but dequantizing does not subtract it: every value is too large by "
        "zero_point · scale.", _DEQUANTIZE, step="zero-point-forgotten",
    ),
    "zero-point-added": MistakeKind(
        "Zero point added when dequantizing",
        "The codes already include the zero point, and dequantizing adds it again: every value is too large by "
        "2 · zero_point · scale.", _DEQUANTIZE, step="zero-point-added",
    ),
    "zero-point-not-added": MistakeKind(
        "Zero point subtracted but never added",
        "Dequantizing subtracts a zero point that was never added to the codes.",
        "Add the zero point after rounding: round(x / scale) + zero_point.", step="zero-point-forgotten",
    ),
    "zero-point-after-scale": MistakeKind(
        "Zero point subtracted after scaling",
        "The zero point is in units of codes, but is subtracted after scaling, in units of x.",
        _DEQUANTIZE, step="zero-point-after-scale",
    ),
    "negatives-lost": MistakeKind(
        "Unsigned codes without a zero point",
        "No code in {codes} lies below the zero point {zero}: every negative value becomes {zero}.",
        "Use zero point {middle} with {extreme} / {rest}, or signed codes.", step="negatives-lost", repair="zero",
    ),
    "percentile-of-signed-values": MistakeKind(
        "Percentile of x instead of |x|",
        "The {extreme} ignores the magnitude of negative values: those below minus that percentile lie outside the range.",
        "Take the percentile of |x|: torch.quantile(x.abs(), …).",
        step="percentile-of-signed-values", repair="scale",
    ),
    "max-of-signed-values": MistakeKind(
        "Maximum of x instead of |x|",
        "{extreme} ignores the magnitude of negative values: where -min(x) exceeds max(x), they lie outside the range.",
        "Take the maximum of |x|: x.abs().max() or np.abs(x).max().", "scale", repair="scale",
    ),
    "truncated": MistakeKind(
        "Truncated instead of rounded", "{how}, so the error is up to one step instead of half a step.",
        "Round to nearest first: torch.round(…) or np.rint(…).", step="truncated", repair="round",
    ),
    "multiplied": MistakeKind(
        "Multiplied instead of divided",
        "{how}; codes count steps of the scale, so x is divided by it and the codes are multiplied by it.",
        "Quantize with torch.round(x / scale), dequantize with codes * scale.", "scale", repair="scale",
    ),
    "wrong-axis": MistakeKind(
        "Scales along the wrong axis",
        "The scales of this reduction are aligned with another axis than the one they belong to: x / scale applies them "
        "along the wrong axis, or fails where the lengths differ.",
        "Keep the reduced axis: amax(dim=…, keepdim=True).", "granularity", repair="scale",
    ),
    "quantized-twice": MistakeKind(
        "Quantized twice",
        "This tensor was already quantized and dequantized (line {before}): rounding twice can move a value by more than "
        "half a step.",
        "Quantize the original tensor once.", step="quantized-twice",
    ),
    "clamp-in-place": MistakeKind(
        "Input modified in place",
        "{what} modifies the caller's tensor: an error computed afterwards is measured against the changed tensor.",
        "Use the operation that returns a new tensor, such as clamp without an underscore.", step="clamp-in-place",
    ),
    "dequantize-overflow": MistakeKind(
        "q - z overflows the codes' type",
        "codes - zero_point is computed in {dtype}, which has {bits} bits: differences that it does not hold wrap around.",
        "Convert first: (codes.float() - zero_point) * scale.", "zero_point",
    ),
    "scale-in-float16": MistakeKind(
        "Scale in float16",
        "The scale is cast to float16, whose smallest number above 0 is 6e-8: a scale below half of that underflows to 0.",
        "Keep scales in float32, or make sure they are large enough.", step="scale-in-float16", certain=False,
    ),
    "zero-scale": MistakeKind(
        "Scale can be 0", "{scale} is 0 where the range is empty, and x / 0 gives NaN or infinity.",
        "Keep the scale above 0: scale.clamp(min=1e-12) or np.maximum(scale, 1e-12).", "scale", certain=False,
    ),
}  # fmt: skip
