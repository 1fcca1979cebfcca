"""The lines that make a mistake and those that avoid it: behind published tables, then in class and review.

Every function takes x and returns codes, scale and x̂. A page shows their source, so they are written as a
student would write them, in lines that a projector shows whole. In C++, casting a float that does not fit to int8 is
undefined; through int32 the cast keeps the lowest 8 bits on every machine, which is what x86 does directly and what
those tables show.
"""

import torch
from torch import Tensor

# ruff: noqa: D103 (the catalogue says what each does)

Parts = tuple[Tensor, Tensor, Tensor]


def asymmetric_scale_then_cast(x: Tensor) -> Parts:
    scale = (x.max() - x.min()) / 255
    codes = torch.round(x / scale)
    codes = codes.int().to(torch.int8)
    return codes, scale, codes * scale


def symmetric_scale_then_cast(x: Tensor) -> Parts:
    scale = x.abs().max() / 127
    codes = torch.round(x / scale)
    codes = codes.int().to(torch.int8)
    return codes, scale, codes * scale


def asymmetric_scale_per_column(x: Tensor) -> Parts:
    scale = (x.amax(dim=0) - x.amin(dim=0)) / 255
    codes = torch.round(x / scale)
    codes = codes.int().to(torch.int8)
    return codes, scale, codes * scale


def symmetric_scale_per_column(x: Tensor) -> Parts:
    scale = x.abs().amax(dim=0) / 127
    codes = torch.round(x / scale)
    codes = codes.int().to(torch.int8)
    return codes, scale, codes * scale


def asymmetric_scale_per_half(x: Tensor) -> Parts:
    halves = x.chunk(2, dim=1)
    ranges = [h.max() - h.min() for h in halves]
    pairs = zip(ranges, halves, strict=True)
    wide = [r.expand_as(h) for r, h in pairs]
    scale = torch.cat(wide, dim=1) / 255
    codes = torch.round(x / scale)
    codes = codes.int().to(torch.int8)
    return codes, scale, codes * scale


def symmetric_scale_per_half(x: Tensor) -> Parts:
    halves = x.chunk(2, dim=1)
    ranges = [h.abs().max() for h in halves]
    pairs = zip(ranges, halves, strict=True)
    wide = [r.expand_as(h) for r, h in pairs]
    scale = torch.cat(wide, dim=1) / 127
    codes = torch.round(x / scale)
    codes = codes.int().to(torch.int8)
    return codes, scale, codes * scale


def clamp_to_bytes_cast_to_int8(x: Tensor) -> Parts:
    scale, zero_point = torch.tensor(0.1), 128
    codes = torch.round(x / scale) + zero_point
    codes = codes.clamp(0, 255)
    codes = codes.int().to(torch.int8)
    x_hat = (codes.float() - zero_point) * scale
    return codes, scale, x_hat


def clamp_to_bytes_cast_to_uint8(x: Tensor) -> Parts:
    scale, zero_point = torch.tensor(0.1), 128
    codes = torch.round(x / scale) + zero_point
    codes = codes.clamp(0, 255)
    codes = codes.int().to(torch.uint8)
    x_hat = (codes.float() - zero_point) * scale
    return codes, scale, x_hat


def range_from_zero_up(x: Tensor) -> Parts:
    low, high = 0, x.abs().max()
    scale = (high - low) / 255
    zero_point = 0
    codes = torch.round(x / scale) + zero_point
    codes = codes.clamp(-128, 127)
    x_hat = (codes - zero_point) * scale
    return codes, scale, x_hat


def range_from_low_to_high(x: Tensor) -> Parts:
    low, high = x.min(), x.max()
    scale = (high - low) / 255
    zero_point = -128 - torch.round(low / scale)
    codes = torch.round(x / scale) + zero_point
    codes = codes.clamp(-128, 127)
    x_hat = (codes - zero_point) * scale
    return codes, scale, x_hat


def percentile_of_x(x: Tensor) -> Parts:
    high = torch.quantile(x, 0.999)
    scale = high / 127
    codes = torch.round(x / scale)
    return codes, scale, codes * scale


def percentile_of_magnitude(x: Tensor) -> Parts:
    high = torch.quantile(x.abs(), 0.999)
    scale = high / 127
    codes = torch.round(x / scale)
    codes = codes.clamp(-128, 127)
    return codes, scale, codes * scale


def unsigned_without_middle(x: Tensor) -> Parts:
    scale = x.abs().max() / 128
    zero_point = 0
    codes = torch.round(x / scale) + zero_point
    codes = codes.clamp(0, 255).to(torch.uint8)
    x_hat = (codes.float() - zero_point) * scale
    return codes, scale, x_hat


def unsigned_around_middle(x: Tensor) -> Parts:
    scale = x.abs().max() / 128
    zero_point = 128
    codes = torch.round(x / scale) + zero_point
    codes = codes.clamp(0, 255).to(torch.uint8)
    x_hat = (codes.float() - zero_point) * scale
    return codes, scale, x_hat


def cast_without_clamp(x: Tensor) -> Parts:
    scale = torch.tensor(1.5 / 127)
    codes = torch.round(x / scale)
    codes = codes.int().to(torch.int8)
    return codes, scale, codes * scale


def clamp_before_cast(x: Tensor) -> Parts:
    scale = torch.tensor(1.5 / 127)
    codes = torch.round(x / scale)
    codes = codes.clamp(-128, 127).to(torch.int8)
    return codes, scale, codes * scale


def zero_point_left_at_zero(x: Tensor) -> Parts:
    scale = (x.max() - x.min()) / 255
    zero_point = 0
    codes = torch.round(x / scale) + zero_point
    codes = codes.clamp(-128, 127).to(torch.int8)
    x_hat = (codes.float() - zero_point) * scale
    return codes, scale, x_hat


def zero_point_from_the_range(x: Tensor) -> Parts:
    scale = (x.max() - x.min()) / 255
    zero_point = -128 - torch.round(x.min() / scale)
    codes = torch.round(x / scale) + zero_point
    codes = codes.clamp(-128, 127).to(torch.int8)
    x_hat = (codes.float() - zero_point) * scale
    return codes, scale, x_hat


def zero_point_forgotten(x: Tensor) -> Parts:
    scale = (x.max() - x.min()) / 255
    zero_point = torch.round(-x.min() / scale)
    codes = torch.round(x / scale) + zero_point
    codes = codes.clamp(0, 255).to(torch.uint8)
    x_hat = codes.float() * scale
    return codes, scale, x_hat


def zero_point_added(x: Tensor) -> Parts:
    scale = (x.max() - x.min()) / 255
    zero_point = torch.round(-x.min() / scale)
    codes = torch.round(x / scale) + zero_point
    codes = codes.clamp(0, 255).to(torch.uint8)
    x_hat = (codes.float() + zero_point) * scale
    return codes, scale, x_hat


def zero_point_after_scale(x: Tensor) -> Parts:
    scale = (x.max() - x.min()) / 255
    zero_point = torch.round(-x.min() / scale)
    codes = torch.round(x / scale) + zero_point
    codes = codes.clamp(0, 255).to(torch.uint8)
    x_hat = codes.float() * scale - zero_point
    return codes, scale, x_hat


def zero_point_subtracted(x: Tensor) -> Parts:
    scale = (x.max() - x.min()) / 255
    zero_point = torch.round(-x.min() / scale)
    codes = torch.round(x / scale) + zero_point
    codes = codes.clamp(0, 255).to(torch.uint8)
    x_hat = (codes.float() - zero_point) * scale
    return codes, scale, x_hat


def clamp_in_place(x: Tensor) -> Parts:
    scale = torch.tensor(1.5 / 127)
    x = x.clamp_(-1.5, 1.5)
    codes = torch.round(x / scale).to(torch.int8)
    return codes, scale, codes * scale


def clamp_a_copy(x: Tensor) -> Parts:
    scale = torch.tensor(1.5 / 127)
    x = x.clamp(-1.5, 1.5)
    codes = torch.round(x / scale).to(torch.int8)
    return codes, scale, codes * scale


def eight_bits_then_four(x: Tensor) -> Parts:
    scale = x.abs().max() / 7
    scale8 = x.abs().max() / 127
    x8 = torch.round(x / scale8) * scale8
    codes = torch.round(x8 / scale).to(torch.int8)
    return codes, scale, codes * scale


def four_bits_at_once(x: Tensor) -> Parts:
    scale = x.abs().max() / 7
    codes = torch.round(x / scale).to(torch.int8)
    return codes, scale, codes * scale


def truncated(x: Tensor) -> Parts:
    scale = x.abs().max() / 7
    codes = (x / scale).to(torch.int8)
    return codes, scale, codes * scale


def rounded(x: Tensor) -> Parts:
    scale = x.abs().max() / 7
    codes = torch.round(x / scale).to(torch.int8)
    return codes, scale, codes * scale


def scale_in_float16(x: Tensor) -> Parts:
    scale = x.abs().max() / 127
    scale = scale.to(torch.float16).float()
    codes = torch.round(x / scale)
    codes = codes.clamp(-128, 127).to(torch.int8)
    return codes, scale, codes * scale


def scale_in_float32(x: Tensor) -> Parts:
    scale = x.abs().max() / 127
    scale = scale.float()
    codes = torch.round(x / scale)
    codes = codes.clamp(-128, 127).to(torch.int8)
    return codes, scale, codes * scale
