"""Checkpoints of models: headers first, then codes, parameters and values exactly as the library reads them.

>>> checkpoint = open_checkpoint("path/to/release")  # doctest: +SKIP
>>> checkpoint.tensors["model.layers.0.self_attn.q_proj.weight"].read(rows=slice(0, 8))  # doctest: +SKIP

Where things are: `address` (folders and files, nothing outside them), `sources` (the bytes of a file, counted), `containers` (headers of files), `packing`
(which code sits where), `protocol` (what a format implements), `layouts` (one module a format), `tensor` and `parameters` (what is made of them),
`findings` (what is wrong).
"""

from quantcore.checkpoints.address import Folder
from quantcore.checkpoints.checkpoint import Checkpoint, open_checkpoint
from quantcore.checkpoints.encode import encode
from quantcore.checkpoints.examples import EXAMPLES
from quantcore.checkpoints.findings import CheckpointFinding
from quantcore.checkpoints.problem import NotFound, Problem
from quantcore.checkpoints.protocol.fields import Place
from quantcore.checkpoints.protocol.layout import Layout
from quantcore.checkpoints.protocol.location import Location
from quantcore.checkpoints.sources import ByteCounter, ByteSource
from quantcore.checkpoints.tensor import CheckpointTensor

__all__ = [
    "EXAMPLES",
    "ByteCounter",
    "ByteSource",
    "Checkpoint",
    "CheckpointFinding",
    "CheckpointTensor",
    "Folder",
    "Layout",
    "Location",
    "NotFound",
    "Place",
    "Problem",
    "encode",
    "open_checkpoint",
]
