"""Codes that are packed, several in a byte: the sign of one overwrites another."""

from collections.abc import Iterator, Mapping

from quantcore.pasted.bounds import ARRAYS
from quantcore.pasted.kinds import CodeFinding, finding
from quantcore.pasted.values import Val
from quantcore.pasted.walk import Walk

_ORDINARY = ("positive", "negative")


def check_packing(walks: Mapping[str, Walk]) -> Iterator[CodeFinding]:
    """Yield where negative codes are combined with shifted ones although nothing masks their sign."""
    found: dict[int, tuple[int, int, int, int]] = {}
    for val in (val for name in _ORDINARY for val in walks[name].vals):
        if val.name not in ("or_", "bitwise_or") or len(val.args) != 2:
            continue
        for above, below in (val.args, val.args[::-1]):
            bits = _shifted_by(above)
            if not bits or _shifted_by(below) or not isinstance(below.value, ARRAYS):
                continue
            signs = below.numbers < 0
            if bool(signs.any()):
                lost, of, low, _ = found.get(val.line, (0, 0, 0, 0))
                least = min(low, int(below.numbers.min()))
                found[val.line] = lost + int(signs.sum()), of + signs.numel(), least, bits
    for line, (lost, of, low, bits) in found.items():
        facts = {"low": str(low), "lost": f"{lost / of:.0%}", "bits": str(bits), "mask": hex((1 << bits) - 1)}
        yield finding("packed_signs", line, **facts)


def _shifted_by(val: Val) -> int:
    """Return by how many bits a value was shifted to the left, 0 if it was not or is unknown."""
    if val.op == "cast" and val.args:
        return _shifted_by(val.args[0])
    if val.name not in ("lshift", "left_shift", "bitwise_left_shift") or len(val.args) != 2:
        return 0
    by = val.args[1].value
    return by if isinstance(by, int) and 0 < by < 32 else 0
