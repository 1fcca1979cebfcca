"""A scheme whose codebook is fitted to the tensor, in units of its scales."""

from dataclasses import replace
from typing import Any

import torch

from quantcore.formats import CodebookFormat, fit_codebook
from quantcore.numerics import refuse_nonfinite
from quantcore.qparams import choose_qparams
from quantcore.quantization.walk import unclamped
from quantcore.scheme import Scheme, as_scheme, received

NAME = "fitted"


def fit_scheme(x: Any, scheme: Scheme | str, size: int, method: str = "kmeans") -> Scheme:
    """Return the scheme with its format replaced by a codebook of ``size`` values fitted to x.

    Each block's range is scaled to -1..1, and the outermost value is fixed at that bound, since the scales
    map the extremes to it. Every element has the same weight, whatever its block's scale. With given
    parameters (`Given`), the elements are divided by these, and no value is fixed.

    >>> str(fit_scheme([[0.0, 1.0, 1.0, 4.0]], Scheme(), 3).format)
    'codebook([0,0.25,1], name=fitted)'

    Raises:
        QuantError: as in `fit_codebook`, or the scheme does not fit x.
    """
    scheme = as_scheme(scheme)
    x, own, _ = received(x, scheme)
    refuse_nonfinite(x, "a fitted codebook")
    # a placeholder with the same largest value as the fitted codebook, so that its scales are already the
    # final ones
    evenly = CodebookFormat(tuple(torch.linspace(-1, 1, 1 << 4).tolist()))
    trial = replace(own, format=evenly, symmetric=True, scales=None)
    params = choose_qparams(x, trial)
    scaled = torch.cat([values.reshape(-1).clone() for _, values in unclamped(x, params, trial)])
    given = scheme.range_setting.gives_parameters
    book = fit_codebook(scaled, size, method, None if given else 1.0)
    return replace(scheme, format=replace(book, name=NAME), symmetric=True)
