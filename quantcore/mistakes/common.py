"""Mistakes that come up in class and in code review; `published` has those behind published tables."""

# ruff: noqa: D103 (the catalogue says what each does)

import torch
from torch import Tensor

from quantcore.mistakes.published import Parts


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
