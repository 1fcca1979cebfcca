"""The errors of the weights of a checkpoint under several schemes, as a table that is filled row by row."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Self

from quantcore.analysis import decibels
from quantcore.checkpoints import plain
from quantcore.displayed import Displayed
from quantcore.errors import QuantError

FORMAT = 1  # version of a table as plain data


@dataclass(frozen=True)
class WeightError:
    """The error of one weight under one scheme.

    ``sqnr_db`` to ``clipped``: as in `SchemeErrors`. ``num_bytes``: of codes, scales and zero points.
    ``output_error``: Σ hⱼ·Δwⱼ² with h the mean squared inputs, which is ‖XΔW‖² per token if inputs are not
    correlated; ``output_relative``: divided by Σ hⱼ·wⱼ²; nan without an imatrix. ``problem``: why there is no
    number, empty if there is one. ``sqnr_low``, ``sqnr_high``: a 95 % interval of the SQNR, if `sse` and what
    follows from it are estimated from some rows (`Table.estimates`); ``seconds``: how long the exact number
    then takes on one core.
    """

    sqnr_db: float = math.nan
    mse: float = math.nan
    sse: float = math.nan
    max_abs_error: float = math.nan
    clipped: int | None = None
    num_bytes: float = math.nan
    output_error: float = math.nan
    output_relative: float = math.nan
    problem: str = ""
    sqnr_low: float = math.nan
    sqnr_high: float = math.nan
    seconds: float = math.nan

    @property
    def said(self) -> str:
        """The SQNR with its interval, or why there is none."""
        low, high = decibels(self.sqnr_low), decibels(self.sqnr_high)
        between = f" (95 % interval {low} to {high})" if self.sqnr_low < self.sqnr_high else ""
        return self.problem or f"SQNR {decibels(self.sqnr_db)}{between}"


@dataclass(frozen=True)
class Effect:
    """What a group of weights under one scheme does to the model's output, all others being exact.

    ``mean``: of the score over the inputs; ``standard_error``: of the mean, nan for a single input;
    ``problem``: why there is no number, empty if there is one.
    """

    mean: float = math.nan
    standard_error: float = math.nan
    problem: str = ""


@dataclass(frozen=True)
class WeightRow:
    """One weight, with a cell per scheme.

    ``kind``: see `kind_of`. ``num_bytes``: as it is stored. ``power``: Σx². ``coverage``: what the imatrix
    has for it. ``reason``: why it has no cells, because it is left alone or, unless it ``is_readable``,
    because it can't be read.
    """

    name: str
    shape: tuple[int, ...]
    storage: str
    kind: str
    num_bytes: int
    power: float = math.nan
    coverage: str = ""
    cells: tuple[WeightError, ...] = ()
    reason: str = ""
    is_readable: bool = True

    @property
    def elements(self) -> int:
        """The number of its elements."""
        return math.prod(self.shape)


@dataclass(repr=False)
class Table(Displayed):
    """Rows by name, in the order in which they were measured.

    ``identity``: of the checkpoint's weights, as they are stored, and of the imatrix; ``schemes``: their
    texts, or the names of presets; ``names``: of all weights of the checkpoint, of which `rows` has those
    that are done; ``estimates``: rows of a sample, which are not kept with it; ``effects``: on the model's
    output, by group, one per scheme, measured by ``score``.
    """

    identity: str
    schemes: tuple[str, ...]
    names: tuple[str, ...]
    rows: dict[str, WeightRow] = field(default_factory=dict)
    estimates: dict[str, WeightRow] = field(default_factory=dict)
    effects: dict[str, tuple[Effect, ...]] = field(default_factory=dict)
    score: str = ""

    @property
    def is_finished(self) -> bool:
        """Whether every weight has a row."""
        return len(self.rows) == len(self.names)

    @property
    def ordered(self) -> list[WeightRow]:
        """The rows that are done, in the order of the checkpoint."""
        return [self.rows[name] for name in self.names if name in self.rows]

    def check(self, other: "Table") -> None:
        """Check that another table is of the same checkpoint and schemes.

        Raises:
            QuantError: it is not.
        """
        if (self.identity, self.schemes, self.names) != (other.identity, other.schemes, other.names):
            raise QuantError(
                "The two tables belong to different checkpoints, imatrix files or schemes; give those of "
                "one run, or begin again."
            )

    def as_dict(self) -> dict[str, Any]:
        """Return plain data for JSON, in which numbers that are not finite are strings."""
        return {
            "format": FORMAT,
            "identity": self.identity,
            "schemes": list(self.schemes),
            "names": list(self.names),
            "rows": [plain(asdict(row)) for row in self.rows.values()],
            "score": self.score,
            "effects": {name: [plain(asdict(each)) for each in own] for name, own in self.effects.items()},
        }

    @classmethod
    def of_dict(cls, stored: Mapping[str, Any]) -> Self:
        """Return what `as_dict` wrote.

        Raises:
            QuantError: it is not such a table.
        """
        try:
            if stored["format"] != FORMAT:
                raise ValueError
            schemes, names = (tuple(map(str, stored[key])) for key in ("schemes", "names"))
            found = cls(str(stored["identity"]), schemes, names)
            for each in stored["rows"]:
                cells = tuple(WeightError(**_numbers(cell, WeightError)) for cell in each["cells"])
                shape = tuple(map(int, each["shape"]))
                row = replace(WeightRow(**_numbers(each, WeightRow)), cells=cells, shape=shape)
                if row.name not in found.names or len(cells) not in (0, len(found.schemes)):
                    raise ValueError
                found.rows[row.name] = row
            found.score = str(stored.get("score", ""))
            for name, each in stored.get("effects", {}).items():
                found.effects[str(name)] = tuple(Effect(**_numbers(own, Effect)) for own in each)
                if len(each) != len(found.schemes):
                    raise ValueError
        except (KeyError, TypeError, ValueError, AttributeError):
            raise QuantError("This is not a table of sensitivities; begin without it.") from None
        return found

    def as_rows(self) -> list[dict[str, Any]]:
        """Return one line per weight and scheme, for a table of text; weights without cells have one line."""
        lines = []
        for row in self.ordered:
            own = {
                "tensor": row.name,
                "kind": row.kind,
                "shape": "×".join(map(str, row.shape)),
                "storage": row.storage,
                "bytes": row.num_bytes,
            }
            left_alone = [("", WeightError(problem=row.reason))]
            for scheme, cell in zip(self.schemes, row.cells, strict=True) if row.cells else left_alone:
                bits = 8 * cell.num_bytes / max(1, row.elements)
                more = {"bits_per_weight": bits, "imatrix": row.coverage}
                lines.append(own | {"scheme": scheme} | asdict(cell) | more)
        return lines


def by_harm(rows: Iterable[WeightRow], scheme: int = 0) -> list[WeightRow]:
    """Return the rows with the lowest SQNR under a scheme first; those without a number last."""

    def key(row: WeightRow) -> tuple[bool, float]:
        value = row.cells[scheme].sqnr_db if row.cells else math.nan
        return math.isnan(value), value

    return sorted(rows, key=key)


def _numbers(values: Mapping[str, Any], kind: type[WeightError | WeightRow | Effect]) -> dict[str, Any]:
    """Return the fields of a record, with the numbers that were strings.

    Raises:
        ValueError: a field has another type than the record's.
    """
    types = kind.__annotations__
    integers = [value for value in values.values() if type(value) is int]
    if any(not 0 <= n < 2**63 for n in [*integers, *values.get("shape", ())]):
        raise ValueError
    kept = {key: own for key, own in types.items() if own in (int, str, bool)}
    if any(not isinstance(values[key], kept[key]) for key in values.keys() & kept):
        raise ValueError
    return {key: float(value) if types.get(key) is float else value for key, value in values.items()}
