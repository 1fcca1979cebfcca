"""Runs the comparison box by box, with progress; it can be stopped and resumed at any step."""

import hashlib
import math
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from quantcore.analysis import sqnr_of
from quantcore.checkpoints.comparison.boxes import PairComparison, PairRecord, in_order
from quantcore.checkpoints.comparison.error_map import Floats, mean_squares, stacked
from quantcore.checkpoints.comparison.orders import AS_STORED, HALVES, PAIRS, Heads, Orders
from quantcore.checkpoints.comparison.pairing import Pair, Pairing, pair_up
from quantcore.checkpoints.comparison.record import TensorResult, WorstBlock, metrics
from quantcore.checkpoints.comparison.schemes import why_different
from quantcore.checkpoints.comparison.sides import Opened, is_gguf
from quantcore.checkpoints.rows import IN_MEMORY
from quantcore.checkpoints.statement import Statement
from quantcore.checkpoints.tensor import CheckpointTensor
from quantcore.displayed import Displayed
from quantcore.errors import QuantError

FORMAT = 1  # version of a state as plain data
_BYTES_PER_THREAD = 40_000_000  # for its boxes; measured
_LARGEST_HEAD = 1 << 24  # elements; the rows of a head stay in one box


@dataclass(frozen=True)
class ComparisonStep:
    """A compared box of rows: ``done`` of ``total`` bytes of both checkpoints, at the pair ``name``."""

    done: int
    total: int
    name: str
    state: "ComparisonState"


@dataclass
class ComparisonState:
    """How far a comparison has come; plain data by `as_dict`.

    ``identity``: of the pairs, see `CheckpointComparison.identity`; ``finished``: the pairs that are done, in
    order; ``current``: the next pair, with ``boxes`` boxes done.
    """

    identity: str
    finished: list[PairRecord] = field(default_factory=list)
    current: PairRecord = field(default_factory=PairRecord)
    boxes: int = 0

    def as_dict(self) -> dict[str, Any]:
        """Return plain data, for JSON."""
        return {
            "format": FORMAT,
            "identity": self.identity,
            "finished": [record.as_dict() for record in self.finished],
            "current": self.current.as_dict(),
            "boxes": self.boxes,
        }

    @classmethod
    def of_dict(cls, plain: Mapping[str, Any]) -> "ComparisonState":
        """Return what `as_dict` wrote.

        Raises:
            QuantError: it is not the record of a comparison.
        """
        try:
            if plain["format"] != FORMAT:
                raise ValueError
            finished = [PairRecord.of_dict(record) for record in plain["finished"]]
            return cls(
                str(plain["identity"]), finished, PairRecord.of_dict(plain["current"]), int(plain["boxes"])
            )
        except (KeyError, TypeError, ValueError, AttributeError):
            raise QuantError("This is not the record of a comparison; compare from the beginning.") from None


class CheckpointComparison(Displayed):
    """Two checkpoints, paired by names and shapes; no data has been read yet.

    ``pairing``: which tensors belong together, and which have no partner; ``total``: bytes of all pairs.
    """

    def __init__(self, original: Opened, other: Opened) -> None:
        self.original, self.other = original, other
        self.pairing: Pairing = pair_up(original, other)
        self._heads = Heads.of(original.release, other.release)
        self._gguf = (is_gguf(original), is_gguf(other))

    @cached_property
    def identity(self) -> str:
        """A digest of the pairs and of how they are stored, but not of their values."""
        digest = hashlib.sha256()
        for pair in self.pairing.pairs:
            digest.update(repr((pair.original, pair.other, pair.shape, *self._storage(pair))).encode())
        return digest.hexdigest()[:32]

    @cached_property
    def total(self) -> int:
        """Bytes of all pairs, in both checkpoints."""
        return sum(map(self._bytes, self.pairing.pairs))

    def memory(self, threads: int = 1) -> int:
        """Return about the peak memory of `steps` in bytes: boxes and the largest tensor not read by rows."""
        tensors = (tensor for pair in self.pairing.pairs for tensor in self._tensors(pair))
        held = max((tensor.num_bytes for tensor in tensors if tensor.layout.of_part is None), default=0)
        return _BYTES_PER_THREAD * threads + 4 * min(held, IN_MEMORY)

    def steps(
        self, state: ComparisonState | None = None, threads: int = 1
    ) -> Generator[ComparisonStep, None, None]:
        """Compare box by box; the first step comes immediately, before anything has been read.

        Closing the iterator stops it. The result depends neither on interruptions nor on the number of
        threads.

        Args:
            state: that of a stopped comparison, to resume it; it is modified.
            threads: how many read and compare at the same time; more than one helps only if torch uses one
                thread in each (``torch.set_num_threads(1)``).

        Raises:
            QuantError: the state belongs to other checkpoints.
        """
        state = ComparisonState(self.identity) if state is None else state
        if state.identity != self.identity or len(state.finished) > len(self.pairing.pairs):
            raise QuantError(
                "This record belongs to a comparison of other checkpoints; compare from the beginning."
            )
        pairs = self.pairing.pairs
        done = sum(map(self._bytes, pairs[: len(state.finished)]))
        name = str(pairs[min(len(state.finished), len(pairs) - 1)]) if pairs else ""
        yield ComparisonStep(done, self.total, name, state)
        for work, box, record in in_order(self._boxes(state), threads):
            size = self._bytes(work.pair)
            if record.problem:
                state.current = record
            else:
                state.current.add(record.sums)
            state.boxes += 1
            if box == work.boxes - 1 or record.problem:
                state.finished.append(state.current)
                state.current, state.boxes, done = PairRecord(), 0, done + size
                yield ComparisonStep(done, self.total, str(work.pair), state)
            else:
                part = int(size * state.boxes / work.boxes)
                yield ComparisonStep(done + part, self.total, str(work.pair), state)

    def results(self, state: ComparisonState, first: int = 0) -> list[TensorResult]:
        """Return the results of the finished pairs, from ``first`` on."""
        pairs = zip(self.pairing.pairs[first:], state.finished[first:], strict=False)
        return [self._result(pair, record) for pair, record in pairs]

    def error_maps(self, state: ComparisonState) -> dict[str, Floats]:
        """Return where the error of the other's tensors is: the mean squared error of each part of them.

        Of the finished pairs, by the name of the tensor; see `error_map`. A tensor that is compared in parts
        has one if all parts that are finished have the same shape.
        """
        found: dict[str, list[Floats]] = {}
        for pair, record in zip(self.pairing.pairs, state.finished, strict=False):
            sums = record.sums.get(record.order)
            if sums is not None and sums.cells is not None and 0 not in pair.shape:
                columns = pair.shape[-1] if pair.shape else 1
                lines = math.prod(pair.shape[:-1])
                found.setdefault(pair.other.name, []).append(mean_squares(sums.cells, lines, columns))
        same = {name: maps for name, maps in found.items() if len({part.shape for part in maps}) == 1}
        return {name: stacked(maps) for name, maps in same.items()}

    def why(self, result: TensorResult) -> Statement | None:
        """Return why a pair of quantized tensors differs, as far as scales, zero points or codes tell."""
        if result.problem or result.equal or result.order != AS_STORED:
            return None
        pair = self.original.tensors[result.original_tensor], self.other.tensors[result.other_tensor]
        return why_different(*(tensor.layout for tensor in pair))

    def _boxes(self, state: ComparisonState) -> Iterator[tuple[PairComparison, int]]:
        """Yield the remaining boxes, each with its pair; a pair that can't be opened counts as one box."""
        first = state.boxes
        for pair in self.pairing.pairs[len(state.finished) :]:
            x, y = self._tensors(pair)
            work = PairComparison(pair, (x.layout, y.layout), *self.orders_of(pair))
            for box in range(first, work.boxes):
                yield work, box
                if work.problem:
                    break
            first = 0

    def _bytes(self, pair: Pair) -> int:
        return int(sum(self._num_bytes(pair)))

    def _num_bytes(self, pair: Pair) -> tuple[float, float]:
        """Return the bytes of both parts: a share of the tensor's bytes in proportion to their elements."""
        elements = math.prod(pair.shape)
        x, y = (t.num_bytes * elements / max(1, math.prod(t.shape)) for t in self._tensors(pair))
        return x, y

    def _tensors(self, pair: Pair) -> tuple[CheckpointTensor, CheckpointTensor]:
        return self.original.tensors[pair.original.name], self.other.tensors[pair.other.name]

    def _storage(self, pair: Pair) -> tuple[str, str]:
        x, y = self._tensors(pair)
        return x.storage, y.storage

    def orders_of(self, pair: Pair) -> tuple[Orders, tuple[str, ...]]:
        """Return the possible row orders of a pair, and those that are likely because one side is GGUF."""
        heads = self._heads.of_weight(pair.other.name) or self._heads.of_weight(pair.original.name)
        if heads and math.prod(pair.shape) // heads > _LARGEST_HEAD:
            heads = 0
        whole = pair.original.is_whole and pair.other.is_whole
        layout = self.other.tensors[pair.other.name].layout if whole else None
        orders = Orders(pair.shape, heads, layout)
        likely = (PAIRS if self._gguf[1] else HALVES,) if self._gguf[0] != self._gguf[1] else ()
        return orders, likely if orders.has_heads else ()

    def _result(self, pair: Pair, record: PairRecord) -> TensorResult:
        elements = math.prod(pair.shape)
        num_bytes = self._num_bytes(pair)
        bits = (8 * num_bytes[0] / max(1, elements), 8 * num_bytes[1] / max(1, elements))
        found: dict[str, Any] = {
            "name": str(pair.other), "original": str(pair.original), "shape": pair.shape,
            "storage": self._storage(pair), "elements": elements, "num_bytes": num_bytes,
            "bits_per_weight": bits,
            "note": pair.note, "problem": record.problem,
            "other_tensor": pair.other.name, "original_tensor": pair.original.name,
        }  # fmt: skip
        if record.problem or not record.sums:
            return TensorResult(**found)
        order, sums = self.orders_of(pair)[0].by_name[record.order], record.sums[record.order]

        def in_other(index: tuple[int, ...]) -> tuple[int, ...]:
            """Return the index of an element in the other's tensor, whose rows may be in another order."""
            return pair.other.whole_index((order.source(index[0]), *index[1:]) if index else index)

        found |= metrics(sums, pair.shape)
        found["order"] = record.order
        found["orders"] = {name: tried.sqnr_db for name, tried in record.sums.items()}
        if found["max_abs_error_index"] is not None:
            found["other_index"] = in_other(found["max_abs_error_index"])
        worst = []
        for sse, power, flat, columns in sums.blocks:
            index = tuple(int(i) for i in np.unravel_index(flat, pair.shape)) if pair.shape else ()
            places = pair.original.whole_index(index), in_other(index)
            worst.append(WorstBlock(index, columns, sqnr_of(power, sse), sse / columns, *places))
        return TensorResult(**found, worst=tuple(worst))
