"""What a finding in a checkpoint is."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from quantcore.checkpoints.problem import Problem
from quantcore.checkpoints.protocol.layout import Layout
from quantcore.diagnosis import Finding
from quantcore.tensors import short

# kind of a finding -> the keys of the readings (`origin.readings`) that it affects
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

    ``severity``: "error" if some reader gets wrong values or none, "warning" if readers disagree or something is
    unusual, "note" if worth knowing. ``sentence`` names the tensor.
    """

    tensors: tuple[str, ...] = ()

    @property
    def rivals(self) -> tuple[str, ...]:
        """The keys of the readings that it concerns, which are those of `CheckpointTensor.rivals`."""
        return RIVALS.get(self.kind, ())


@dataclass(frozen=True)
class Step:
    """A step of a check: ``done`` of ``total`` bytes, now at ``tensor``, and what was found there."""

    done: int
    total: int
    tensor: str = ""
    findings: tuple[CheckpointFinding, ...] = ()


def error(layout: Layout, kind: str, fact: str) -> CheckpointFinding:
    """Return a finding of severity error; ``fact``: the sentence after the weight's name."""
    return CheckpointFinding(kind, "error", f"{named(layout.name)} {fact}", tensors=(layout.name,))


def warning(layout: Layout, kind: str, fact: str) -> CheckpointFinding:
    """Return a finding of severity warning."""
    return CheckpointFinding(kind, "warning", f"{named(layout.name)} {fact}", tensors=(layout.name,))


def note(layout: Layout, kind: str, fact: str) -> CheckpointFinding:
    """Return a finding of severity note."""
    return CheckpointFinding(kind, "note", f"{named(layout.name)} {fact}", tensors=(layout.name,))


def of_problem(problem: Problem) -> CheckpointFinding:
    """Return a problem that was found while headers were read."""
    return CheckpointFinding(problem.kind, problem.severity, problem.sentence, tensors=problem.tensors)


def named(name: str) -> str:
    """Quote a name for a sentence."""
    return short(name, 120)


def some(names: Iterable[str], shown: int = 5) -> str:
    """List a few names: ``'a', 'b' and 3 more``."""
    listed = list(names)
    text = ", ".join(short(name, 80) for name in listed[:shown])
    return f"{text} and {len(listed) - shown:,} more" if len(listed) > shown else text
