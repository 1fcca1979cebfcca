"""How a checkpoint is paired with its original: what only one of them has, other shapes, rotated weights.

What is true of the original's values is not true of weights that QuIP or SpinQuant rotated. The names of the
transforms are in compressed-tensors' ``transform_config``; norms before rotated weights are folded into them.
"""

from collections.abc import Iterator
from typing import Any

from quantcore.checkpoints.comparison.pairing import CONV1D, Pairing
from quantcore.checkpoints.comparison.sides import Opened
from quantcore.checkpoints.findings.record import CheckpointFinding, role_of
from quantcore.checkpoints.findings.structure import is_matrix
from quantcore.checkpoints.protocol.config import section
from quantcore.checkpoints.protocol.release import Release
from quantcore.checkpoints.statement import some
from quantcore.diagnosis import Severity

_SIBLINGS = 4  # from so many others on, `shared` tells by them
_FEW = 4  # at most one matrix in so many is transposed by mistake


def of_pairing(pairing: Pairing, original: Opened) -> Iterator[CheckpointFinding]:
    """Yield findings about weights that only one checkpoint has, and about different shapes."""
    for unpaired in pairing.unpaired:
        if unpaired.kind == "shape":
            yield CheckpointFinding("shape_differs", "error", unpaired.reason, tensors=(unpaired.name,))
    yield from _turned(pairing)
    alone = {
        side: tuple(u.name for u in pairing.unpaired if u.side == side and u.kind in ("absent", "missing"))
        for side in ("original", "other")
    }
    # a role that the checkpoint has in other layers is not left out on purpose
    kept = {role_of(part.name) for pair in pairing.pairs for part in (pair.other, pair.original)}
    without = (name for name in alone["original"] if role_of(name) in kept)
    lost = (*without, *_lost_experts(pairing, original))
    severities: tuple[tuple[Severity, tuple[str, ...]], ...] = (
        ("error", lost), ("warning", tuple(name for name in alone["original"] if name not in set(lost))),
    )  # fmt: skip
    for severity, names in severities:
        if names:
            yield CheckpointFinding(
                "missing_tensor", severity,
                f"The original has {some(names)}, but the checkpoint does not.", tensors=names,
                facts={"tensors": len(names)},
            )  # fmt: skip
    if alone["other"]:
        yield CheckpointFinding(
            "additional_tensor", "note",
            f"The original does not have {some(alone['other'])}, so nothing is compared there.",
            tensors=alone["other"],
        )  # fmt: skip


def _turned(pairing: Pairing) -> Iterator[CheckpointFinding]:
    """Yield matrices that are stored as the transpose of the original's, where most others are not.

    GPT-2's Conv1D and ONNX's MatMul store all of theirs so; one of many layers shows without an original.
    """
    parts = [(p, (p.original, p.other)) for p in pairing.pairs]
    whole = [p for p, both in parts if all(part.index is None and part.rows is None for part in both)]
    matrices = [p for p in whole if is_matrix(p.shape)]
    turned = [p for p in matrices if p.original.transposed or p.other.transposed]
    if not turned or _FEW * len(turned) > len(matrices):
        return
    for pair in turned:
        same = sum(role_of(p.other.name) == role_of(pair.other.name) for p in matrices)
        if same > _SIBLINGS or CONV1D.search(pair.original.name):
            continue
        yield CheckpointFinding(
            "transposed", "error",
            f"{pair.note} {len(matrices) - len(turned):,} other matrices have the shapes of the original.",
            tensors=(pair.other.name,), facts={"others": len(matrices) - len(turned)},
        )  # fmt: skip


def _lost_experts(pairing: Pairing, original: Opened) -> Iterator[str]:
    """Yield the experts of the original's stacks that the checkpoint, which has others of them, lacks."""
    taken: dict[str, set[int]] = {}
    for pair in pairing.pairs:
        if pair.original.index is not None:
            taken.setdefault(pair.original.name, set()).add(pair.original.index)
    for name, experts in taken.items():
        for expert in range(original.tensors[name].shape[0]):
            if expert not in experts:
                yield f"{name}[{expert}]"


def rotations(release: Release) -> tuple[str, ...]:
    """Return the names of the transforms of weights by compressed-tensors, such as R1 of SpinQuant."""
    groups = section(section(release.quantization, "transform_config"), "config_groups")
    return tuple(name for name, group in groups.items() if _moves_weights(group))


def _moves_weights(group: Any) -> bool:
    """Tell whether a group of the config, which may be malformed, applies its transform to weights."""
    applied = group.get("apply") if isinstance(group, dict) else None
    if not isinstance(applied, list):
        return False
    places = [one.get("location") for one in applied if isinstance(one, dict)]
    return any(isinstance(place, str) and place.startswith("weight") for place in places)


def rotated(names: tuple[str, ...]) -> CheckpointFinding:
    """Return the note that rotated weights are not compared."""
    sentence = (
        f"The weights are rotated (transform_config: {some(names)}), "
        "so their values are not compared with the original's."
    )
    return CheckpointFinding("rotated", "note", sentence, facts={"transforms": len(names)})
