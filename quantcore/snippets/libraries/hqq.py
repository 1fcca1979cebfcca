"""Scripts in the API of hqq."""

from functools import partial

from quantcore.errors import QuantError
from quantcore.granularity import PerFlatGroup, PerGroup, PerTensor
from quantcore.quantization import Quantized
from quantcore.snippets.libraries.recipe import Recipe, finds_range, write

_QUANTIZER = """
from hqq.core.quantize import Quantizer

codes, meta = Quantizer.quantize(
    x, nbits={{ fmt.bits }}, group_size={{ group_size }}, channel_wise={{ channel_wise }},
    axis=1, optimize=False, round_zero={{ round_zero }}, bitpack=False, device="cpu",
)
codes = codes.reshape(x.shape).to({{ fmt.dtype }})
scale, zero_point = meta["scale"], meta["zero"]
"""


def quantizer(result: Quantized, round_zero: bool) -> Recipe:
    """Write Quantizer.quantize.

    Raises:
        QuantError: the range is not min-max, or scales are quantized: it computes scale and codes in one call.
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


RECIPES = {"hqq": partial(quantizer, round_zero=False), "hqq.round_zero": partial(quantizer, round_zero=True)}
