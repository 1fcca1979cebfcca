"""The word with which a lecturer regains a class on another machine.

Neither the word nor the presenter's secret is stored, but the secret combined with what is derived from code
and word: a wrong word gives a wrong secret.
"""

import hashlib

from pages.serving.classroom.question import ClassError

LEAST, MOST = 8, 100  # characters
TRIES, PAUSE = 5, 60.0  # of one class: so many at once, then one per so many seconds
NONE = "No class has this code and this word; check both."
_COST = {"n": 2**14, "r": 8, "p": 1}  # some 50 ms and 16 MB for each try


def locked(code: str, chosen: str, secret: str) -> bytes:
    """Return the secret, which only `unlocked` with the same code and word returns.

    Raises:
        ClassError: the word is too short or too long.
    """
    if not LEAST <= len(_plain(chosen)) <= MOST:
        raise ClassError(400, f"The word must have {LEAST} to {MOST} characters; choose another one.")
    return _combined(secret.encode(), code, chosen)


def unlocked(code: str, chosen: str, stored: bytes) -> str:
    """Return the secret that was `locked` with this word; with another word, something else."""
    return _combined(stored, code, chosen[: 2 * MOST]).decode("latin-1")


def counted(tried: float, now: float) -> float:
    """Count a try; return what the next one is given as ``tried``.

    Raises:
        ClassError: there were too many before it.
    """
    if tried - now > (TRIES - 1) * PAUSE:
        raise ClassError(429, "Too many words were tried for this class; wait a minute, and try again.")
    return max(tried, now) + PAUSE


def _plain(chosen: str) -> str:
    """Return the word as it is meant: without its case, and with single spaces."""
    return " ".join(chosen.casefold().split())


def _combined(content: bytes, code: str, chosen: str) -> bytes:
    key = hashlib.scrypt(_plain(chosen).encode(), salt=code.encode(), dklen=len(content), **_COST)
    return bytes(a ^ b for a, b in zip(content, key, strict=True))
