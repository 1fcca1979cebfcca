"""The names of tensors in llama.cpp and in Hugging Face models, for each architecture.

``data/names.json`` is written from the gguf package by ``tests/generators/make_gguf_names.py``.
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
# prefixes of a language model within a larger model, of which llama.cpp converts only the language model
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

    ``tensors``: a template of Hugging Face names -> llama.cpp's names; ``{bid}`` is the number of a layer in
    both.
    """

    tensors: Mapping[str, tuple[str, ...]]

    @classmethod
    def of(cls, architecture: Any) -> "GgufNames":
        """Return the names for a ``general.architecture``; those of all architectures if it is not known."""
        return _of(architecture if architecture in _data()["architectures"] else "")

    @staticmethod
    def architectures() -> frozenset[str]:
        """Return the values of ``general.architecture`` whose names are known."""
        return frozenset(_data()["architectures"])

    def of_stem(self, stem: str) -> Iterator[str]:
        """Yield llama.cpp's names for a name without ``.weight``; several if the architecture is unknown."""
        yield from self.tensors.get(stem, ())
        for number in _NUMBER.finditer(stem):
            template = f"{stem[: number.start()]}{{bid}}{stem[number.end() :]}"
            for name in self.tensors.get(template, ()):
                yield name.replace("{bid}", number[0])

    def of_name(self, name: str) -> Iterator[tuple[str, int | None]]:
        """Yield the llama.cpp names that a Hugging Face tensor may have, with its expert number or None."""
        if len(name) > _LONGEST:
            return
        whole, expert = without_expert(name)
        found = _LAST.fullmatch(whole)
        stem, last = (found[1], f".{found[2]}") if found else (whole, "")
        known = [m for variant in _variants(stem) for m in self.of_stem(variant)]
        if not known:  # such as gate_proj, if this architecture has only the fused gate_up_proj
            known = [m for variant in _variants(stem) for m in _of("").of_stem(variant)]
        for mapped in known:
            # in some releases, the names of stacks of experts lack the .weight that they have in llama.cpp
            yield mapped + (last or (".weight" if mapped.endswith("_exps") else "")), expert


def without_expert(name: str) -> tuple[str, int | None]:
    """Return the name of the stack that an expert belongs to, and its number; else the name and None.

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
    """Yield a stem as it is, and with or without the prefixes of a model."""
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
            # if tensors of one architecture have the same name, gguf-py takes the last
            found[name] = (tensor,) if architecture else (*found.get(name, ()), tensor)
    return GgufNames(found)
