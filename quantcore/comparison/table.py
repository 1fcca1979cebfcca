"""Every library's result for one tensor and scheme, in one table."""

import contextlib
import dataclasses
from typing import TYPE_CHECKING, Any

import torch

from quantcore.analysis import Report, report
from quantcore.conventions import INTEGER_CONVENTIONS, Convention, as_convention
from quantcore.errors import QuantError
from quantcore.numerics import held
from quantcore.quantization import Quantized, apply_quietly
from quantcore.scheme import Scheme, as_scheme, check_supported

if TYPE_CHECKING:
    import pandas as pd

_KEPT = 4  # results kept in memory, for libraries that give the same numbers


def library_table(
    x: Any, scheme: Scheme | str, chosen: Convention | str, block: tuple[int, ...] | None = None
) -> "pd.DataFrame":
    """Return one row per convention: scale and zero_point of a block, number of codes that differ, error.

    Args:
        chosen: the convention whose codes the others are compared with.
        block: position in the grid, by default the first.

    A library that does not support the scheme has the reason under ``refused`` and no numbers.

    >>> import quantcore as qc
    >>> table = qc.library_table([[-1.25, -1.0, 0.5, 2.5]], qc.Scheme.parse("int4"), qc.TEXTBOOK)
    >>> table.set_index("library").loc[["textbook", "torchao", "onnxruntime"], "codes that differ"].to_dict()
    {'textbook': 0.0, 'torchao': 1.0, 'onnxruntime': 1.0}
    """
    import pandas as pd

    scheme, chosen = as_scheme(scheme), as_convention(chosen)
    x, dtype = held(x)
    rows: list[dict[str, Any]] = []
    seen: dict[Convention, dict[str, Any]] = {}
    kept: list[tuple[Quantized, Report]] = []
    own = None
    with contextlib.suppress(QuantError):  # its own row says why
        own = apply_quietly(x, dataclasses.replace(scheme, convention=chosen), dtype=dtype).codes
    for convention in INTEGER_CONVENTIONS.values():
        # what decides numbers and refusals, so that equal ones compare equal
        candidate = dataclasses.replace(scheme, convention=convention)
        record = dataclasses.replace(candidate.in_dtype(dtype).rules, name="", variants=())
        try:
            check_supported(candidate, tuple(x.shape))
            if record not in seen:
                result = apply_quietly(x, candidate, dtype=dtype)
                seen[record] = _row(result, own, _report(result, kept), block)
            rows.append({"library": convention.name, "refused": "", **seen[record]})
        except QuantError as error:
            rows.append({"library": convention.name, "refused": str(error)})
    return pd.DataFrame(rows)


def _report(result: Quantized, kept: list[tuple[Quantized, Report]]) -> Report:
    """Return the report, or that of an earlier result of the same format, parameters and codes."""
    for other, known in kept:
        ours, theirs = ((r.params.scale, r.params.zero_point, r.codes) for r in (result, other))
        if all(map(torch.equal, ours, theirs)):
            return known
    found = report(result)
    kept.append((result, found))
    del kept[:-_KEPT]
    return found


def _row(
    result: Quantized, own: torch.Tensor | None, found: Report, block: tuple[int, ...] | None
) -> dict[str, Any]:
    place = (0,) * result.scale.dim() if block is None else block
    return {
        "scale": float(result.scale[place]),
        "zero_point": result.params.zero_point[place].item(),
        "codes that differ": None if own is None else int(torch.count_nonzero(result.codes != own)),
        "sqnr_db": found.sqnr_db,
        "mse": found.mse,
        "max_abs_error": found.max_abs_error,
    }
