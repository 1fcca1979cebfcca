"""A file of llama-quantize before it is made: the type of every tensor and the file's size, from headers.

Source: ggml-org/llama.cpp 0ad4a86: src/llama-quant.cpp (llama_tensor_get_type, llama_model_quantize_impl),
tools/quantize/quantize.cpp (the keys of an imatrix). Refusals have llama.cpp's words.
"""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import Any

from quantcore.checkpoints import Checkpoint, gguf_key_bytes, open_checkpoint
from quantcore.errors import QuantError
from quantcore.recipes.ftypes import FLOATS, FTYPES, bytes_of, ftype_of, ggml_name, type_of
from quantcore.recipes.mixture import (
    EMBEDDINGS,
    Mixture,
    category_of,
    fitting,
    may_be_quantized,
    needs_imatrix,
)
from quantcore.recipes.model import FloatTensor, model_of
from quantcore.wording import short

Address = Checkpoint | str | os.PathLike[str]
Inputs = bool | Checkpoint | str | os.PathLike[str]
ALIGNMENT = 32
_NUMBER_KEYS = ("general.quantization_version", "general.file_type")
_SPLIT_KEYS = ("split.no", "split.count", "split.tensors.count")
_LONGEST = 127  # bytes of a text that llama-quantize writes (llama_model_kv_override)


@dataclass(frozen=True)
class FtypeFile:
    """What llama-quantize would write.

    ``types``: by llama.cpp's names, in the order of the file; ``reasons``: why each has its type;
    ``origins``: the checkpoint's names of each tensor; ``unknown``: names of the checkpoint that llama.cpp
    does not have, which are not in the file.
    """

    ftype: str
    types: Mapping[str, str]
    reasons: Mapping[str, str]
    origins: Mapping[str, tuple[str, ...]]
    unknown: tuple[str, ...]
    tensors: tuple[FloatTensor, ...]
    checkpoint: Checkpoint
    imatrix: Checkpoint | None
    imatrix_name: str

    @property
    def tensor_bytes(self) -> int:
        """Bytes of all tensors, without header and padding."""
        return sum(bytes_of(self.types[tensor.name], tensor.shape) for tensor in self.tensors)

    @cached_property
    def num_bytes(self) -> int:
        """Bytes of the file; the header is read again.

        Raises:
            QuantError: the checkpoint is not a GGUF file, whose header the new one takes over.
        """
        names = [tensor.name.encode() for tensor in self.tensors]
        infos = sum(8 + len(name) + 4 + 12 for name in names) + 8 * sum(len(t.shape) for t in self.tensors)
        sizes = [bytes_of(self.types[tensor.name], tensor.shape) for tensor in self.tensors]
        return _padded(24 + self._key_bytes() + infos) + sum(map(_padded, sizes))

    def _key_bytes(self) -> int:
        stored = self.checkpoint.release.stored
        source = next(iter(stored.values())).source if stored else None
        if "general.architecture" not in self.checkpoint.config or source is None:
            raise QuantError(
                "How large the file is can't be told before the model is a GGUF file: its header has the "
                "vocabulary. Convert it with llama.cpp's convert_hf_to_gguf.py, and give that file."
            )
        part = re.search(r"-(\d{5})-of-\d{5}\.gguf$", source.name)
        if part and int(part[1]) != 1:
            raise QuantError(
                f"The first tensor is in {short(source.name, 120)}, but the keys are in the first part; "
                "merge the parts with llama-gguf-split, and give that file."
            )
        keys = gguf_key_bytes(source)
        keys |= {key: 8 + len(key) + 8 for key in _NUMBER_KEYS}
        keys |= _imatrix_keys(self.imatrix, self.imatrix_name)
        return sum(size for key, size in keys.items() if key not in _SPLIT_KEYS)


def ftype_file(
    checkpoint: Address,
    ftype: str,
    imatrix: Inputs = False,
    *,
    pure: bool = False,
    output_tensor_type: str | None = None,
    token_embedding_type: str | None = None,
    tensor_types: Sequence[tuple[str, str]] = (),
    quantize_output_tensor: bool = True,
    prune_layers: Sequence[int] = (),
    only_copy: bool = False,
    allow_requantize: bool = False,
    dry_run: bool = False,
) -> FtypeFile:
    """Return what llama-quantize makes of a float model, from headers alone.

    Args:
        checkpoint: a GGUF file, or a Hugging Face model as llama.cpp's converter would name its tensors; a
            path, or opened.
        ftype: such as "Q4_K_M", see `FTYPES`.
        imatrix: the file of an imatrix, as --imatrix gets it; or opened, then the file's name is its path; or
            whether there is one, which is taken to have every weight, and whose four keys in the header are
            not counted.
        pure: most tensors' type for all.
        output_tensor_type, token_embedding_type: ggml types for these.
        tensor_types: pairs of a regular expression and a ggml type; the first that is found in a name holds.
        quantize_output_tensor: False leaves ``output.weight`` as it is.
        prune_layers: numbers of layers that are left out.
        only_copy: leave all tensors as they are.
        allow_requantize: take a model that is quantized already.
        dry_run: do not refuse because an imatrix is needed.

    Raises:
        QuantError: llama-quantize refuses, or the model can't be told from the headers.
    """
    rules = _Rules(
        ftype_of(ftype),
        pure,
        quantize_output_tensor,
        only_copy,
        _patterns(tensor_types),
        None if output_tensor_type is None else type_of(output_tensor_type),
        None if token_embedding_type is None else type_of(token_embedding_type),
    )
    opened = checkpoint if isinstance(checkpoint, Checkpoint) else open_checkpoint(checkpoint)
    return _file(opened, rules, imatrix, sorted({*prune_layers}), allow_requantize, dry_run)


def _file(
    opened: Checkpoint, rules: "_Rules", imatrix: Inputs, left_out: Sequence[int], requantize: bool, dry: bool
) -> FtypeFile:
    model, (entries, path) = model_of(opened), _opened_imatrix(imatrix)
    number, base = FTYPES[rules.ftype]
    if not base:
        raise QuantError(f"invalid output file type {number}")
    kept = list(_pruned(model.tensors, left_out))
    tensors, was = tuple(new for new, _ in kept), {new.name: old.name for new, old in kept}
    kinds = [category_of(tensor.name) for tensor in tensors]
    values = sum(kind in ("v", "qkv", "kv_b") for kind in kinds)
    given = rules.output_type, rules.embedding_type
    mixture = Mixture(rules.ftype, model, bool(imatrix), *given, values, "output" not in kinds)
    chosen = {tensor.name: rules.choose(tensor, mixture) for tensor in tensors}
    types = {name: kind for name, (kind, _) in chosen.items()}
    if not dry:
        _check(tensors, types, rules, imatrix, entries, was)
    _check_source(tensors, types, requantize)
    return FtypeFile(
        rules.ftype, types, {name: why for name, (_, why) in chosen.items()},
        {new: model.origins[old] for new, old in was.items()}, model.unknown, tensors, opened, entries,
        path,
    )  # fmt: skip


def ftype_types(checkpoint: Address, ftype: str, imatrix: Inputs = False, **options: Any) -> dict[str, str]:
    """Return the ggml type of every tensor that llama-quantize writes; arguments: as for `ftype_file`.

    >>> from quantcore.checkpoints import EXAMPLES
    >>> types = ftype_types(EXAMPLES["minilm"], "Q4_K_M")  # 384 columns are not whole blocks of 256
    >>> types["blk.0.attn_q.weight"], types["blk.0.ffn_down.weight"], types["blk.0.attn_q.bias"]
    ('Q5_0', 'Q4_K', 'F32')

    Raises:
        QuantError: as `ftype_file`.
    """
    return dict(ftype_file(checkpoint, ftype, imatrix, **options).types)


def ftype_size(checkpoint: Address, ftype: str, imatrix: Inputs = False, **options: Any) -> int:
    """Return the bytes of the file that llama-quantize writes; arguments: as for `ftype_file`.

    Raises:
        QuantError: as `ftype_file`, or the checkpoint is not a GGUF file: the new header takes its keys over.
    """
    return ftype_file(checkpoint, ftype, imatrix, **options).num_bytes


def _opened_imatrix(given: Inputs) -> tuple[Checkpoint | None, str]:
    """Return an imatrix and its path."""
    if isinstance(given, bool):
        return None, ""
    if isinstance(given, Checkpoint):
        return given, next((piece.source.name for piece in given.release.stored.values()), "")
    return open_checkpoint(given), os.fspath(given)


@dataclass(frozen=True)
class _Rules:
    """What the user asked for."""

    ftype: str
    pure: bool
    quantize_output: bool
    only_copy: bool
    patterns: Sequence[tuple[re.Pattern[str], str]]
    output_type: str | None
    embedding_type: str | None

    def allows(self, tensor: FloatTensor) -> bool:
        """Return whether a tensor is quantized at all."""
        is_left = self.only_copy or (tensor.name == "output.weight" and not self.quantize_output)
        return not is_left and may_be_quantized(tensor.name, tensor.shape)

    def choose(self, tensor: FloatTensor, mixture: Mixture) -> tuple[str, str]:
        """Return the type of the next tensor, and why it is that."""
        base, kind = FTYPES[self.ftype][1], category_of(tensor.name)
        if not self.allows(tensor):
            asked = self.only_copy or may_be_quantized(tensor.name, tensor.shape)
            return tensor.kind, "as stored, as asked" if asked else "as stored: llama.cpp never quantizes it"
        given = {"embeddings": self.embedding_type, "output": self.output_type}.get(kind)
        if given:
            return given, f"the type that was given for the {kind}"
        if base in FLOATS:
            return base, f"the type of all matrices in {self.ftype}"
        found = next((own for own in self.patterns if own[0].search(tensor.name)), None)
        if found:
            chosen, why = found[1], f"the first pattern that fits is {found[0].pattern}"
        else:
            chosen = base if self.pure else mixture.type_of(tensor)
            why = f"the type of most tensors in {self.ftype}"
            if chosen != base:
                why = f"{self.ftype} gives {ggml_name(chosen)} to this tensor instead of {ggml_name(base)}"
        fits = fitting(chosen, tensor.shape[-1])
        if fits != chosen:
            why = f"{tensor.shape[-1]:,} columns are not whole blocks of {ggml_name(chosen)}; {why}"
        return fits, why


def _patterns(given: Sequence[tuple[str, str]]) -> list[tuple[re.Pattern[str], str]]:
    found = []
    for pattern, kind in given:
        try:
            found.append((re.compile(pattern, re.ASCII), type_of(kind)))
        except re.error as reason:
            raise QuantError(
                f"The pattern {short(pattern, 80)} of tensor_types is not a regular expression: {reason}."
            ) from None
    return found


def _check(
    tensors: Sequence[FloatTensor],
    types: Mapping[str, str],
    rules: _Rules,
    imatrix: Any,
    entries: Checkpoint | None,
    was: Mapping[str, str],
) -> None:
    """Check that the imatrix has what is needed."""
    for tensor in tensors:
        name, kind = tensor.name, types[tensor.name]
        needed = needs_imatrix(name, kind, rules.ftype) and rules.allows(tensor)
        if needed and not imatrix:
            raise QuantError("this quantization requires an imatrix!")
        if entries is None or kind == tensor.kind:
            continue
        entry, inputs = entries.tensors.get(was[name]), tensor.shape[-1] * prod(tensor.shape[-3:-2])
        if entry is None and needed:
            raise QuantError(f"Missing importance matrix for tensor {name} in a very low-bit quantization")
        size = inputs if entry is None else prod(entry.shape)
        if size != inputs and name not in EMBEDDINGS:
            raise QuantError(f"imatrix size {size} is different from tensor size {inputs} for {name}")


def _check_source(tensors: Sequence[FloatTensor], types: Mapping[str, str], may: bool) -> None:
    """Check that what is quantized is float, unless requantizing is allowed."""
    for tensor in tensors:
        if types[tensor.name] != tensor.kind and tensor.kind not in FLOATS and not may:
            raise QuantError(f"requantizing from type {ggml_name(tensor.kind)} is disabled")


def _pruned(
    tensors: Sequence[FloatTensor], left_out: Sequence[int]
) -> Iterator[tuple[FloatTensor, FloatTensor]]:
    """Yield the tensors of the layers that stay, numbered anew, each with the tensor that it was."""
    if not left_out:
        yield from zip(tensors, tensors, strict=True)
        return
    numbers = {n: i for i, n in enumerate(sorted({t.block for t in tensors if t.block >= 0} - {*left_out}))}
    for tensor in tensors:
        if tensor.block < 0:
            yield tensor, tensor
        elif (number := numbers.get(tensor.block)) is not None:
            rest = tensor.name.partition(f"blk.{tensor.block}.")[2]
            yield replace(tensor, name=f"blk.{number}.{rest}"), tensor


def _imatrix_keys(imatrix: Checkpoint | None, name: str) -> dict[str, int]:
    """Return the bytes of the keys that llama-quantize writes about an imatrix."""
    if imatrix is None:
        return {}
    texts = {"quantize.imatrix.file": name}
    if data_sets := imatrix.config.get("imatrix.datasets"):
        texts["quantize.imatrix.dataset"] = str(data_sets[0])
    found = {key: 8 + len(key) + 12 + len(text.encode()[:_LONGEST]) for key, text in texts.items()}
    numbers = ["quantize.imatrix.entries_count"]
    numbers += ["quantize.imatrix.chunks_count"] * bool(imatrix.config.get("imatrix.chunk_count"))
    return found | {key: 8 + len(key) + 8 for key in numbers}


def _padded(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT
