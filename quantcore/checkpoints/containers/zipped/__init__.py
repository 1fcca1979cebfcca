"""Containers that are zip files: NumPy's ``.npz`` and PyTorch's ``.pt`` and ``.bin``."""

from quantcore.checkpoints.containers.zipped.npz import open_npy, open_npz
from quantcore.checkpoints.containers.zipped.torch_zip import open_torch

__all__ = ["open_npy", "open_npz", "open_torch"]
