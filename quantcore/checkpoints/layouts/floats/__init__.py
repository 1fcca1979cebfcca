"""Releases in small floats: FP8 (DeepSeek's in blocks), gpt-oss' MXFP4, and ModelOpt (with its INT4-AWQ)."""
