"""Checkpoints: quantized models in files."""
