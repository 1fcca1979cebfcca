"""Pairs the tensors of two checkpoints, or parts of them, by names and shapes."""

import re
from collections.abc import Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property

import torch

from quantcore.checkpoints.comparison.parts import Part
from quantcore.checkpoints.comparison.sides import Key, Opened, Side, Unpaired, as_expert, sides
from quantcore.checkpoints.statement import named
from quantcore.granularity import Shape

EMBEDDINGS, HEADS = (
    ("embed_tokens.weight", "token_embd.weight", "wte.weight"),
    ("lm_head.weight", "output.weight"),
)
# what modules of transformers store although no training changes it: positions, masks, rotary frequencies,
# counters
_BUFFERS = (
    "position_ids", "token_type_ids", "inv_freq", "masked_bias", "attn.bias", "attention.bias",
    "num_batches_tracked",
)  # fmt: skip
_OF_ACTIVATIONS = ("input_scale", "output_scale", "input_global_scale", ".k_scale", ".v_scale", ".q_scale")
# the name of a fused tensor -> the names of what it combines, in the order of their rows
FUSED = {
    "qkv_proj": ("q_proj", "k_proj", "v_proj"),
    "W_pack": ("q_proj", "k_proj", "v_proj"),
    "gate_up_proj": ("gate_proj", "up_proj"),
    "attn_qkv": ("attn_q", "attn_k", "attn_v"),
    "ffn_gate_up_exps": ("ffn_gate_exps", "ffn_up_exps"),
    "ffn_up": ("ffn_gate", "ffn_up"),  # as llama.cpp names a fused one
}
_FUSED_NAME = re.compile(r"(?<![^.])(?:" + "|".join(FUSED) + r")(?![^.])")
# of what is stored as [in, out]: GPT-2's matrices, and in Llama 4 and gpt-oss the matrices of all experts as
# one tensor
CONV1D = re.compile(r"\.(c_attn|c_proj|c_fc)\.weight( |$)")
_STACK = re.compile(r"(?:\.experts\.(?!\d)|_exps\.)")


def _is_buffer(side: Side, name: str) -> bool:
    """Tell whether a tensor is no weight: a buffer, such as GPT-2's square mask, 64-bit integers or flags."""
    if name.endswith(_BUFFERS):
        return not name.endswith(".bias") or len(side.shapes[name]) == 4
    layout = side.checkpoint.tensors[name].layout
    return layout.is_plain and layout.dtype in (torch.int64, torch.bool)


@dataclass(frozen=True)
class Pair:
    """A part of the original and the part of the other checkpoint that holds the same weights.

    ``shape``: of both; ``note``: a sentence on how they are paired, if the names alone don't show it.
    """

    original: Part
    other: Part
    shape: Shape
    note: str = ""

    def __str__(self) -> str:
        return str(self.other)


@dataclass(frozen=True)
class Pairing:
    """The pairs in the order of the other checkpoint, and the tensors without a partner."""

    pairs: tuple[Pair, ...]
    unpaired: tuple[Unpaired, ...]

    @cached_property
    def of_other(self) -> dict[str, list[Pair]]:
        """The pairs of each tensor of the other checkpoint: one, or one for each expert or part of it."""
        found: dict[str, list[Pair]] = {}
        for pair in self.pairs:
            found.setdefault(pair.other.name, []).append(pair)
        return found


def pair_up(original: Opened, other: Opened) -> Pairing:
    """Pair the tensors of two checkpoints; reads no data."""
    return _Matching(original, other).run()


def _is_bias(name: str) -> bool:
    return as_expert(name).endswith(".bias")


def _is_stack(name: str, shape: Shape) -> bool:
    """Tell whether a tensor has the matrices, or the biases, of all experts."""
    return len(shape) == (2 if _is_bias(name) else 3)


def _squeezed(shape: Shape) -> Shape:
    return tuple(n for n in shape if n != 1)


def _joined(rows: Sequence[int], widths: Set[Shape], shape: Shape) -> bool:
    """Tell whether tensors of these rows, each of one of the widths, make up one of a shape."""
    return sum(rows) == shape[0] and all(width == shape[-1:] for width in widths)


class _Matching:
    """Pairs tensors in this order: equal names, experts of stacks, fused tensors, tied embeddings."""

    def __init__(self, original: Opened, other: Opened) -> None:
        self.original, self.other = sides(original, other)
        self.found: list[Pair] = []
        self.unpaired: list[Unpaired] = []
        self.doubtful: list[tuple[str, str]] = []  # names match, but shapes don't

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
            if not (original in self.original.taken and other in self.other.taken):
                self._differ(original, other)
        self._tied()
        self._turn_square()
        place = {name: i for i, name in enumerate(self.other.shapes)}
        self.found.sort(key=lambda pair: place[pair.other.name])
        for side, opposite in ((self.original, self.other), (self.other, self.original)):
            self.unpaired += [self._alone(side, opposite, n) for n in side.shapes if n not in side.taken]
        return Pairing(tuple(self.found), tuple(self.unpaired))

    def _partner(self, name: str) -> str | None:
        """Return the original's tensor that matches a name; of several, preferably one of the same shape."""
        keys = [k for k in self.other.keys_of(name) if k in self.original.keys]
        names = [n for n in (self.original.keys[k] for k in keys) if n not in self.original.taken]
        shape = sorted(self.other.shapes[name])
        return next((n for n in names if sorted(self.original.shapes[n]) == shape), next(iter(names), None))

    def _pair(self, original: str, other: str) -> None:
        """Pair two whole tensors; defer those that may be experts of a stack or parts of a fused tensor."""
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
        """Record that two tensors with matching names have different shapes."""
        self.original.taken.add(original)
        self.other.taken.add(other)
        x, y = self.original.shapes[original], self.other.shapes[other]
        alias = "" if original == other else f", {named(original)},"
        reason = f"{named(other)} has shape {y}, but the original{alias} has {x}."
        self.unpaired.append(Unpaired("other", other, "shape", reason))

    def _turned(self, original: str, other: str, expert: int | None) -> Pair:
        """Pair two matrices, one the transpose of the other; a plain one is read by columns."""
        plain = self.other.checkpoint.tensors[other].layout.is_plain
        parts = (Part(original, expert, transposed=not plain), Part(other, expert, transposed=plain))
        x, y = self.original.shapes[original], self.other.shapes[other]
        whose = "the original" if original == other else named(original)
        note = f"{named(other)} is stored as {list(y)}, {whose} as its transpose {list(x)}."
        return Pair(*parts, parts[0].shape_of(x), note)

    def _turn_square(self) -> None:
        """Read square matrices of Conv1D and of stacked experts as transposed if the shapes of others are."""
        for kind in (CONV1D, _STACK):
            same = [pair for pair in self.found if kind.search(f"{pair.original.name} {pair.other.name}")]
            if any(pair.original.transposed or pair.other.transposed for pair in same):
                fixed = [self._square(pair) if pair in same else [pair] for pair in self.found]
                self.found = [pair for pairs in fixed for pair in pairs]

    def _square(self, pair: Pair) -> list[Pair]:
        """Return the pairs of a square matrix, or a stack of them, read as transposed; others unchanged."""
        parts = {"original": pair.original, "other": pair.other}
        own, other = pair.original, pair.other
        shapes = {"original": self.original.shapes[own.name], "other": self.other.shapes[other.name]}
        side = max(shapes, key=lambda side: len(shapes[side]))  # of the stack, if one is a single expert
        part, stored = parts[side], shapes[side]
        is_square = len(stored) >= 2 and stored[-1] == stored[-2]
        if _is_bias(part.name) or not is_square or own.transposed or other.transposed:
            return [pair]
        if all(p.is_whole for p in parts.values()):
            experts = range(stored[0]) if len(stored) == 3 else (None,)
            return [self._turned(pair.original.name, pair.other.name, expert) for expert in experts]
        parts[side] = replace(part, transposed=True)
        return [replace(pair, original=parts["original"], other=parts["other"])]

    def _experts(self, coarse: Side, fine: Side) -> None:
        """Pair each expert of a stack with the separate tensor that the other side has for it."""
        for name, shape in fine.shapes.items():
            if name in fine.taken:
                continue
            for key, expert in fine.keys_of(name):
                stack = coarse.keys.get((key, None)) if expert is not None else None
                if stack is None or expert is None:
                    continue
                whole = coarse.shapes[stack]
                if whole[1:] in (shape, shape[::-1]) and expert < whole[0]:
                    turned = whole[1:] != shape
                    self._add(coarse, Part(stack, expert, transposed=turned), fine, Part(name), shape)
                    break

    def _fused(self, coarse: Side, fine: Side) -> None:
        """Pair the rows of a fused tensor with the tensors that it combines."""
        for name, shape in coarse.shapes.items():
            if name in coarse.taken or not shape:
                continue
            usual = as_expert(name)
            match = _FUSED_NAME.search(usual)
            if match is None:
                continue
            keys = [
                coarse.keys_of(f"{usual[: match.start()]}{part}{usual[match.end() :]}")
                for part in FUSED[match[0]]
            ]
            if self._fused_whole(coarse, fine, name, shape, keys) or not _is_stack(name, shape):
                continue
            for expert in range(shape[0]):
                of_expert: list[list[Key]] = [[(key, expert) for key, _ in options] for options in keys]
                self._fused_whole(coarse, fine, name, shape, of_expert, expert)

    def _fused_whole(
        self,
        coarse: Side,
        fine: Side,
        name: str,
        shape: Shape,
        keys: list[list[Key]],
        expert: int | None = None,
    ) -> bool:
        """Pair the parts of a fused tensor, or of one expert of a stack of them; tell whether they fit."""
        parts = [next((fine.keys[k] for k in options if k in fine.keys), None) for options in keys]
        if any(part is None or part in fine.taken for part in parts):
            return False
        shapes = [fine.shapes[part] for part in parts if part is not None]
        stacked = expert is None and _is_stack(name, shape)
        inner = shape[1:] if stacked or expert is not None else shape
        lead = shape[:1] if stacked else ()
        if any(len(s) != len(lead) + len(inner) or s[: len(lead)] != lead for s in shapes):
            return False
        rows = [s[len(lead)] for s in shapes]
        widths = {s[-1:] for s in shapes if len(inner) > 1}
        turned = not _joined(rows, widths, inner)
        if turned and not (len(inner) == 2 and _joined(rows, widths, inner[::-1])):
            return False
        # gpt-oss alternates the rows of gate and up
        step = len(rows) if coarse.checkpoint.release.config.get("model_type") == "gpt_oss" else 1
        start = 0
        for part, count in zip(parts, rows, strict=True):
            assert part is not None
            span = (start, start + count if step == 1 else sum(rows), step)
            for e in range(shape[0]) if stacked else [expert]:
                cut, own = Part(name, e, span, turned), Part(part, e if stacked else None)
                self._add(coarse, cut, fine, own, own.shape_of(fine.shapes[part]))
            start += count if step == 1 else 1
        return True

    def _add(self, coarse: Side, cut: Part, fine: Side, own: Part, shape: Shape) -> None:
        coarse.taken.add(cut.name)
        fine.taken.add(own.name)
        parts = (cut, own) if coarse.name == "original" else (own, cut)
        self.found.append(Pair(*parts, shape))

    def _tied(self) -> None:
        """Pair an output layer with the embeddings of a side that has none: the weights are tied."""
        for side, opposite in ((self.original, self.other), (self.other, self.original)):
            head = next((n for n in side.shapes if n.endswith(HEADS) and n not in side.taken), None)
            table = next((n for n in opposite.shapes if n.endswith(EMBEDDINGS)), None)
            if head is None or table is None or any(n.endswith(HEADS) for n in opposite.shapes):
                continue
            if side.shapes[head] == opposite.shapes[table]:
                note = f"{named(head)} is compared with {named(table)}: one side has tied embeddings."
                parts = [Part(head), Part(table)][:: 1 if side is self.original else -1]
                side.taken.add(head)
                self.found.append(Pair(parts[0], parts[1], side.shapes[head], note))

    def _alone(self, side: Side, opposite: Side, name: str) -> Unpaired:
        """Say why a tensor has no partner."""
        if name in side.unreadable:
            return side.without(name)
        where = "The original" if opposite.name == "original" else "The other checkpoint"
        for key in side.keys_of(name):
            if key in opposite.missing:
                return Unpaired(side.name, name, "missing", f"{where} lacks it: {opposite.missing[key]}")
        if _is_buffer(side, name):
            reason = f"{named(name)} is a buffer, not a weight; libraries compute it again."
            return Unpaired(side.name, name, "buffer", reason)
        if name.endswith(_OF_ACTIVATIONS):
            reason = f"{named(name)} is an activation scale, which only some quantized checkpoints have."
            return Unpaired(side.name, name, "activations", reason)
        others = [key for key, _ in side.keys_of(name)[1:]]
        instead = f" or {named(others[0])}" if others else ""
        return Unpaired(side.name, name, "absent", f"{where} has no {named(name)}{instead}.")
