"""Pasted code, evaluated in a process of its own while this run waits."""

from typing import Any

import torch

import quantcore as qc
from pages.serving import guard
from pages.shared.computing import turn
from pages.shared.computing.guarded import room
from quantcore import pasted

_SECONDS, _MEMORY = 2.0, 300_000_000  # the interpreter stops by itself after less


def read_code(text: str, shape: tuple[int, ...] | None = None) -> qc.CodeReading:
    """Return as `quantcore.read_code` what is found in pasted code."""
    return pasted.reading_from_plain(_of_code("read_code", [text, shape]).value)


def show_code(
    text: str,
    read_shape: tuple[int, ...] | None,
    place: int,
    x: object,
    element: tuple[int, ...],
    handed: tuple[float, int] | None,
) -> pasted.Shown:
    """Return as `quantcore.pasted.show_code` what the code at ``place`` does to a tensor.

    Args:
        text, read_shape: as `read_code` was given them.
    """
    block, at = pasted.sample(x, element)
    value = [text, read_shape, place, list(block.shape), at, handed]
    answer = _of_code("show_code", value, block.numpy().data)
    plain, names = answer.value
    arrays = map(torch.from_numpy, answer.arrays)
    return pasted.shown_from_plain(plain, dict(zip(names, arrays, strict=True)))


def _of_code(guest: str, value: Any, *blobs: memoryview) -> guard.GuestAnswer:
    subject, remedy = "Evaluating this code", "paste only the lines that quantize"
    work = guard.GuestWork(subject, remedy, _SECONDS, room(_MEMORY), _MEMORY)
    return guard.ask(guest, value, blobs, work=work, check=turn.check)
