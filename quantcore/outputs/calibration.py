"""Static activation scales: found once on batches of activations, then the same for every token."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from quantcore import notation
from quantcore.errors import QuantError
from quantcore.granularity import Blocks, PerFlatGroup
from quantcore.notation import write_call
from quantcore.outputs.matrices import matrix
from quantcore.qparams import QParams, choose_qparams, parameters, ranges
from quantcore.range_setting import Given
from quantcore.scheme import Scheme, as_scheme, check_supported


@dataclass(frozen=True, eq=False)
class Calibration:
    """Static scales of activations.

    ``scheme``: the scheme with these scales and zero points, for `layer` or `qc.apply`. ``low``, ``high``:
    the range after each batch, one row per batch and one column per block; a single row where it is found
    from all batches together.
    """

    scheme: Scheme
    scale: Tensor
    zero_point: Tensor
    low: Tensor
    high: Tensor


def calibrate(batches: Iterable[Any], scheme: Scheme | str, averaging: float | None = None) -> Calibration:
    """Return a scheme whose scales are found on batches of activations.

    The scheme's range setting finds the range: ``min_max``, ``percentile(99.9)``, ``entropy(2048)`` or
    ``min_mse`` of all batches together.

    Args:
        batches: matrices [tokens, in].
        scheme: of activations; its blocks must extend over all tokens, as with ``per_tensor``,
            ``per_channel(1)`` and ``per_block([-1, 32])``.
        averaging: the weight of each further batch in a moving average of the batches' ranges,
            low ← low + averaging·(low of the batch − low), as in torch's MovingAverageMinMaxObserver, whose
            default is 0.01; None takes all batches together.

    >>> calibrate([[[0.0, 1.0]], [[0.5, 3.0]]], "uint8 asymmetric", averaging=0.5).high.tolist()
    [[1.0], [2.0]]

    Raises:
        QuantError: there is no batch, the batches' columns differ, or the scheme has a scale per token or no
            range.
    """
    scheme = as_scheme(scheme)
    given = [matrix(batch, "x") for batch in batches]
    if not given:
        raise QuantError("There is no batch to calibrate on; give at least one matrix [tokens, in].")
    if len({batch.shape[1] for batch in given}) > 1:
        raise QuantError("The batches have different numbers of columns; give activations of one layer.")
    _check_static(scheme, given[0].shape[1])
    steps = _ranges_after_each(given, scheme, averaging)
    if averaging is None:
        found = choose_qparams(torch.cat(given), scheme)
    else:
        found = parameters(*steps[-1], scheme.symmetric, scheme.format, scheme.rules)
    static = replace(scheme, range_setting=_given(found, scheme))
    check_supported(static, tuple(given[0].shape))
    low, high = (torch.stack([step[end].reshape(-1) for step in steps]) for end in (0, 1))
    return Calibration(static, found.scale, found.zero_point, low, high)


def _check_static(scheme: Scheme, columns: int) -> None:
    setting = scheme.range_setting
    if setting.gives_parameters or setting.searches_codes or scheme.scales is not None:
        raise QuantError(
            f"The scheme has no range to calibrate: {write_call(setting)}"
            f"{' and quantized scales' * (scheme.scales is not None)}; choose min_max, percentile(99.9), "
            "entropy(2048) or min_mse."
        )
    tokens = 8  # any number but 1
    if isinstance(scheme.granularity, PerFlatGroup):
        static = False
    else:
        static = Blocks.of(scheme.granularity, (tokens, columns)).grid[0] == 1
    if not static:
        raise QuantError(
            f"{write_call(scheme.granularity)} has a scale per token, and other tokens have others; choose "
            "per_tensor, per_channel(1) or per_block([-1, 32])."
        )


def _ranges_after_each(
    batches: list[Tensor], scheme: Scheme, averaging: float | None
) -> list[tuple[Tensor, Tensor]]:
    """Return the range after each batch; a single one where it follows only from all together."""
    if averaging is not None:
        averaging = notation.finite(averaging, "averaging")
        if not 0 < averaging <= 1:
            raise QuantError(f"averaging must be in (0, 1], not {averaging:g}; the usual value is 0.01.")
    extremes = scheme.range_setting.ends_are_elements
    if averaging is None and not extremes:
        return [ranges(torch.cat(batches), scheme)]
    # both ends, although a symmetric scheme uses only the larger one: they are averaged separately
    both = replace(scheme, symmetric=False) if extremes else scheme
    low, high = ranges(batches[0], both)
    found = [(low, high)]
    for batch in batches[1:]:
        least, most = ranges(batch, both)
        if averaging is None:
            low, high = torch.minimum(low, least), torch.maximum(high, most)
        else:
            low, high = low + averaging * (least - low), high + averaging * (most - high)
        found.append((low, high))
    return found


def _given(found: QParams, scheme: Scheme) -> Given:
    """Return the parameters as a range setting, with one number where all blocks share it."""
    if not scheme.rules.zero_point.is_integer:
        raise QuantError(
            f"{scheme.convention} stores a zero point that is not an integer, which can't be given; choose "
            "another convention."
        )
    one = found.scale.numel() == 1
    scale, zero_point = (
        p.reshape(-1)[0].item() if one else p.tolist() for p in (found.scale, found.zero_point)
    )
    return Given(scale, zero_point)
