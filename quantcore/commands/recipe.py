"""The command `recipe`: which tensor takes which scheme, for the tool that quantizes."""

import argparse
import sys
from math import prod

import torch

from quantcore.checkpoints import Checkpoint, open_checkpoint
from quantcore.commands.command import PATH, Command, add_threads
from quantcore.commands.exits import DONE, FOUND, REFUSED
from quantcore.commands.output import print_json, refused, with_progress
from quantcore.commands.sensitivity import limit_of, table_in
from quantcore.errors import QuantError
from quantcore.layerwise import (
    ERRORS,
    Imatrix,
    Plan,
    Table,
    check_error,
    check_size,
    outline,
    plan,
    schemes_of,
    sensitivity,
)
from quantcore.recipes import TOOLS, Tool, ToolRecipe, fitted, ftype_file, recipe, tool_of
from quantcore.wording import count, megabytes, short


def _run(options: argparse.Namespace) -> int:
    """Run the command and return the exit code."""
    try:
        tool, checkpoint = tool_of(options.tool), open_checkpoint(options.path)
        if options.ftype is not None:
            made, said = _of_ftype(options, tool, checkpoint)
            return _print(options, made, said)
        table = fitted(_table(options, tool, checkpoint), tool, checkpoint)
        limit = limit_of(options, table)
        assert limit is not None
        check_size(table, limit)
    except QuantError as reason:
        return refused(reason)
    try:
        if not table.is_finished:
            raise QuantError(f"{options.table} is not finished; finish it with sensitivity --resume.")
        chosen = plan(table, limit, options.error)
        made = recipe(chosen, tool.name, checkpoint, table)
    except QuantError as reason:
        print(reason, file=sys.stderr)
        return FOUND
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
        return table_in(options.table)
    schemes = schemes_of(options.schemes or "; ".join(tool.usual))
    outlined = fitted(outline(checkpoint, schemes), tool, checkpoint)
    limit = limit_of(options, outlined)
    check_size(outlined, limit or 0)
    imatrix = None if options.imatrix is None else open_checkpoint(options.imatrix)
    architecture = checkpoint.config.get("general.architecture")
    inputs = None if imatrix is None else Imatrix(imatrix.tensors, architecture)
    check_error(outlined, options.error, inputs)
    torch.set_num_threads(1)  # parallel across weights, not within them
    *_, last = with_progress(sensitivity(checkpoint, schemes, imatrix, threads=max(1, options.threads)))
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
        print_json(content)
    else:
        print(made.text, end="" if made.text.endswith("\n") else "\n")
    return DONE


def _add(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("path", metavar="PATH", help=PATH)
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
    add_threads(parser)


RECIPE = Command(
    "recipe",
    "write which tensor takes which scheme, for the tool that quantizes",
    "Print a recipe for a tool: of a file type of llama.cpp, told from headers alone, or of the "
    "schemes with the least error within a size, which measures every weight as sensitivity does. What "
    "the recipe comes to is said on standard error.",
    {
        DONE: "the recipe is printed",
        FOUND: "a weight can't be read, or no choice of schemes is within the size once all are measured",
        REFUSED: "a file can't be opened, or the tool, the size or the file type is not understood or "
        "does not fit the model: nothing is measured",
    },
    (
        "%(prog)s model-F16.gguf --ftype Q4_K_M",
        "%(prog)s path/to/model --size 4.2GB --for compressed-tensors > quantization_config.json",
        "%(prog)s path/to/model --bits 4.5 --for MLX --json",
    ),
    _add,
    _run,
)
