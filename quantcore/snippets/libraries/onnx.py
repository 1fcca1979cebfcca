"""Scripts for ONNX: scale and zero_point by onnxruntime's quantization tool, codes by QuantizeLinear."""

from quantcore.conventions import CONVENTIONS
from quantcore.granularity import PerChannel, PerGroup
from quantcore.quantization import Quantized
from quantcore.snippets.libraries.recipe import Recipe, finds_range, parameters_source
from quantcore.snippets.script import NUMPY

_IMPORTS = "import numpy as np\nfrom onnx import TensorProto, helper, numpy_helper"
_TOOL = "from onnxruntime.quantization.quant_utils import "
_OPSET, _IR_VERSION = 23, 11


def by_session(result: Quantized) -> Recipe:
    """The model is run by onnxruntime on the CPU."""
    imports, lines = _model(result, cast=result.scheme.format.bits < 8)
    lines += [
        'session = InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])',
        'codes = session.run(None, {"x": x})[0]',
    ]
    also = (_pinned("onnx"),)
    return Recipe(f"{imports}\nfrom onnxruntime import InferenceSession", lines, _gives(result), also, NUMPY)


def by_reference(result: Quantized) -> Recipe:
    """The model is run by onnx's own reference evaluator."""
    imports, lines = _model(result, cast=False)
    lines.append('codes = ReferenceEvaluator(model).run(None, {"x": x})[0]')
    also = (_pinned("onnxruntime"),) if finds_range(result) else ()
    return Recipe(
        f"{imports}\nfrom onnx.reference import ReferenceEvaluator", lines, _gives(result), also, NUMPY
    )


def _pinned(name: str) -> str:
    return f"{CONVENTIONS[name].library}=={CONVENTIONS[name].version}"


def _gives(result: Quantized) -> tuple[str, ...]:
    return ("scale", "zero_point") if finds_range(result) else ()


def _model(result: Quantized, cast: bool) -> tuple[str, list[str]]:
    """Imports, and lines that bind scale, zero_point and a model with one QuantizeLinear.

    ``cast``: to 8 bits at the end.
    """
    fmt, granularity = result.scheme.format, result.scheme.granularity
    kind = f"TensorProto.{'' if fmt.signed else 'U'}INT{fmt.bits}"
    rank = result.x.dim()
    attributes = ""
    if isinstance(granularity, PerChannel):
        attributes = f", axis={granularity.axis % rank}"
    elif isinstance(granularity, PerGroup):
        attributes = f", axis={granularity.axis % rank}, block_size={granularity.size}"
    imports, lines = _found(result) if finds_range(result) else _given(result)
    node = 'helper.make_node("QuantizeLinear", ["x", "scale", "zero_point"], ["{}"]' + f"{attributes})"
    if cast:
        sign = "" if fmt.signed else "U"
        lines += [
            f"kind, output = {kind}, TensorProto.{sign}INT8",
            "nodes = [",
            f"    {node.format('packed')},",
            '    helper.make_node("Cast", ["packed"], ["codes"], to=output),  # numpy has no type of 4 bits',
            "]",
        ]
    else:
        lines += [f"kind = output = {kind}", f"nodes = [{node.format('codes')}]"]
    lines += [
        "graph = helper.make_graph(",
        '    nodes, "quantize",',
        '    [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],',
        '    [helper.make_tensor_value_info("codes", output, x.shape)],',
        "    [",
        '        numpy_helper.from_array(scale, "scale"),',
        '        helper.make_tensor("zero_point", kind, zero_point.shape, zero_point.ravel()),',
        "    ],",
        ")",
        "model = helper.make_model(",
        f'    graph, opset_imports=[helper.make_opsetid("", {_OPSET})], ir_version={_IR_VERSION}',
        ")",
    ]
    return imports, lines


def _found(result: Quantized) -> tuple[str, list[str]]:
    fmt, granularity = result.scheme.format, result.scheme.granularity
    kind = f"TensorProto.{'' if fmt.signed else 'U'}INT{fmt.bits}"
    symmetric = f"symmetric={result.scheme.symmetric}"
    if isinstance(granularity, PerGroup):
        axis = granularity.axis % result.x.dim()
        call = f"compute_scale_zp_blocked(x, {kind}, axis={axis}, block_size={granularity.size}, {symmetric})"
        return f"{_IMPORTS}\n{_TOOL}compute_scale_zp_blocked", [f"zero_point, scale = {call}"]
    imports = f"{_IMPORTS}\n{_TOOL}compute_data_quant_params"
    if not isinstance(granularity, PerChannel):
        return imports, [f"zero_point, scale = compute_data_quant_params(x.ravel(), {kind}, {symmetric})"]
    axis = granularity.axis % result.x.dim()
    rows = f"np.moveaxis(x, {axis}, 0)" if axis else "x"
    lines = [
        "parameters = [",
        f"    compute_data_quant_params(channel.ravel(), {kind}, {symmetric})",
        f"    for channel in {rows}",
        "]",
        "zero_point, scale = (np.array(values) for values in zip(*parameters))",
    ]
    return imports, lines


def _given(result: Quantized) -> tuple[str, list[str]]:
    granularity = result.scheme.granularity
    shape = {PerChannel: (-1,), PerGroup: None}.get(type(granularity), ())
    dtype = ("" if result.scheme.format.signed else "u") + (
        "int16" if result.scheme.format.bits > 8 else "int8"
    )
    return _IMPORTS, parameters_source(result, shape, dtype, NUMPY)
