"""The results of a comparison: the metrics of each pair, where its worst blocks are, and remarks."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from operator import attrgetter
from typing import Any

from quantcore.analysis import decibels, sqnr_of
from quantcore.checkpoints.comparison.boxes import PairSums
from quantcore.checkpoints.comparison.orders import AS_STORED, described
from quantcore.checkpoints.statement import named, plain
from quantcore.wording import count, joined

_NONFINITE = {
    "original_nan": ("NaN value", "in the original"),
    "original_inf": ("infinite value", "in the original"),
    "other_nan": ("NaN value", "in the other checkpoint"),
    "other_inf": ("infinite value", "in the other checkpoint"),
}


@dataclass(frozen=True)
class WorstBlock:
    """A run of columns in one row with a large error; ``index``: its first element in the compared shape.

    ``original_index``, ``other_index``: the same element in the two tensors.
    """

    index: tuple[int, ...]
    columns: int
    sqnr_db: float
    mse: float
    original_index: tuple[int, ...]
    other_index: tuple[int, ...]


@dataclass(frozen=True)
class TensorResult:
    """How a tensor of the other checkpoint differs from the original's.

    Metrics are over the elements that are finite in both: ``mse``, ``sqnr_db`` = 10·log10(Σx² / Σ(x-y)²) in
    dB, inf if they are equal, ``cosine``, ``max_abs_error`` and where it is, as an index into ``shape`` and
    into the other's tensor. An undefined metric is nan (an index None), with the reason in ``undefined``.

    ``equal``: whether all values have the same bits, including NaN;
    ``different``: how many don't.
    ``nonfinite``: how many NaN and infinities each side has.
    ``bits_per_weight``, ``num_bytes``: of the original and of the other.
    ``order``: the row order that was undone in the other, see `orders`;
    ``orders``: the SQNR (dB) with each order tried.
    ``worst``: the blocks with the largest squared errors.
    ``problem``: why it could not be compared.
    """

    name: str
    original: str
    shape: tuple[int, ...]
    storage: tuple[str, str]
    elements: int
    num_bytes: tuple[float, float]
    bits_per_weight: tuple[float, float]
    sqnr_db: float = math.nan
    mse: float = math.nan
    max_abs_error: float = math.nan
    max_abs_error_index: tuple[int, ...] | None = None
    other_index: tuple[int, ...] | None = None
    cosine: float = math.nan
    equal: bool = False
    different: int = 0
    nonfinite: Mapping[str, int] = field(default_factory=dict)
    order: str = AS_STORED
    orders: Mapping[str, float] = field(default_factory=dict)
    worst: tuple[WorstBlock, ...] = ()
    undefined: Mapping[str, str] = field(default_factory=dict)
    note: str = ""
    problem: str = ""
    power: float = 0.0
    squared_error: float = 0.0
    other_tensor: str = ""
    original_tensor: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Return plain data for JSON, in which undefined and infinite numbers are strings."""
        return {key: plain(value) for key, value in asdict(self).items()}

    def as_row(self) -> dict[str, Any]:
        """Return a row of a table: one number or text per column."""
        worst = self.worst[0] if self.worst else None
        return {
            "tensor": self.name,
            "original": self.original,
            "shape": "×".join(map(str, self.shape)),
            "storage": self.storage[1],
            "original_storage": self.storage[0],
            "sqnr_db": self.sqnr_db,
            "mse": self.mse,
            "max_abs_error": self.max_abs_error,
            "max_abs_error_index": _text(self.max_abs_error_index),
            "cosine": self.cosine,
            "equal": self.equal,
            "different": self.different,
            "nonfinite": sum(self.nonfinite.values()),
            "bits_per_weight": self.bits_per_weight[1],
            "original_bits_per_weight": self.bits_per_weight[0],
            "bytes": round(self.num_bytes[1]),
            "worst_block": _text(worst.index) if worst else "",
            "worst_block_sqnr_db": worst.sqnr_db if worst else math.nan,
            "order": self.order,
            "remark": " ".join([*self.sentences(), *self.undefined.values()][:1]),
        }

    def sentences(self) -> tuple[str, ...]:
        """Return remarks about this pair, computed from its numbers."""
        name = named(self.name)
        if self.problem:
            return (f"{name} is not compared: {self.problem}",)
        said = [self.note] if self.note else []
        if len(self.orders) > 1:
            said.append(self._order_sentence(name))
        present = [(n, *_NONFINITE[kind]) for kind, n in self.nonfinite.items() if n]
        held = [f"{count(n, one)} {where}" for n, one, where in present]
        if held:
            said.append(f"{name}: {joined(held)}, excluded from the metrics.")
        return tuple(said)

    def _order_sentence(self, name: str) -> str:
        tried = {order: decibels(value) for order, value in self.orders.items()}
        if self.order == AS_STORED:
            others = joined(
                [f"{tried[o]} if read as the original {described(o)}" for o in tried if o != AS_STORED]
            )
            return (
                f"{name} has its rows in the original's order: SQNR {tried[AS_STORED]} as stored, {others}."
            )
        return (
            f"{name} is the original {described(self.order)}: SQNR {tried[self.order]} with that undone, "
            f"{tried[AS_STORED]} as stored. The metrics are computed with it undone."
        )


def _text(index: tuple[int, ...] | None) -> str:
    return "" if index is None else ", ".join(map(str, index))


def metrics(sums: PairSums, shape: tuple[int, ...]) -> dict[str, Any]:
    """Return the fields of `TensorResult` that follow from sums."""
    found, undefined = sums.metrics("the original", "the other")
    shown = ("sqnr_db", "mse", "max_abs_error", "cosine")
    return {name: found[name] for name in shown} | {
        "undefined": {
            name: why if sums.count else "no element is finite in both"
            for name, why in undefined.items()
            if name in shown
        },
        "max_abs_error_index": sums.index(shape),
        "different": sums.different,
        "equal": sums.different == 0,
        "nonfinite": dict(zip(_NONFINITE, sums.nonfinite, strict=True)),
        "power": sums.xx,
        "squared_error": sums.ee,
    }


def by_harm(results: "Iterable[TensorResult]", metric: str = "sqnr_db") -> "list[TensorResult]":
    """Return results with the most harm first: lowest SQNR or cosine, largest error; undefined ones last.

    >>> from quantcore.checkpoints import EXAMPLES, open_checkpoint
    >>> from quantcore.checkpoints.comparison import CheckpointComparison
    >>> opened = [open_checkpoint(EXAMPLES[name]) for name in ("minilm", "minilm-gptq")]
    >>> pair = CheckpointComparison(*opened)
    >>> *_, last = pair.steps()
    >>> worst = by_harm(pair.results(last.state))[0]
    >>> worst.name, round(worst.sqnr_db, 1), worst.storage
    ('encoder.layer.0.output.dense.weight', 14.2, ('plain bfloat16', 'gptq int4 per_group(128) symmetric'))
    """
    sign = 1 if metric in ("sqnr_db", "cosine") else -1
    harm = attrgetter(metric)
    return sorted(results, key=lambda result: (math.isnan(harm(result)), sign * harm(result)))


def schemes_of(results: "Sequence[TensorResult]") -> list[str]:
    """Return how both sides store the tensors that were compared, the most frequent first.

    >>> from quantcore.checkpoints import EXAMPLES, open_checkpoint
    >>> from quantcore.checkpoints.comparison import CheckpointComparison
    >>> opened = [open_checkpoint(EXAMPLES[name]) for name in ("minilm", "minilm-gptq")]
    >>> pair = CheckpointComparison(*opened)
    >>> *_, last = pair.steps()
    >>> schemes_of(pair.results(last.state))[1]
    'A plain bfloat16, B gptq int4 per_group(128) symmetric: 2 tensors'
    """
    found = Counter(result.storage for result in results if not result.problem)
    return [f"A {x}, B {y}: {count(n, 'tensor')}" for (x, y), n in found.most_common()]


def summary(results: "Sequence[TensorResult]") -> str:
    """Say in one sentence how two checkpoints differ.

    >>> from quantcore.checkpoints import EXAMPLES, open_checkpoint
    >>> from quantcore.checkpoints.comparison import CheckpointComparison
    >>> opened = [open_checkpoint(EXAMPLES[name]) for name in ("minilm", "minilm-gptq")]
    >>> pair = CheckpointComparison(*opened)
    >>> *_, last = pair.steps()
    >>> print(summary(pair.results(last.state)).partition(";")[0])
    6 pairs compared, 4 of them bit-equal
    """
    compared = [r for r in results if not r.problem]
    if not compared:
        return "No tensors were compared."
    equal = sum(r.equal for r in compared)
    others = [r for r in compared if not r.equal and not math.isnan(r.sqnr_db)]
    text = f"{count(len(compared), 'pair')} compared, {equal:,} of them bit-equal"
    if others:
        total = sqnr_of(sum(r.power for r in others), sum(r.squared_error for r in others))
        text += f"; overall SQNR of the {'others' if equal else 'pairs'} {decibels(total)}"
        worst = min(others, key=lambda r: r.sqnr_db)
        text += f", lowest {decibels(worst.sqnr_db)} in {named(worst.name)}"
    return text + "."
