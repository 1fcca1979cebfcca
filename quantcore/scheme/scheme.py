"""The scheme: one record that determines every code."""

import re
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, cast

import torch

from quantcore import notation
from quantcore.conventions import CONVENTIONS, TEXTBOOK, Convention
from quantcore.displayed import Displayed
from quantcore.errors import QuantError
from quantcore.formats import (
    CODEBOOKS,
    FLOATS,
    FORMATS,
    INT8,
    CodebookFormat,
    FloatFormat,
    Format,
    IntFormat,
    parse_format,
)
from quantcore.granularity import GRANULARITIES, PER_TENSOR, Granularity
from quantcore.range_setting import MIN_MAX, RANGE_SETTINGS, RangeSetting
from quantcore.scheme.names import PRESETS, meant, of_libraries
from quantcore.wording import nearest, passed

MAX_LEVELS = 4  # of quantized scales: only hostile texts have more
SYMMETRY = {"symmetric": True, "asymmetric": False}
_NAMES = (*SYMMETRY, *GRANULARITIES, *RANGE_SETTINGS, *CONVENTIONS)
_FIELDS: dict[str, tuple[type, ...]] = {
    "format": (IntFormat, FloatFormat, CodebookFormat),
    "symmetric": (bool,),
    "granularity": tuple(GRANULARITIES.values()),
    "range_setting": (RangeSetting,),
    "convention": (Convention,),
}
_EXAMPLES = {
    "format": "qc.INT4",
    "symmetric": "True or False",
    "granularity": "qc.PerGroup(32)",
    "range_setting": "qc.MinMax()",
    "convention": "qc.CONVENTIONS['torchao']",
}


@dataclass(frozen=True, repr=False)
class Scheme(Displayed):
    """Format, symmetry, granularity, range setting and convention, and how the scales are stored.

    ``scales``: the scheme that quantizes the tensor of scales in block form, with a granularity over that
    tensor; None keeps them as float32.

    >>> str(Scheme())
    'int8 symmetric per_tensor min_max textbook'
    >>> Scheme.parse("int4 asymmetric per_group(32)").granularity
    PerGroup(size=32, axis=-1)
    """

    format: Format = INT8
    symmetric: bool = True
    granularity: Granularity = PER_TENSOR
    range_setting: RangeSetting = MIN_MAX
    convention: Convention = TEXTBOOK
    scales: "Scheme | None" = None

    def __post_init__(self) -> None:
        for name, kinds in _FIELDS.items():
            if not isinstance(getattr(self, name), kinds):
                raise _wrong_field(name, getattr(self, name))
        if not (self.scales is None or isinstance(self.scales, Scheme)):
            raise QuantError(f"scales is {passed(self.scales)}; give a Scheme, or None for float32.")

    @cached_property
    def rules(self) -> Convention:
        """The convention with its choices for this granularity."""
        return self.convention.at(self.granularity)

    @cached_property
    def kept(self) -> dict[str, Any]:
        """What other modules have computed of the scheme, by name."""
        return {}

    def in_dtype(self, dtype: torch.dtype) -> "Scheme":
        """Return the scheme with its library's convention for x of a dtype; itself if that is no other.

        >>> print(Scheme.parse("int4 torchao").in_dtype(torch.float16).convention.scale.scale_precision)
        float16
        """
        own = self._in_dtypes.get(dtype)
        if own is None:
            convention = self.convention.in_dtype(str(dtype).removeprefix("torch."))
            unchanged = dtype == torch.float32 or convention is self.convention
            own = self._in_dtypes[dtype] = self if unchanged else replace(self, convention=convention)
        return own

    @cached_property
    def _in_dtypes(self) -> dict[torch.dtype, "Scheme"]:
        return {}

    def __str__(self) -> str:
        return self._text

    @cached_property
    def _text(self) -> str:
        symmetry = "symmetric" if self.symmetric else "asymmetric"
        granularity, range_setting = (notation.write_call(c) for c in (self.granularity, self.range_setting))
        own = f"{self.format} {symmetry} {granularity} {range_setting} {self.convention}"
        return own if self.scales is None else f"{own} scales({self.scales})"

    @classmethod
    def parse(cls, text: str) -> "Scheme":
        """Read the text form, with words in any order, or a preset's name; omitted fields are defaults.

        A name that a preset and a convention share is that of the preset.

        >>> Scheme.parse("gguf.Q4_K") == PRESETS["gguf.Q4_K"], str(Scheme.parse("w4a16"))
        (True, 'int4 symmetric per_group(128) min_max compressed_tensors')

        Raises:
            QuantError: a word is not a format, a symmetry, a granularity, a range setting or a convention,
                or one of them is given twice.
        """
        if not isinstance(text, str):
            raise QuantError(
                f"A scheme's text is needed, not {passed(text)}; write for example 'int4 per_group(32)'."
            )
        words = notation.split_words(text)
        if len(words) == 1:
            name = meant(words[0])
            if name in PRESETS:
                return cast("Scheme", PRESETS[name])
            words = notation.split_words(name)
        found: dict[str, object] = {}
        for word in words:
            try:
                field, value = _read(word)
            except QuantError:
                preset = of_libraries(word) if len(words) == 1 else None
                if preset is None:
                    raise
                return cast("Scheme", PRESETS[preset])
            if field in found:
                what = "symmetry" if field == "symmetric" else field.replace("_", " ")
                raise QuantError(f"The scheme {text[:80]!r} gives its {what} twice; remove one.")
            found[field] = value
        return cls(**found)  # type: ignore[arg-type]


def as_scheme(value: "Scheme | str") -> Scheme:
    """Return a scheme as such, or read its text or the name of a preset.

    Raises:
        QuantError: it is neither.
    """
    if isinstance(value, Scheme):
        return value
    if isinstance(value, str):
        return Scheme.parse(value)
    swapped = "; x comes first, then the scheme" if hasattr(value, "shape") else ""
    raise QuantError(
        f"scheme is {passed(value)}; give a Scheme, or a text such as 'int4 per_group(32)'{swapped}."
    )


def _wrong_field(name: str, value: object) -> QuantError:
    """Return the error for a field of a scheme that has another type."""
    write = f"for example {_EXAMPLES[name]}"
    if isinstance(value, str):
        try:
            field, read = _read(value)
        except QuantError:
            field, read = "", None
        if field == name:
            shown = {"convention": f"CONVENTIONS[{str(read)!r}]", "format": f"parse_format({str(read)!r})"}
            write = f"qc.{shown.get(name, repr(read))}" if name != "symmetric" else str(read)
    return QuantError(f"{name} is {passed(value)}; give {write}, or read a text by qc.Scheme.parse.")


def _read(word: str) -> tuple[str, object]:
    """Return the field of a scheme that a word sets, and its value; per-channel and min-max are words too."""
    head, bracket, rest = word.partition("(")
    written = head.replace("-", "_")
    if written.lower() in SYMMETRY or written.lower() in GRANULARITIES or written.lower() in RANGE_SETTINGS:
        written = written.lower()
    if written in _NAMES:
        return _known(f"{written}{bracket}{rest}")
    try:
        return _known(word)
    except QuantError:
        near = nearest(written, (*_NAMES, *FORMATS, *CODEBOOKS, *FLOATS, *PRESETS))
        if near in (None, head) or head in ("scales", "stored") or not re.fullmatch(r"[\w.-]+", head):
            raise
        raise QuantError(f"{head[:40]!r} is not a word of a scheme. Did you mean {near}?") from None


def _known(word: str) -> tuple[str, object]:
    """`_read` for a word without hyphens."""
    if word.startswith("scales(") and word.endswith(")"):
        if word.count("scales(") > MAX_LEVELS:
            raise QuantError(f"The scheme has more than {MAX_LEVELS} levels of scales; remove some.")
        return "scales", Scheme.parse(word.removeprefix("scales(")[:-1])
    if word.startswith("stored("):
        raise QuantError(
            f"The scheme's parameters are in a file: {word[7:-1][:120]!r}. Open the checkpoint to read them."
        )
    if word in SYMMETRY:
        return "symmetric", SYMMETRY[word]
    name, arguments, changes = notation.parse_call(word)
    if name in GRANULARITIES:
        return "granularity", notation.build(GRANULARITIES[name], arguments, changes, word)
    if name in RANGE_SETTINGS:
        return "range_setting", notation.build(RANGE_SETTINGS[name], arguments, changes, word)
    if name in CONVENTIONS:
        if arguments:
            raise QuantError(
                f"{word[:60]!r}: a convention accepts only named choices, such as overflow=wrap."
            )
        return "convention", CONVENTIONS[name].changed(**changes)
    return "format", parse_format(word)
