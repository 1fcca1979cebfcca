"""Releases as libraries save their own tensors: bitsandbytes, MLX, torchao."""
