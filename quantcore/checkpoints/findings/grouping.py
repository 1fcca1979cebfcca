"""One cause, one finding: what many weights share becomes one sentence with their number and the exceptions."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from quantcore.checkpoints.findings.record import CheckpointFinding
from quantcore.checkpoints.findings.siblings import alike, in_layer_order, subject_of
from quantcore.checkpoints.statement import Facts, write
from quantcore.diagnosis import SEVERITIES


def grouped(findings: Iterable[CheckpointFinding], formats: Mapping[str, str]) -> list[CheckpointFinding]:
    """Return findings with those of one cause merged, the worst first, then by layer.

    Args:
        formats: of every weight that was checked, its format, such as "gptq"; of these, a merged finding says to how
            many it does not apply.
    """
    causes = alike(findings, lambda found: (found.severity, found.kind, found.cause or found.words or found.sentence))
    merged = [_merged(members, formats) if len(members) > 1 else members[0] for members in causes.values()]
    return sorted(merged, key=_place)


def _place(finding: CheckpointFinding) -> tuple[object, ...]:
    first = in_layer_order(finding.tensors[0]) if finding.tensors else ()
    return SEVERITIES.index(finding.severity), first, finding.kind


def _merged(members: Sequence[CheckpointFinding], formats: Mapping[str, str]) -> CheckpointFinding:
    """Return one finding for several with one cause."""
    members = sorted(members, key=_place)
    first = members[0]
    names = tuple(dict.fromkeys(name for member in members for name in member.tensors))
    subjects = list(dict.fromkeys(member.tensors[0] for member in members if member.tensors))
    own = {formats[name] for name in subjects if name in formats}
    if "" in own:
        own = set(formats.values())
    among = [name for name, kind in formats.items() if kind in own]
    kind = f"{own.pop()} tensor" if len(own) == 1 and "" not in own else "tensor"
    if not set(subjects) <= formats.keys():  # modules, or tensors of the files
        kind, among = "tensor", subjects
    subject = subject_of(subjects, sorted(among, key=in_layer_order), kind) if subjects else ""
    if first.words and subject:
        sentence = write(first.words, subject, [member.facts for member in members], subjects)
    elif first.cause and subject:
        sentence = f"{subject} can't be read for the same reason: {first.sentence}"
    else:  # the same sentence about several
        sentence = first.sentence
    return replace(
        first, sentence=sentence, tensors=names, boxes=(), facts=_shared(members), members=tuple(members)
    )


def _shared(members: Sequence[CheckpointFinding]) -> Facts:
    """The facts that all members have with the same values, and how many members there are."""
    first = members[0].facts
    same = {k: v for k, v in first.items() if all(m.facts.get(k) == v for m in members)}
    return {**same, "tensors": len(members)}
