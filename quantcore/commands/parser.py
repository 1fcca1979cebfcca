"""All commands in their groups, the parser that reads them, and how one is run."""

import argparse
from collections.abc import Mapping, Sequence

from quantcore.commands import checkpoint, comparison, completion, recipe, sensitivity, tensor
from quantcore.commands.command import Command
from quantcore.commands.exits import GENERAL, epilog
from quantcore.commands.output import refused
from quantcore.errors import QuantError

PROGRAM = "python -m quantcore"
GROUPS: Mapping[str, tuple[Command, ...]] = {
    "tensors": (tensor.APPLY, tensor.TRACE, tensor.LIBRARIES),
    "checkpoints": (checkpoint.CHECK, checkpoint.LIST, checkpoint.INSPECT, comparison.COMPARE),
    "models": (sensitivity.SENSITIVITY, recipe.RECIPE),
    "shell": (completion.COMPLETION,),
}
_EXAMPLES = (
    'apply weights.npy --scheme "int4 per_group(32)"',
    "check path/to/release",
    "recipe model-F16.gguf --ftype Q4_K_M",
)
Lines = Mapping[str, Mapping[str, str]]


def parser_of(program: str = PROGRAM, also: Lines | None = None) -> argparse.ArgumentParser:
    """Return the parser of all commands.

    Args:
        program: how the program is called.
        also: groups of other commands of the program, each with its line of help.
    """
    ours = {group: {command.name: command.help for command in own} for group, own in GROUPS.items()}
    parser = argparse.ArgumentParser(
        prog=program,
        usage=f"{program} COMMAND [OPTIONS]",
        description=_listed({**(also or {}), **ours}, program),
        epilog=epilog(GENERAL, [f"{program} {example}" for example in _EXAMPLES]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True, help=argparse.SUPPRESS, prog=program)
    for command in (command for own in GROUPS.values() for command in own):
        command.add_to(commands)
    parser.set_defaults(parser=parser, also=[name for own in (also or {}).values() for name in own])
    return parser


def _listed(groups: Lines, program: str) -> str:
    """Return the list of all commands by groups."""
    width = max(len(name) for own in groups.values() for name in own)
    lines = ["What quantization does to a tensor or a model, bit for bit as the libraries compute it."]
    for group, own in groups.items():
        lines += ["", f"{group}:", *(f"  {name:<{width}}  {line}" for name, line in own.items())]
    return "\n".join([*lines, "", f"{program} COMMAND --help explains a command."])


def main(arguments: Sequence[str] | None = None, program: str = PROGRAM, also: Lines | None = None) -> int:
    """Run a command and return the exit code."""
    options = parser_of(program, also).parse_args(arguments)
    try:
        code: int = options.run(options)
    except QuantError as reason:
        return refused(reason)
    return code
