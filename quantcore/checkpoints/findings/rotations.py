"""Weights that QuIP or SpinQuant rotated: what is true of the original's values is not true of theirs.

compressed-tensors names the transforms in ``transform_config``; norms before rotated weights are folded into them.
"""

from typing import Any

from quantcore.checkpoints.findings.record import CheckpointFinding, some
from quantcore.checkpoints.protocol.config import section
from quantcore.checkpoints.protocol.release import Release


def rotations(release: Release) -> tuple[str, ...]:
    """Return the names of the transforms that compressed-tensors applied to weights, such as R1 of SpinQuant."""
    groups = section(section(release.quantization, "transform_config"), "config_groups")
    return tuple(name for name, group in groups.items() if _moves_weights(group))


def _moves_weights(group: Any) -> bool:
    """Whether a group of the config, which may be malformed, applies its transform to weights."""
    applied = group.get("apply") if isinstance(group, dict) else None
    if not isinstance(applied, list):
        return False
    places = [one.get("location") for one in applied if isinstance(one, dict)]
    return any(isinstance(place, str) and place.startswith("weight") for place in places)


def rotated(names: tuple[str, ...]) -> CheckpointFinding:
    """Return the note that rotated weights are not compared."""
    sentence = (
        f"The weights are rotated (transform_config: {some(names)}), so their values are not compared with the original's."
    )
    return CheckpointFinding("rotated", "note", sentence, facts={"transforms": len(names)})
