"""Which tensor of one checkpoint belongs to which of another, or which part of it, by names and shapes."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, Protocol

from quantcore.checkpoints.comparison.gguf_names import GgufNames, without_expert
from quantcore.checkpoints.comparison.parts import Part
from quantcore.checkpoints.layouts.plain import Plain
from quantcore.checkpoints.problem import Problem
from quantcore.checkpoints.protocol.refused import Refused
from quantcore.checkpoints.protocol.release import Release
from quantcore.checkpoints.tensor import CheckpointTensor
from quantcore.errors import QuantError
from quantcore.granularity import Shape
from quantcore.tensors import short

Key = tuple[str, int | None]  # a name that both checkpoints may have, and the number of an expert
Side = Literal["original", "other"]
EMBEDDINGS, HEADS = (
    ("embed_tokens.weight", "token_embd.weight", "wte.weight"),
    ("lm_head.weight", "output.weight"),
)
# a fused name -> what it is fused of, in the order of their rows
_FUSED = {
    "qkv_proj": ("q_proj", "k_proj", "v_proj"),
    "W_pack": ("q_proj", "k_proj", "v_proj"),
    "gate_up_proj": ("gate_proj", "up_proj"),
    "attn_qkv": ("attn_q", "attn_k", "attn_v"),
    "ffn_gate_up_exps": ("ffn_gate_exps", "ffn_up_exps"),
    "ffn_up": ("ffn_gate", "ffn_up"),  # as llama.cpp names a fused one
}
_FUSED_NAME = re.compile(r"(?<![^.])(?:" + "|".join(_FUSED) + r")(?![^.])")
_CONV1D = re.compile(r"\.(c_attn|c_proj|c_fc)\.weight( |$)")  # GPT-2's, which stores [in, out]
# the last names of stored tensors of which a weight is made, where a shard of them is missing
_OF_WEIGHT = re.compile(
    r"\.(qweight|qzeros|scales|g_idx|weight_packed|weight_scale|weight_shape|weight_zero_point)$"
)


class Opened(Protocol):
    """What is needed of a `Checkpoint`."""

    @property
    def tensors(self) -> Mapping[str, CheckpointTensor]:
        """Its weights by name."""

    @property
    def problems(self) -> tuple[Problem, ...]:
        """What was found while headers were read."""

    @property
    def release(self) -> Release:
        """Its stored tensors and configs."""


@dataclass(frozen=True)
class Pair:
    """A part of the original and the part of the other checkpoint that holds the same weights.

    ``shape``: of both; ``note``: why they are paired where names don't tell, for a sentence.
    """

    original: Part
    other: Part
    shape: Shape
    note: str = ""

    def __str__(self) -> str:
        return str(self.other)


@dataclass(frozen=True)
class Unpaired:
    """A tensor that only one of two checkpoints has, or that can't be compared, with the reason as a sentence.

    ``kind``: "absent", "shape", "unreadable" or "missing".
    """

    side: Side
    name: str
    kind: str
    reason: str


@dataclass(frozen=True)
class Pairing:
    """The pairs in the order of the other checkpoint, and what has no partner."""

    pairs: tuple[Pair, ...]
    unpaired: tuple[Unpaired, ...]


def is_gguf(checkpoint: Opened) -> bool:
    """Whether a checkpoint has llama.cpp's names."""
    return "general.architecture" in checkpoint.release.config or any(
        name.startswith("blk.") for name in checkpoint.tensors
    )


def pair_up(original: Opened, other: Opened) -> Pairing:
    """Pair the tensors of two checkpoints; reads no data."""
    return _Matching(original, other).run()


@dataclass
class _Names:
    """The tensors of one side by every name under which the other side may look for them."""

    side: Side
    checkpoint: Opened
    translate: "_Translation"
    taken: set[str] = field(default_factory=set)

    @cached_property
    def unreadable(self) -> dict[str, str]:
        """Why tensors can't be read, by name."""
        found = {}
        for name, tensor in self.checkpoint.tensors.items():
            try:
                if isinstance(tensor.layout, Refused):
                    found[name] = tensor.layout.reason
                _ = tensor.shape  # of some formats, a stored tensor holds it
            except QuantError as error:
                found[name] = str(error)
        return found

    @cached_property
    def shapes(self) -> dict[str, Shape]:
        """By name; an empty one for what can't be read."""
        return {n: () if n in self.unreadable else t.shape for n, t in self.checkpoint.tensors.items()}

    @cached_property
    def keys(self) -> dict[Key, str]:
        """The name of a tensor by each of its keys."""
        found: dict[Key, str] = {}
        for name in self.checkpoint.tensors:
            for key in self.translate.keys(name):
                found.setdefault(key, name)
        return found

    @cached_property
    def missing(self) -> dict[Key, str]:
        """Why a tensor is not there that the index names, by its keys."""
        found: dict[Key, str] = {}
        for problem in self.checkpoint.problems:
            for name in problem.tensors:
                logical = _OF_WEIGHT.sub(".weight", name)
                if logical not in self.checkpoint.tensors:
                    found |= dict.fromkeys(self.translate.keys(logical), problem.sentence)
        return found

    def without(self, name: str) -> Unpaired:
        """Say that a tensor can't be read."""
        reason = f"{short(name, 120)} can't be read: {self.unreadable[name]}"
        return Unpaired(self.side, name, "unreadable", reason)


class _Translation:
    """Names of a side as names that both sides have in common."""

    def __init__(self, gguf: GgufNames | None, prefixes: Sequence[tuple[str, str]]) -> None:
        self._gguf, self._prefixes = gguf, prefixes

    def keys(self, name: str) -> list[Key]:
        """Return them, the most likely first."""
        found: list[Key] = [(name, None)]
        if self._gguf is not None:
            found += self._gguf.of_name(name)
        for mine, common in self._prefixes:
            if name.startswith(mine):
                found.append((common + name[len(mine) :], None))
        found += [without_expert(key) for key, expert in found if expert is None]
        return list(dict.fromkeys(found))


def _translations(original: Opened, other: Opened) -> tuple[_Translation, _Translation]:
    gguf = (is_gguf(original), is_gguf(other))
    if gguf[0] != gguf[1]:
        config = (original if gguf[0] else other).release.config
        names = GgufNames.of(config.get("general.architecture"))
        first, second = (_Translation(None if own else names, ()) for own in gguf)
        return first, second
    prefixes = _prefixes(list(original.tensors), list(other.tensors))
    return _Translation(None, ()), _Translation(None, prefixes)


def _prefixes(original: list[str], other: list[str]) -> list[tuple[str, str]]:
    """Return what the other's names begin with, and the original's instead, the most frequent first."""
    known, counts = set(original), Counter[tuple[str, str]]()
    tails: dict[str, list[str]] = {}
    for name in original:
        for tail in _tails(name):
            tails.setdefault(tail, []).append(name)
    for name in other:
        if name in known:
            continue
        for tail in _tails(name):
            owners = tails.get(tail, ())
            for owner in owners[:4]:
                counts[name[: len(name) - len(tail)], owner[: len(owner) - len(tail)]] += 1
            if owners:
                break  # the longest tail
    return [prefix for prefix, _ in counts.most_common(4)]


def _tails(name: str) -> Iterator[str]:
    """Yield a name without its first words, as long as more than one or two remain."""
    yield name
    words = name.split(".")
    for n in range(1, min(4, len(words) - 1)):
        yield ".".join(words[n:])


def _squeezed(shape: Shape) -> Shape:
    return tuple(n for n in shape if n != 1)


class _Matching:
    """Pairs tensors in turn: equal names, experts of stacks, fused ones, tied embeddings."""

    def __init__(self, original: Opened, other: Opened) -> None:
        first, second = _translations(original, other)
        self.original = _Names("original", original, first)
        self.other = _Names("other", other, second)
        self.found: list[Pair] = []
        self.unpaired: list[Unpaired] = []
        self.doubtful: list[tuple[str, str]] = []  # names that fit, shapes that don't

    def run(self) -> Pairing:
        """Return all pairs."""
        for name in self.other.shapes:
            partner = self._partner(name)
            if partner is not None:
                self._pair(partner, name)
        for coarse, fine in ((self.original, self.other), (self.other, self.original)):
            self._experts(coarse, fine)
            self._fused(coarse, fine)
        for original, other in self.doubtful:
            if original not in self.original.taken and other not in self.other.taken:
                self._differ(original, other)
        self._tied()
        self._turn_square()
        place = {name: i for i, name in enumerate(self.other.shapes)}
        self.found.sort(key=lambda pair: place[pair.other.name])
        for side, opposite in ((self.original, self.other), (self.other, self.original)):
            self.unpaired += [self._alone(side, opposite, n) for n in side.shapes if n not in side.taken]
        return Pairing(tuple(self.found), tuple(self.unpaired))

    def _partner(self, name: str) -> str | None:
        """Return which tensor of the original a whole tensor belongs to; of several, one whose shape fits."""
        keys = [k for k in self.other.translate.keys(name) if k in self.original.keys]
        names = [n for n in (self.original.keys[k] for k in keys) if n not in self.original.taken]
        shape = sorted(self.other.shapes[name])
        return next((n for n in names if sorted(self.original.shapes[n]) == shape), next(iter(names), None))

    def _pair(self, original: str, other: str) -> None:
        """Pair two whole tensors, or put off what may be one of a stack, or a part of a fused one."""
        x, y = self.original.shapes[original], self.other.shapes[other]
        unreadable = original in self.original.unreadable or other in self.other.unreadable
        if _squeezed(x) == _squeezed(y) or unreadable:
            self._take(original, other, Pair(Part(original), Part(other), x))
        elif len(x) == len(y) == 2 and x == y[::-1]:
            self._take(original, other, self._turned(original, other, None))
        elif len(x) == len(y) == 3 and x == (y[0], y[2], y[1]):
            self._take(original, other, *(self._turned(original, other, e) for e in range(x[0])))
        else:
            self.doubtful.append((original, other))

    def _take(self, original: str, other: str, *pairs: Pair) -> None:
        """Add pairs of two tensors, unless one of them can't be read."""
        self.original.taken.add(original)
        self.other.taken.add(other)
        for side, name in ((self.original, original), (self.other, other)):
            if name in side.unreadable:
                self.unpaired.append(side.without(name))
                return
        self.found += pairs

    def _differ(self, original: str, other: str) -> None:
        """Say that two tensors with fitting names have other shapes."""
        self.original.taken.add(original)
        self.other.taken.add(other)
        x, y = self.original.shapes[original], self.other.shapes[other]
        named = "" if original == other else f", {short(original, 120)},"
        reason = f"{short(other, 120)} has shape {y}, but the original{named} has {x}."
        self.unpaired.append(Unpaired("other", other, "shape", reason))

    def _turned(self, original: str, other: str, expert: int | None) -> Pair:
        """Pair two matrices of which one is the transpose of the other; a plain one is read by columns."""
        plain = isinstance(self.other.checkpoint.tensors[other].layout, Plain)
        parts = (Part(original, expert, transposed=not plain), Part(other, expert, transposed=plain))
        x, y = self.original.shapes[original], self.other.shapes[other]
        note = (
            f"{short(original, 120)} is stored as {list(x)}, {short(other, 120)} as its transpose {list(y)}."
        )
        return Pair(*parts, parts[0].shape_of(x), note)

    def _turn_square(self) -> None:
        """Read the square matrices of GPT-2's Conv1D as transposed where the others are, which shapes tell."""
        conv = [pair for pair in self.found if _CONV1D.search(f"{pair.original.name} {pair.other.name}")]
        if not any(pair.original.transposed or pair.other.transposed for pair in conv):
            return
        for i, pair in enumerate(self.found):
            if pair in conv and pair.original.is_whole and pair.other.is_whole and len(pair.shape) == 2:
                self.found[i] = self._turned(pair.original.name, pair.other.name, None)

    def _experts(self, coarse: _Names, fine: _Names) -> None:
        """Pair each expert of a stack with the tensor of its own that the other side has for it."""
        for name, shape in fine.shapes.items():
            if name in fine.taken:
                continue
            for key, expert in fine.translate.keys(name):
                stack = coarse.keys.get((key, None)) if expert is not None else None
                if stack is None or expert is None:
                    continue
                whole = coarse.shapes[stack]
                if whole[:1] > (expert,) and whole[1:] in (shape, shape[::-1]):
                    turned = whole[1:] != shape
                    self._add(coarse, Part(stack, expert, transposed=turned), fine, Part(name), shape)
                    break

    def _fused(self, coarse: _Names, fine: _Names) -> None:
        """Pair the rows of a fused tensor with the tensors of which it is fused."""
        for name, shape in coarse.shapes.items():
            if name in coarse.taken or not shape:
                continue
            match = _FUSED_NAME.search(name)
            if match is None:
                continue
            keys = [
                coarse.translate.keys(f"{name[: match.start()]}{part}{name[match.end() :]}")
                for part in _FUSED[match[0]]
            ]
            if self._fused_whole(coarse, fine, name, shape, keys) or len(shape) < 3:
                continue
            for expert in range(shape[0]):
                of_expert: list[list[Key]] = [[(key, expert) for key, _ in options] for options in keys]
                self._fused_whole(coarse, fine, name, shape, of_expert, expert)

    def _fused_whole(
        self,
        coarse: _Names,
        fine: _Names,
        name: str,
        shape: Shape,
        keys: list[list[Key]],
        expert: int | None = None,
    ) -> bool:
        """Pair the parts of one fused tensor, or of one expert of a stack of them; return whether they fit."""
        parts = [next((fine.keys[k] for k in options if k in fine.keys), None) for options in keys]
        if any(part is None or part in fine.taken for part in parts):
            return False
        shapes = [fine.shapes[part] for part in parts if part is not None]
        stacked = expert is None and len(shape) == 3
        inner = shape[1:] if stacked or expert is not None else shape
        rows = [s[1] if stacked and len(s) == 3 else s[0] for s in shapes]
        if sum(rows) != inner[0] or any(s[-1:] != inner[-1:] and len(inner) > 1 for s in shapes):
            return False
        # gpt-oss alternates the rows of gate and up
        step = len(rows) if coarse.checkpoint.release.config.get("model_type") == "gpt_oss" else 1
        start = 0
        for part, count in zip(parts, rows, strict=True):
            assert part is not None
            span = (start, start + count * step if step == 1 else inner[0], step)
            for e in range(shape[0]) if stacked else [expert]:
                cut, own = Part(name, e, span), Part(part, e if stacked else None)
                self._add(coarse, cut, fine, own, own.shape_of(fine.shapes[part]))
            start += count if step == 1 else 1
        return True

    def _add(self, coarse: _Names, cut: Part, fine: _Names, own: Part, shape: Shape) -> None:
        coarse.taken.add(cut.name)
        fine.taken.add(own.name)
        parts = (cut, own) if coarse.side == "original" else (own, cut)
        self.found.append(Pair(*parts, shape))

    def _tied(self) -> None:
        """Compare an output layer with the embeddings of the side that has none, where both are the same weights."""
        for side, opposite in ((self.original, self.other), (self.other, self.original)):
            head = next((n for n in side.shapes if n.endswith(HEADS) and n not in side.taken), None)
            table = next((n for n in opposite.shapes if n.endswith(EMBEDDINGS)), None)
            if head is None or table is None or any(n.endswith(HEADS) for n in opposite.shapes):
                continue
            if side.shapes[head] == opposite.shapes[table]:
                note = (
                    f"{short(head, 120)} is compared with {short(table, 120)}: one side has tied embeddings."
                )
                parts = [Part(head), Part(table)][:: 1 if side is self.original else -1]
                side.taken.add(head)
                self.found.append(Pair(parts[0], parts[1], side.shapes[head], note))

    def _alone(self, side: _Names, opposite: _Names, name: str) -> Unpaired:
        """Say why a tensor has no partner."""
        if name in side.unreadable:
            return side.without(name)
        where = "The original" if opposite.side == "original" else "The other checkpoint"
        for key in side.translate.keys(name):
            if key in opposite.missing:
                return Unpaired(side.side, name, "missing", f"{where} lacks it: {opposite.missing[key]}")
        named = [k for k, _ in side.translate.keys(name)[1:] if k != name]
        instead = f", nor {short(named[0], 120)}" if named else ""
        return Unpaired(side.side, name, "absent", f"{where} has no {short(name, 120)}{instead}.")
