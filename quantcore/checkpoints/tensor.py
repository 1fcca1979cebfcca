"""One weight of a checkpoint: its headers, its numbers and values on request, and its bytes again."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from quantcore.checkpoints.ggml import ggml_bytes
from quantcore.checkpoints.origin.arithmetic import Origin, origin_of
from quantcore.checkpoints.origin.rivals import Rival, rivals
from quantcore.checkpoints.protocol.fields import Location
from quantcore.checkpoints.protocol.layout import Layout
from quantcore.checkpoints.protocol.release import AsStored, Deferred
from quantcore.checkpoints.quantized import Window, has_codes, quantized_of, window_of
from quantcore.displayed import Displayed
from quantcore.errors import QuantError
from quantcore.quantization import Quantized
from quantcore.range_setting import Stored
from quantcore.scheme import gguf_type

# elements read at a time (the fastest of 2^16..2^21): 4 MB of values stay in the cache, and the overhead of a
# piece (0.1 to 0.2 ms) is a tenth of its arithmetic
CHUNK = 1 << 20


class CheckpointTensor(Displayed):
    """A weight of a checkpoint; only headers have been read."""

    __slots__ = ("record",)

    def __init__(self, record: Layout | AsStored) -> None:
        self.record = record  # of a stored tensor, its layout is made when it is used

    @property
    def layout(self) -> Layout:
        """How it is stored."""
        if isinstance(self.record, AsStored):
            self.record = self.record.layout()
        return self.record

    @property
    def name(self) -> str:
        """The logical name, such as ``model.layers.0.self_attn.q_proj.weight``."""
        return self.record.name

    @property
    def shape(self) -> tuple[int, ...]:
        """The logical shape: [out, in] for a linear layer."""
        return self.record.shape

    @property
    def dtype(self) -> str:
        """The dtype that the library dequantizes to: ``bfloat16``."""
        return str(self.record.dtype).removeprefix("torch.")

    @property
    def storage(self) -> str:
        """How it is stored: ``gptq int4 per_group(128) asymmetric``."""
        return self.record.storage

    @property
    def num_bytes(self) -> int:
        """Bytes that it takes in the files, parameters included."""
        return self.record.num_bytes

    @property
    def is_quantized(self) -> bool:
        """Whether it has codes; plain floats have none."""
        return has_codes(self.layout)

    def read(self, rows: slice | None = None, rounded: bool = True, out: Tensor | None = None) -> Tensor:
        """Return the values as float32: what the library dequantizes to in its own output dtype, widened.

        Args:
            rows: a slice of axis 0; only its bytes are read, where the layout allows.
            rounded: if False, the same expression is computed in float32 and not rounded to the output dtype.
            out: a contiguous float32 tensor to write into; allocating a new one costs as much as the
                arithmetic.

        Raises:
            QuantError: the stored tensors don't fit each other, or can't be read.
        """
        # a weight that can't be read raises before memory is allocated for the shape that a file claims
        _ = self.layout.fields
        span = self._rows(rows)
        shape = (span.stop - span.start, *self.shape[1:]) if self.shape else ()
        if out is not None and (out.shape != shape or out.dtype != torch.float32 or not out.is_contiguous()):
            raise QuantError(
                f"out is not a contiguous float32 tensor of shape {shape}; give one, or leave it out."
            )
        # NumPy requests huge pages: writing to its new memory costs a quarter of writing to torch's
        out = torch.from_numpy(np.empty(shape, np.float32)) if out is None else out
        if not out.numel():
            return out
        if not self.shape:
            return self.layout.values(None, out, rounded)
        step = max(1, CHUNK // out[0].numel())
        most = 2 * len(out) > self.shape[0] and len(out) > step
        layout = self.layout.loaded() if most else self.layout
        for start in range(span.start, span.stop, step):
            box = slice(start, min(start + step, span.stop))
            layout.values(box, out[box.start - span.start : box.stop - span.start], rounded)
        return out

    def codes(self, rows: slice | None = None) -> Tensor:
        """Return the codes: integers, or the bits of small floats, in the logical shape.

        Raises:
            QuantError: the tensor is not quantized, or can't be read.
        """
        return self.layout.codes(None if rows is None else self._rows(rows))

    def scale(self) -> Tensor | None:
        """Return the effective scales in block form, float32, with global scales; None if there are none."""
        return self.layout.scale()

    def zero_point(self) -> Tensor | None:
        """Return the zero points in block form, integers or, as stored, float32; None if there are none."""
        return self.layout.zero_point()

    def min(self) -> Tensor | None:
        """Return the minima in block form, float32; None if there are none."""
        return self.layout.min()

    def stored(self) -> dict[str, Tensor]:
        """Return what is stored besides the codes, by role: "scale", "global_scale", "g_idx", ..."""
        return self.layout.stored()

    def quantized(self, original: Any = None) -> Quantized:
        """Return the codes and parameters as a result for reports, traces, maps and figures.

        Args:
            original: the tensor before it was quantized; if None, the dequantized values are used, rounded to
                the output dtype only if the library rounds after each operation.

        Raises:
            QuantError: the tensor is not quantized, or the original has another shape.
        """
        return quantized_of(self.layout, original, lambda: self.read(rounded=self.layout.rounds_each))

    def window(
        self,
        rows: tuple[int, int] | None = None,
        at: tuple[int, ...] = (),
        original: "CheckpointTensor | None" = None,
    ) -> Window:
        """Return some rows as a result of their own; only these are read, where the layout allows.

        Args:
            rows: (start, stop) of axis -2; None for all. A one-dimensional weight is one row.
            at: the index on all axes but the last two, such as the expert of a stack; empty for a matrix.
            original: the tensor before it was quantized; the same rows of it are read.

        Raises:
            QuantError: there are no such rows, they are too many to be read at once, or the tensor can't be
                read.
        """
        return window_of(self.layout, rows, at, None if original is None else original.layout)

    def locate(self, index: Sequence[int]) -> Location:
        """Return where the bits of one element and of its parameters lie.

        Raises:
            QuantError: there is no such element, or the tensor can't be read.
        """
        _ = self.layout.fields  # raises if it can't be read
        return self.layout.locate(self._checked(index))

    def origin(self, index: Sequence[int]) -> Origin:
        """Return one element's bits in its files, and the arithmetic from them to its value.

        Raises:
            QuantError: there is no such element, or the tensor can't be read.
        """
        return origin_of(self.layout, self._checked(index))

    def notes(self) -> tuple[str, ...]:
        """Return sentences about what was decided against the config or without it; may read parameters."""
        return self.layout.notes()

    def rivals(self, index: Sequence[int], rows: slice | None = None, heads: int = 0) -> tuple[Rival, ...]:
        """Return how other libraries, or common mistakes, read the bytes of one element.

        Args:
            rows: the rows (axis 0) in which differing elements are counted; by default all, or in a large
                weight those around the element.
            heads: the number of attention heads of a weight whose rows llama.cpp may have permuted, else 0.

        Raises:
            QuantError: there is no such element, or the tensor can't be read.
        """
        return rivals(self.layout, self._checked(index), None if rows is None else self._rows(rows), heads)

    def _checked(self, index: Sequence[int]) -> tuple[int, ...]:
        at = tuple(int(i) for i in index)
        if len(at) != len(self.shape) or any(not -n <= i < n for i, n in zip(at, self.shape, strict=True)):
            raise QuantError(
                f"There is no element {at} in a tensor of shape {self.shape}; give one index per axis."
            )
        return tuple(i % n for i, n in zip(at, self.shape, strict=True))

    def _rows(self, rows: slice | None) -> slice:
        n = self.shape[0] if self.shape else 1
        if rows is None:
            return slice(0, n)
        start, stop, step = rows.indices(n)
        if step != 1:
            raise QuantError("Rows must be a slice without a step; read them all and index the result.")
        return slice(start, max(start, stop))


def encode(source: Quantized | CheckpointTensor) -> dict[str, bytes] | bytes:
    """Return the bytes of a weight's stored tensors by name in the file; of a gguf preset, ggml's bytes.

    For a `CheckpointTensor`, its numbers are decoded and encoded again, which reproduces the file's own
    bytes. For a result of `CheckpointTensor.quantized`, its codes are encoded in that file's packing, with
    the file's parameters. For a result of a gguf preset, with or without importance, the bytes are the blocks
    of all rows, one after another: what ``ggml_quantize_chunk`` writes for x.

    Raises:
        QuantError: any other kind of result, or a format that can't be written.
    """
    if isinstance(source, CheckpointTensor):
        return source.layout.encode()
    setting = source.scheme.range_setting
    if gguf_type(source.scheme) is not None:
        return ggml_bytes(source)
    if not isinstance(setting, Stored) or not isinstance(setting.owner, Layout | Deferred):
        raise QuantError(
            "Only a checkpoint's tensor, a result of its quantized() and a result of a gguf preset have a "
            "packing; give one of these."
        )
    return setting.owner.encode({"codes": source.codes})
