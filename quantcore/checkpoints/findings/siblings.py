"""Weights that are far from their siblings: in spread, mean, largest value or scale, or because much is 0.

A weight is far if it differs from the median of its siblings by many times their own scatter, and none of the
others is halfway there; or if it lies beyond a gap that is wider than all others are apart. Scatter is the
median absolute deviation of log2 of a quantity (as a normal distribution's standard deviation); it counts as
at least `LEAST`, since it can be 0. First and last layers of sound models differ most, so more is asked of
them. Of what layers share, see `shared`.
"""

import math
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from statistics import median

from quantcore.checkpoints.findings.paired import rotations
from quantcore.checkpoints.findings.record import CheckpointFinding, alike, error, layer_of, role_of, warning
from quantcore.checkpoints.findings.shared import (
    of_constants,
    of_flat,
    of_magnitudes,
    of_signs,
    of_transposes,
)
from quantcore.checkpoints.findings.structure import is_matrix
from quantcore.checkpoints.findings.summary import Largest, Summary
from quantcore.checkpoints.protocol.config import section
from quantcore.checkpoints.protocol.release import Release
from quantcore.checkpoints.statement import Facts

SIBLINGS = 4  # fewer show no scatter, nor that none has flat rows
ENOUGH = 16  # elements; fewer, such as the scale of activations, may be anything
TIMES = 5.0  # times the scatter
AT_ENDS = 1.5  # times more for the first and last layers
GAP = 1.0  # times as wide as the others are apart
GAP_LEAST = 5.0  # times the least scatter
FEW = 4  # beyond a gap lies at most one weight of so many
DEVIATION = 1.4826  # standard deviation of a normal distribution / median absolute deviation
# log2: what scatter counts as at least. Norms and biases of sound models differ by more than matrices do, and
# the largest element of a weight by more than its spread.
LEAST: Mapping[str, float] = {"matrix": 0.5, "vector": 1.0, "bias": 2.0}
LEAST_LARGEST = 1.0
# |mean| / RMS of a matrix, whose siblings have a fifth of it at most; a zero point of 4 bits that is off by
# one makes about 0.4
SHIFTED, LIKE_OTHERS = 0.2, 0.2
MANY = 1024  # elements; the mean of fewer differs from 0 by chance
_FLOATS = frozenset({"plain float16", "plain bfloat16", "plain float32", "plain float64"})
# model types whose RMSNorm multiplies by 1 + weight, as in their modeling files in transformers 5.23
ADDS_ONE = (
    "gemma", "gemma2", "gemma3", "gemma3_text", "minimax_m3_vl", "muse_glimmer", "muse_spark", "nemotron",
    "paligemma", "qwen3_5", "qwen3_5_moe", "qwen3_5_moe_text", "qwen3_5_text", "qwen3_next", "qwen4_exp",
    "recurrent_gemma", "shieldgemma2", "step3p7", "t5gemma", "t5gemma2", "vaultgemma", "videoprism",
)  # fmt: skip
_LIKE = "{alive} of the {siblings} in other layers"


def of_siblings(summaries: Sequence[Summary], release: Release) -> Iterator[CheckpointFinding]:
    """Yield the weights that are far from their siblings, and those that are all 0."""
    zero_norms = [s.zero for s in summaries if _is_norm(s.name)]
    norms = zero_norms.count(False), len(zero_norms)
    # levels differ between layers where norms are folded into weights
    quantities = [q for q in QUANTITIES if q.isolated or not rotations(release)]
    for of_role in alike(summaries, _role).values():
        yield from _zeros(of_role, norms, release)
        sound = [s for s in of_role if not s.zero and not s.zero_scales and not s.damaged]
        flat = list(of_flat({s.name: s.flat for s in sound}))
        yield from flat
        coded = [s for s in sound if s.scales.first and s.spread and is_matrix(s.shape)]
        yield from of_signs({s.name: s.mean / s.spread for s in coded})
        yield from of_constants({s.name: (s.scales.first, s.equal_scales) for s in sound})
        if len(of_role) > SIBLINGS and math.prod(of_role[0].shape) >= ENOUGH:
            yield from _far(of_role, quantities)
            said = {name for finding in flat for name in finding.tensors}
            yield from _shifted([s for s in sound if s.name not in said])
    matrices = [s for s in summaries if is_matrix(s.shape) and not s.damaged and s.name.endswith("weight")]
    plain = [s.spread for s in matrices if s.storage in _FLOATS and s.spread]
    is_model = not {"model_type", "architectures"}.isdisjoint(release.config)
    yield from of_magnitudes({s.name: s.spread for s in matrices if s.scales.first}, plain, is_model)
    by_storage = alike((s for s in summaries if len(s.shape) > 1), lambda s: (role_of(s.name), s.storage))
    for same in by_storage.values():
        yield from of_transposes({s.name: s.shape for s in same})


def _role(summary: Summary) -> tuple[str, str, tuple[int, ...]]:
    # floats of several dtypes are comparable, and bits that are read as another dtype are not
    storage = summary.storage.partition(" ")[0] if summary.storage in _FLOATS else summary.storage
    return role_of(summary.name), storage, summary.shape


def _is_norm(name: str) -> bool:
    *_, module, last = ("", *name.lower().split("."))
    return last == "weight" and ("norm" in module or module.startswith("ln"))


def _is_bias(name: str) -> bool:
    return name.rpartition(".")[2].endswith(("bias", "beta"))


def _zeros(
    of_role: Sequence[Summary], norms: tuple[int, int], release: Release
) -> Iterator[CheckpointFinding]:
    """Yield the weights of one role that are all 0, or whose scales are.

    ``norms``: how many of all norms are not 0, and how many there are. Nothing is counted once a weight.
    """
    in_role = sum(not s.zero for s in of_role), len(of_role)
    scaled = sum(not s.zero_scales for s in of_role)
    for summary in of_role:
        if summary.damaged:  # without its NaN, it may be 0
            continue
        if summary.zero_scales:
            words = "{has} only scales of 0, so {its} values do not depend on {its} codes"
            yield _dead(summary, "scale_zero", words, scaled, len(of_role) - 1, _LIKE)
        elif summary.zero and not _may_be_zero(summary, release):
            is_norm = _is_norm(summary.name)
            alive, count = norms if is_norm else in_role
            if _is_bias(summary.name) and alive < max(SIBLINGS, count - 1):
                continue  # some libraries write biases of 0 for layers that have none
            like = "{alive} of the {siblings} other norms" if is_norm else _LIKE
            yield _dead(summary, "all_zero", "{is} 0 everywhere", alive, count - 1, like)


def _may_be_zero(summary: Summary, release: Release) -> bool:
    """Tell whether 0 means nothing: for one number, a norm to which 1 is added, or what is not a weight."""
    configs = (release.config, section(release.config, "text_config"))
    adds_one = any(config.get("model_type") in ADDS_ONE for config in configs)
    if math.prod(summary.shape) < 2 or (_is_norm(summary.name) and adds_one):
        return True
    return not summary.name.endswith(("weight", "bias")) and layer_of(summary.name) is None


def _dead(summary: Summary, kind: str, words: str, alive: int, others: int, like: str) -> CheckpointFinding:
    if alive and 2 * alive >= others:
        words = f"{words}, where {like} have other values."
        return error(summary.name, kind, words, alive=alive, siblings=others)
    return warning(summary.name, kind, f"{words}.", elements=math.prod(summary.shape))


@dataclass(frozen=True)
class Quantity:
    """What siblings are compared by.

    ``words``: what it has, up to the siblings' numbers; ``largest``: the number that it gives, and its index;
    ``least``: what scatter counts as at least; ``isolated``: whether the number is compared with the second
    largest of its weight first.
    """

    kind: str
    words: str
    largest: Callable[[Summary], Largest]
    least: float
    isolated: bool = False

    def value(self, summary: Summary) -> float:
        """Return what is compared."""
        found = self.largest(summary)
        if not self.isolated:
            return found.first
        return found.first / found.second if found.second else 0.0


_ISOLATED = (
    "at {at}, {ratio} times the second largest; for the {siblings} in other layers, that is {low} to {high}."
)
_SHOWN = "where the {siblings} in other layers have {low} to {high}."
_AT = f"{{value}} at {{at}}, {_SHOWN}"
QUANTITIES = (
    Quantity("isolated_scale", f"a scale of {{value}} {_ISOLATED}", lambda s: s.scales, 0.7, True),
    Quantity("isolated_value", f"a value of magnitude {{value}} {_ISOLATED}", lambda s: s.largest, 0.7, True),
    Quantity("far_spread", f"an RMS of {{value}}, {_SHOWN}", lambda s: Largest(s.spread), 0.0),
    Quantity("far_scale", f"a largest scale of {_AT}", lambda s: s.scales, LEAST_LARGEST),
    Quantity("far_value", f"a largest |w| of {_AT}", lambda s: s.largest, LEAST_LARGEST),
)


def _far(of_role: Sequence[Summary], quantities: Sequence[Quantity]) -> Iterator[CheckpointFinding]:
    """Yield the weights of a role that are far from the others, in the first quantity that shows it."""
    said: set[str] = set()
    for quantity in quantities:
        for summary, middle, low, high in _outside(of_role, quantity):
            if summary.name in said or summary.damaged:
                continue
            said.add(summary.name)
            value, shown = quantity.value(summary), quantity.largest(summary)
            facts: Facts = {
                "value": shown.first, "ratio": value, "at": shown.at, "low": low, "high": high,
                "siblings": len(of_role) - 1, "factor": value / middle,
            }  # fmt: skip
            yield error(summary.name, quantity.kind, f"{{has}} {quantity.words}", **facts)


def _shifted(of_role: Sequence[Summary]) -> Iterator[CheckpointFinding]:
    """Yield matrices whose values lie to one side of 0, unlike siblings': zero points or codes are off."""
    means = {s.name: abs(s.mean) / s.spread for s in of_role if s.spread and math.prod(s.shape) >= MANY}
    if len(means) <= SIBLINGS or not is_matrix(of_role[0].shape):
        return
    name = max(means, key=means.__getitem__)
    share, others = means.pop(name), max(means.values())
    if share > SHIFTED and others < LIKE_OTHERS * share:
        words = (
            "{has} a mean of {share} times {its} RMS, where the {siblings} in other layers have at most "
            "{high}: zero points or codes are off."
        )
        yield error(name, "far_mean", words, share=share, high=others, siblings=len(means))


def _outside(of_role: Sequence[Summary], quantity: Quantity) -> Iterator[tuple[Summary, float, float, float]]:
    """Yield the summaries that are far, with the median, the lowest and the highest of the others."""
    known = [s for s in of_role if quantity.value(s) > 0]
    if len(known) <= SIBLINGS:
        return
    logs = [math.log2(quantity.value(s)) for s in known]
    kind = "bias" if _is_bias(known[0].name) else "matrix" if is_matrix(known[0].shape) else "vector"
    least = max(LEAST[kind], quantity.least)
    layers = [layer_of(s.name) for s in known]
    numbers = [n for n in layers if n is not None]
    ends = (min(numbers), max(numbers)) if numbers else ()
    weights = [AT_ENDS if n in ends else 1.0 for n in layers]
    far = _by_scatter(logs, weights, least) | _by_gap(logs, weights, least)
    inside = [v for i, v in enumerate(logs) if i not in far]
    for i in sorted(far) if len(inside) >= SIBLINGS else ():
        yield known[i], 2.0 ** median(inside), 2.0 ** min(inside), 2.0 ** max(inside)


def _by_scatter(logs: Sequence[float], weights: Sequence[float], least: float) -> set[int]:
    """Return which are many times the scatter from the median, with none of the others halfway there."""
    middle = median(logs)
    scatter = DEVIATION * median(abs(v - middle) for v in logs)
    reach = TIMES * max(scatter, least)
    far = {i for i, v in enumerate(logs) if abs(v - middle) > reach * weights[i]}
    inside = sorted(v for i, v in enumerate(logs) if i not in far)

    def is_alone(value: float) -> bool:
        place = bisect_left(inside, value)
        return all(abs(v - value) > abs(middle - value) / 2 for v in inside[max(0, place - 1) : place + 1])

    return {i for i in far if is_alone(logs[i])}


def _by_gap(logs: Sequence[float], weights: Sequence[float], least: float) -> set[int]:
    """Return the few that are beyond a gap at one end, which is wider than all others are apart."""
    order = sorted(range(len(logs)), key=lambda i: logs[i])
    ordered = [logs[i] for i in order]
    most = min(max(1, len(logs) // FEW), len(logs) - SIBLINGS)
    lowest, highest = ([*accumulate((weights[i] for i in end), max)] for end in (order, reversed(order)))
    for few in range(most, 0, -1):
        for beyond, at, apart, weight in (
            (slice(few), few, ordered[-1] - ordered[few], lowest[few - 1]),
            (slice(-few, None), -few, ordered[-few - 1] - ordered[0], highest[few - 1]),
        ):
            if ordered[at] - ordered[at - 1] > max(GAP * apart, GAP_LEAST * least * weight):
                return set(order[beyond])
    return set()
