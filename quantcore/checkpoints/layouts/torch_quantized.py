"""Quantized tensors of PyTorch itself in .pt files: `torch.quantize_per_tensor` and `_per_channel`.

Codes are int8 (qint8), uint8 (quint8) or int32 (qint32). The pickle holds a scale and a zero point per tensor
as numbers; those per channel are tensors of float64 and int64, or of float32 both
(`per_channel_affine_float_qparams`). Per tensor and with float32 parameters, x = (q - z) * float32(scale);
per channel with float64, the product is computed in float64 and rounded to float32.

Source: PyTorch 2.13, aten/src/ATen/native/quantized/AffineQuantizerBase.cpp (`dequantize_val`); measured.
"""

from collections.abc import Iterator

import torch

from quantcore.checkpoints.containers.stored import Pieces, TensorQuantizer, TorchQuantized
from quantcore.checkpoints.protocol.fields import Doubles, Field, Numbers
from quantcore.checkpoints.protocol.kinds import Reshaped
from quantcore.checkpoints.protocol.layout import Layout
from quantcore.checkpoints.protocol.record import (
    CODES,
    DOUBLE_SCALE,
    SCALE,
    VALUE,
    ZERO_POINT,
    Q,
    S,
    Z,
    words,
)
from quantcore.checkpoints.protocol.release import Release, attempt
from quantcore.checkpoints.statement import named
from quantcore.errors import QuantError
from quantcore.expressions import Expression, Let, Name, to
from quantcore.formats import IntFormat
from quantcore.granularity import Blocks, Granularity, PerChannel, PerTensor
from quantcore.notation import write_call

CODE_BITS = {"I8": 8, "U8": 8, "I32": 32}


def find(release: Release) -> Iterator[Layout]:
    """Yield the weights that a .pt file stores as torch's quantized tensors."""
    for structure in release.structures:
        if isinstance(structure, TorchQuantized):
            for name, quantizer in structure.quantizers.items():
                names = {"weight": name, "scale": quantizer.scale, "zero_point": quantizer.zero_point}
                stored = {key: release.stored.get(given) for key, given in names.items()}
                pieces = {key: piece for key, piece in stored.items() if piece is not None}
                if len(pieces) == len(names):  # of two files with one name, only the first is there
                    yield attempt(name, pieces, layout_of, name, pieces, quantizer)


def layout_of(name: str, pieces: Pieces, quantizer: TensorQuantizer) -> Layout:
    """Return the layout of one quantized tensor.

    Raises:
        QuantError: its parameters don't fit its shape, or are of other dtypes than torch's.
    """
    weight, scale, zero_point = pieces["weight"], pieces["scale"], pieces["zero_point"]
    blocks: Granularity = PerTensor() if quantizer.axis is None else PerChannel(quantizer.axis)
    shape, dtypes = weight.shape, (scale.dtype, zero_point.dtype)
    count = (shape[quantizer.axis],) if quantizer.axis is not None and quantizer.axis < len(shape) else ()
    fits = scale.shape == zero_point.shape == count and bool(count) == (quantizer.axis is not None)
    fits &= weight.dtype in CODE_BITS and dtypes in (("F64", "I64"), ("F32", "F32"))
    if not fits or 0 in shape:
        raise QuantError(
            f"{named(name)} is {weight.dtype} of shape {shape} with scales {scale.dtype} of shape "
            f"{scale.shape}, which is "
            "not one of torch's quantized tensors; the file is damaged."
        )
    grid, bits = Blocks.of(blocks, shape).grid, CODE_BITS[weight.dtype]
    fields: dict[str, Field] = {CODES: Numbers(weight), ZERO_POINT: Reshaped(Numbers(zero_point), grid)}
    derived: dict[str, Expression] = {}
    if scale.dtype == "F64":
        fields[DOUBLE_SCALE] = Reshaped(Doubles(scale), grid)
        derived[SCALE] = Let("s", to(torch.float32)(Name(DOUBLE_SCALE)))
    else:
        fields[SCALE] = Reshaped(Numbers(scale), grid)
    in_double = scale.dtype == "F64" and quantizer.axis is not None
    signed = weight.dtype != "U8"
    kind = f"q{'' if signed else 'u'}int{bits}"
    own_value = None
    if bits > 16:
        product = (Q - Z) * S
        if in_double:
            product = to(torch.float32)(to(torch.float64)(Q - Z) * Name(DOUBLE_SCALE))
        own_value = Let(VALUE, product)
    return Layout(
        name, shape, torch.float32, pieces, fields,
        "torch", words("torch", kind, write_call(blocks)),
        f"{named(name)} is {kind}, so it has no codes; "
        "read its values." if bits > 16 else IntFormat(bits, signed=signed),
        blocks, decoding="in_double" if in_double else "scaled", derived=derived, own_value=own_value,
    )  # fmt: skip
