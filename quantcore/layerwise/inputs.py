"""What the linear layers of a torch model get as inputs: second moments and samples, in files that are read.

A weight's error counts by them: with inputs X, of shape (tokens, inputs), an error E of the weight (outputs,
inputs) changes the layer's output by ‖X·Eᵀ‖² = Σ e·H·eᵀ over its rows e, with H = XᵀX. Its diagonal, Σx² of
each input, is what llama.cpp's imatrix has.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Self

import safetensors.torch
import torch
from torch import Tensor, nn

from quantcore.checkpoints import write_gguf
from quantcore.checkpoints.ggml import GgufNames
from quantcore.errors import QuantError
from quantcore.wording import count, short

Mask = Callable[[Any], Tensor | None]
MOST_BYTES = 1 << 32  # of all H together
_ATTENTION = "attention_mask"
_SUM, _COUNTS, _FULL, _SAMPLES = "in_sum2", "counts", "hessian", "samples"


@dataclass(frozen=True)
class LayerInputs:
    """The inputs of one linear layer.

    ``sums``: Σx² of each input, float64 (inputs,); ``tokens``: how many were summed; ``hessian``: XᵀX,
    float64 (inputs, inputs), None if it was not asked for or did not fit; ``samples``: some of the rows of X,
    drawn at random, float32 (rows, inputs).
    """

    sums: Tensor
    tokens: int
    hessian: Tensor | None
    samples: Tensor

    @property
    def mean_square(self) -> Tensor:
        """The mean of x² of each input, (inputs,)."""
        return self.sums / self.tokens


@dataclass(frozen=True)
class Collected:
    """What `collect` returns.

    ``layers``: by the names of weights; ``batches``: how many the model ran; ``notes``: a sentence for what
    has no entry, or was not collected as asked.
    """

    layers: Mapping[str, LayerInputs]
    batches: int
    notes: tuple[str, ...] = ()

    def save(self, path: str | Path, architecture: str | None = None) -> None:
        """Write a file: an imatrix (.gguf), or everything (.safetensors).

        The imatrix has the sums and tokens of each layer as llama.cpp stores them, rounded to float32, under
        the names of the model's weights. Quantscope takes these for a checkpoint with the same names, or
        llama.cpp's; llama-quantize takes only its own.

        Args:
            architecture: of llama.cpp, such as "llama", to write the imatrix under llama.cpp's names.

        Raises:
            QuantError: the file's ending is neither, it can't be written, or a weight has no name in the
                architecture, or that of another.
        """
        path = Path(path)
        if path.suffix not in (".gguf", ".safetensors"):
            raise QuantError(f"{path.name} must end with .gguf (an imatrix) or .safetensors (everything).")
        if architecture is not None and path.suffix != ".gguf":
            raise QuantError("Names of llama.cpp are for .gguf; leave architecture out.")
        try:
            if path.suffix == ".gguf":
                self._write_imatrix(path, architecture)
            else:
                safetensors.torch.save_file(self._arrays(), path, {"batches": str(self.batches)})
        except (OSError, safetensors.SafetensorError) as reason:
            raise QuantError(f"{path} can't be written: {reason}") from None

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Return what `save` wrote as .safetensors; the notes are not kept.

        Raises:
            QuantError: the file can't be read, or is not such a file.
        """
        try:
            with safetensors.safe_open(path, "pt") as file:
                batches = int((file.metadata() or {})["batches"])
                arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            names = [name.removesuffix(f".{_SUM}") for name in arrays if name.endswith(f".{_SUM}")]
            layers = {
                name: LayerInputs(
                    arrays[f"{name}.{_SUM}"], int(arrays[f"{name}.{_COUNTS}"]),
                    arrays.get(f"{name}.{_FULL}"), arrays[f"{name}.{_SAMPLES}"],
                )
                for name in names
            }  # fmt: skip
        except (OSError, safetensors.SafetensorError, KeyError, ValueError) as reason:
            raise QuantError(
                f"{path} is not a file of inputs that Collected.save wrote ({reason}); collect again."
            ) from None
        return cls(layers, batches)

    def _arrays(self) -> dict[str, Tensor]:
        found = {}
        for name, own in self.layers.items():
            found[f"{name}.{_SUM}"], found[f"{name}.{_SAMPLES}"] = own.sums, own.samples
            found[f"{name}.{_COUNTS}"] = torch.tensor(own.tokens)
            if own.hessian is not None:
                found[f"{name}.{_FULL}"] = own.hessian
        return found

    def _write_imatrix(self, path: Path, architecture: str | None) -> None:
        """Source of the keys: ggml-org/llama.cpp, tools/imatrix/imatrix.cpp, `save_imatrix`."""
        entries: dict[str, dict[int, LayerInputs]] = {}
        for name, own in self.layers.items():
            stored, expert = (name, None) if architecture is None else _gguf_name(name, architecture)
            others = entries.setdefault(stored, {})
            if (expert or 0) in others:
                raise QuantError(
                    f"{short(name, 120)} is not the only weight that llama.cpp calls {short(stored, 120)}; "
                    "leave architecture out, or collect a part of the model."
                )
            others[expert or 0] = own
        tensors: dict[str, Tensor] = {}
        for name, experts in entries.items():
            width = len(next(iter(experts.values())).sums)
            sums, counts = torch.zeros(max(experts) + 1, width), torch.zeros(max(experts) + 1, 1)
            for expert, own in experts.items():
                sums[expert], counts[expert] = own.sums, own.tokens
            tensors |= {f"{name}.{_SUM}": sums, f"{name}.{_COUNTS}": counts}
        size = max(own.tokens for own in self.layers.values()) // self.batches
        about: dict[str, str | int | list[str]] = {
            "general.type": "imatrix",
            "imatrix.datasets": ["quantcore.collect"],
            "imatrix.chunk_count": self.batches,
            "imatrix.chunk_size": max(1, size),
        }
        write_gguf(path, about, tensors)


def collect(
    model: nn.Module,
    batches: Iterable[Any],
    mask: Mask | None = None,
    full: bool = False,
    most_bytes: int = MOST_BYTES,
    samples: int = 0,
) -> Collected:
    """Run a model on batches and return what its `torch.nn.Linear` layers get as inputs.

    Sums are float64. Embeddings have no entry, since they are looked up, and neither have weights of other
    modules: stacks of experts, or Conv1D of transformers, whose weights are stored (inputs, outputs).

    Args:
        model: in evaluation mode; its hooks are removed at the end.
        batches: a tensor or a tuple is what the model is called with, a dict its keywords.
        mask: takes a batch and returns a mask of shape (inputs, tokens), nonzero for the tokens that count,
            or None if all do. By default that is the ``attention_mask`` of a dict, if it has one, so that
            padding does not count. A layer whose inputs do not begin with the mask's shape counts all, and
            `Collected.notes` says so.
        full: also sum H = XᵀX of each layer that fits, in the order of the model: together they take at most
            ``most_bytes``.
        samples: how many rows of X are kept of each layer, drawn at random; the same tokens for layers that
            get the same inputs.

    >>> _ = torch.manual_seed(0)
    >>> model = nn.Sequential(nn.Embedding(10, 4), nn.Linear(4, 3)).eval()
    >>> found = collect(model, [torch.tensor([[1, 2, 3]])])
    >>> found.layers["1.weight"].tokens, found.layers["1.weight"].sums.shape
    (3, torch.Size([4]))
    >>> found.notes
    ('Embeddings have no entry: they are looked up.',)

    Raises:
        QuantError: the model is in training mode, has no linear layers that run, or can't run a batch; an
            input is not finite; or a mask is not one.
    """
    if model.training:
        raise QuantError("The model is in training mode, in which dropout changes inputs; call model.eval().")
    if isinstance(batches, Tensor | Mapping):
        raise QuantError("batches must be a list or another iterable; for one batch, give [batch].")
    if samples < 0 or most_bytes < 0:
        raise QuantError("samples and most_bytes can't be negative.")
    run = _Run(mask or partial(_own_mask, model))
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear):
            run.add(f"{name}.weight" if name else "weight", module, full, most_bytes, samples)
    if not run.sums:
        raise QuantError("The model has no torch.nn.Linear layers, whose inputs could be collected.")
    done = -1
    try:
        with torch.inference_mode():
            for done, batch in enumerate(batches):
                run.batch(model, batch, done)
    finally:
        for handle in run.handles:
            handle.remove()
    if done < 0:
        raise QuantError("There are no batches; give one or more.")
    layers = {name: own.result() for name, own in run.sums.items() if own.tokens}
    if not layers:
        raise QuantError(
            "No linear layer got an input: the model does not call its Linear modules, or all tokens are "
            "masked."
        )
    return Collected(layers, done + 1, tuple(_notes(model, run)))


@dataclass
class _Sums:
    """The sums of one layer, where its inputs are."""

    name: str
    samples: int
    is_full: bool
    tokens: int = 0
    sums: Tensor | None = None
    hessian: Tensor | None = None
    rows: Tensor | None = None
    keys: Tensor = field(default_factory=lambda: torch.empty(0))
    generator: torch.Generator = field(default_factory=lambda: torch.Generator().manual_seed(0))

    def add(self, x: Tensor) -> None:
        """Add rows of inputs, (tokens, inputs)."""
        exact = x.double()
        sums = exact.square().sum(0)
        if not torch.isfinite(sums).all():
            raise QuantError(f"The inputs of {short(self.name, 120)} contain NaN or infinite values.")
        self.tokens += len(x)
        self.sums = sums if self.sums is None else self.sums.add_(sums)
        if self.is_full:
            own = exact.mT @ exact
            self.hessian = own if self.hessian is None else self.hessian.add_(own)
        if self.samples:
            self._draw(x)

    def _draw(self, x: Tensor) -> None:
        """Keep the rows with the smallest keys, which are random: a sample without replacement."""
        keys = torch.cat([self.keys, torch.rand(len(x), generator=self.generator)])
        kept = keys.topk(min(self.samples, len(keys)), largest=False).indices.sort().values
        own = kept[kept >= len(self.keys)] - len(self.keys)
        before = x.new_empty(0, x.shape[1]) if self.rows is None else self.rows
        old = kept[kept < len(self.keys)]
        self.rows = torch.cat([before[old.to(x.device)], x[own.to(x.device)]])
        self.keys = keys[kept]

    def result(self) -> LayerInputs:
        assert self.sums is not None
        rows = self.sums.new_empty(0, len(self.sums)) if self.rows is None else self.rows
        hessian = None if self.hessian is None else self.hessian.cpu().clone()
        return LayerInputs(self.sums.cpu().clone(), self.tokens, hessian, rows.float().cpu().clone())


class _Run:
    """The sums of all layers, and the mask of the batch that the model runs."""

    def __init__(self, mask: Mask) -> None:
        self._mask_of = mask
        self._mask: Tensor | None = None
        self.sums: dict[str, _Sums] = {}
        self.handles: list[Any] = []
        self.unmasked: set[str] = set()
        self.too_large: list[str] = []
        self._bytes = 0

    def add(self, name: str, layer: nn.Linear, full: bool, most_bytes: int, samples: int) -> None:
        """Begin the sums of a layer."""
        size = 8 * layer.in_features**2
        is_full = full and self._bytes + size <= most_bytes
        if is_full:
            self._bytes += size
        elif full:
            self.too_large.append(name)
        own = self.sums[name] = _Sums(name, samples, is_full)

        def hook(_: nn.Module, given: tuple[Any, ...], keywords: dict[str, Any]) -> None:
            x = given[0] if given else keywords["input"]
            own.add(self._counted(own.name, x.detach()))

        self.handles.append(layer.register_forward_pre_hook(hook, with_kwargs=True))

    def batch(self, model: nn.Module, batch: Any, number: int) -> None:
        """Run a batch."""
        self._mask = self._checked(self._mask_of(batch), number)
        try:
            if isinstance(batch, Mapping):
                model(**batch)
            elif isinstance(batch, tuple | list):
                model(*batch)
            else:
                model(batch)
        except QuantError as reason:
            raise QuantError(f"Batch {number}: {reason}") from None
        except Exception as reason:  # whatever the user's model raises
            said = f"{type(reason).__name__}: {short(str(reason), 300)}"
            raise QuantError(f"The model can't run batch {number} ({said}).") from reason

    def _checked(self, mask: Any, number: int) -> Tensor | None:
        if mask is None:
            return None
        if not isinstance(mask, Tensor) or mask.ndim != 2:
            what = f"shape {tuple(mask.shape)}" if isinstance(mask, Tensor) else type(mask).__name__
            raise QuantError(
                f"The mask of batch {number} must be a tensor of shape (inputs, tokens), not {what}; give "
                "mask=, which takes the batch and returns one, or None."
            )
        return mask.bool()

    def _counted(self, name: str, x: Tensor) -> Tensor:
        """Return the rows of the inputs of a layer that count, (tokens, inputs)."""
        rows, mask = x.reshape(-1, x.shape[-1]), self._mask
        if mask is None:
            return rows
        if x.ndim == 2 and len(x) == mask.numel():  # flattened before the layer
            return x[mask.flatten().to(x.device)]
        if x.ndim > 2 and x.shape[:2] == mask.shape:
            return x[mask.to(x.device)].reshape(-1, x.shape[-1])
        self.unmasked.add(name)
        return rows


def _own_mask(model: nn.Module, batch: Any) -> Any:
    """Return the mask of a dict, if it has one."""
    if not isinstance(batch, Mapping) or _ATTENTION not in batch:
        return None
    decodes = getattr(getattr(model, "config", None), "is_encoder_decoder", False)
    if decodes or any(str(key).startswith("decoder_") for key in batch):
        raise QuantError(
            "This batch has a sequence for the encoder and one for the decoder, so that its attention_mask "
            "is not that of every layer; give mask=, such as mask=lambda batch: None for batches without "
            "padding."
        )
    return batch[_ATTENTION]


def _notes(model: nn.Module, run: _Run) -> Iterable[str]:
    embeddings = [name for name, module in model.named_modules() if isinstance(module, nn.Embedding)]
    if embeddings:
        yield "Embeddings have no entry: they are looked up."
    matrices = [name for name, weight in model.named_parameters() if weight.ndim > 1]
    others = [name for name in matrices if name not in run.sums and name.rpartition(".")[0] not in embeddings]
    unused = [name for name, own in run.sums.items() if not own.tokens]
    unmasked = [name for name in run.sums if name in run.unmasked]
    for names, said in (
        (others, "no entry, since it does not belong to a torch.nn.Linear"),
        (unused, "no entry, since the model did not run it as a module, or for no token that counts"),
        (unmasked, "padding counts too, since the inputs have another shape than the mask"),
        (run.too_large, "no H, since it does not fit in most_bytes"),
    ):
        if names:
            yield f"{count(len(names), 'weight')}, the first {short(names[0], 120)}: {said}."


def _gguf_name(name: str, architecture: str) -> tuple[str, int | None]:
    """Return llama.cpp's name of a weight, and the number of an expert."""
    names = GgufNames.of(architecture)
    found = None if names is GgufNames.of(None) else next(names.of_name(name), None)  # of all: unknown
    if found is None:
        raise QuantError(
            f"llama.cpp's name of {short(name, 120)} is not known for the architecture "
            f"{short(architecture, 40)}; leave architecture out, or give that of the model."
        )
    return found
