"""Findings from headers and config: damaged files, and stored tensors whose counterparts are missing."""

from collections.abc import Iterator, Mapping

from quantcore.checkpoints.containers.stored import StoredTensor
from quantcore.checkpoints.findings.record import CheckpointFinding, error, of_problem
from quantcore.checkpoints.problem import Problem
from quantcore.checkpoints.protocol.release import Release

# A stored tensor of a quantized release -> what else its module must have: one name of each group
PARTNERS: dict[str, tuple[tuple[str, ...], ...]] = {
    "qweight": (("scales",), ("qzeros",)),
    "qzeros": (("qweight",),),
    "g_idx": (("qweight",),),
    "weight_packed": (("weight_scale",),),
    "weight_scale": (("weight", "weight_packed"),),
    "weight_scale_inv": (("weight",),),
    "weight_scale_2": (("weight",), ("weight_scale",)),
    "weight_global_scale": (("weight_packed",), ("weight_scale",)),
    "weight_zero_point": (("weight", "weight_packed"), ("weight_scale",)),
    "W_q": (("scale",), ("zero",)),
    "SCB": (("weight",),),
}
_FLOAT8 = ("F8_E4M3", "F8_E5M2")


def of_headers(release: Release, problems: tuple[Problem, ...]) -> Iterator[CheckpointFinding]:
    """Yield the problems of the files, and the tensors that modules lack."""
    yield from map(of_problem, problems)
    known = {name for problem in problems for name in problem.tensors}
    if not release.method:
        return
    for module, pieces in release.modules.items():
        if known.isdisjoint({f"{module}.{last}" for last in (*pieces, "weight")}):
            yield from _missing(module, pieces)


def _missing(module: str, pieces: Mapping[str, StoredTensor]) -> Iterator[CheckpointFinding]:
    # one sentence per missing tensor, however many others need it
    lacking: dict[tuple[str, ...], list[str]] = {}
    for last in pieces:
        for group in PARTNERS.get(last, ()):
            if not any(name in pieces for name in group):
                lacking.setdefault(group, []).append(last)
    for group, users in lacking.items():
        words = "{is} missing {its} {lacking}, without which {it} can't be read; download the release again."
        names = tuple(f"{module}.{last}" for last in users)
        yield error(names, "missing_tensor", words, lacking=" or ".join(group), module=module)
    weight = pieces.get("weight")
    if weight is not None and weight.dtype in _FLOAT8 and not any("scale" in name for name in pieces):
        words = "{is} {dtype}, but {has} no scale; without one, {its} values are the unscaled codes."
        yield error(weight.name, "missing_tensor", words, dtype=weight.dtype, module=module)
