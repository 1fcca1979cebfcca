"""Model checkpoints: headers first, then codes, parameters and values exactly as the library has them.

>>> checkpoint = open_checkpoint("path/to/release")  # doctest: +SKIP
>>> checkpoint.tensors["model.layers.0.self_attn.q_proj.weight"].read(rows=slice(0, 8))  # doctest: +SKIP

Where things are: `files` (folders and files, and nothing outside them; their bytes, with reads counted),
`containers` (file headers), `headers` (of all files, which another process may have read), `packing` (where
each code is stored), `protocol` (what a format implements), `layouts` (one module per format), `tensor` and
`quantized` (what is built from them), `listing` (all tensors), `origin` (one element: its bits, the
arithmetic, and how other readers interpret them), `inspection` (a tensor and an element as plain data and as
text), `findings` (what is wrong), `row_loss` (what a row lost, and why), `comparison` (of two checkpoints).
"""

from quantcore.checkpoints.checkpoint import Checkpoint, assemble, open_checkpoint
from quantcore.checkpoints.containers.gguf_header import gguf_key_bytes
from quantcore.checkpoints.containers.gguf_writer import write_gguf
from quantcore.checkpoints.containers.onnx import OnnxGraph
from quantcore.checkpoints.examples import EXAMPLES, ORIGINALS
from quantcore.checkpoints.files.address import Folder, LocalFolder, MemoryFolder, is_inside
from quantcore.checkpoints.files.sources import ByteCounter, ByteSource
from quantcore.checkpoints.findings import CheckpointFinding
from quantcore.checkpoints.headers import OPENERS, Headers, read_headers
from quantcore.checkpoints.inspection import element_of, element_text, tensor_of, tensor_text
from quantcore.checkpoints.listing import ListedTensor, Totals, facts, listing
from quantcore.checkpoints.origin import Line, Origin, Rival, StoredNumber, Word, script
from quantcore.checkpoints.protocol.fields import Location, Place
from quantcore.checkpoints.protocol.layout import Layout
from quantcore.checkpoints.quantized import Window, plane_shape
from quantcore.checkpoints.row_loss import RowLoss, row_loss
from quantcore.checkpoints.rows import ready, results_in_order, rows_per_box
from quantcore.checkpoints.statement import NotFound, Problem, plain
from quantcore.checkpoints.tensor import CheckpointTensor, encode

__all__ = [
    "EXAMPLES",
    "ByteCounter",
    "ByteSource",
    "Checkpoint",
    "CheckpointFinding",
    "CheckpointTensor",
    "ListedTensor",
    "Folder",
    "Headers",
    "Layout",
    "Line",
    "LocalFolder",
    "Location",
    "MemoryFolder",
    "NotFound",
    "OPENERS",
    "OnnxGraph",
    "ORIGINALS",
    "Origin",
    "Place",
    "Problem",
    "Rival",
    "RowLoss",
    "StoredNumber",
    "Totals",
    "Window",
    "Word",
    "assemble",
    "element_of",
    "element_text",
    "encode",
    "facts",
    "gguf_key_bytes",
    "is_inside",
    "listing",
    "open_checkpoint",
    "plain",
    "plane_shape",
    "read_headers",
    "ready",
    "results_in_order",
    "row_loss",
    "rows_per_box",
    "script",
    "tensor_of",
    "tensor_text",
    "write_gguf",
]
