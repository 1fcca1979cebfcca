"""The command ``python -m quantcore recipe``."""

import argparse
import json
import sys
from math import prod
from typing import Any

import torch

from quantcore.checkpoints import Checkpoint, open_checkpoint, plain
from quantcore.errors import QuantError
from quantcore.layerwise import (
    ERRORS,
    Imatrix,
    Plan,
    Table,
    check_error,
    check_size,
    command,
    outline,
    plan,
    schemes_of,
    sensitivity,
)
from quantcore.recipes.preview import ftype_file
from quantcore.recipes.recipe import TOOLS, ToolRecipe, fitted, recipe, tool_of
from quantcore.recipes.tools.tool import Tool
from quantcore.wording import count, megabytes, short

EPILOG = """exit code:
  0  the recipe is printed
  1  a weight can't be read, or no choice of schemes is within the size once all are measured
  2  a file can't be opened, or the tool, the size or the file type is not understood or does not fit the \
model: nothing is measured

examples:
  python -m quantcore recipe model-F16.gguf --ftype Q4_K_M
  python -m quantcore recipe path/to/model --size 4.2GB --for compressed-tensors > quantization_config.json
  python -m quantcore recipe path/to/model --bits 4.5 --for MLX --json
"""


def add_parser(commands: Any, threads: int) -> None:
    """Add the command to those of the parser."""
    parser = commands.add_parser(
        "recipe",
        help="write which tensor takes which scheme, for the tool that quantizes",
        description="Print a recipe for a tool: of a file type of llama.cpp, told from headers alone, or of "
        "the schemes with the least error within a size, which measures every weight as sensitivity does. "
        "What the recipe comes to is said on standard error.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("path", metavar="PATH", help="a file, a folder with its shards, or a URL")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--ftype", help="a file type of llama.cpp, such as Q4_K_M")
    what.add_argument("--size", help="at most this size of all weights, such as 4.2GB or 700MiB")
    what.add_argument("--bits", type=float, help="likewise, in bits per weight")
    add("--for", dest="tool", default="llama.cpp", help=f"{', '.join(TOOLS)} (default: %(default)s)")
    add("--schemes", help="schemes to choose from, separated by ; (default: the tool's usual ones)")
    add("--imatrix", metavar="FILE", help="mean squared inputs of each weight, in .gguf or .dat")
    add("--error", choices=ERRORS, default="relative", help="what is summed over weights (%(default)s)")
    add("--table", metavar="FILE", help="what sensitivity --json wrote, instead of measuring")
    add("--json", action="store_true", help="print the recipe with the reason of every tensor as JSON")
    add("--threads", type=int, default=threads, metavar="N", help="number of threads (default: one per core)")


def run(options: argparse.Namespace) -> int:
    """Run the command and return the exit code."""
    try:
        tool, checkpoint = tool_of(options.tool), open_checkpoint(options.path)
        if options.ftype is not None:
            made, said = _of_ftype(options, tool, checkpoint)
            return _print(options, made, said)
        table = fitted(_table(options, tool, checkpoint), tool, checkpoint)
        limit = command.limit_of(options, table)
        assert limit is not None
        check_size(table, limit)
    except QuantError as reason:
        print(reason, file=sys.stderr)
        return 2
    try:
        if not table.is_finished:
            raise QuantError(f"{options.table} is not finished; finish it with sensitivity --resume.")
        chosen = plan(table, limit, options.error)
        made = recipe(chosen, tool.name, checkpoint, table)
    except QuantError as reason:
        print(reason, file=sys.stderr)
        return 1
    return _print(options, made, _said(chosen, table)) or int(
        not all(row.is_readable for row in table.ordered)
    )


def _of_ftype(options: argparse.Namespace, tool: Tool, checkpoint: Checkpoint) -> tuple[ToolRecipe, str]:
    """Return the recipe of a file type, and its size."""
    file = ftype_file(checkpoint, options.ftype, options.imatrix or False)
    unknown = f"; {count(len(file.unknown), 'tensor')} not in the file" if file.unknown else ""
    elements = sum(prod(tensor.shape) for tensor in file.tensors)
    bits = 8 * file.tensor_bytes / max(1, elements)
    said = f"{file.ftype}: {bits:.4g} bits per weight, {megabytes(file.tensor_bytes)} of tensors{unknown}"
    return recipe(file, tool.name, checkpoint), said


def _table(options: argparse.Namespace, tool: Tool, checkpoint: Checkpoint) -> Table:
    """Return the table of a file, or measure one, once the tool, the size and the error are known to fit.

    Raises:
        QuantError: one does not fit.
    """
    if options.table is not None:
        return command.table_in(options.table)
    schemes = schemes_of(options.schemes or "; ".join(tool.usual))
    outlined = fitted(outline(checkpoint, schemes), tool, checkpoint)
    limit = command.limit_of(options, outlined)
    check_size(outlined, limit or 0)
    imatrix = None if options.imatrix is None else open_checkpoint(options.imatrix)
    architecture = checkpoint.config.get("general.architecture")
    inputs = None if imatrix is None else Imatrix(imatrix.tensors, architecture)
    check_error(outlined, options.error, inputs)
    torch.set_num_threads(1)  # parallel across weights, not within them
    *_, last = command.with_progress(
        sensitivity(checkpoint, schemes, imatrix, threads=max(1, options.threads))
    )
    return last.table


def _said(chosen: Plan, table: Table) -> str:
    broken = [short(row.name, 120) for row in table.ordered if not row.is_readable]
    unread = f"; {count(len(broken), 'tensor')} can't be read, the first {broken[0]}" if broken else ""
    return f"{chosen.said}{unread}"


def _print(options: argparse.Namespace, made: ToolRecipe, said: str) -> int:
    print(said, file=sys.stderr)
    if options.json:
        content = {
            "for": made.tool, "file": made.file, "text": made.text, "json": made.json,
            "reasons": dict(made.reasons),
        }  # fmt: skip
        print(json.dumps(plain(content), indent=2, ensure_ascii=False, allow_nan=False))
    else:
        print(made.text, end="" if made.text.endswith("\n") else "\n")
    return 0
