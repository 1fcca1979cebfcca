"""Scripts in the API of optimum-quanto."""

from quantcore.errors import QuantError
from quantcore.granularity import PerChannel
from quantcore.quantization import Quantized
from quantcore.snippets.libraries.recipe import Recipe, given_parameters, write

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
