"""A result as a file: .npz and .safetensors of all its arrays, .csv of one of them, an ONNX model; a layer.

The arrays are named x, codes, scale, zero_point and dequantized; scale and zero_point are in block form. x,
scale and dequantized have the dtypes in which the library takes and gives them; NumPy has no bfloat16, of
which a .npz has the values as float32. The text of the scheme and the dtype of x are included, so that the
file says how its codes were computed; `quantcore.tensors` reads x in that dtype.

In the model, x goes through QuantizeLinear to the codes, and through DequantizeLinear to x̂. QuantizeLinear
computes saturate(round(x / s) + z), rounding half to even, within the bounds of the type:

==========  ===========  =======
bits        tensor type  opset
==========  ===========  =======
2           (U)INT2      25
3, 4        (U)INT4      21
5 to 8      (U)INT8      21
9 to 16     (U)INT16     21
==========  ===========  =======

A result of any convention can be written if this gives its codes. Specification:
onnx.ai/onnx/operators/onnx__QuantizeLinear.html. Only `to_onnx` needs the package onnx.
"""

import importlib
import io
from typing import Any

import numpy as np
import safetensors.torch
import torch
from torch import Tensor

from quantcore.conventions import CONVENTIONS, KERNELS, TEXTBOOK
from quantcore.errors import QuantError
from quantcore.formats import IntFormat
from quantcore.granularity import PerFlatGroup, as_boxes, cells_of
from quantcore.outputs import LayerOutput
from quantcore.quantization import Quantized, check_result, quantize
from quantcore.scheme import Scheme
from quantcore.tensors import as_numpy, number_texts

# width of the type -> the first opset that has it, and the IR version of that opset
_OPSETS = {2: (25, 13), 4: (21, 10), 8: (21, 10), 16: (21, 10)}


def arrays(result: Quantized) -> dict[str, Tensor]:
    """Return x, codes, scale, zero_point and dequantized, on the CPU and row-major, in their dtypes.

    >>> import quantcore as qc
    >>> result = qc.apply([[0.5, -1.0], [2.0, 0.1]], qc.Scheme.parse("int4 per_channel(0)"))
    >>> {name: tuple(array.shape) for name, array in arrays(result).items()}
    {'x': (2, 2), 'codes': (2, 2), 'scale': (2, 1), 'zero_point': (2, 1), 'dequantized': (2, 2)}
    """
    check_result(result, "export")
    found = {
        "x": result.x.to(result.dtype),
        "codes": result.codes,
        "scale": result.scale.to(result.scale_dtype),
        "zero_point": result.params.zero_point,
        "dequantized": result.dequantized.to(result.value_dtype),
    }
    return {name: tensor.cpu().contiguous() for name, tensor in found.items()}


def to_npz(result: Quantized) -> bytes:
    """Return an uncompressed .npz file, which can be loaded with ``allow_pickle=False``.

    In addition to the arrays it contains ``scheme`` and ``dtype``, that of x, strings of shape ().

    >>> import io
    >>> import quantcore as qc
    >>> data = to_npz(qc.apply([0.5, -1.0, 2.0], qc.Scheme(qc.INT4)))
    >>> np.load(io.BytesIO(data))["codes"]
    array([ 2, -3,  7], dtype=int8)
    """
    file = io.BytesIO()
    every = arrays(result).items()
    named: dict[str, Any] = {
        name: (t.float() if t.dtype == torch.bfloat16 else t).numpy() for name, t in every
    }
    np.savez(file, **named, scheme=np.array(str(result.scheme)), dtype=np.array(_dtype(result)))
    return file.getvalue()  # shares the buffer: no copy


def to_safetensors(result: Quantized) -> bytes:
    """Return a .safetensors file; its metadata has the scheme's text as ``scheme``, and the dtype of x.

    >>> from safetensors.torch import load
    >>> import quantcore as qc
    >>> data = to_safetensors(qc.apply([0.5, -1.0, 2.0], qc.Scheme(qc.INT4)))
    >>> load(data)["codes"]
    tensor([ 2, -3,  7], dtype=torch.int8)
    """
    return safetensors.torch.save(
        arrays(result), metadata={"scheme": str(result.scheme), "dtype": _dtype(result)}
    )


def layer_arrays(found: LayerOutput) -> dict[str, Tensor]:
    """Return x, w, bias, y and y_hat of a layer, and the arrays of each quantized matrix as ``w_codes`` etc.

    >>> import quantcore as qc
    >>> list(layer_arrays(qc.outputs.layer([[1.0, 2.0]], [[0.6, 0.25]], "int4")))
    ['x', 'w', 'y', 'y_hat', 'w_codes', 'w_scale', 'w_zero_point', 'w_dequantized']
    """
    parts = {"x": found.x, "w": found.w, "bias": found.bias, "y": found.y, "y_hat": found.y_hat}
    for matrix, result in (("x", found.activation), ("w", found.weight)):
        if result is not None:
            parts |= {f"{matrix}_{name}": array for name, array in arrays(result).items() if name != "x"}
    return {name: array.cpu().contiguous() for name, array in parts.items() if array is not None}


def layer_to_npz(found: LayerOutput) -> bytes:
    """Return an uncompressed .npz file of `layer_arrays`, which can be loaded with ``allow_pickle=False``."""
    file = io.BytesIO()
    every = layer_arrays(found).items()
    named: dict[str, Any] = {
        name: (t.float() if t.dtype == torch.bfloat16 else t).numpy() for name, t in every
    }
    np.savez(file, **named)
    return file.getvalue()


def layer_to_safetensors(found: LayerOutput) -> bytes:
    """Return a .safetensors file of `layer_arrays`; its metadata has the schemes as text."""
    results = {"weight_scheme": found.weight, "activation_scheme": found.activation}
    schemes = {name: str(result.scheme) for name, result in results.items() if result is not None}
    return safetensors.torch.save(layer_arrays(found), metadata=schemes)


def _dtype(result: Quantized) -> str:
    return str(result.dtype).removeprefix("torch.")


def to_csv(values: Tensor | np.ndarray[Any, Any]) -> str:
    """Return one line per row: floats with the fewest digits that round-trip as float32, and integers.

    Rows run along the last axis, in row-major order: shape (2, 3, 4) gives 6 lines of 4 numbers, a vector one
    line, a scalar one line with one number.

    >>> to_csv(np.array([[0.1, -2.0], [1e-7, 3.0]], np.float32))
    '0.1,-2.0\\n1e-07,3.0\\n'
    """
    array = as_numpy(values.detach()) if isinstance(values, Tensor) else values
    rows = array.reshape(-1, array.shape[-1] if array.ndim else 1)
    return "".join(f"{','.join(number_texts(row))}\n" for row in rows)


def to_onnx(result: Quantized) -> bytes:
    """Return an .onnx file with input x and outputs codes and dequantized, in the shape of x.

    The model computes the codes of ``result`` from x, with scale and zero_point as constants. Codes of fewer
    than 8 bits are cast to 8 bits at the end, since NumPy has no smaller type. The text of the scheme is in
    the metadata.

    Raises:
        QuantError: QuantizeLinear would give other codes or does not support the zero_point, the format is
            not an integer format, or the package onnx is not installed.
    """
    check_result(result, "to_onnx")
    bits = _type_bits(result)
    _check_same_codes(result, bits)
    return _model(result, bits)


def inputs_of(result: Quantized) -> tuple[list[Tensor], dict[str, int]]:
    """Choose between one scale, scales along one axis, and blocks along one axis.

    Returns scale and zero_point in a shape that QuantizeLinear supports, and its attributes.

    QuantizeLinear supports blocks along one axis only. Blocks along several axes become blocks along the
    longest one, with the parameters repeated along the others. Flat groups that are not boxes have their
    parameters repeated for every element.
    """
    shape, block = tuple(result.x.shape), result.block
    parameters = [result.scale, result.params.zero_point]
    if isinstance(result.scheme.granularity, PerFlatGroup):
        parameters, block = as_boxes(parameters, result.scheme.granularity.size, shape)
    cut = [i for i, (n, b) in enumerate(zip(shape, block, strict=True)) if b < n]
    if not cut:
        return [p.reshape(()) for p in parameters], {}
    if len(cut) == 1 and block[cut[0]] == 1:
        return [p.flatten() for p in parameters], {"axis": cut[0]}
    axis = max(range(len(shape)), key=lambda i: block[i])
    # one parameter per element along every axis but the blocked one
    grid = tuple(parameters[0].shape[axis] if i == axis else n for i, n in enumerate(shape))
    repeated = tuple(1 if i == axis else b for i, b in enumerate(block))
    return [cells_of(p, grid, repeated) for p in parameters], {"axis": axis, "block_size": block[axis]}


def _type_bits(result: Quantized) -> int:
    """Return the bits of the tensor type that holds the codes."""
    fmt = result.scheme.format
    if not isinstance(fmt, IntFormat):
        raise QuantError(
            f"The ONNX export supports only integer formats, but this is {fmt}; choose an integer format."
        )
    z = result.params.zero_point
    if z.is_floating_point():
        raise QuantError(
            f"QuantizeLinear needs an integer zero_point, but that of {result.scheme.convention.name} is a "
            "float; choose another convention."
        )
    bits = min(width for width in _OPSETS if width >= fmt.bits)
    bounds = IntFormat(bits, fmt.signed)
    if bool(((z < bounds.qmin) | (z > bounds.qmax)).any()):
        raise QuantError(
            f"QuantizeLinear needs a zero_point of the same type as the codes, {bounds.qmin}..{bounds.qmax}; "
            "choose one in this range."
        )
    return bits


def _check_same_codes(result: Quantized, bits: int) -> None:
    scheme = result.scheme
    wide = IntFormat(bits, scheme.format.signed)
    theirs = Scheme(wide, scheme.symmetric, scheme.granularity, convention=TEXTBOOK.changed(nan="qmin"))
    codes = quantize(result.x, result.scale, result.params.zero_point, theirs)
    other = int((codes != result.codes).sum())
    if not other:
        return
    raise QuantError(
        f"{other:,} of {codes.numel():,} codes would differ, because QuantizeLinear "
        f"{_differences(result, wide)}. Choose the onnxruntime convention."
    )


def _differences(result: Quantized, wide: IntFormat) -> str:
    """Return what QuantizeLinear does differently, the most important first."""
    fmt, convention = result.scheme.format, result.scheme.rules
    formula, theirs = KERNELS[convention.coding.kernel].formula, KERNELS["A"].formula
    found = []
    if bool((result.scale == 0).any()):
        found.append("divides by a scale of 0, for which every code here is the code of 0")
    if convention.coding.overflow == "wrap":
        found.append("clamps, but these codes wrap around")
    elif (fmt.qmin, fmt.qmax) != (wide.qmin, wide.qmax):
        found.append(f"clamps to {wide.qmin}..{wide.qmax}, but these codes are {fmt.qmin}..{fmt.qmax}")
    if convention.coding.rounding != "half_even":
        found.append(f"rounds half to even, but the rounding here is {convention.coding.rounding}")
    if formula != theirs:
        found.append(f"computes {theirs}, but {convention.name} computes {formula}")
    return "; ".join(found or ["turns NaN into the lowest code"])


def _onnx(module: str) -> Any:
    """Import on first use: an optional package."""
    try:
        return importlib.import_module(module)
    except ImportError:
        version = CONVENTIONS["onnx"].version
        raise QuantError(
            f"An ONNX file needs the package onnx, which is not installed; run: pip install onnx=={version}"
        ) from None


def _model(result: Quantized, bits: int) -> bytes:
    helper, numpy_helper, proto = (_onnx(f"onnx.{name}") for name in ("helper", "numpy_helper", "onnx_pb"))
    types, shape = proto.TensorProto, list(result.x.shape)
    parameters, attributes = inputs_of(result)
    scale, zero_point = (parameter.cpu().numpy() for parameter in parameters)
    sign = "" if result.scheme.format.signed else "U"
    kind, output = getattr(types, f"{sign}INT{bits}"), getattr(types, f"{sign}INT{max(bits, 8)}")
    quantized, names = "codes" if bits >= 8 else "quantized", ("scale", "zero_point")
    nodes = [
        helper.make_node("QuantizeLinear", ["x", *names], [quantized], **attributes),
        helper.make_node("DequantizeLinear", [quantized, *names], ["dequantized"], **attributes),
    ]
    if bits < 8:
        nodes.append(helper.make_node("Cast", [quantized], ["codes"], to=output))
    outputs = [("codes", output), ("dequantized", types.FLOAT)]
    graph = helper.make_graph(
        nodes,
        "quantize",
        [helper.make_tensor_value_info("x", types.FLOAT, shape)],
        [helper.make_tensor_value_info(name, of, shape) for name, of in outputs],
        [
            numpy_helper.from_array(scale, "scale"),
            helper.make_tensor("zero_point", kind, zero_point.shape, zero_point.ravel()),
        ],
    )
    opset, ir_version = _OPSETS[bits]
    model = helper.make_model(
        graph,
        producer_name="quantcore",
        ir_version=ir_version,
        opset_imports=[helper.make_opsetid("", opset)],
    )
    helper.set_model_props(model, {"scheme": str(result.scheme)})
    data: bytes = model.SerializeToString()
    return data
