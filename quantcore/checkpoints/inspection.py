"""What a tensor and an element of a checkpoint are, as plain data and as text: what the pages draw.

>>> from quantcore.checkpoints import EXAMPLES, open_checkpoint
>>> weight = open_checkpoint(EXAMPLES["minilm-gptq"]).tensors["encoder.layer.0.output.dense.weight"]
>>> print(*element_text(element_of(weight, (3, 17)))[:3], sep="\\n")
(3, 17) = 0.032714844, read as float32
  code 10: 4 bits 1010 = 10, bits 4–7 of encoder.layer.0.output.dense.qweight[2, 3] 0xb88bd8a9
  scale 0.016357422: F16 0x2430 = 0.016357422, bits 0–15 of encoder.layer.0.output.dense.scales[0, 3] 0x2430
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from quantcore.checkpoints.origin import StoredNumber
from quantcore.checkpoints.protocol.layout import Layout
from quantcore.checkpoints.rows import boxes, ready
from quantcore.checkpoints.statement import plain
from quantcore.checkpoints.tensor import CheckpointTensor
from quantcore.diagnosis import index as index_text
from quantcore.diagnosis import number
from quantcore.expressions import text_of
from quantcore.wording import count, megabytes, printable

Data = dict[str, Any]


def tensor_of(tensor: CheckpointTensor, ranges: bool = True) -> Data:
    """Return what a tensor is and where it is stored.

    Args:
        ranges: also return those of its codes, parameters and values; reads all of it.

    Raises:
        QuantError: it can't be read.
    """
    layout = tensor.layout
    elements = math.prod(tensor.shape)
    found: Data = {
        "tensor": tensor.name,
        "shape": list(tensor.shape),
        "storage": tensor.storage,
        "dtype": tensor.dtype,
        "bytes": tensor.num_bytes,
        "bits_per_weight": 8 * tensor.num_bytes / max(1, elements),
        "stored": [
            {
                "name": piece.name, "dtype": piece.dtype, "shape": list(piece.shape),
                "file": piece.source.name, "offset": piece.offset, "bytes": piece.num_bytes,
            }
            for piece in layout.pieces.values()
        ],
    }  # fmt: skip
    if ranges and not layout.holds_values:
        found["parameters"] = _parameters(layout)
    if ranges and elements and tensor.shape:
        found |= _numbers(ready(layout))
    found["notes"] = list(tensor.notes())
    return _plain(found)


def _parameters(layout: Layout) -> Data:
    given = {"scale": layout.scale(), "zero_point": layout.zero_point(), "min": layout.min()}
    return {role: _range(numbers) for role, numbers in given.items() if numbers is not None}


def _range(numbers: Tensor) -> Data:
    values = numbers.double().reshape(-1)
    known = values[values.isfinite()]
    ends = [float(f()) for f in (known.min, known.median, known.max)] if known.numel() else [math.nan] * 3
    return {"count": values.numel(), "lowest": ends[0], "median": ends[1], "highest": ends[2]}


def _numbers(layout: Layout) -> Data:
    """Return the range of codes, and what the values are."""
    ends, squares, largest, zeros, bad, total = [math.inf, -math.inf], 0.0, 0.0, 0, 0, 0
    for rows in boxes(layout):
        if not layout.holds_values:
            codes = layout.codes(rows)
            ends = [min(ends[0], int(codes.min())), max(ends[1], int(codes.max()))]
        values = layout.values(rows)
        finite = values.isfinite()
        bad += int((~finite).sum())
        values = torch.where(finite, values, 0.0)
        squares += float(values.double().square().sum())
        largest, zeros = max(largest, float(values.abs().max())), zeros + int((values == 0).sum())
        total += values.numel()
    good = max(1, total - bad)
    values_of = {"rms": math.sqrt(squares / good), "largest": largest, "zeros": zeros - bad, "nonfinite": bad}
    found: Data = {"values": values_of | {"count": total}}
    if not layout.holds_values:
        found["codes"] = {"format": str(layout.element), "lowest": ends[0], "highest": ends[1]}
    return found


def tensor_text(found: Mapping[str, Any]) -> list[str]:
    """Return the lines of what `tensor_of` returned."""
    shape = " × ".join(f"{n:,}" for n in found["shape"]) or "one number"
    size = f"{megabytes(found['bytes'])}, {found['bits_per_weight']:.4g} bits per weight"
    lines = [
        printable(found["tensor"], 300),
        f"  {shape}, {found['storage']}, read as {found['dtype']}; {size}",
    ]
    for piece in found["stored"]:
        where = f"{printable(piece['file'], 200)}, byte {piece['offset']:,}"
        lines.append(f"  {printable(piece['name'], 200)}: {piece['dtype']} {piece['shape']}, {where}")
    if "codes" in found:
        codes = found["codes"]
        lines.append(f"  codes: {codes['lowest']} to {codes['highest']} of {codes['format']}")
    for role, of in found.get("parameters", {}).items():
        ends = ", ".join(f"{what} {_shown(of[what])}" for what in ("lowest", "median", "highest"))
        lines.append(f"  {role.replace('_', ' ')}: {count(of['count'], 'number')}, {ends}")
    if "values" in found:
        of = found["values"]
        zeros = f"{count(of['zeros'], 'zero')} of {of['count']:,}"
        bad = f", {of['nonfinite']:,} not finite" if of["nonfinite"] else ""
        lines.append(f"  values: RMS {_shown(of['rms'])}, max |w| {_shown(of['largest'])}, {zeros}{bad}")
    return lines + [f"  {printable(note, 600)}" for note in found["notes"]]


def _shown(value: float | str) -> str:
    return value if isinstance(value, str) else number(value)


def element_of(tensor: CheckpointTensor, index: Sequence[int]) -> Data:
    """Return an element: its bits in the file, the arithmetic of its value, and how other readers read it.

    Raises:
        QuantError: there is no such element, or the tensor can't be read.
    """
    origin = tensor.origin(index)
    rivals = [
        {
            "name": rival.name, "reader": rival.reader, "value": rival.value,
            "difference": rival.difference, "differing": rival.differing, "counted": rival.counted,
        }
        for rival in tensor.rivals(index)
    ]  # fmt: skip
    return _plain(
        {
            "tensor": tensor.name, "index": list(origin.index), "value": float(origin.value),
            "text": origin.result, "dtype": origin.dtype, "code": _stored(origin.code),
            "parameters": {role: _stored(found) for role, found in origin.parameters.items()},
            "lines": [str(line) for line in origin.lines], "rivals": rivals,
        }
    )  # fmt: skip


def _stored(found: StoredNumber) -> Data:
    words = [
        {
            "file": word.file, "tensor": word.tensor, "index": list(word.index), "offset": word.offset,
            "hex": word.hex, "bits": list(word.own),
        }
        for word in found.words
    ]  # fmt: skip
    value = {"value": float(found.value), "text": text_of(found.value), "meaning": found.meaning}
    return {**value, "words": words}


def element_text(found: Mapping[str, Any]) -> list[str]:
    """Return the lines of what `element_of` returned."""
    lines = [f"{index_text(tuple(found['index']))} = {found['text']}, read as {found['dtype']}"]
    for role, of in (("code", found["code"]), *found["parameters"].items()):
        words = "; ".join(_word(word) for word in of["words"])
        name = role if role == "g_idx" else role.replace("_", " ")
        lines.append(f"  {name} {of['text']}: {of['meaning']}, {words}")
    lines += [f"  {line}" for line in found["lines"]]
    for rival in found["rivals"]:
        value = "no such element" if rival["value"] is None else _shown(rival["value"])
        lines.append(f"  {rival['name']}: {value}. {printable(rival['difference'], 400)}")
    return lines


def _word(word: Mapping[str, Any]) -> str:
    bits = word["bits"]
    run = bits == list(range(min(bits), max(bits) + 1)) if bits else False
    shown = f"bits {min(bits)}–{max(bits)}" if run and len(bits) > 1 else f"bits {', '.join(map(str, bits))}"
    index = ", ".join(map(str, word["index"]))
    return f"{shown} of {printable(word['tensor'], 200)}[{index}] {word['hex'][:40]}"


def _plain(found: Data) -> Data:
    """Return data for JSON, in which numbers that are not finite are strings."""
    made: Data = plain(found)
    return made
