"""What is wrong or suspicious in a checkpoint, computed from its files, and where.

`steps` checks one weight at a time, in boxes of rows, and can be stopped at any point; `find` runs all of it.

Where things are: `structure` (what files, layers and models lack), `configs` (quantized weights that no
config explains), `walk` (rows, read once for all that looks at them, and those of the original), `stored`
(scales, zero points, g_idx, codes), `provenance` (how scales were computed), `summary` (spread and largest
numbers; `small`: those of many small weights at once), `siblings` (comparison with the same weights of other
layers), `shared` (what all layers have), `paired` (what the original has and the checkpoint lacks), and
`against` (comparison with the original).
"""

from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from quantcore.checkpoints.comparison.orders import Heads
from quantcore.checkpoints.comparison.sides import Opened
from quantcore.checkpoints.findings.against.changes import Originals
from quantcore.checkpoints.findings.against.judge import judge
from quantcore.checkpoints.findings.against.measure import Measure
from quantcore.checkpoints.findings.configs import of_configs
from quantcore.checkpoints.findings.provenance import DeadScales, Provenance
from quantcore.checkpoints.findings.record import (
    CheckpointFinding,
    error,
    finding_of,
    grouped,
    layer_of,
    note,
    of_problem,
    role_of,
    warning,
)
from quantcore.checkpoints.findings.siblings import of_siblings
from quantcore.checkpoints.findings.small import SmallWeights
from quantcore.checkpoints.findings.stored import FlatLines, Histogram, of_parameters
from quantcore.checkpoints.findings.structure import of_headers, of_structure
from quantcore.checkpoints.findings.summary import Extremes, Summary, of_bits, of_quantized
from quantcore.checkpoints.findings.walk import Ordered, walk
from quantcore.checkpoints.protocol.layout import Layout
from quantcore.checkpoints.protocol.record import CODES
from quantcore.checkpoints.protocol.release import Refused
from quantcore.checkpoints.rows import TooLong, ready
from quantcore.checkpoints.statement import raised_at
from quantcore.checkpoints.tensor import CheckpointTensor
from quantcore.errors import QuantError


@dataclass(frozen=True)
class CheckStep:
    """A step of a check: ``done`` of ``total`` bytes, now at ``tensor``, and what was found there.

    The first step, which checks the headers, is at no tensor, nor are the last ones, which compare weights
    with their siblings: by the ``summary`` and the ``measure`` that the step has which completes a weight.
    """

    done: int
    total: int
    tensor: str = ""
    findings: tuple[CheckpointFinding, ...] = ()
    summary: Summary | None = None
    measure: Measure | None = None


def find(checkpoint: Opened, against: Opened | None = None) -> list[CheckpointFinding]:
    """Return everything that `steps` finds, one finding per cause, the worst first, then by layer."""
    found = [finding for step in steps(checkpoint, against) for finding in step.findings]
    return grouped(found, formats(checkpoint))


def formats(checkpoint: Opened) -> dict[str, str]:
    """Return the format of every weight, such as "gptq"."""
    return {
        name: "" if isinstance(tensor.record, Refused) else tensor.record.format_name
        for name, tensor in checkpoint.tensors.items()
    }


def steps(
    checkpoint: Opened,
    against: Opened | None = None,
    skip: Container[str] = (),
    summaries: Mapping[str, Summary] = MappingProxyType({}),
    measures: Mapping[str, Measure] = MappingProxyType({}),
) -> Iterator[CheckStep]:
    """Check a checkpoint one box of rows at a time; stop iterating at any point.

    Args:
        against: the checkpoint that it was quantized from.
        skip: names of weights that have already been checked.
        summaries, measures: of those, by name; the last steps compare all weights with their siblings.
    """
    tensors = checkpoint.tensors
    total = sum(tensor.num_bytes for tensor in tensors.values())
    of_files = _of_files(checkpoint)
    originals = None if against is None else Originals(against, checkpoint)
    yield CheckStep(0, total, "", of_files if originals is None else of_files + originals.findings)
    done, known, measured = 0, dict(summaries), dict(measures)
    alone: Container[str] = () if originals is None else originals.pairs
    small = SmallWeights(tensor for name, tensor in tensors.items() if name not in skip and name not in alone)
    for name, tensor in tensors.items():
        if name in skip:
            done += tensor.num_bytes
            continue
        check = _check_of(name, tensor, originals)
        taken = None if name in alone else small.take(tensor)
        if taken is not None:
            check.summary, check.findings = taken
        for part in check.run() if taken is None else ():
            yield CheckStep(done + int(part * tensor.num_bytes), total, name)
        done += tensor.num_bytes
        if check.summary is not None:
            if any(finding.severity == "error" for finding in check.findings):
                check.summary = replace(check.summary, damaged=True)
            known[name] = check.summary
        if check.measure is not None:
            measured[name] = check.measure
        yield CheckStep(done, total, name, tuple(check.findings), check.summary, check.measure)
    if against is not None:
        verdicts = judge(measured, checkpoint, against, Heads.of(against.release, checkpoint.release))
        yield from (CheckStep(total, total, "", findings) for findings in verdicts)
    compared = [known[name] for name in tensors if name in known]
    yield CheckStep(total, total, "", tuple(of_siblings(compared, checkpoint.release)))


def _of_files(checkpoint: Opened) -> tuple[CheckpointFinding, ...]:
    """Return the findings that headers, problems and the structure of the model give."""
    found = tuple(of_headers(checkpoint.release, checkpoint.problems))
    lacking = {str(finding.facts.get("module", "")) for finding in found}
    lacking |= {name.removesuffix(".weight") for problem in checkpoint.problems for name in problem.tensors}
    found = (*found, *of_structure(checkpoint.release, lacking))
    lacking |= {name.rpartition(".")[0] for finding in found for name in finding.tensors}
    records = {n: t.record for n, t in checkpoint.tensors.items() if n.rpartition(".")[0] not in lacking}
    return (*found, *of_configs(records, checkpoint.release))


def _check_of(name: str, tensor: CheckpointTensor, originals: Originals | None) -> "_Check":
    """Return the check of a weight, against its original if it has one."""
    if originals is None or name not in originals.pairs:
        return _Check(tensor, None)
    check = _Check(tensor, originals.of(name))
    if check.original is None:
        words = "{is} not compared: the original has only some of {its} parts."
        check.findings.append(note(tensor.layout, "not_compared", words, shape=tuple(tensor.layout.shape)))
    return check


class _Check:
    """The check of one weight."""

    def __init__(self, tensor: CheckpointTensor, original: Ordered | None) -> None:
        self.tensor, self.original = tensor, original
        self.findings: list[CheckpointFinding] = []
        self.summary: Summary | None = None
        self.measure: Measure | None = None

    def run(self) -> Iterator[float]:
        """Yield the fraction that is done, 0 to 1."""
        layout = self.tensor.layout
        if isinstance(layout, Refused):  # already among the checkpoint's problems
            return
        try:
            if 0 in layout.shape or not layout.shape:
                return
            yield from self._gather(ready(layout, codes=self.original is not None))
        except TooLong as reason:
            self.findings.append(warning(self.tensor.layout, "not_checked", f"is not checked: {reason}"))
        except QuantError as reason:
            said = error(self.tensor.layout, "unreadable_tensor", f"can't be read: {reason}")
            self.findings.append(replace(said, words="", cause=raised_at(reason)))

    def _gather(self, layout: Layout) -> Iterator[float]:
        """Walk over the rows once, for all that looks at them; yield the fraction that is done."""
        of_codes: list[Histogram | Provenance | DeadScales] = []
        extremes = measure = None
        if not layout.holds_values:
            self.findings += of_parameters(layout)
            self.summary = of_quantized(layout)
            of_scales = (DeadScales,) if self.summary.some_zero_scales else ()
            of_codes = [kind(layout) for kind in (*of_scales, Histogram, Provenance) if kind.suits(layout)]
        elif layout.dtype.is_floating_point:
            extremes = Extremes(layout)
        flat = FlatLines(layout) if extremes is not None or Histogram.suits(layout) else None
        if self.original is not None:
            measure = Measure(self.tensor.layout, self.original)
        gathered = [each for each in (extremes, *of_codes, flat, measure) if each is not None]
        for box in walk(layout, self.original) if gathered else ():
            for each in gathered:
                each.add(box)
            yield box.rows.stop / layout.shape[0]
        if extremes is not None:
            self.summary = extremes.summary()
            self.findings += [*extremes.found(), *of_bits(layout, layout.fields[CODES], self.summary)]
        for one in of_codes:
            self.findings += one.found()
        if flat is not None and self.summary is not None and not self.summary.zero:
            self.summary = replace(self.summary, flat=flat.found())
        self.measure = None if measure is None else measure.done()
