"""What a finding in a checkpoint is; what many weights share for one cause becomes one sentence.

It has their number and the exceptions. Weights that do the same work in different layers have names that
differ only in numbers: the role of ``model.layers.3.mlp.up_proj.weight`` is
``model.layers.*.mlp.up_proj.weight``, and its layer 3; experts of a layer have one role.
"""

import re
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from typing import Any, TypeVar

from quantcore.checkpoints.protocol.layout import Layout
from quantcore.checkpoints.statement import Fact, Facts, Problem, named, plain, write
from quantcore.diagnosis import SEVERITIES, Finding, Severity
from quantcore.wording import count, joined, short

Item = TypeVar("Item")
Key = TypeVar("Key", bound=Hashable)
_NUMBER = re.compile(r"(?<![^.])\d+(?![^.])")
_SHOWN = 3  # names that a sentence lists
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


@dataclass(frozen=True, repr=False)
class CheckpointFinding(Finding):
    """A finding with the tensors that it concerns, by their names in the checkpoint or its files.

    `quantcore.Finding.severity`: "error" if some reader gets wrong values or none, "warning" if readers
    disagree or something is unusual, "note" if worth knowing. `quantcore.Finding.sentence` names the tensor,
    or the number of tensors. `quantcore.Finding.facts`: the numbers of the sentence, by name; of several
    tensors, those that they share. ``words``: the sentence with places for the subject's facts, see
    `statement`; findings of one kind and severity with equal words have one cause, and are one finding
    (`grouped`). ``cause``: what takes the place of the words where these differ although the cause is the
    same. ``members``: the findings of the single tensors, if it is about several; else empty.
    """

    tensors: tuple[str, ...] = ()
    words: str = ""
    cause: str = ""
    members: tuple["CheckpointFinding", ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Return plain data for JSON, in which numbers that are not finite are strings."""
        keys = ("kind", "severity", "sentence", "tensors", "facts", "rivals")
        found = {key: plain(getattr(self, key)) for key in keys}
        if self.members:
            found["members"] = [{"tensors": list(m.tensors), "facts": plain(m.facts)} for m in self.members]
        return found

    @property
    def rivals(self) -> tuple[str, ...]:
        """The keys of the readings that it concerns, which are those of `CheckpointTensor.rivals`."""
        return RIVALS.get(self.kind, ())


def finding_of(
    severity: Severity, subject: Subject, kind: str, words: str, **facts: Fact
) -> CheckpointFinding:
    """Return a finding about one or more tensors.

    Args:
        words: the sentence after the name of the first; a template (see `statement`) if there are facts.
    """
    if isinstance(subject, tuple):
        names = subject
    else:
        names = (subject if isinstance(subject, str) else subject.name,)
    sentence = write(words, named(names[0]), [facts], names[:1])
    return CheckpointFinding(kind, severity, sentence, tensors=names, facts=facts, words=words)


# findings by their severity
error = partial(finding_of, "error")
warning = partial(finding_of, "warning")
note = partial(finding_of, "note")


def of_problem(problem: Problem) -> CheckpointFinding:
    """Return a problem that was found while headers were read."""
    return CheckpointFinding(
        problem.kind, problem.severity, problem.sentence, tensors=problem.tensors, cause=problem.cause
    )


def grouped(findings: Iterable[CheckpointFinding], formats: Mapping[str, str]) -> list[CheckpointFinding]:
    """Return findings with those of one cause merged, the worst first, then by layer.

    Args:
        formats: of every weight that was checked, its format, such as "gptq"; of these, a merged finding says
            to how many it does not apply.
    """

    def cause(found: CheckpointFinding) -> tuple[str, str, object]:
        return found.severity, found.kind, found.cause or found.words or found.sentence

    causes = alike(findings, cause)
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
    """Return the facts that all members have with the same values, and how many members there are."""
    first = members[0].facts
    same = {k: v for k, v in first.items() if all(m.facts.get(k) == v for m in members)}
    return {**same, "tensors": len(members)}


def role_of(name: str) -> str:
    """Return a name without its numbers, as the same weight of other layers and experts has it too.

    >>> role_of("blk.3.ffn_up.weight")
    'blk.*.ffn_up.weight'
    """
    return _NUMBER.sub("*", name)


def layer_of(name: str) -> int | None:
    """Return the first number of a name; None if it has none.

    >>> layer_of("model.layers.3.mlp.experts.5.up_proj.weight")
    3
    """
    found = _NUMBER.search(name)
    return int(found[0]) if found and len(found[0]) < 10 else None


def in_layer_order(name: str) -> tuple[tuple[int, int, str], ...]:
    """Return a key that sorts names by their parts, numbers by value: layer 2 comes before layer 10."""
    return tuple((0, int(p), "") if p.isdecimal() and len(p) < 10 else (1, 0, p) for p in name.split("."))


def subject_of(names: Sequence[str], among: Iterable[str], kind: str = "tensor") -> str:
    """Name several weights in a sentence: all of a kind, all but a few, those of one role, or some.

    Args:
        among: all weights of which the same could have been said, ``names`` included.
        kind: what these are called: ``gptq tensor``.

    >>> names = ["a.0.w", "a.1.w", "a.2.w", "a.3.w"]
    >>> subject_of(names, [*names, "b"], "gptq tensor")
    "4 of 5 gptq tensors (all but 'b')"
    """
    chosen = set(names)
    others = [name for name in among if name not in chosen]
    if len(names) > _SHOWN and not others:
        return f"All {count(len(names), kind)}"
    total = len(names) + len(others)
    if len(names) > _SHOWN and len(others) <= _SHOWN:
        return f"{len(names):,} of {count(total, kind)} (all but {joined([short(n, 80) for n in others])})"
    if len(names) <= _SHOWN:
        return joined([short(name, 80) for name in names])
    roles = {role_of(name) for name in names}
    if len(roles) == 1:
        return f"{count(len(names), kind)} {short(roles.pop(), 100)} (layers {_layers(names)})"
    shown = [short(name, 80) for name in names[:_SHOWN]]
    return f"{len(names):,} of {count(total, kind)} ({joined([*shown, f'{len(names) - _SHOWN:,} more'])})"


def _layers(names: Iterable[str]) -> str:
    """List the layers of names: ``0–3 and 7``."""
    layers = sorted({layer for name in names if (layer := layer_of(name)) is not None})
    by_run = groupby(enumerate(layers), key=lambda at: at[1] - at[0])
    runs = [[layer for _, layer in run] for _, run in by_run]
    shown = [f"{run[0]}–{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs]
    return joined([*shown[:8], f"{len(shown) - 8} more"] if len(shown) > 8 else shown)


def alike(items: Iterable[Item], key: Callable[[Item], Key]) -> dict[Key, list[Item]]:
    """Return the items that have the same key, such as a role, by this key."""
    found: dict[Key, list[Item]] = {}
    for item in items:
        found.setdefault(key(item), []).append(item)
    return found
