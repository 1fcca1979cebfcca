"""Measures a checkpoint: first a sample with intervals, then everything. All visitors share what is found."""

import math
import threading
from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

import quantcore as qc
from pages.models.opening import OpenCheckpoint
from pages.serving import scheduler
from pages.serving.log import log
from pages.shared.computing import cache, turn
from pages.shared.computing.long_work import LongWork, WorkStep
from quantcore.errors import QuantError
from quantcore.layerwise import WHOLE, SensitivityStep, Table, WeightRow, outline, sensitivity
from quantcore.wording import count, megabytes

AT_ONCE, AT_ONCE_REMOTE = 500_000_000, 5_000_000  # bytes that are sampled without being asked: some seconds
EXACT_AT_ONCE = 5.0  # seconds that the exact answer may take on one core to follow without being asked
_BOXES = 4  # of `WHOLE` elements that a thread holds: values, errors and what schemes need between
_PER_CELL = 100  # floats


@dataclass
class SharedTable:
    """The table of a checkpoint under some schemes.

    ``done`` of ``total`` bytes are measured; ``lock``: held by whoever continues it; ``note``: why the
    operator's cluster does not measure it, empty if it does or there is none.
    """

    key: str
    opened: OpenCheckpoint
    imatrix: OpenCheckpoint | None
    schemes: tuple[qc.Scheme, ...]
    table: Table
    outlined: Table
    total: int
    done: int = 0
    note: str = ""
    lock: Any = field(default_factory=threading.Lock)

    @property
    def rows(self) -> list[WeightRow]:
        """What is known of each weight, in the order of the checkpoint: its row, or else its estimate."""
        known = (self.table.rows.get(name) or self.table.estimates.get(name) for name in self.table.names)
        return [row for row in known if row is not None]

    @property
    def is_sampled(self) -> bool:
        """Whether every weight has an estimate or a row."""
        return len(self.rows) == len(self.table.names)

    @property
    def seconds(self) -> float:
        """How long what is left takes on one core, by the sample."""
        left = (row for name, row in self.table.estimates.items() if name not in self.table.rows)
        return sum(cell.seconds for row in left for cell in row.cells if not math.isnan(cell.seconds))


def of(opened: OpenCheckpoint, imatrix: OpenCheckpoint | None, schemes: list[qc.Scheme]) -> SharedTable:
    """Return the table of a checkpoint, a visitor's or a new one.

    Raises:
        QuantError: there are no schemes, or too many.
    """
    key = f"sensitivity {opened.key} | {imatrix.key if imatrix else ''} | {'; '.join(map(str, schemes))}"

    def make() -> SharedTable:
        checkpoint, inputs = opened.checkpoint, imatrix.checkpoint if imatrix else None
        first = next(sensitivity(checkpoint, schemes, inputs))
        outlined = outline(checkpoint, schemes)
        return SharedTable(key, opened, imatrix, tuple(schemes), first.table, outlined, first.total)

    size = _PER_CELL * len(schemes) * len(opened.checkpoint.tensors)
    return cache.shared_record(cache.CacheKey(key, size), "sensitivity", make)


def proceed(found: SharedTable, place: DeltaGenerator, draw: Callable[[], None]) -> None:
    """Sample, then measure, each if that is quick or the visitor asked for it; else draw its button."""
    if not found.is_sampled:
        quick = found.total <= (AT_ONCE_REMOTE if found.opened.is_remote else AT_ONCE)
        work = LongWork("sn_sample", f"sample {found.key}", quick)
        label = f"Estimate from {megabytes(found.total)}"
        if not work.starts(
            place, label, f"{count(len(found.schemes), 'scheme')}, from some rows of each weight"
        ):
            return
        _run(work, found, place, draw, sample=True)
    if found.table.is_finished:
        return
    work = LongWork("sn_exact", f"exact {found.key}", found.seconds <= EXACT_AT_ONCE)
    takes = f"about {found.seconds:,.0f} s on one core" if found.seconds >= 1 else "less than a second"
    table, label, done = found.table, "Measure exactly", ""
    if table.rows:
        label, done = "Continue", f"{len(table.rows):,} of {count(len(table.names), 'tensor')} done; "
    shared = ", shared by the workers of a cluster" if _is_for_cluster(work, found) else ""
    if work.starts(place, label, f"{done}{takes}{shared}. Until then, estimates are shown."):
        _run(work, found, place, draw, sample=False)


def _run(
    work: LongWork, found: SharedTable, place: DeltaGenerator, draw: Callable[[], None], sample: bool
) -> None:
    threads = max(1, turn.CORES - 1)  # one core is left to everybody else
    at_cluster = _is_for_cluster(work, found)
    largest = max((math.prod(row.shape) for row in found.outlined.ordered), default=1)
    content = cache.CacheKey(found.key, threads * min(largest, WHOLE))
    is_done = lambda: found.is_sampled if sample else found.table.is_finished  # noqa: E731
    steps = lambda: _steps(found, threads, sample, is_done, at_cluster)  # noqa: E731
    work.run(place, steps, content, _BOXES, useless=is_done, draw=draw)
    if found.note:
        st.caption(found.note)


def _is_for_cluster(work: LongWork, found: SharedTable) -> bool:
    """Whether it takes long, the operator names a cluster, and its workers may find the files."""
    return not work.quick and scheduler.is_set() and bool(found.opened.checkpoint.address)


def _steps(
    found: SharedTable, threads: int, sample: bool, is_done: Callable[[], bool], at_cluster: bool
) -> Generator[WorkStep, None, None]:
    """Measure weight by weight; if several visitors ask for the same table, only one measures at a time."""
    while not found.lock.acquire(timeout=0.2):
        yield _step(found, sample, "")
    try:
        with closing(_measuring(found, threads, sample, at_cluster)) as steps:
            for step in steps:
                found.done = step.done
                if step.row is not None or step.workers is not None:
                    yield _step(found, sample, step.row.name if step.row else "", step.workers)
                if sample and is_done():
                    break
    finally:
        found.lock.release()


def _measuring(
    found: SharedTable, threads: int, sample: bool, at_cluster: bool
) -> Generator[SensitivityStep, None, None]:
    """Measure at the workers of the cluster, or what is left of it here if they can't."""
    inputs = found.imatrix.checkpoint if found.imatrix else None
    given = found.opened.checkpoint, found.schemes, inputs, found.table, threads, sample
    client, found.note = scheduler.client() if at_cluster else None, ""
    if client is not None:
        try:
            yield from sensitivity(*given, client=client)
            return
        except QuantError as reason:
            log.warning("%s", reason)
    if at_cluster:
        found.note = "The cluster of this server can't be used now, so the server measures by itself."
    yield from sensitivity(*given)


def _step(found: SharedTable, sample: bool, name: str, workers: int | None = None) -> WorkStep:
    at = "" if workers is None else f" at {count(workers, 'worker')}"
    more = f": {name}" if name else ""
    if sample:
        known, names = len(found.rows), len(found.table.names)
        return WorkStep(known / max(1, names), f"Estimate {known:,} of {names:,}{at}{more}", known)
    text = f"{megabytes(found.done)} of {megabytes(found.total)}{at}{more}"
    return WorkStep(found.done / max(1, found.total), text, len(found.table.rows))
