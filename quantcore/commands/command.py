"""What a command is: its place in the help, its arguments, and what it does."""

import argparse
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from quantcore.commands.exits import epilog, wrapped

PATH = "a file, a folder with its shards, or a URL"


@dataclass(frozen=True)
class Command:
    """A command.

    ``help``: a line in the list of all commands; ``exits``: what its exit codes mean; ``examples``: in each,
    ``%(prog)s`` stands for the program and the command; ``add``: adds its arguments to a parser; ``run``:
    returns the exit code.
    """

    name: str
    help: str
    description: str
    exits: Mapping[int, str]
    examples: tuple[str, ...]
    add: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]

    def add_to(self, commands: Any) -> None:
        """Add the command to those of a parser."""
        parser = commands.add_parser(
            self.name,
            help=self.help,
            description=wrapped(self.description),
            epilog=epilog(self.exits, self.examples),
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        self.add(parser)
        parser.set_defaults(run=self.run)


def add_threads(parser: argparse.ArgumentParser) -> None:
    """Add the option for the number of threads."""
    parser.add_argument(
        "--threads", type=int, default=_cores(), metavar="N", help="number of threads (default: one per core)"
    )


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
