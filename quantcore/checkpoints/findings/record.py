"""What a finding in a checkpoint is."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from quantcore.checkpoints.problem import Problem, named
from quantcore.checkpoints.protocol.layout import Layout
from quantcore.checkpoints.statement import Fact, plain, write
from quantcore.diagnosis import Finding, Severity
from quantcore.wording import short

Subject = Layout | str | tuple[str, ...]  # a weight, or tensors by their names
# kind of a finding -> the keys of the readings (`origin.rivals.readings`) that it affects
RIVALS: Mapping[str, tuple[str, ...]] = {
    "gptq_version": ("gptq_version",),
    "zero_points_differ": ("gptq_version",),
    "zero_point_wraps": ("zero_point_unwrapped", "zero_point_carried"),
    "g_idx_unsorted": ("g_idx_ignored",),
    "global_scale": ("global_scale_inverse",),
    "e8m0_nan": ("e8m0_nan",),
    "awq_order": ("awq_interleave",),
    "bit_leak": ("q5k_leak",),
    "rows_permuted": ("rows_permuted",),
}


@dataclass(frozen=True)
class CheckpointFinding(Finding):
    """A finding with the tensors that it concerns, by their names in the checkpoint or its files.

    `quantcore.Finding.severity`: "error" if some reader gets wrong values or none, "warning" if readers disagree or
    something is unusual, "note" if worth knowing. `quantcore.Finding.sentence` names the tensor, or the number of tensors.
    `quantcore.Finding.facts`: the numbers of the sentence, by name; of several tensors, those that they share. ``words``: the
    sentence with places for the subject's facts, see `statement`; findings of one kind and severity with equal words have one
    cause, and are one finding (`grouping.grouped`). ``cause``: what takes the place of the words where these differ although
    the cause is the same.
    ``members``: the findings of the single tensors, if it is about several; else empty.
    """

    tensors: tuple[str, ...] = ()
    words: str = ""
    cause: str = ""
    members: tuple["CheckpointFinding", ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Return plain data for JSON, in which numbers that are not finite are strings."""
        found: dict[str, Any] = {
            "kind": self.kind,
            "severity": self.severity,
            "sentence": self.sentence,
            "tensors": list(self.tensors),
            "facts": plain(self.facts),
            "rivals": list(self.rivals),
        }
        if self.members:
            found["members"] = [{"tensors": list(m.tensors), "facts": plain(m.facts)} for m in self.members]
        return found

    @property
    def rivals(self) -> tuple[str, ...]:
        """The keys of the readings that it concerns, which are those of `CheckpointTensor.rivals`."""
        return RIVALS.get(self.kind, ())


def finding_of(severity: Severity, kind: str, subject: Subject, words: str, **facts: Fact) -> CheckpointFinding:
    """Return a finding about one or more tensors.

    Args:
        words: the sentence after the name of the first; a template (see `statement`) if there are facts.
    """
    names = (subject,) if isinstance(subject, str) else subject if isinstance(subject, tuple) else (subject.name,)
    sentence = write(words, named(names[0]), [facts], names[:1])
    return CheckpointFinding(kind, severity, sentence, tensors=names, facts=facts, words=words)


def error(subject: Subject, kind: str, words: str, **facts: Fact) -> CheckpointFinding:
    """Return a finding of severity error."""
    return finding_of("error", kind, subject, words, **facts)


def warning(subject: Subject, kind: str, words: str, **facts: Fact) -> CheckpointFinding:
    """Return a finding of severity warning."""
    return finding_of("warning", kind, subject, words, **facts)


def note(subject: Subject, kind: str, words: str, **facts: Fact) -> CheckpointFinding:
    """Return a finding of severity note."""
    return finding_of("note", kind, subject, words, **facts)


def of_problem(problem: Problem) -> CheckpointFinding:
    """Return a problem that was found while headers were read."""
    return CheckpointFinding(
        problem.kind, problem.severity, problem.sentence, tensors=problem.tensors, cause=problem.cause
    )


def some(names: Iterable[str], shown: int = 5) -> str:
    """List a few names: ``'a', 'b' and 3 more``."""
    listed = list(names)
    text = ", ".join(short(name, 80) for name in listed[:shown])
    return f"{text} and {len(listed) - shown:,} more" if len(listed) > shown else text
