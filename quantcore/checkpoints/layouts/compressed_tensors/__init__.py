"""compressed-tensors releases: llm-compressor, Neural Magic, Kimi-K2.

Source: compressed-tensors 0.20.0 (ac8e2ba8), src/compressed_tensors/compressors; 0.14.0 for the earlier packing and
activation order.
"""

from quantcore.checkpoints.layouts.compressed_tensors.find import find

__all__ = ["find"]
