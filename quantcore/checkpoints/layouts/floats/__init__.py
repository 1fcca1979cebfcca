"""Releases of small floats: DeepSeek's blocks of FP8, gpt-oss' MXFP4, ModelOpt (with its INT4-AWQ)."""
