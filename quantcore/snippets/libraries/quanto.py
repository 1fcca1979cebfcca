"""Scripts in optimum-quanto's own API."""

from quantcore.errors import QuantError
from quantcore.granularity import PerChannel
from quantcore.quantization import Quantized
from quantcore.snippets.libraries.recipe import Recipe, finds_range, parameters_source


def symmetric(result: Quantized) -> Recipe:
    """AbsmaxOptimizer -> quanto::quantize_symmetric.

    Raises:
        QuantError: parameters by other means than min-max that its kernel does not take: a zero_point, or
            fewer than 8 bits, to which it does not clamp.
    """
    fmt, granularity, shape = result.scheme.format, result.scheme.granularity, tuple(result.x.shape)
    axis = None
    if isinstance(granularity, PerChannel) and shape[granularity.axis] > 1:  # one channel is one tensor
        axis = 0 if granularity.axis % len(shape) == 0 else -1
    if finds_range(result):
        imports = (
            "import torch\nfrom optimum.quanto import AbsmaxOptimizer\n"
            f"from optimum.quanto.tensor import qint{fmt.bits}"
        )
        lines = [f"scale = AbsmaxOptimizer()(x, qint{fmt.bits}, axis={axis})"]
    else:
        if result.params.zero_point.any():
            raise QuantError("quantize_symmetric of optimum-quanto has no zero_point; choose 0.")
        imports = "import optimum.quanto\nimport torch"
        lines = parameters_source(result, None if axis is not None else ())[:-1]
    lines.append(f"codes = torch.ops.quanto.quantize_symmetric(x, torch.int8, {axis}, scale)")
    return Recipe(imports, lines, ("scale",) if finds_range(result) else ())
