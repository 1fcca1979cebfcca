"""The command `sensitivity`: how much each weight of a model loses under several schemes."""

import argparse
import json
import math
import re
import sys
import time
from collections.abc import Iterable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch

from quantcore.analysis import decibels
from quantcore.checkpoints import open_checkpoint
from quantcore.commands.command import PATH, Command, add_threads
from quantcore.commands.exits import DONE, FOUND, REFUSED
from quantcore.commands.output import csv_of, print_some, refused, replace_file, with_progress
from quantcore.errors import QuantError
from quantcore.layerwise import (
    ERRORS,
    LOCAL,
    USUAL,
    Imatrix,
    Plan,
    SensitivityStep,
    Table,
    by_harm,
    by_layer,
    check_error,
    check_size,
    connect,
    minimum_of,
    not_measured,
    outline,
    plan,
    schemes_of,
    sensitivity,
)
from quantcore.wording import count, short

_EVERY = 5.0  # seconds between two states of the file of --json
_UNITS = {"B": 1, "KB": 1e3, "MB": 1e6, "GB": 1e9, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30}
_HELP = {
    "path": PATH,
    "--schemes": "up to 12 schemes or presets, separated by ; (default: %(default)s)",
    "--imatrix": "mean squared inputs of each weight, in .gguf or .dat, for the error of its output",
    "--size": "choose schemes so that all weights take at most this size, such as 4.2GB",
    "--bits": "likewise, in bits per weight",
    "--error": "what is summed over weights to choose schemes (default: %(default)s)",
    "--factors": "a JSON file with a factor by which a weight's error is multiplied, by name",
    "--minimum": 'least bits per weight by patterns of names, such as "*lm_head*=8; *=4"',
    "--json": "write everything as JSON, every few seconds and at the end",
    "--csv": "write one line per weight and scheme",
    "--html": "write a picture of all weights and schemes",
    "--resume": "continue with what FILE of --json holds, if there is one",
    "--sample": "first print estimates of the SQNR from some rows of each weight, with 95 %% intervals",
    "--scheduler": "measure at the workers of this Dask scheduler, all of which see PATH, such as "
    "tcp://HOST:8786",
}


def _add(parser: argparse.ArgumentParser) -> None:
    budget = parser.add_mutually_exclusive_group()

    def add(name: str, to: Any = parser, **options: Any) -> None:
        to.add_argument(name, help=_HELP[name], **options)

    add("path", metavar="PATH")
    add("--schemes", default=USUAL)
    add("--imatrix", metavar="FILE")
    add("--size", budget)
    add("--bits", budget, type=float)
    add("--error", choices=ERRORS, default="relative")
    add("--factors", metavar="FILE")
    add("--minimum", default="")
    add("--json", metavar="FILE")
    add("--csv", metavar="FILE")
    add("--html", metavar="FILE")
    add("--resume", action="store_true")
    add("--sample", action="store_true")
    add_threads(parser)
    add("--scheduler", metavar="ADDRESS")


def _run(options: argparse.Namespace) -> int:
    """Run the command and return the exit code."""
    try:
        factors, minimum = _factors(options.factors), minimum_of(options.minimum)
        table = _measure(options)
        limit = limit_of(options, table)
    except QuantError as reason:
        return refused(reason)
    chosen, failed = None, not all(row.is_readable for row in table.ordered)
    try:
        chosen = None if limit is None else plan(table, limit, options.error, factors, minimum)
    except QuantError as reason:
        print(reason, file=sys.stderr)
        failed = True
    _print(table, chosen)
    try:
        _write(options, table, chosen)
    except QuantError as reason:
        print(reason, file=sys.stderr)
        failed = True
    return int(failed)


def _measure(options: argparse.Namespace) -> Table:
    checkpoint, schemes = open_checkpoint(options.path), schemes_of(options.schemes)
    outlined = outline(checkpoint, schemes)
    limit = limit_of(options, outlined)
    if limit is not None:
        check_size(outlined, limit, minimum_of(options.minimum))
    imatrix = None if options.imatrix is None else open_checkpoint(options.imatrix)
    table = _resumed(options)
    if limit is not None:
        outlined.effects = table.effects if table else {}
        names = checkpoint.config.get("general.architecture")
        inputs = None if imatrix is None else Imatrix(imatrix.tensors, names)
        check_error(outlined, options.error, inputs)
    torch.set_num_threads(1)  # parallel across weights, not within them
    threads = max(1, options.threads)
    with connect(options.scheduler) if options.scheduler else nullcontext() as client:
        steps = sensitivity(checkpoint, schemes, imatrix, table, threads, options.sample, client=client)
        return _followed(with_progress(steps), options.json)


def _followed(steps: Iterable[SensitivityStep], file: str | None) -> Table:
    """Return the table of the last step; write it every few seconds, and when the cluster fails."""
    was_estimate, due, step = False, 0.0, None
    try:
        for step in steps:
            if was_estimate and not step.is_estimate:
                _print_estimates(step.table)
            was_estimate = step.is_estimate
            if file and time.monotonic() >= due:
                replace_file(file, _as_json(step.table))
                due = time.monotonic() + _EVERY
    except QuantError:
        if file and step is not None:
            replace_file(file, _as_json(step.table))
        raise
    assert step is not None  # there is a first one
    return step.table


def _resumed(options: argparse.Namespace) -> Table | None:
    """Return the table to continue with, if there is one."""
    if options.resume and not options.json:
        raise QuantError("--resume needs the file to continue with; give --json FILE.")
    return table_in(options.json) if options.resume and Path(options.json).exists() else None


def table_in(file: str) -> Table:
    """Return the table in a file of --json.

    Raises:
        QuantError: the file can't be read, or holds no table.
    """
    return Table.of_dict(_read_json(file))


def _read_json(file: str) -> Any:
    try:
        return json.loads(Path(file).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as reason:
        raise QuantError(f"{file} can't be read as JSON: {reason}") from None


def _as_json(table: Table, chosen: Plan | None = None) -> str:
    stored = table.as_dict() | {"plan": chosen and vars(chosen)}
    return json.dumps(stored, ensure_ascii=False, allow_nan=False)


def _factors(file: str | None) -> dict[str, float]:
    """Return the factors of weights in a file."""
    found = {} if file is None else _read_json(file)

    def is_factor(value: Any) -> bool:
        return isinstance(value, int | float) and 0 <= value <= sys.float_info.max

    if not isinstance(found, dict) or not all(map(is_factor, found.values())):
        raise QuantError(
            f'{file} must hold one number of 0 or more per name, such as {{"lm_head.weight": 2}}.'
        )
    return {str(name): float(value) for name, value in found.items()}


def limit_of(options: argparse.Namespace, table: Table) -> float | None:
    """Return the size that all weights may take, in bytes, by --bits or --size.

    Raises:
        QuantError: it is not a size.
    """
    if options.bits is not None:
        if not 0 < options.bits < math.inf:
            raise QuantError(
                f"--bits {options.bits:g} is not a number of bits per weight; give one above 0, such as 4.5."
            )
        return float(options.bits) * sum(row.elements for row in table.ordered) / 8
    if options.size is None:
        return None
    found = re.fullmatch(r"([\d.]+)\s*([KMG]?I?B)", options.size.strip().upper())
    try:
        return float(found[1]) * _UNITS[found[2]]  # type: ignore[index]
    except (TypeError, ValueError, KeyError):
        raise QuantError(
            f"--size {options.size} is not a size; give a number with a unit, such as 4.2GB or 700MiB."
        ) from None


def _write(options: argparse.Namespace, table: Table, chosen: Plan | None) -> None:
    """Write the files that were asked for."""
    if options.json:
        replace_file(options.json, _as_json(table, chosen))
    if options.html:
        from quantcore.layerwise import picture  # plotly is slow to import

        rows = [row for row in table.ordered if row.cells]
        taken = chosen.schemes if chosen else None
        replace_file(options.html, picture.document(rows, table.schemes, taken=taken))
    if options.csv:
        replace_file(options.csv, csv_of(table.as_rows()))


def _print(table: Table, chosen: Plan | None) -> None:
    rows = [row for row in table.ordered if row.cells]
    left_alone, left = len(table.rows) - len(rows), len(table.names) - len(table.rows)
    print(f"{count(len(rows), 'weight')} measured, {left_alone:,} left alone, {left:,} not yet measured.")
    for number, scheme in enumerate(table.schemes):
        known = [row for row in by_harm(rows, number) if not math.isnan(row.cells[number].sqnr_db)]
        ends = [
            f"{decibels(row.cells[number].sqnr_db)} ({short(row.name, 80)})"
            for row in (*known[:1], *known[-1:])
        ]
        said = f"SQNR {ends[0]} to {ends[1]}" if known else "no weight can be measured"
        print(f"{scheme}: {said}")
    print_some(not_measured(table.ordered))
    if chosen is not None:
        print(f"{chosen.said}:")
        if chosen.is_local:
            print(LOCAL)
        layers, others = by_layer(table, chosen)
        print(*layers, sep="\n", end="\n" * bool(layers))
        print_some(others)


def _print_estimates(table: Table) -> None:
    """Print what is estimated before anything is measured."""
    print("Estimates with 95 % intervals, from some rows of each weight:")
    lines = []
    for row in table.estimates.values():
        for scheme, cell in zip(table.schemes, row.cells, strict=False):
            lines.append(f"{short(row.name, 80)}, {scheme}: {cell.said}")
    print_some(lines)
    for number, scheme in enumerate(table.schemes):
        took = [row.cells[number].seconds for row in table.estimates.values() if row.cells]
        seconds = sum(value for value in took if value > 0)  # not NaN
        if seconds >= 1:
            print(f"{scheme}: the exact answer takes about {seconds:.0f} s on one core.")
    print(flush=True)


SENSITIVITY = Command(
    "sensitivity",
    "report how much each weight loses under several schemes",
    "Measure every weight of a model under several schemes, without running it: the error of each "
    "weight when it alone is quantized. With a size, choose the scheme of each group of "
    "weights.",
    {
        DONE: "every weight was measured, or left alone for a reason that is printed",
        FOUND: "a weight can't be read, a file can't be written, or no choice of schemes is within the "
        "size once all are measured",
        REFUSED: "a file can't be opened, that of --json can't be written, a scheme or size is not "
        "understood, or no choice can be within the size: nothing is measured; or a cluster "
        "failed: the file of --json has what was measured until then",
    },
    (
        '%(prog)s path/to/model --schemes "int8 per_channel(0); int4 per_group(32)" --csv errors.csv',
        "%(prog)s path/to/model --imatrix model.imatrix --error output --size 4.2GB --html errors.html",
        "%(prog)s /shared/model --scheduler tcp://10.0.0.1:8786 --json errors.json --bits 4.5",
    ),
    _add,
    _run,
)
