"""Scripts in the API of optimum-quanto."""

from quantcore.errors import QuantError
from quantcore.granularity import PerChannel, PerGroup
from quantcore.quantization import Quantized
from quantcore.snippets.libraries.recipe import PARAMETERS, Call, Recipe, given_parameters, write

_SYMMETRIC = """
{% if given %}
import optimum.quanto

{{ given }}
{% else %}
from optimum.quanto import AbsmaxOptimizer
from optimum.quanto.tensor import qint{{ fmt.bits }}

scale = AbsmaxOptimizer()(x, qint{{ fmt.bits }}, axis={{ axis }})
{% endif %}
codes = torch.ops.quanto.quantize_symmetric(x, torch.int8, {{ axis }}, scale)
"""


_AFFINE = """
from optimum.quanto import MaxOptimizer, qint{{ fmt.bits }}

scale, shift = MaxOptimizer()(
    x, qint{{ fmt.bits }}, axis=0, group_size={{ size }}, zeropoint={{ zeropoint }}
)
codes = torch.ops.quanto.quantize_affine(x, {{ fmt.bits }}, 0, {{ size }}, scale, shift).reshape(x.shape)
{% if zeropoint %}
zero_point = shift
{% else %}
zero_point = -shift
{% endif %}
"""
_FLOAT8 = """
from optimum.quanto import AbsmaxOptimizer, qfloat8_e4m3fn

scale = AbsmaxOptimizer()(x, qfloat8_e4m3fn, axis={{ axis }})
codes = torch.ops.quanto.quantize_symmetric(x, torch.float8_e4m3fn, {{ axis }}, scale)
codes = codes.view(torch.uint8)
"""


def affine(result: Quantized) -> Recipe:
    """Write MaxOptimizer -> quanto::quantize_affine.

    Raises:
        QuantError: x has a single row, whose columns quanto would give a scale each.
    """
    granularity, shape = result.scheme.granularity, tuple(result.x.shape)
    size = granularity.size if isinstance(granularity, PerGroup) else None
    if size is None and shape[0] == 1:
        raise QuantError(
            "optimum-quanto takes the columns of a single row as its channels; give a tensor of several rows."
        )
    zeropoint = result.scheme.convention.name == "quanto.zero_point"
    return Recipe(write(_AFFINE, result, size=size, zeropoint=zeropoint), PARAMETERS)


def float8(result: Quantized) -> Recipe:
    """Write AbsmaxOptimizer -> quanto::quantize_symmetric."""
    granularity, shape = result.scheme.granularity, tuple(result.x.shape)
    axis = None
    if isinstance(granularity, PerChannel) and shape[granularity.axis] > 1:  # one channel is one tensor
        axis = 0 if granularity.axis % len(shape) == 0 else -1
    return Recipe(write(_FLOAT8, result, axis=axis), ("scale",))


def symmetric(result: Quantized) -> Recipe:
    """Write AbsmaxOptimizer -> quanto::quantize_symmetric.

    Raises:
        QuantError: the given parameters include a zero_point, which its kernel does not support.
    """
    granularity, shape = result.scheme.granularity, tuple(result.x.shape)
    axis = None
    if isinstance(granularity, PerChannel) and shape[granularity.axis] > 1:  # one channel is one tensor
        axis = 0 if granularity.axis % len(shape) == 0 else -1
    given = given_parameters(result, () if axis is None else None, names=("scale",))
    if given and result.params.zero_point.any():
        raise QuantError("quantize_symmetric of optimum-quanto has no zero_point; choose 0.")
    return Recipe(write(_SYMMETRIC, result, axis=axis, given=given), () if given else ("scale",))


RECIPES = {"quanto": symmetric}
CALLS = {
    "quanto.affine": Call(affine, ("format",)),
    "quanto.zero_point": Call(affine, ("format",)),
    "quanto.float8": Call(float8),
}
