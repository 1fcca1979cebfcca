"""Which scheme each group of weights takes within a size: the errors of a table, and everything counted."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

from quantcore.errors import QuantError
from quantcore.layerwise.budget import Allocation, bit_budget, budget_curve
from quantcore.layerwise.imatrix import Imatrix
from quantcore.layerwise.roles import group_of
from quantcore.layerwise.table import Table, WeightRow
from quantcore.wording import count, megabytes, short

AS_STORED = "as stored"
ERRORS = {  # what is summed over weights
    "relative": "Σe² / Σx² of each weight, summed",
    "absolute": "Σe², summed",
    "output": "Σ hⱼ·e², summed",
    "output_relative": "Σ hⱼ·e² / Σ hⱼ·x² of each weight, summed, "
    "with all hⱼ = 1 where the imatrix has no entry",
    "effect": "the effects of groups on the model's output, summed",
}


# what a plan by errors of weights leaves out
LOCAL = (
    "Errors of single weights leave out how much the model's output depends on each: measure that with "
    "qc.sensitivity(…, forward=…), which runs your model, and plan by its effects."
)


@dataclass(frozen=True)
class Plan:
    """The scheme of each weight, `AS_STORED` for those left alone.

    ``num_bytes``: of all weights, scales and zero points included; ``bits_per_weight``: likewise; ``error``:
    the sum over weights; ``gap``: how much larger it may be than the least within the size, 0 if it is that;
    ``is_local``: whether the errors are of weights, see `LOCAL`, not effects on the output.
    """

    schemes: Mapping[str, str]
    num_bytes: float
    bits_per_weight: float
    error: float
    gap: float
    is_local: bool = True

    @property
    def said(self) -> str:
        """The size, and how far the error is from the least one."""
        above = f"at most {self.gap:.3g} above " if self.gap else ""
        size = f"{self.bits_per_weight:.4g} bits per weight, {megabytes(math.ceil(self.num_bytes))}"
        return f"{size}: total error {self.error:.4g}, {above}the lowest possible"


def minimum_of(text: str) -> dict[str, float]:
    """Read the least bits per weight by patterns of names, with * for any characters, separated by ;.

    >>> minimum_of("*lm_head*=8; *=4")
    {'*lm_head*': 8.0, '*': 4.0}

    Raises:
        QuantError: the text is not that.
    """
    found = {}
    for part in filter(None, map(str.strip, text.split(";"))):
        pattern, _, bits = part.rpartition("=")
        try:
            found[pattern.strip()] = float(bits)
        except ValueError:
            found[pattern.strip()] = math.nan
        if not pattern.strip() or not 0 <= found[pattern.strip()] < math.inf:
            raise QuantError(
                f"The minimum {short(part, 60)} is not a pattern of names with bits per weight; write for "
                "example *lm_head*=8."
            )
    return found


def plan(
    table: Table,
    num_bytes: float,
    error: str = "relative",
    factors: Mapping[str, float] | None = None,
    minimum: Mapping[str, float] | None = None,
    tie: Callable[[str], str] = group_of,
) -> Plan:
    """Return the schemes with the least summed error of which all weights take at most ``num_bytes``.

    Weights that loaders need alike (q, k and v; gate and up; the experts of a layer) get one scheme. A group
    may also stay as it is stored.

    Args:
        error: what is summed over weights, see `ERRORS`; divided, all weights count alike whatever their
            size; those of outputs need an imatrix, and effects a table that `sensitivity` made with
            ``forward``.
        factors: by which a weight's error, or a group's effect, is multiplied, by name; 1 for others.
        minimum: the least bits per weight that a scheme may have for a weight, by patterns of names, see
            `minimum_of`; of several that fit a name, the largest holds.
        tie: the group of a weight by its name; the weights of a group get one scheme.

    >>> from quantcore.checkpoints import EXAMPLES, open_checkpoint
    >>> from quantcore.layerwise import sensitivity
    >>> checkpoint = open_checkpoint(EXAMPLES["minilm"])
    >>> *_, last = sensitivity(checkpoint, ["int8 per_channel(0)", "int4 per_group(32)"])
    >>> chosen = plan(last.table, num_bytes=1_000_000)
    >>> chosen.said
    '9.63 bits per weight, 889.3 kB: total error 0.0004486, the lowest possible'
    >>> chosen.schemes["encoder.layer.0.output.dense.weight"]
    'int8 symmetric per_channel min_max textbook'

    Raises:
        QuantError: the table is not finished, no choice is within the size, the table has no such error, or a
            pattern fits no weight.
    """
    if not table.is_finished:
        raise QuantError(
            f"{count(len(table.names) - len(table.rows), 'weight')} of the table are not measured yet; "
            "finish it first."
        )
    if error not in ERRORS:
        raise QuantError(f"There is no error {error!r}; choose one of {', '.join(ERRORS)}.")
    check_size(table, num_bytes, minimum, tie)
    fixed = _bytes_left_alone(table)
    groups = groups_of(table, tie)
    options, errors, costs = _options(groups, table, error, factors or {}, minimum or {})
    chosen = bit_budget(errors, costs, num_bytes - fixed) if options else Allocation.of((), 0.0, 0.0)
    schemes = {row.name: AS_STORED for row in table.ordered}
    for rows, own, at in zip(groups.values(), options, chosen, strict=True):
        schemes |= {row.name: own[at][2] for row in rows}
    total = fixed + chosen.cost
    elements = sum(row.elements for row in table.ordered)
    return Plan(schemes, total, 8 * total / max(1, elements), chosen.error, chosen.gap, error != "effect")


@dataclass(frozen=True)
class TradeOff:
    """Bytes of all weights and summed error.

    ``best``: from the smallest size; ``uniform``: with one scheme for all weights that support it."""

    best: tuple[tuple[float, float], ...]
    uniform: Mapping[str, tuple[float, float]]


def trade_off(
    table: Table,
    error: str = "relative",
    minimum: Mapping[str, float] | None = None,
    tie: Callable[[str], str] = group_of,
) -> TradeOff:
    """Return the error against the size; arguments: as for `plan`.

    >>> from quantcore.checkpoints import EXAMPLES, open_checkpoint
    >>> from quantcore.layerwise import sensitivity
    >>> checkpoint = open_checkpoint(EXAMPLES["minilm"])
    >>> *_, last = sensitivity(checkpoint, ["int8 per_channel(0)", "int4 per_group(32)"])
    >>> [(round(size), round(error, 4)) for size, error in trade_off(last.table).best]  # bytes, Σe²/Σx²
    [(463872, 0.0205), (520704, 0.0108), (743424, 0.0005), (1331712, 0.0001), (1477632, 0.0)]

    Raises:
        QuantError: the table has no such error.
    """
    fixed = _bytes_left_alone(table)
    options, errors, costs = _options(groups_of(table, tie), table, error, {}, minimum or {})
    found = budget_curve(errors, costs) if options else []
    uniform = {}
    for i, scheme in enumerate(table.schemes, 1):
        uniform[scheme] = (fixed + sum(own[i] for own in costs), sum(own[i] for own in errors))
    return TradeOff(tuple((fixed + choice.cost, choice.error) for choice in found), uniform)


def error_of(table: Table, schemes: Mapping[str, str], error: str = "relative") -> float:
    """Return the summed error of any choice, by name; a weight without an entry is as it is stored.

    Args:
        schemes: those of the table, or `AS_STORED`, as in `Plan`.
        error: as for `plan`, but not that of effects, which are of groups.

    Raises:
        QuantError: a scheme is not in the table or does not fit a weight, or the table has no such error.
    """
    if error not in ERRORS or error == "effect":
        raise QuantError(f"There is no error {error!r} of single weights; choose relative or absolute.")
    total = 0.0
    for row in table.ordered:
        scheme = schemes.get(row.name, AS_STORED)
        if scheme == AS_STORED:
            continue
        at = table.schemes.index(scheme) if scheme in table.schemes else -1
        if at < 0 or not row.cells or row.cells[at].problem:
            raise QuantError(
                f"{short(row.name, 120)} was not measured under {scheme}; add it to the schemes."
            )
        total += _error(row, at, error)
    return total


def check_size(
    table: Table,
    num_bytes: float,
    minimum: Mapping[str, float] | None = None,
    tie: Callable[[str], str] = group_of,
) -> None:
    """Check that some choice takes at most ``num_bytes``; `outline` gives a table before anything is read.

    Raises:
        QuantError: none does (it says what the cheapest takes), or a pattern of ``minimum`` fits no weight.
    """
    for pattern in minimum or {}:
        if not any(row.cells and fnmatchcase(row.name, pattern) for row in table.ordered):
            raise QuantError(
                f"The minimum for {short(pattern, 60)} fits no weight that is measured; write a part of its "
                "name between *."
            )
    fixed = _bytes_left_alone(table)
    costs = [_costs(rows, minimum or {}) for rows in groups_of(table, tie).values()]
    least = fixed + sum(min(cost for cost, _ in own) for own in costs)
    if least > num_bytes:
        lower = "lower the minimum, " if minimum else ""
        raise QuantError(
            f"No choice takes at most {megabytes(int(num_bytes))}: the cheapest takes "
            f"{megabytes(math.ceil(least))}, {megabytes(fixed)} of it for weights that are left alone. Raise "
            f"the size, {lower}or add schemes with fewer bits."
        )


def check_error(table: Table, error: str, inputs: Imatrix | None) -> None:
    """Check that every weight that will be measured has this error; see `check_size`.

    Raises:
        QuantError: the error is of outputs, and there is no imatrix, or it lacks weights; or it is of
            effects, and the table has none.
    """
    if error == "effect" and not table.effects:
        raise QuantError(
            "The error effect needs effects on the output of your model; call sensitivity with forward= in "
            "Python, or choose relative or absolute."
        )
    if error.startswith("output") and inputs is None:
        raise QuantError(f"The error {error} needs an imatrix; give one, or choose relative or absolute.")
    if error != "output" or inputs is None:
        return
    rows = [row for row in table.ordered if row.cells]
    without = [row.name for row in rows if inputs.of(row.name, row.shape)[0] is None]
    if without:
        raise QuantError(
            f"{count(len(without), 'weight')} of {len(rows):,} have no entry in the imatrix, the first "
            f"{short(without[0], 120)}; embeddings never have one. Choose output_relative, which takes the "
            "relative error of these."
        )


def groups_of(table: Table, tie: Callable[[str], str] = group_of) -> dict[str, list[WeightRow]]:
    """Return the weights that have cells, by the groups that get one scheme."""
    groups: dict[str, list[WeightRow]] = {}
    for row in table.ordered:
        if row.cells:
            groups.setdefault(tie(row.name), []).append(row)
    return groups


def _bytes_left_alone(table: Table) -> int:
    return sum(row.num_bytes for row in table.ordered if not row.cells)


def _costs(rows: list[WeightRow], minimum: Mapping[str, float]) -> list[tuple[float, int]]:
    """Return the bytes of a group as it is stored, with -1, and under each scheme, with its number.

    A scheme that not all weights of the group may take is as stored again.
    """
    stored = float(sum(row.num_bytes for row in rows)), -1
    found = [stored]
    least = []
    for row in rows:
        bits = [bits for pattern, bits in minimum.items() if fnmatchcase(row.name, pattern)]
        least.append(max(bits, default=0.0) / 8 * row.elements)
    for i in range(len(rows[0].cells)):
        cells = [row.cells[i] for row in rows]
        fits = all(not cell.problem and cell.num_bytes >= own for cell, own in zip(cells, least, strict=True))
        found.append((sum(cell.num_bytes for cell in cells), i) if fits else stored)
    return found


_Options = list[list[tuple[float, float, str]]]  # error, bytes and scheme


def _options(
    groups: Mapping[str, list[WeightRow]],
    table: Table,
    error: str,
    factors: Mapping[str, float],
    minimum: Mapping[str, float],
) -> tuple[_Options, list[list[float]], list[list[float]]]:
    """Return the options of every group, see `_costs`, and their errors and their bytes alone."""
    options: _Options = []
    for name, rows in groups.items():
        own = []
        for cost, i in _costs(rows, minimum):
            if error == "effect":
                summed = factors.get(name, 1.0) * _effect(table, name, i)
            else:
                summed = sum(factors.get(row.name, 1.0) * _error(row, i, error) for row in rows)
            own.append((summed, cost, table.schemes[i] if i >= 0 else AS_STORED))
        options.append(own)
    errors = [[error for error, _, _ in own] for own in options]
    costs = [[cost for _, cost, _ in own] for own in options]
    return options, errors, costs


def _effect(table: Table, group: str, scheme: int) -> float:
    if group not in table.effects:
        raise QuantError(
            f"The effect of {short(group, 120)} on the output was not measured; call sensitivity with "
            "forward=, or choose another error."
        )
    return table.effects[group][scheme].mean if scheme >= 0 else 0.0


def _error(row: WeightRow, scheme: int, error: str) -> float:
    if scheme < 0:
        return 0.0
    cell = row.cells[scheme]
    value = {
        "relative": cell.sse / row.power if row.power else 0.0, "absolute": cell.sse,
        "output": cell.output_error, "output_relative": cell.output_relative,
    }[error]  # fmt: skip
    if error == "output_relative" and row.coverage and math.isnan(value):
        # imatrix files have no entries of embeddings

        return _error(row, scheme, "relative")
    if math.isnan(value):
        why = row.coverage or "no imatrix was given"
        raise QuantError(
            f"{row.name} has no {error.replace('_', ' ')} error ({why}); choose relative or absolute."
        )
    return value
