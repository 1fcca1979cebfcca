"""The scale of the scales from the largest of them, as ggml codes the scales of a super-block without an imatrix."""

import numpy as np

from quantcore.range_setting.ggml.arithmetic import Floats, Found, first_largest, nearest_int


def largest_positive(x: Floats, nmax: int) -> Found:
    """Scale max / nmax; codes round(x · (nmax / max)), 0 where no number is positive."""
    top = np.maximum(x.max(axis=0), np.float32(0.0))
    inverse = np.where(top > 0, np.float32(nmax) / np.where(top > 0, top, np.float32(1.0)), np.float32(0.0))
    codes = nearest_int(x * inverse, np.empty_like(x))
    return Found(top / np.float32(nmax), codes=np.minimum(np.mod(codes, np.float32(256.0)), np.float32(nmax)))


def largest_magnitude(x: Floats, nmax: int, reciprocal: bool, least: float, zero_code: int) -> Found:
    """Scale -extreme / nmax, or 1 / (-nmax / extreme) if ``reciprocal``; codes round(x · (-nmax / extreme)).

    Where the extreme's magnitude is 0 or below ``least``, the scale is 0 and the codes are ``zero_code``.
    """
    extreme, size = first_largest(x)
    empty = (size == 0) | (size < np.float32(least))
    inverse = np.float32(-nmax) / np.where(empty, np.float32(1.0), extreme)
    codes = nearest_int(x * inverse, np.empty_like(x))
    np.clip(codes, np.float32(-nmax), np.float32(nmax - 1), out=codes)
    codes[:, empty] = zero_code
    scale = np.float32(1.0) / inverse if reciprocal else -extreme / np.float32(nmax)
    # C negates the 0 that its search for the extreme begins with
    return Found(np.where(empty, np.float32(0.0 if reciprocal else -0.0), scale), codes=codes)
