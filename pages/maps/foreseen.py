"""Several pictures in one answer: of the values of one control that a browser asks for before it is moved."""

import time
from collections.abc import Callable

import quantcore as qc

LONGEST = 0.03  # seconds after which no further picture is begun: about one of a large tensor
_MOST = 64  # values in one question


def read(text: str) -> tuple[str, list[str]]:
    """Return the control's key and the values of a question such as ``bits:5,3,6``.

    Raises:
        QuantError: it is not written like that, or too long.
    """
    key, _, listed = text.partition(":")
    values = listed.split(",")
    if not key or not all(values) or len(values) > _MOST:
        raise qc.QuantError(
            f"The question for pictures ahead, {text[:40]!r}, must be a control and at most {_MOST} values, "
            "such as ?ahead=bits:5,3."
        )
    return key, values


def joined(make: Callable[[str, str], bytes], asked: str, is_free: Callable[[], bool]) -> bytes:
    """Return the pictures that are `asked` for as one body, the first always, others while there is time.

    Before each stands its length (uint32): 0 for a value that has none. Lengths of pictures are multiples
    of 4, so that each begins at one.

    Args:
        make: returns the picture for key and value; empty if it gives none, which ends the body.
        is_free: whether nobody waits for other work.

    Raises:
        QuantError: as `read`.
    """
    key, values = read(asked)
    until, parts = time.perf_counter() + LONGEST, list[bytes]()
    for value in values:
        if parts and (time.perf_counter() >= until or not is_free()):
            break
        try:
            made = make(key, value)
        except qc.QuantError:
            made = b""
        else:
            if not made:
                break
        parts += [len(made).to_bytes(4, "little"), made]
    return b"".join(parts)
