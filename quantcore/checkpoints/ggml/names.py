"""Names of llama.cpp's tensors and those that Hugging Face's models have for them, for each architecture.

``data/names.json`` is written from the gguf package by ``tests/make_gguf_names.py``.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

_NUMBER = re.compile(r"\d+")
_EXPERT = re.compile(r"\.experts\.(\d+)\.")
_OLD_EXPERT = re.compile(r"(blk\.\d+\.ffn_(?:gate|up|down))\.(\d+)")
_LAST = re.compile(r"(.+)\.(weight|bias|scale)")
_LONGEST = 300  # characters of a name that is mapped
# what wraps a language model that llama.cpp converts alone
_WRAPPERS = (
    "model.language_model.",
    "language_model.model.",
    "language_model.",
    "base_model.model.",
    "module.",
)


@dataclass(frozen=True)
class GgufNames:
    """The tensors of one architecture of llama.cpp, or of all.

    ``tensors``: a template of Hugging Face's names -> those of llama.cpp; a layer's number is ``{bid}`` in both.
    """

    tensors: Mapping[str, tuple[str, ...]]

    @classmethod
    def of(cls, architecture: Any) -> "GgufNames":
        """Return those of ``general.architecture``; of all architectures if it is not known."""
        return _of(architecture if architecture in _data()["architectures"] else "")

    def of_stem(self, stem: str) -> Iterator[str]:
        """Yield the names of llama.cpp for a name without its ``.weight``; several only if the architecture is not known."""
        yield from self.tensors.get(stem, ())
        for number in _NUMBER.finditer(stem):
            template = f"{stem[: number.start()]}{{bid}}{stem[number.end() :]}"
            for name in self.tensors.get(template, ()):
                yield name.replace("{bid}", number[0])

    def of_name(self, name: str) -> Iterator[tuple[str, int | None]]:
        """Yield the names that a tensor of Hugging Face may have in llama.cpp, and which expert of a stack it is."""
        if len(name) > _LONGEST:
            return
        whole, expert = without_expert(name)
        found = _LAST.fullmatch(whole)
        stem, last = (found[1], f".{found[2]}") if found else (whole, "")
        known = [m for variant in _variants(stem) for m in self.of_stem(variant)]
        if not known:  # such as gate_proj, where this architecture has only the fused gate_up_proj
            known = [m for variant in _variants(stem) for m in _of("").of_stem(variant)]
        for mapped in known:
            # stacks of experts have no last name in some releases, but always have one in llama.cpp
            yield mapped + (last or (".weight" if mapped.endswith("_exps") else "")), expert


def without_expert(name: str) -> tuple[str, int | None]:
    """Return the name of the stack that a single expert belongs to, and its number; else the name and None.

    >>> without_expert("model.layers.0.mlp.experts.5.up_proj.weight")
    ('model.layers.0.mlp.experts.up_proj.weight', 5)
    """
    old = _OLD_EXPERT.match(name)
    if old:
        return f"{old[1]}_exps{name[old.end() :]}", int(old[2])
    found = _EXPERT.search(name)
    if found is None or len(found[1]) > 6:
        return name, None
    return f"{name[: found.start()]}.experts.{name[found.end() :]}", int(found[1])


def _variants(stem: str) -> Iterator[str]:
    """Yield a stem as it is, and without or with what wraps a model."""
    yield stem
    for wrapper in _WRAPPERS:
        if stem.startswith(wrapper):
            inner = stem.removeprefix(wrapper)
            yield from (inner, f"model.{inner}")
    yield from (f"model.{stem}", f"transformer.{stem}", stem.removeprefix("model."))


@cache
def _data() -> Any:
    return json.loads(files(__package__).joinpath("data", "names.json").read_text(encoding="utf-8"))


@cache
def _of(architecture: str) -> GgufNames:
    data, found = _data(), dict[str, tuple[str, ...]]()
    numbers = data["architectures"].get(architecture, range(len(data["tensors"])))
    instead = data["instead"].get(architecture, {})
    of_both = [
        (tensor, instead.get(tensor, names)) for tensor, *names in (data["tensors"][i] for i in numbers)
    ]
    for tensor, names in (*of_both, *instead.items()):
        for name in (tensor, *names):
            # of one architecture's tensors with the same name, gguf-py takes the last
            found[name] = (tensor,) if architecture else (*found.get(name, ()), tensor)
    return GgufNames(found)
