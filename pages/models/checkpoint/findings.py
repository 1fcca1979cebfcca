"""Findings of a checkpoint: the check of all tensors, which can be stopped and continued, and their list."""

from collections.abc import Generator
from dataclasses import dataclass, field

import pandas as pd
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from pages.models.checkpoint import controls
from pages.models.opening import OpenCheckpoint
from pages.shared import messages, tables
from pages.shared.computing import cache, turn
from pages.shared.computing.long_work import LongWork, WorkStep
from quantcore.checkpoints import Checkpoint, CheckpointFinding
from quantcore.checkpoints.findings import Measure, Summary, formats, grouped, of_problem, steps
from quantcore.wording import count, megabytes, printable

_CHECK = 400_000_000  # bytes that a check needs: weights of up to 268 MB are in memory while they are checked
FINDINGS = 2000
WITHOUT = 5  # findings written out above the list, since they have no tensor to open
# bytes of both that are checked without pressing the button: two seconds, after which Stop appears
AT_ONCE = 10_000_000
_FOUND = "_ck_found"


@dataclass
class Findings:
    """What a check has found.

    ``first``: in headers; ``of``: in each tensor; ``last``: by comparing all with their siblings;
    ``summaries``, ``measures``: of the tensors, for that; ``checked``: the tensors done; ``complete``: if all
    is done.
    """

    first: tuple[CheckpointFinding, ...] | None = None
    of: dict[str, tuple[CheckpointFinding, ...]] = field(default_factory=dict)
    last: tuple[CheckpointFinding, ...] = ()
    summaries: dict[str, Summary] = field(default_factory=dict)
    measures: dict[str, Measure] = field(default_factory=dict)
    checked: set[str] = field(default_factory=set)
    complete: bool = False

    def all(self, checkpoint: Checkpoint) -> list[CheckpointFinding]:
        """Return one finding per cause, the worst first, then by layer."""
        every = [*(self.first or ()), *(finding for each in self.of.values() for finding in each), *self.last]
        named = {name for finding in every for name in finding.tensors}
        done = {k: v for k, v in formats(checkpoint).items() if k in self.checked or k in named}
        return grouped(every, done)


def _content(opened: OpenCheckpoint, original: OpenCheckpoint | None, elements: int = 1) -> cache.CacheKey:
    return cache.CacheKey(f"{opened.key} {original.key if original else ''}", elements)


def known(opened: OpenCheckpoint, original: OpenCheckpoint | None) -> Findings:
    """Return what has been found in a checkpoint so far."""
    return cache.cached_small(_content(opened, original), "findings", Findings)


def check(opened: OpenCheckpoint, original: OpenCheckpoint | None, place: DeltaGenerator) -> Findings:
    """Check all weights if that is quick or the visitor asked for it; return what has been found so far."""
    found, total = known(opened, original), len(opened.checkpoint.tensors)
    if found.complete:
        return found
    content, both = _content(opened, original, _CHECK // 4), [opened, *([original] if original else [])]
    quick = not any(each.is_remote for each in both) and sum(each.total_bytes for each in both) <= AT_ONCE
    work = LongWork("_ck_check", f"check {content.key}", quick)
    left = total - len(found.checked)
    label = f"Check all {total:,} tensors" if not found.checked else f"Check the remaining {left:,}"
    hint = "Read every tensor and check its scales, zero points and codes, and how they were made" + (
        ", and its error against the original" if original else ""
    )
    if work.starts(place, label if left else "Finish the check", hint=hint):
        work.run(place, lambda: _steps(opened, original, found), content, let_others=turn.pause_for_others)
    return found


def _steps(
    opened: OpenCheckpoint, original: OpenCheckpoint | None, found: Findings
) -> Generator[WorkStep, None, None]:
    """Check the tensors that have not been checked, then all together."""
    against, last = original.checkpoint if original else None, ""
    found.first, found.last = None, ()
    for step in steps(opened.checkpoint, against, found.checked, found.summaries, found.measures):
        found.checked |= {last} - {""} if step.tensor != last else set()
        if not step.tensor:
            found.last += () if found.first is None else step.findings
            found.first = step.findings if found.first is None else found.first
        last = step.tensor or last
        if step.findings and step.tensor:
            found.of[last] = step.findings
        if step.summary is not None:
            found.summaries[last] = step.summary
        if step.measure is not None:
            found.measures[last] = step.measure
        text = f"{megabytes(step.done)} of {megabytes(step.total)}, {count(len(found.checked), 'tensor')}"
        yield WorkStep(step.done / max(1, step.total), text)
    found.checked |= opened.checkpoint.tensors.keys()
    found.complete = True


_MARKS = {
    "error": ":red[:material/error:]",
    "warning": ":orange[:material/warning:]",
    "note": ":blue[:material/info:]",
}


def sentence(finding: CheckpointFinding) -> None:
    """Draw a finding in full."""
    st.markdown(f":small[{_MARKS[finding.severity]} {messages.plain(finding.sentence)}]")


def draw(opened: OpenCheckpoint, original: OpenCheckpoint | None) -> None:
    """Draw what is wrong or suspicious, and the button that checks all weights."""
    place = st.empty()
    known, checkpoint = check(opened, original, place), opened.checkpoint
    if known.first is not None:
        every = known.all(checkpoint)
    else:  # what the headers reveal before any tensor is checked
        every = grouped(map(of_problem, checkpoint.problems), formats(checkpoint))
    st.caption(_status(len(known.checked), len(checkpoint.tensors), known.complete, every))
    for finding in [f for f in every if checkpoint.tensors.keys().isdisjoint(f.tensors)][:WITHOUT]:
        sentence(finding)
    rows = every[:FINDINGS]
    frame = pd.DataFrame(
        {
            "severity": [f.severity for f in rows],
            "tensors": [len(f.tensors) for f in rows],
            "sentence": [printable(f.sentence, 1000) for f in rows],
        }
    )
    config = {
        "severity": st.column_config.TextColumn("Severity", width=80),
        "tensors": st.column_config.NumberColumn("Tensors", width=60),
        "sentence": st.column_config.TextColumn("Finding", width=1040),
    }
    targets = [(f, next((name for name in f.tensors if name in checkpoint.tensors), "")) for f in rows]
    if rows:
        with tables.filling("ck_findings", len(rows)):
            tables.clickable(frame, _FOUND, targets, _open, height="stretch", column_config=config)
    if len(every) > FINDINGS:
        st.caption(f"The first {FINDINGS:,} of {len(every):,}, worst first.")


def _status(checked: int, total: int, complete: bool, every: list[CheckpointFinding]) -> str:
    """Say how much has been checked, and what was found; what was not checked never reads as sound."""
    many = {s: sum(f.severity == s for f in every) for s in ("error", "warning", "note")}
    found = ", ".join(count(n, severity) for severity, n in many.items() if n)
    click = " Click one to open its tensor, or the first of several." if every else ""
    if complete:
        whole = f"All {total:,} tensors" if total != 1 else "The only tensor"
        return f"{whole} checked: {found or 'nothing found'}.{click}"
    if not checked:
        return f"No tensor has been checked yet; in the headers: {found or 'nothing found'}.{click}"
    left = f"{total - checked:,} not yet" if checked < total else "not yet compared with each other"
    return (
        f"{checked:,} of {count(total, 'tensor')} checked, {left}. So far: {found or 'nothing found'}.{click}"
    )


def _open(target: tuple[CheckpointFinding, str]) -> None:
    """Open the tensor of a finding at its place (a callback)."""
    finding, name = target
    if name:
        controls.open_tensor(name, tuple(start for start, _ in finding.boxes[0]) if finding.boxes else None)
