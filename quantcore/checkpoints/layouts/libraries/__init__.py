"""Releases in the formats of the libraries that save them: bitsandbytes, MLX, torchao."""
