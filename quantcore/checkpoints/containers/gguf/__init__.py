"""GGUF files: their headers, models in parts, and imatrix files, which come in GGUF and in an older form."""

from quantcore.checkpoints.containers.gguf.cursor import KEPT
from quantcore.checkpoints.containers.gguf.header import VERSION_KEY, LongArray
from quantcore.checkpoints.containers.gguf.imatrix_dat import open_imatrix
from quantcore.checkpoints.containers.gguf.split import check_number, parts
from quantcore.checkpoints.containers.gguf.tensors import open_gguf

__all__ = ["KEPT", "LongArray", "VERSION_KEY", "check_number", "open_gguf", "open_imatrix", "parts"]
