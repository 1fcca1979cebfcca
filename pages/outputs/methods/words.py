"""What the page says, computed from what was run."""

import math
from collections.abc import Sequence

import numpy as np
import torch

import quantcore as qc
from pages.outputs.methods.controls import BroughtSource
from pages.outputs.methods.run import Head, Ran
from quantcore import figures, outputs
from quantcore.outputs import METHODS, NEAREST, MethodOutput
from quantcore.wording import count, difference, joined

_WITHIN = 0.5  # dB by which an answer may still change


def answer(found: Sequence[MethodOutput]) -> str:
    """Return which method loses least at equal bits."""
    known = [f for f in outputs.ranked(found) if f.equal_bits and not math.isnan(f.sqnr_db)]
    nearest = next((f for f in known if f.method == NEAREST), None)
    if any(math.isnan(f.sqnr_db) and not f.refused for f in found):
        return "All outputs are 0 here, so no error can be compared."
    if not known or nearest is None:
        return ""
    best, base = known[0], nearest.sqnr_db
    if base == math.inf:
        return "Rounding to nearest is exact here: there is no error to reduce."
    if best.sqnr_db == math.inf:
        return f"{METHODS[best.method]} loses nothing here; rounding to nearest gives {qc.decibels(base)}."
    gain = difference(best.sqnr_db, base)
    if gain > 0:  # as shown
        more = "" if math.isinf(base) else f", {gain:.1f} dB more than rounding to nearest"
        return f"{METHODS[best.method]} loses least: {qc.decibels(best.sqnr_db)}{more}."
    others = [f for f in known if f.method != NEAREST]
    second = others[0] if others else None
    behind = "" if second is None else f"; {METHODS[second.method]} gives {qc.decibels(second.sqnr_db)}"
    return f"No method helps here: rounding to nearest gives {qc.decibels(base)}{behind}."


def notes(found: Sequence[MethodOutput], scheme: qc.Scheme, activations: qc.Scheme | None) -> list[str]:
    """Return what each method can't do with this scheme, or what keeps it from being compared."""
    sentences = [f"{METHODS[f.method]} can't run here: {f.refused}" for f in found if f.refused]
    if any(f.method == outputs.LLM_INT8 and not f.equal_bits and not f.refused for f in found):
        sentences.append(
            f"* LLM.int8 always stores w in 8 bits, not {scheme.format.bits}, and x in int8 per token, so it "
            "is not ranked."
        )
    smooth = next((f for f in found if f.method == outputs.SMOOTHQUANT), None)
    if activations is None and smooth is not None and not smooth.refused:
        sentences.append(
            "SmoothQuant is made for quantized activations; here they stay in float, and it only changes how "
            "w is rounded."
        )
    return sentences


def tokens_of(source: BroughtSource) -> str:
    """Say on which tokens of a given x methods are calibrated, and on which errors are measured."""
    if source.given.x.shape[0] == 1:
        return "x has a single token: methods are calibrated on it, and errors are measured on it too."
    return (
        f"Methods are calibrated on the first {count(source.tokens, 'token')} of x; errors are measured on "
        f"the other {source.held_tokens:,}."
    )


def smoothing(ran: Ran, alpha: float) -> str:
    """Return what smoothing does to the largest channels."""
    assert ran.maxima is not None
    of_x, of_w = ran.maxima.values()
    parts = [
        f"the largest channel of {name} is {_ratio(m[figures.AFTER])} instead of {_ratio(m[figures.BEFORE])} "
        "times the median one"
        for name, m in (("x", of_x), ("w", of_w))
    ]
    return f"With α = {alpha:g}, {joined(parts)}. The product x·wᵀ stays the same."


def _ratio(maxima: np.ndarray) -> str:
    middle = float(np.median(maxima))
    return f"{float(maxima.max()) / middle:.1f}" if middle else "∞"


def rotating(ran: Ran) -> str:
    """Return what rotating does to the largest elements, next to the RMS of all, which it does not change."""
    assert ran.maxima is not None
    parts = []
    for name, maxima in zip(("x", "w"), ran.maxima.values(), strict=True):
        before, after = (float(maxima[key].max()) for key in (figures.BEFORE, figures.AFTER))
        parts.append(f"the largest |{name}| is {after:.3g} instead of {before:.3g}")
    return f"Rotated, {joined(parts)}. The product x·wᵀ stays the same."


def scaling(ran: Ran, without_clip: Ran | None) -> str:
    """Return which ratio AWQ chose and what it gains, and what clipping gains after that."""
    ratios = [step for step in ran.trials if step.losses is None]
    best, first = min(ratios, key=lambda step: step.loss), ratios[0]
    if best.ratio == 0:
        text = f"No ratio is better than 0, which leaves w as it is: the error is {first.loss:.3g}."
    else:
        less = f", {1 - best.loss / first.loss:.0%} less than without scaling" if first.loss else ""
        text = f"Ratio {best.ratio:g} gives the least error, {best.loss:.3g}{less}."
    if len(ratios) < len(ran.trials) and without_clip is not None:
        gain = ran.output.sqnr_db - without_clip.output.sqnr_db
        signed = f"{gain:+.1f}".replace("-", "−")
        text += f" Clipping changes the output's SQNR by {signed} dB on the held-out tokens."
    return text


def compensating(ran: Ran) -> str:
    """Return what GPTQ reaches on the tokens that it was calibrated with."""
    assert ran.objective is not None
    own, nearest = ran.objective
    text = f"On the calibration tokens, the mean squared error of the output is {own:.4g}"
    if f"{own:.4g}" == f"{nearest:.4g}":
        return f"{text}, as with rounding to nearest."
    percent = 100 * abs(1 - own / nearest) if nearest else math.inf
    change = f"{percent:.{0 if percent >= 9.95 else 1}f} % {'less' if own < nearest else 'more'}"
    than = f", {change} than" if nearest else " against"
    return f"{text}{than} the {nearest:.4g} of rounding to nearest."


def column(found: outputs.Compensated, index: int) -> str:
    """Return what happens in one step of GPTQ."""
    step = found.steps[index]
    error = (step.before - step.dequantized).abs()
    row = int(error.argmax())
    text = (
        f"Step {index + 1} of {step.count}: column {step.column} is coded. Its largest error is "
        f"{float(step.before[row] - step.dequantized[row]):.4f}, in row {row}"
    )
    if not step.factors.numel():
        return f"{text}; no column is left to make up for it.".replace("-", "−")
    update = step.update
    at = int(update.abs().argmax())
    there, place = divmod(at, update.shape[1])
    target = int(found.order[index + 1 + place])
    text += (
        f". Divided by U's diagonal, {step.diagonal:.4f}, and multiplied by −U's row, it moves to the "
        f"{count(update.shape[1], 'open column')}; most, {float(update[there, place]):+.4f}, goes to row "
        f"{there}, column {target}."
    )
    return text.replace("-", "−")


def arithmetic(found: outputs.Compensated, index: int, row: int) -> list[str]:
    """Return one row's numbers in a step of GPTQ, line by line."""
    step = found.steps[index]
    before, after = float(step.before[row]), float(step.dequantized[row])
    code = found.quantized.codes[row, step.column].item()
    moved = float(step.before[row] - found.w[row, step.column])
    lines = [
        f"w[{row}, {step.column}] = {float(found.w[row, step.column]):.5f}, and {moved:+.5f} from columns "
        f"coded before: {before:.5f}",
        f"code {code}, dequantized {after:.5f}",
        f"error = ({before:.5f} - {after:.5f}) / {step.diagonal:.5f} = {float(step.error[row]):.5f}",
    ]
    for place in range(min(3, step.factors.numel())):
        target, factor = int(found.order[index + 1 + place]), float(step.factors[place])
        lines.append(
            f"column {target} += -({float(step.error[row]):.5f}) · ({factor:.5f}) = "
            f"{float(step.update[row, place]):+.5f}"
        )
    if step.factors.numel() > 3:
        lines.append(f"… and {count(step.factors.numel() - 3, 'more column')}")
    return lines


def most_wrong_row(found: outputs.Compensated, index: int) -> int:
    """Return the row whose error in a step is largest."""
    step = found.steps[index]
    return int(torch.argmax((step.before - step.dequantized).abs()))


def decomposing(ran: Ran, threshold: float) -> str:
    """Return which columns LLM.int8 keeps, and what is left in int8."""
    assert ran.maxima is not None
    (maxima,) = (each[figures.BEFORE] for each in ran.maxima.values())
    kept, total = list(ran.kept), len(maxima)
    largest = float(maxima.max())
    if not kept:
        return f"No |x| reaches {threshold:g}, the largest is {largest:.3g}: all is multiplied in int8."
    names = joined([str(column) for column in kept[:8]]) if len(kept) <= 8 else ""
    which = f"{'Column' if len(kept) == 1 else 'Columns'} {names}" if names else f"{len(kept):,} columns"
    does = "contains" if len(kept) == 1 else "contain"
    are = "is" if len(kept) == 1 else "are"
    rest = np.delete(maxima, kept)
    left = f", where the largest |x| is {rest.max():.3g} instead of {largest:.3g}" if rest.size else ""
    return (
        f"{which} {does} an |x| of {threshold:g} or more and {are} kept in 16 bits; the other "
        f"{total - len(kept):,} of {total:,} are multiplied in int8{left}."
    )


def caching(head: Head) -> str:
    """Return whether keys want a scale per channel, and why."""
    (keys_token, values_token), (keys_channel, values_channel) = head.sqnr.values()
    largest = np.abs(head.keys).max(0)
    at, ratio = int(largest.argmax()), _ratio(largest)
    if keys_channel > keys_token:
        more = f"Keys want a scale per channel: {qc.decibels(keys_channel)}"
        if math.isfinite(keys_channel - keys_token):
            more += f", {difference(keys_channel, keys_token):.1f} dB more than with one per token"
        more += f". Channel {at} is {ratio} times the median one and sets the scale of every token."
    else:
        more = (
            f"Here keys lose no less with a scale per channel: {qc.decibels(keys_channel)}, and "
            f"{qc.decibels(keys_token)} with one per token. The largest channel is {ratio} times the median "
            "one."
        )
    return f"{more} Values: {qc.decibels(values_token)} per token, {qc.decibels(values_channel)} per channel."


def tokens(points: Sequence[outputs.TokensPoint]) -> str:
    """Return from how many tokens on each method's answer changes by no more than half a decibel."""
    parts, most = [], max((point.tokens for point in points), default=0)
    for method in outputs.CALIBRATED:
        own = [p for p in points if p.method == method and not math.isnan(p.sqnr_db)]
        if len(own) < 2:
            continue
        enough = outputs.settled(points, method, _WITHIN)
        parts.append(
            f"{METHODS[method]} not before"
            if enough is None
            else f"{METHODS[method]} from {count(enough, 'token')} on"
        )
    return f"Within {_WITHIN:g} dB of the SQNR with {most:,} tokens: {joined(parts)}." if parts else ""
