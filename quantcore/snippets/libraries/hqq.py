"""Scripts in the API of hqq."""

from functools import partial

from quantcore.errors import QuantError
from quantcore.granularity import PerFlatGroup, PerGroup, PerTensor
from quantcore.quantization import Quantized
from quantcore.snippets.libraries.recipe import Call, Recipe, finds_range, write

_QUANTIZER = """
from hqq.core.quantize import Quantizer

codes, meta = Quantizer.quantize(
    x, nbits={{ fmt.bits }}, group_size={{ group_size }}, channel_wise={{ channel_wise }},
    axis=1, optimize=False, round_zero={{ round_zero }}, bitpack=False, device="cpu",
)
codes = codes.reshape(x.shape).to({{ fmt.dtype }})
scale, zero_point = meta["scale"], meta["zero"]
"""


_LINEAR = """
from hqq.core.quantize import BaseQuantizeConfig, HQQLinear, Quantizer

linear = torch.nn.Linear({{ x.shape[1] }}, {{ x.shape[0] }}, bias=False)
linear.weight.data = x.clone()
config = BaseQuantizeConfig(nbits={{ fmt.bits }}, group_size={{ group_size }}, axis=1)
layer = HQQLinear(linear, config, compute_dtype=x.dtype, device="cpu")
codes = Quantizer.unpack[layer.meta["packing"]](layer.W_q).reshape(x.shape).to({{ fmt.dtype }})
scale, zero_point = layer.meta["scale"], layer.meta["zero"]
"""


def linear(result: Quantized) -> Recipe:
    """Write HQQLinear, whose codes are optimized with the zero point.

    Raises:
        QuantError: the group size is not a multiple of 8.
    """
    granularity = result.scheme.granularity
    group_size = granularity.size if isinstance(granularity, PerGroup) else None
    if group_size is not None and group_size % 8:
        raise QuantError(
            f"BaseQuantizeConfig of hqq requires a group size that is a multiple of 8, not {group_size}; "
            "choose one, such as 64."
        )
    return Recipe(write(_LINEAR, result, group_size=group_size))


def quantizer(result: Quantized, round_zero: bool) -> Recipe:
    """Write Quantizer.quantize.

    Raises:
        QuantError: the range is not min-max, or scales are quantized: it computes scale and codes together.
    """
    if not finds_range(result):
        raise QuantError(
            "Quantizer.quantize of hqq computes scale and codes in one call; choose min-max and scales "
            "that are not quantized."
        )
    granularity = result.scheme.granularity
    group_size = granularity.size if isinstance(granularity, PerGroup | PerFlatGroup) else None
    channel_wise = not isinstance(granularity, PerTensor)
    return Recipe(
        write(_QUANTIZER, result, group_size=group_size, channel_wise=channel_wise, round_zero=round_zero)
    )


CALLS = {"hqq.linear": Call(linear)}
RECIPES = {"hqq": partial(quantizer, round_zero=False), "hqq.round_zero": partial(quantizer, round_zero=True)}
