r"""llama.cpp: --tensor-type PATTERN=TYPE of llama-quantize, and the file type of all other tensors.

A pattern is an ECMAScript expression that is searched in a tensor's name; the first that fits holds, before
the mixture of the file type and with --pure (src/llama-quant.cpp of 0ad4a86, `llama_tensor_get_type`). The
program lowers its letters, and ends it at the first = (tools/quantize/quantize.cpp, `parse_tensor_type`), so
that what is neither a small letter, a digit nor _ is written as a dot: ``^blk\.(0|7)\.ffn_down\.weight$``.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from quantcore.checkpoints import Checkpoint
from quantcore.errors import QuantError
from quantcore.recipes.ftypes import FLOATS, FTYPES, ggml_name
from quantcore.recipes.mixture import may_be_quantized, needs_imatrix
from quantcore.recipes.model import Model, model_of
from quantcore.recipes.preview import ftype_file
from quantcore.recipes.tools.tool import TensorChoice, Tool, Written
from quantcore.scheme import PRESETS
from quantcore.wording import short

_GGUF = re.compile(r"blk\.\d+\.|token_embd|output|position_embd|token_types|per_layer_")
_LAYER = re.compile(r"^blk\.(\d+)\.")


def _write(choices: Sequence[TensorChoice], checkpoint: Checkpoint | None) -> Written:
    model = None if checkpoint is None else model_of(checkpoint)
    types = _types(choices, model)
    base = _base(types)
    rules = list(_rules({name: kind for name, kind in types.items() if kind != base[1]}))
    needs = any(needs_imatrix(name, kind, base[0]) for name, kind in types.items())
    data = {"ftype": base[0], "imatrix": needs, "pure": True, "tensor_types": rules}
    if checkpoint is not None:
        _check(types, data, checkpoint)
    lines = ["llama-quantize --pure", *["  --imatrix imatrix.gguf"] * needs]
    lines += [f"  --tensor-type '{pattern}={ggml_name(kind)}'" for pattern, kind in rules]
    lines += [f"  model.gguf model-quantized.gguf {base[0]}"]
    return Written(" \\\n".join(lines) + "\n", data)


def _types(choices: Sequence[TensorChoice], model: Model | None) -> dict[str, str]:
    """Return the type of every tensor that llama.cpp may quantize, by its names.

    Raises:
        QuantError: a name can't be told, a tensor is never quantized, or experts of one stack differ.
    """
    names = {} if model is None else {own: name for name, all_ in model.origins.items() for own in all_}
    stored = {} if model is None else {tensor.name: tensor for tensor in model.tensors}
    # what is not chosen stays as it is stored
    found = {t.name: t.kind for t in stored.values() if may_be_quantized(t.name, t.shape)}
    given: dict[str, str] = {}
    for choice in choices:
        name = names.get(choice.name, "" if model else choice.name)
        shape = stored[name].shape if name in stored else (2, 2)
        kind = choice.wanted.ggml if choice.wanted else stored[name].kind if name in stored else ""
        if not choice.wanted and (not name or not may_be_quantized(name, shape)):
            continue
        if not name or (model is None and not _GGUF.match(name)):
            raise QuantError(
                f"What llama.cpp calls {short(choice.name, 120)} can't be told; give the checkpoint, or the "
                "names of a GGUF file."
            )
        if not kind:
            raise QuantError(
                f"How {short(name, 120)} is stored can't be told; give the checkpoint, or a type such as F16."
            )
        if not may_be_quantized(name, shape):
            raise QuantError(f"llama.cpp never quantizes {short(name, 120)}; leave it as stored.")
        if given.setdefault(name, kind) != kind:
            raise QuantError(
                f"llama.cpp stacks the experts of {short(name, 120)} in one tensor, but they are to have the "
                f"types {given[name]} and {kind}; give all the same."
            )
    return found | given


def _never(checkpoint: Checkpoint) -> dict[str, str]:
    """Return the tensors that llama.cpp never quantizes, or does not have."""
    model = model_of(checkpoint)
    found = dict.fromkeys(model.unknown, "has no name in llama.cpp")
    for tensor in model.tensors:
        if not may_be_quantized(tensor.name, tensor.shape):
            found |= dict.fromkeys(model.origins[tensor.name], "is never quantized by llama.cpp")
    return found


def _base(types: Mapping[str, str]) -> tuple[str, str]:
    """Return the file type whose tensors with --pure have the type that most are to have, and that type."""
    counts = Counter(kind for kind in types.values() if kind not in FLOATS)
    made = {kind: name for name, (_, kind) in reversed(FTYPES.items()) if kind}
    kinds = [kind for kind, _ in counts.most_common() if kind in made]
    if not kinds:
        raise QuantError(f"llama-quantize makes no file of {', '.join(counts)}; choose other types.")
    kind = kinds[0]
    # the file type IQ2_S has IQ2_XS
    return (kind if FTYPES.get(kind, (0, ""))[1] == kind else made[kind]), kind


def _rules(types: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield patterns and types, one for all layers of a kind that have the same."""
    layers: dict[tuple[str, str], list[str]] = {}
    for name, kind in types.items():
        found = _LAYER.match(name)
        own = layers.setdefault((name[found.end() :] if found else name, kind), [])
        own += [found[1]] if found else []
    for (rest, kind), numbers in layers.items():
        written = re.sub(r"[^a-z0-9_.]", "\0", rest).replace(".", r"\.").replace("\0", ".")
        one_of = f"({'|'.join(numbers)})" if len(numbers) > 1 else "".join(numbers)
        yield rf"^blk\.{one_of}\.{written}$" if numbers else f"^{written}$", kind


def _check(types: Mapping[str, str], data: Mapping[str, Any], checkpoint: Checkpoint) -> None:
    """Check that llama-quantize would do what is wanted.

    Raises:
        QuantError: a type does not fit a tensor's width.
    """
    rules = data["tensor_types"]
    made = ftype_file(checkpoint, data["ftype"], True, pure=True, tensor_types=rules)
    for name, kind in types.items():
        if made.types[name] != kind:
            raise QuantError(
                f"llama.cpp would make {short(name, 120)} {made.types[name]} instead of {kind} "
                f"({made.reasons[name]}); choose a type whose blocks fit, such as Q8_0 or Q4_0."
            )


LLAMA_CPP = Tool(
    "llama.cpp", "quantize_with_llama_cpp.sh",
    tuple(name for name in PRESETS if name.startswith("gguf.")),
    tuple(f"gguf.{kind}" for kind in ("Q8_0", "Q6_K", "Q5_K", "Q4_K", "Q3_K", "Q5_0", "Q4_0")),
    lambda given: bool(given.ggml), _write, _never,
)  # fmt: skip
