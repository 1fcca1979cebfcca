"""The results of a comparison as rows of a table."""

import re
from collections.abc import Callable, Sequence
from typing import Any

import pandas as pd

from pages.models.compare import controls
from pages.models.compare.controls import Chosen
from pages.shared import headers, tables
from quantcore.checkpoints.comparison import TensorResult, by_harm

SHOWN = [
    "tensor", "sqnr_db", "mse", "max_abs_error", "cosine", "bits_per_weight", "original_bits_per_weight", "bytes",
    "shape", "storage", "worst_block", "worst_block_sqnr_db", "different", "nonfinite", "order", "original", "remark",
]  # fmt: skip
HEADS = {
    "tensor": "Tensor", "bits_per_weight": "Bits per weight", "original_bits_per_weight": "Original's bits",
    "bytes": "Bytes", "shape": "Shape", "storage": "Storage", "worst_block": "Worst block at",
    "worst_block_sqnr_db": "Its SQNR (dB)", "different": "Values that differ", "nonfinite": "NaN and infinite",
    "order": "Rows", "original": "Original", "remark": "Remark", "place": "At", "columns": "Columns", "share": "Share of Σ error²",
}  # fmt: skip


def _layers(result: TensorResult) -> list[tuple[int, str]]:
    """A sort key that puts layer 2 before layer 10."""
    parts = re.split(r"(\d{1,9})", result.name)
    return [(int(part), "") if i % 2 else (0, part) for i, part in enumerate(parts)]


_KEYS: dict[str, Callable[[TensorResult], Any]] = {
    controls.LAYER: _layers,
    controls.BYTES: lambda r: -r.num_bytes[1],
    controls.BITS: lambda r: r.bits_per_weight[1],
}


def rows_of(known: Sequence[TensorResult], chosen: Chosen) -> pd.DataFrame:
    """The results as rows, filtered and sorted; ``place`` is where a click leads."""
    listed = (
        by_harm(known, chosen.metric)
        if chosen.sort == controls.HARM
        else sorted(known, key=_KEYS[chosen.sort])
    )
    rows = [r.as_row() | {"place": (r.other_tensor, r.other_index, 1)} for r in listed]
    frame = pd.DataFrame(rows, columns=None if rows else [*SHOWN, "place"])
    searched = ["tensor", "original", "storage", "shape", "order", "remark"]
    return tables.containing(frame, searched, chosen.words).reset_index(drop=True)


def head(column: str) -> str:
    """What a column is called."""
    return HEADS.get(column) or headers.label(column)
