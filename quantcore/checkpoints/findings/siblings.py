"""Weights that are far from their siblings: in spread, mean, largest value or scale, or because much is 0.

A weight is far if it differs from the median of its siblings by many times their own scatter, and none of the
others is halfway there; or if it lies beyond a gap that is wider than all others are apart. Scatter is the
median absolute deviation of log2 of a quantity (as a normal distribution's standard deviation); it counts as
at least `LEAST`, since it can be 0. First and last layers of sound models differ most, so more is asked of
them. Of what layers share, see `shared`.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median

import numpy as np
import torch
from torch import Tensor

from quantcore.checkpoints.findings.paired import rotations
from quantcore.checkpoints.findings.record import CheckpointFinding, alike, error, layer_of, role_of, warning
from quantcore.checkpoints.findings.shared import (
    of_constants,
    of_flat,
    of_magnitudes,
    of_signs,
    of_transposes,
)
from quantcore.checkpoints.findings.stored import Flat, scale_boxes
from quantcore.checkpoints.findings.structure import is_matrix
from quantcore.checkpoints.findings.walk import Box, walk
from quantcore.checkpoints.protocol.config import section
from quantcore.checkpoints.protocol.layout import Layout
from quantcore.checkpoints.protocol.release import Release
from quantcore.checkpoints.rows import boxes
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
SAMPLE = 1 << 16  # elements that the spread is computed from
PLACES = 8  # runs of rows that a sample of a quantized weight is taken from
TRIMMED = 1e-3  # the largest values of a sample, which belong to `largest`
_LIKE = "{alive} of the {siblings} in other layers"


@dataclass
class Largest:
    """The two largest numbers over boxes of rows, 0 if there are none, and the index of the first."""

    first: float = 0.0
    second: float = 0.0
    at: tuple[int, ...] = ()

    def add(self, magnitudes: Tensor, first_row: int) -> None:
        """Add the magnitudes of a box."""
        if not magnitudes.numel():
            return
        top = magnitudes.reshape(-1).topk(min(2, magnitudes.numel()))
        found = [float(value) for value in top.values]
        if found[0] > self.first:
            place = np.unravel_index(int(top.indices[0]), magnitudes.shape)
            row, *rest = [int(i) for i in place] or [0]
            self.at = (row + first_row, *rest)
        _, self.second, self.first = sorted([self.first, self.second, *found])[-3:]


@dataclass(frozen=True)
class Summary:
    """What a weight is compared with its siblings by.

    ``spread``, ``mean``: the RMS and the mean of a sample without its largest values; ``largest``: the
    largest finite |w|, of a quantized weight those of the sample; ``scales``: the largest scales, by their
    places in the grid of blocks. ``zero_scales``, ``some_zero_scales``: whether every scale is 0, or one.
    ``equal_scales``: how many scales there are, if all are one number, else 0.
    ``damaged``: whether an error was found in the weight alone. ``flat``: rows and columns of one number.
    """

    name: str
    storage: str
    shape: tuple[int, ...]
    spread: float
    largest: Largest
    mean: float = 0.0
    scales: Largest = field(default_factory=Largest)
    zero_scales: bool = False
    some_zero_scales: bool = False
    equal_scales: int = 0
    damaged: bool = False
    flat: tuple[Flat, ...] = ()

    @property
    def zero(self) -> bool:
        """Whether every value is 0."""
        return not self.largest.first


class Extremes:
    """The summary of a weight whose values arrive in boxes of rows; every ``step``-th one is sampled."""

    def __init__(self, layout: Layout, step: int | None = None) -> None:
        self.layout, self.largest, self.nonfinite = layout, Largest(), 0
        self._step = max(1, math.prod(layout.shape) // SAMPLE) if step is None else step
        self._sample: list[Tensor] = []

    def add(self, box: Box) -> None:
        """Add the values of some rows."""
        self.nonfinite += int((~box.values.isfinite()).sum())
        self.largest.add(box.values.abs().nan_to_num_(0.0, 0.0, 0.0), box.rows.start)
        self._sample.append(box.values.reshape(-1)[:: self._step].nan_to_num(0.0, 0.0, 0.0))

    def found(self) -> Iterator[CheckpointFinding]:
        """Yield the finding on values that are not finite."""
        if self.nonfinite:
            words = "{contains} {values:NaN or infinite value}."
            yield error(self.layout, "value_nonfinite", words, values=self.nonfinite)
        dtype, name = self.layout.dtype, self.layout.name.rpartition(".")[2]
        largest = torch.finfo(dtype).max
        if dtype.itemsize == 1 and is_matrix(self.layout.shape) and self.largest.first > largest / 2:
            words = (
                "{has} values up to {value}, where {format} ends at {end}, as codes have that a scale should "
                "multiply; no stored tensor is known as {its} scale, so {its} values are the unscaled codes."
            )
            if "scale" not in name:
                end, said = float(largest), str(dtype).removeprefix("torch.")
                yield error(self.layout, "unscaled", words, value=self.largest.first, format=said, end=end)

    def summary(self) -> Summary:
        """Return what has been added."""
        sample = torch.cat(self._sample).to(torch.float64)
        kept = sample[sample.abs().argsort()[: max(1, sample.numel() - 1 - int(TRIMMED * sample.numel()))]]
        layout, spread, mean = self.layout, float(kept.square().mean().sqrt()), float(kept.mean())
        return Summary(layout.name, layout.storage, layout.shape, spread, self.largest, mean)


def of_quantized(layout: Layout) -> Summary:
    """Return the summary of a quantized weight: a sample of its values, and all of its scales."""
    extremes = Extremes(layout, 1)
    for rows in _sampled(layout):
        extremes.add(Box(layout, rows))
    if not extremes.largest.first:  # perhaps only where the sample is
        for box in walk(layout):
            extremes.add(box)
            if extremes.largest.first:
                break
    scales, total, zeros, least = Largest(), 0, 0, math.inf
    for start, scale in scale_boxes(layout):
        total += scale.numel()
        zeros += int((scale == 0).sum())
        scales.add(scale.abs().nan_to_num(0.0, 0.0, 0.0), start)
        least = min(least, float(scale.abs().min())) if scale.numel() else least
    dead = total > 0 and not scales.first
    equal = total if least == scales.first and not dead else 0
    some = zeros > 0
    return replace(
        extremes.summary(), scales=scales, zero_scales=dead, some_zero_scales=some, equal_scales=equal
    )


def _sampled(layout: Layout) -> Iterator[slice]:
    """Yield a few runs of rows, spread over the weight, that have about `SAMPLE` elements together."""
    rows = layout.shape[0]
    wanted = -(-SAMPLE * rows // math.prod(layout.shape))
    if wanted >= rows:
        yield from boxes(layout)
        return
    each = max(1, wanted // PLACES)
    places = min(PLACES, wanted)
    for i in range(places):
        start = i * (rows - each) // (places - 1) if places > 1 else 0
        yield slice(start, start + each)


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
    inside = [v for i, v in enumerate(logs) if i not in far]
    return {i for i in far if all(abs(v - logs[i]) > abs(middle - logs[i]) / 2 for v in inside)}


def _by_gap(logs: Sequence[float], weights: Sequence[float], least: float) -> set[int]:
    """Return the few that are beyond a gap at one end, which is wider than all others are apart."""
    order = sorted(range(len(logs)), key=lambda i: logs[i])
    for few in range(max(1, len(logs) // FEW), 0, -1):
        for beyond, rest in ((order[:few], order[few:]), (order[-few:], order[:-few])):
            apart = logs[rest[-1]] - logs[rest[0]]
            low, high = (beyond[-1], rest[0]) if beyond[0] == order[0] else (rest[-1], beyond[0])
            needed = max(GAP * apart, GAP_LEAST * least * max(weights[i] for i in beyond))
            if len(rest) >= SIBLINGS and logs[high] - logs[low] > needed:
                return set(beyond)
    return set()
