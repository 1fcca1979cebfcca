"""Scripts for ONNX: scale and zero_point from onnxruntime's quantization tool, codes from QuantizeLinear."""

from functools import partial

import torch

from quantcore.conventions import CONVENTIONS
from quantcore.errors import QuantError
from quantcore.granularity import PerChannel, PerGroup
from quantcore.quantization import Quantized
from quantcore.snippets.libraries.recipe import PARAMETERS, Call, Recipe, finds_range, given_parameters, write
from quantcore.snippets.script import NUMPY

_MODEL = """
from onnx import TensorProto, helper, numpy_helper
{% if by_session %}
from onnxruntime import InferenceSession
{% else %}
from onnx.reference import ReferenceEvaluator
{% endif %}
from onnxruntime.quantization.quant_utils import compute_data_quant_params, compute_scale_zp_blocked

{% if given %}
{{ given }}
{% elif block_size %}
zero_point, scale = compute_scale_zp_blocked(x, {{ kind }}{{ attributes }}, symmetric={{ symmetric }})
{% elif axis is none %}
zero_point, scale = compute_data_quant_params(x.ravel(), {{ kind }}, symmetric={{ symmetric }})
{% else %}
parameters = [
    compute_data_quant_params(channel.ravel(), {{ kind }}, symmetric={{ symmetric }})
    for channel in {% if axis %}np.moveaxis(x, {{ axis }}, 0){% else %}x{% endif +%}
]
zero_point, scale = (np.array(values) for values in zip(*parameters))
{% endif %}
{% if cast %}
kind, output = {{ kind }}, TensorProto.{{ sign }}INT8
nodes = [
    helper.make_node("QuantizeLinear", ["x", "scale", "zero_point"], ["packed"]{{ attributes }}),
    helper.make_node("Cast", ["packed"], ["codes"], to=output),  # NumPy has no 4-bit type
]
{% else %}
kind = output = {{ kind }}
nodes = [helper.make_node("QuantizeLinear", ["x", "scale", "zero_point"], ["codes"]{{ attributes }})]
{% endif %}
graph = helper.make_graph(
    nodes, "quantize",
    [helper.make_tensor_value_info("x", TensorProto.{{ type }}, x.shape)],
    [helper.make_tensor_value_info("codes", output, x.shape)],
    [
        numpy_helper.from_array(scale, "scale"),
        helper.make_tensor("zero_point", kind, zero_point.shape, zero_point.ravel()),
    ],
)
model = helper.make_model(
    graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=11
)
{% if by_session %}
session = InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
codes = session.run(None, {"x": x})[0]
{% else %}
codes = ReferenceEvaluator(model).run(None, {"x": x})[0]
{% endif %}
"""


def model(result: Quantized, by_session: bool) -> Recipe:
    """Write a model, run by onnxruntime on the CPU (``by_session``), or by onnx's reference evaluator.

    Raises:
        QuantError: x is bfloat16, which neither NumPy nor the tool that computes scale and zero point has.
    """
    if result.dtype == torch.bfloat16:
        raise QuantError(
            "onnxruntime's quantization tool does not take bfloat16, so no call computes these codes; use "
            "the quantcore script."
        )
    other = CONVENTIONS["onnx" if by_session else "onnxruntime"]
    also = (f"{other.library}=={other.version}",) if by_session or finds_range(result) else ()
    fmt, granularity = result.scheme.format, result.scheme.granularity
    axis = granularity.axis % result.x.dim() if isinstance(granularity, PerChannel | PerGroup) else None
    block_size = granularity.size if isinstance(granularity, PerGroup) else None
    shape = () if axis is None else None if block_size else (-1,)
    sign = "" if fmt.signed else "U"
    script = write(
        _MODEL,
        result,
        by_session=by_session,
        given=given_parameters(result, shape, f"{sign.lower()}int{16 if fmt.bits > 8 else 8}", NUMPY),
        cast=by_session and fmt.bits < 8,
        type="FLOAT16" if result.dtype == torch.float16 else "FLOAT",
        sign=sign,
        kind=f"TensorProto.{sign}INT{fmt.bits}",
        axis=axis,
        block_size=block_size,
        attributes="" if axis is None else f", axis={axis}" + f", block_size={block_size}" * bool(block_size),
    )
    return Recipe(script, PARAMETERS if finds_range(result) else (), also, NUMPY)


_MATMUL = """
from onnxruntime.capi.onnxruntime_pybind11_state import quantize_matmul_{{ bits }}bits

size, (rows, columns) = {{ size }}, x.shape
blocks = -(-rows // size)
padded = np.pad(x, ((0, blocks * size - rows), (0, 0)))
packed = np.zeros((columns, blocks, size // {{ per_byte }}), np.uint8)
scale = np.zeros((columns, blocks), x.dtype)
zero_point = np.zeros((columns, -(-blocks // {{ per_byte }})), np.uint8)
quantize_matmul_{{ bits }}bits(
    packed, padded, scale, zero_point, size, columns, len(padded), {{ symmetric }}
)
{% if per_byte == 1 %}
codes = packed.reshape(columns, -1)[:, :rows].T
zero_point = zero_point.T
{% else %}

def unpacked(data):  # the lowest bits first
    parts = [data >> shift & {{ mask }} for shift in range(0, 8, {{ bits }})]
    return np.stack(parts, -1).reshape(columns, -1)

codes = unpacked(packed)[:, :rows].T
zero_point = unpacked(zero_point)[:, :blocks].T
{% endif %}
scale = scale.T
"""


def matmul(result: Quantized) -> Recipe:
    """Write quantize_matmul_4bits, and unpack its codes."""
    granularity, bits = result.scheme.granularity, result.scheme.format.bits
    assert isinstance(granularity, PerGroup)
    numbers = {"bits": bits, "per_byte": 8 // bits, "mask": (1 << bits) - 1, "size": granularity.size}
    gives = ("scale",) if result.scheme.symmetric else PARAMETERS  # the middle code is not written
    return Recipe(write(_MATMUL, result, **numbers), gives, (), NUMPY)


CALLS = {"onnxruntime.MatMulNBits": Call(matmul, ("format", "symmetric"), (16, 32, 64, 128, 256))}
RECIPES = {"onnxruntime": partial(model, by_session=True), "onnx": partial(model, by_session=False)}
