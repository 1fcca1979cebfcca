"""What is found in pasted code as plain data: JSON and arrays by name, for another process."""

import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from torch import Tensor

from quantcore.pasted.kinds import CodeFinding
from quantcore.pasted.on_tensor import Against, LineValue, Shown
from quantcore.pasted.own import OwnTensor
from quantcore.pasted.read import CodeReading
from quantcore.scheme import Scheme

Plain = dict[str, Any]  # of what JSON has: no NaN, no infinity
_LISTS = ("recognized", "unread", "library", "lines_of_quantizers", "skipped")  # of a reading, of plain items


def reading_to_plain(reading: CodeReading) -> Plain:
    """Return all of a reading but its quantizers, of which only `show_code` needs more than the lines."""
    return {
        "text": reading.text,
        "findings": [asdict(f) for f in reading.findings],
        "own_tensors": [None if own is None else own._asdict() for own in reading.own_tensors],
        **{name: list(getattr(reading, name)) for name in _LISTS},
    }


def reading_from_plain(plain: Mapping[str, Any]) -> CodeReading:
    """Return the reading that `reading_to_plain` was given, without its quantizers."""
    return CodeReading(
        plain["text"],
        tuple(map(_finding, plain["findings"])),
        own_tensors=tuple(
            own and OwnTensor(**{**own, "shape": tuple(own["shape"])}) for own in plain["own_tensors"]
        ),
        **{name: tuple(plain[name]) for name in _LISTS},
    )


def shown_to_plain(shown: Shown) -> tuple[Plain, dict[str, Tensor]]:
    """Return a quantizer on a tensor: what is plain, and the tensors by name."""
    arrays = {"x": shown.x, "codes": shown.codes, "dequantized": shown.dequantized}
    lines = [asdict(v) | {n: _plain(getattr(v, n)) for n in ("low", "high", "picked")} for v in shown.lines]
    findings = [asdict(f) for f in shown.findings]
    plain: Plain = {"lines": lines, "why": shown.why, "findings": findings, "against": None}
    if (against := shown.against) is not None:
        sqnr_db = [_plain(db) for db in against.sqnr_db]
        plain["against"] = {"scheme": str(against.scheme), "outside": against.outside, "sqnr_db": sqnr_db}
        arrays |= {n: getattr(against, n) for n in ("right_codes", "wrong_cells", "too_far")}
    return plain, {name: tensor.contiguous() for name, tensor in arrays.items()}


def shown_from_plain(plain: Mapping[str, Any], arrays: Mapping[str, Tensor]) -> Shown:
    """Return what `shown_to_plain` was given."""
    against, given = None, plain["against"]
    if given is not None:
        code_db, right_db = given["sqnr_db"]
        masks = arrays["right_codes"], arrays["wrong_cells"], arrays["too_far"]
        sqnr_db = _number(code_db), _number(right_db)
        against = Against(Scheme.parse(given["scheme"]), *masks, given["outside"], sqnr_db)
    return Shown(
        arrays["x"],
        arrays["codes"],
        arrays["dequantized"],
        tuple(map(_line, plain["lines"])),
        against,
        plain["why"],
        tuple(map(_finding, plain["findings"])),
    )


def _finding(plain: Mapping[str, Any]) -> CodeFinding:
    return CodeFinding(**{**plain, "lesson": tuple(plain["lesson"])})


def _line(plain: Mapping[str, Any]) -> LineValue:
    picked = None if plain["picked"] is None else _number(plain["picked"])
    own = {"shape": tuple(plain["shape"]), "low": _number(plain["low"]), "high": _number(plain["high"])}
    return LineValue(**{**plain, **own, "picked": picked})


def _plain(value: float | None) -> float | str | None:
    """Return a number as JSON has it, and NaN and infinity as text."""
    return value if value is None or math.isfinite(value) else str(value)


def _number(value: float | str) -> float:
    return float(value)
