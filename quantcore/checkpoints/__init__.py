"""Checkpoints: quantized models in files."""

from quantcore.checkpoints.encode import encode

__all__ = ["encode"]
