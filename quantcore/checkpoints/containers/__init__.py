"""Reads the headers of checkpoint files: their stored tensors, and where their bytes are."""
