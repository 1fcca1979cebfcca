"""A convention: one record per stage of the arithmetic, and the library call it describes, with limits."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from quantcore import notation
from quantcore.conventions.choice import Choice, Stage, choices_of
from quantcore.conventions.kernels import KERNELS
from quantcore.conventions.stages.coding import OF_CODE_0, CodingStage, DecodingStage
from quantcore.conventions.stages.nonfinite import NonfiniteStage
from quantcore.conventions.stages.scale import RangeStage, ScaleStage, StorageStage
from quantcore.conventions.stages.zero_point import ZeroPointStage
from quantcore.errors import QuantError
from quantcore.expressions import Expression, renamed
from quantcore.granularity import Granularity
from quantcore.wording import passed

DTYPES = ("float32", "bfloat16", "float16", "float64")  # of x
FLOAT32_EPS = 2.0**-23
FLOAT32_TINY = 2.0**-126  # the smallest normal number


# in the order of the arithmetic
STAGES: dict[str, type[Stage]] = {
    "range": RangeStage,
    "scale": ScaleStage,
    "zero_point": ZeroPointStage,
    "storage": StorageStage,
    "coding": CodingStage,
    "nonfinite": NonfiniteStage,
    "decoding": DecodingStage,
}
# choice -> the stage that it belongs to, and its sentences
STAGE_OF = {name: stage for stage, kind in STAGES.items() for name in choices_of(kind)}
CHOICES: dict[str, Choice] = {name: c for kind in STAGES.values() for name, c in choices_of(kind).items()}
# choice -> its values, for choices that list them
VALUES: dict[str, tuple[Any, ...]] = {
    name: values for kind in STAGES.values() for name, values in kind.VALUES.items()
}


@dataclass(frozen=True)
class Limit:
    """A limit of a library's call.

    ``of``: the property of scheme and shape, a key of `properties.PROPERTIES`; ``allowed``: its supported
    values; ``words``: the library's rule, as a phrase that follows its name.
    """

    of: str
    allowed: tuple[Any, ...]
    words: str


@dataclass(frozen=True)
class Convention:
    """What a library does beyond format, symmetry, granularity and range setting, stage by stage.

    The defaults are the textbook's. ``variants``: what differs by granularity or by the dtype of x, as (at,
    choice, value), where ``at`` is a granularity, a dtype, or both: "per_tensor", "bfloat16", "per_tensor
    bfloat16"; without one for the dtype of x, the library computes as for float32. ``refused_dtypes``: dtypes
    of x that the call refuses, and its words. ``formats``: the kinds of format that the call supports.
    ``preset_only``: the call has no choice of format, and only presets use it. ``reported_encodings``: what
    it also reports, see `quantcore.encoding`. ``library``, ``version``, ``call``: what the record describes;
    ``sources``: (choice, where it is written or how it was measured). `of`, `changed` and texts name a choice
    without its stage.

    >>> Convention.of("mine", kernel="B", eps=2**-23).coding.kernel
    'B'
    """

    name: str
    range: RangeStage = RangeStage()
    scale: ScaleStage = ScaleStage()
    zero_point: ZeroPointStage = ZeroPointStage()
    storage: StorageStage = StorageStage()
    coding: CodingStage = CodingStage()
    nonfinite: NonfiniteStage = NonfiniteStage()
    decoding: DecodingStage = DecodingStage()
    variants: tuple[tuple[str, str, Any], ...] = field(default=(), repr=False)
    limits: tuple[Limit, ...] = field(default=(), repr=False, compare=False)
    formats: tuple[str, ...] = field(default=("int",), repr=False, compare=False)
    refused_dtypes: tuple[tuple[str, str], ...] = field(default=(), repr=False, compare=False)
    preset_only: bool = field(default=False, repr=False, compare=False)
    reported_encodings: tuple[str, ...] = field(default=(), repr=False, compare=False)
    library: str = field(default="", repr=False, compare=False)
    version: str = field(default="", repr=False, compare=False)
    call: str = field(default="", repr=False, compare=False)
    sources: tuple[tuple[str, str], ...] = field(default=(), repr=False, compare=False)

    @classmethod
    def of(cls, name: str, **given: Any) -> "Convention":
        """Return a record with these choices; the others are the textbook's.

        Raises:
            QuantError: a value is not one that its choice allows.
        """
        choices = {key: given.pop(key) for key in list(given) if key in STAGE_OF}
        return cls(name, **_staged({}, choices), **given)

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        # once: programs are kept by convention, and to hash every choice takes longer than to run a small one
        return hash((self.name, *self._stages.values(), self.variants))

    def __str__(self) -> str:
        changes = self.changes().items()
        arguments = ", ".join(f"{name}={notation.write_value(value)}" for name, value in changes)
        return f"{self.name}({arguments})" if arguments else self.name

    @cached_property
    def choices(self) -> dict[str, Any]:
        """The value of every choice, by name."""
        return {name: getattr(getattr(self, stage), name) for name, stage in STAGE_OF.items()}

    def changes(self) -> dict[str, Any]:
        """Return the choices that differ from the record of this name."""
        base = CONVENTIONS.get(self.name, TEXTBOOK)
        kept = {v for v in base.variants if v in self.variants}
        removed = {choice for _, choice, _ in set(base.variants) - kept}
        return {
            name: value
            for name, value in self.choices.items()
            if name in removed or value != base.choices[name]
        }

    def at(self, granularity: Granularity) -> "Convention":
        """Return the convention with its choices for this granularity; see `Scheme.rules`."""
        kind = notation.snake_case(type(granularity).__name__)
        changes = {choice: value for at, choice, value in self.variants if at == kind}
        if not changes:
            return self
        return dataclasses.replace(self, variants=(), **_staged(self._stages, changes))

    def in_dtype(self, dtype: str) -> "Convention":
        """Return the convention with its choices for x of a dtype, such as "bfloat16", and not for others."""
        if not any(_dtype_of(at) for at, _, _ in self.variants):
            return self
        own, general, of_both = {}, [], []
        for at, choice, value in self.variants:
            found = _dtype_of(at)
            if not found:
                general.append((at, choice, value))
            elif found == dtype and at == dtype:
                own[choice] = value
            elif found == dtype:
                of_both.append((at.removesuffix(f" {dtype}"), choice, value))
        return dataclasses.replace(self, variants=(*general, *of_both), **_staged(self._stages, own))

    def changed(self, **choices: Any) -> "Convention":
        """Return a copy with these choices for every granularity and dtype.

        Raises:
            QuantError: a name is not a choice, or a value is not one that its choice allows.
        """
        unknown = sorted(set(choices) - set(STAGE_OF))
        if unknown:
            raise QuantError(
                f"{unknown[0][:40]!r} is not a choice of a convention; choose one of {', '.join(STAGE_OF)}."
            )
        kept = tuple(v for v in self.variants if v[1] not in choices)
        return dataclasses.replace(self, variants=kept, **_staged(self._stages, choices))

    @property
    def parameter_stages(self) -> tuple[RangeStage, ScaleStage, ZeroPointStage]:
        """The stages that decide scale and zero point."""
        return self.range, self.scale, self.zero_point

    @cached_property
    def unrounded(self) -> Expression:
        """What is rounded to a code, with the value of code 0 for z where z is that of the middle code."""
        kernel = KERNELS[self.coding.kernel].unrounded
        return renamed(kernel, "z", OF_CODE_0) if self.zero_point.is_middle else kernel

    @cached_property
    def refuses_nonfinite(self) -> bool:
        """Whether NaN and infinity in x are refused."""
        return self.nonfinite.nan == "refuse"

    def source(self, choice: str) -> str:
        """Where the library makes a choice, by its name; empty where nobody recorded it."""
        return dict(self.sources).get(choice, "")

    @property
    def _stages(self) -> dict[str, Stage]:
        return {stage: getattr(self, stage) for stage in STAGES}


def as_convention(value: Convention | str) -> Convention:
    """Return a convention as such, or the one of a name.

    Raises:
        QuantError: it is neither.
    """
    if isinstance(value, str):
        return CONVENTIONS[value]
    if not isinstance(value, Convention):
        raise QuantError(f"The convention is {passed(value)}; give one of CONVENTIONS, or its name.")
    return value


def _dtype_of(at: str) -> str:
    """Return the dtype for which a variant is; empty if it is for every one."""
    last = at.rpartition(" ")[2]
    return last if last in DTYPES else ""


def _staged(stages: Mapping[str, Stage], choices: Mapping[str, Any]) -> dict[str, Any]:
    """Return the stages that these choices change, with the changes; ``stages``: the originals."""
    found: dict[str, dict[str, Any]] = {}
    for name, value in choices.items():
        found.setdefault(STAGE_OF[name], {})[name] = value
    return {
        stage: dataclasses.replace(stages.get(stage, STAGES[stage]()), **own)  # type: ignore[type-var]
        for stage, own in found.items()
    }


TEXTBOOK = Convention(
    "textbook",
    library="textbook",
    call="quantcore.apply(x, scheme)",
    formats=("int", "float", "codebook"),
    limits=(Limit("group_length", (True,), "does not support groups longer than the axis"),),
    sources=(
        ("all", "Jacob et al. 2018, arXiv 1712.05877, section 2.1; Nagel et al. 2021, arXiv 2106.08295, 2.2"),
    ),
)
# name -> the record that a changed copy is compared with; the package adds those of the libraries
CONVENTIONS: dict[str, Convention] = notation.NamedRecords({TEXTBOOK.name: TEXTBOOK})

# of calls that compute everything in the dtype of x
IN_OWN_DTYPE = (
    "scale_precision",
    "scale_dtype",
    "zero_point_precision",
    "coding_dtype",
    "decoding_dtype",
    "value_dtype",
)
HALF = ("bfloat16", "float16")


def own_dtype(
    *choices: str, dtypes: tuple[str, ...] = HALF, at: str = ""
) -> tuple[tuple[str, str, str], ...]:
    """Return the variants of choices that are x's own dtype, if it is one of these; ``at``: a granularity."""
    return tuple((f"{at} {dtype}".strip(), choice, dtype) for dtype in dtypes for choice in choices)


# limits that the calls of several libraries share
TENSOR, CHANNEL, GROUP, BLOCK = "per_tensor", "per_channel", "per_group", "per_block"
SIGNED_SYMMETRIC = Limit("kind", ("signed symmetric",), "supports signed symmetric codes only")
EIGHT_BITS = Limit("bits", (8,), "supports 8 bits only")
BOXES = Limit(
    "granularity", (TENSOR, CHANNEL, GROUP, BLOCK), "does not support groups that cross row boundaries"
)
DIVIDES_AXIS = Limit("divides", (True,), "requires blocks that divide the axis")
FLAT = Limit("granularity", ("per_flat_group",), "uses one scale per run of the flattened tensor")
# groups within a row, like the blocks of small floats
ROW_GROUPS = (
    Limit("granularity", (GROUP,), "uses one scale per group within a row"),
    Limit("group_axis", (-1,), "groups along the last axis only"),
    Limit("group_divides", (True,), "requires groups that divide the last axis"),
)
EACH_ROW = (
    Limit("granularity", (CHANNEL,), "uses one scale per row"),
    Limit("channel_axis", (0,), "uses one scale per row, with channels along axis 0"),
)
# of records for float formats: no smallest scale, and NaN wherever the library computes it
FLOATS = {"formats": ("float",), "nan": "undefined", "eps": 0.0, "eps_replacement": 0.0, "preset_only": True}
