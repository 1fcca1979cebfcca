"""Mistakes in the range of a block."""

import torch
from torch import Tensor

from quantcore.mistakes import tensors
from quantcore.mistakes.record import InAnswers, InCodes, InSource, Mistake, Parts, WorkedCase
from quantcore.range_setting import MIN_MAX
from quantcore.tracing import number

# ruff: noqa: D103 (the cases say what the code that they show does)


def range_from_zero_up(x: Tensor) -> Parts:
    low, high = 0, x.abs().max()
    scale = (high - low) / 255
    zero_point = 0
    codes = torch.round(x / scale) + zero_point
    codes = codes.clamp(-128, 127)
    x_hat = (codes - zero_point) * scale
    return codes, scale, x_hat


def range_from_low_to_high(x: Tensor) -> Parts:
    low, high = x.min(), x.max()
    scale = (high - low) / 255
    zero_point = -128 - torch.round(low / scale)
    codes = torch.round(x / scale) + zero_point
    codes = codes.clamp(-128, 127)
    x_hat = (codes - zero_point) * scale
    return codes, scale, x_hat


def percentile_of_x(x: Tensor) -> Parts:
    high = torch.quantile(x, 0.999)
    scale = high / 127
    codes = torch.round(x / scale)
    return codes, scale, codes * scale


def percentile_of_magnitude(x: Tensor) -> Parts:
    high = torch.quantile(x.abs(), 0.999)
    scale = high / 127
    codes = torch.round(x / scale)
    codes = codes.clamp(-128, 127)
    return codes, scale, codes * scale


RANGES = (
    Mistake(
        "symmetry", "range", ("zero_point", "choose"),
        InAnswers(
            "symmetry", 10,
            scale=lambda c: [
                (s, f"This scheme is {'symmetric' if c.symmetric else 'asymmetric'}.")
                for s in c.scale_with(c.elements, symmetric=not c.symmetric)
            ],
            zero_point=lambda c: [(
                0 if c.t.zero_point else c.count // 2,
                ("Symmetric codes" if c.fmt.signed else "Symmetric unsigned codes")
                + f" are centered on {c.fmt.middle}: the zero point is {number(c.t.zero_point)}.",
            )] if c.symmetric else [
                (z, f"{number(z)} is the zero point of symmetric codes; this scheme is asymmetric. "
                    f"{c.how_zero_point}")
                for z in dict.fromkeys((0, c.fmt.middle))
            ] if c.has_steps else (),
        ),
    ),
    Mistake(
        "symmetric_convention", "range", ("zero_point", "choose"),
        InAnswers(
            "symmetry", 255,
            scale=lambda c: [] if c.symmetric else [(
                2 * c.size / (c.count - 1),
                f"max|x| / {number((c.count - 1) / 2)} is a scale of symmetric codes; "
                "this scheme is asymmetric.",
            )],
        ),
    ),
    Mistake(
        "min_max", "range", ("error", "clipping"),
        InAnswers(
            "range", 20,
            scale=lambda c: [
                (s, "That uses the range from min to max.")
                for s in c.scale_with(c.elements, range_setting=MIN_MAX)
            ],
        ),
    ),
    Mistake(
        "sign_of_low", "range", ("zero_point", "asymmetric"),
        InAnswers(
            "sign of low", 40,
            scale=lambda c: [
                ((c.high + c.low) / (c.count - 1), "low must be subtracted from high, not added.")
            ] if not c.symmetric else (),
            zero_point=lambda c: [
                (fit(c.fmt.qmin + round(c.steps)), f"low / s must be subtracted. {c.how_zero_point}")
                for fit in (c.clamped, float)
            ] if c.of_low else (),
        ),
        in_source=InSource(
            "Zero point with the wrong sign",
            "The zero point has the wrong sign: min(x) / scale is added to x / scale, so min(x) gets twice "
            "its code.",
            "Use zero_point = qmin - round(min / scale).", "zero",
            kind="zero-point-sign",
        ),
    ),
    Mistake(
        "absolute_value", "range", ("zero_point", "symmetric"),
        InAnswers(
            "absolute value", 230,
            scale=lambda c: [
                (c.high / (c.count // 2 - 1), f"max x was used, but |{number(c.low)}| is larger.")
            ] if c.symmetric and -c.low > c.high else (),
        ),
        in_source=InSource(
            "Maximum of x instead of |x|",
            "{extreme} ignores the magnitude of negative values: where -min(x) exceeds max(x), they lie "
            "outside the range.",
            "Take the maximum of |x|: x.abs().max() or np.abs(x).max().", "scale",
            kind="max-of-signed-values",
        ),
    ),
    Mistake(
        "low_forgotten", "range", ("zero_point", "asymmetric"),
        InAnswers(
            "low forgotten", 240,
            scale=lambda c: [
                (c.high / (c.count - 1), "The range starts at low, not at 0.")
            ] if not c.symmetric else (),
        ),
    ),
    Mistake(
        "zero_left_out", "range", ("zero_point", "zero"),
        InAnswers(
            "zero left out", 250,
            scale=lambda c: [
                (c.span / (c.count - 1), "The range is widened to include 0.")
            ] if not c.symmetric and not c.low <= 0 <= c.high else (),
        ),
    ),
    Mistake(
        "range_from_zero", "range", ("mistakes", "range-without-minimum"),
        in_codes=InCodes(
            13, "range 0 to max |x| instead of min to max",
            "The range goes from 0 to max |x| instead of min to max", "own",
        ),
        cases=(WorkedCase(
            "range-without-minimum", 5, "Asymmetric in name only",
            "How far does x̂ reach on each side of 0?",
            "The range is taken as 0 to max|x|, although x has negative values, and divided into 255 steps. "
            "The codes -128..127 then reach only about half of max|x|, and both ends are clipped.",
            "Take the range from min to max; the zero point shifts the codes onto it.",
            range_from_zero_up, range_from_low_to_high, tensors.TWELVE,
        ),),
    ),
    Mistake(
        "signed_percentile", "range", ("mistakes", "percentile-of-signed-values"),
        in_codes=InCodes(
            14, "percentile of x instead of |x|", "The percentile is that of x instead of |x|", "own",
        ),
        in_source=InSource(
            "Percentile of x instead of |x|",
            "The {extreme} ignores the magnitude of negative values: those below minus that percentile lie "
            "outside the range.",
            "Take the percentile of |x|: torch.quantile(x.abs(), …).", "scale",
            kind="percentile-of-signed-values",
        ),
        cases=(WorkedCase(
            "percentile-of-signed-values", 6, "A percentile of x instead of |x|",
            "x̂ may be close to x, but does every code fit int8?",
            "The 99.9th percentile of x says nothing about the negative values. The most negative one needs "
            "a code below -128. Without a clamp, and with codes kept as floats, nobody notices until they "
            "are stored.",
            "Take the percentile of |x|, and clamp the codes.",
            percentile_of_x, percentile_of_magnitude, tensors.TWELVE,
        ),),
    ),
)  # fmt: skip
