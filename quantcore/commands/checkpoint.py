"""The commands for one checkpoint: `check`, `list` and `inspect`."""

import argparse
import math
import sys
from collections.abc import Sequence
from dataclasses import asdict

from quantcore.checkpoints import (
    Checkpoint,
    CheckpointFinding,
    ListedTensor,
    NotFound,
    Totals,
    element_of,
    element_text,
    facts,
    listing,
    open_checkpoint,
    tensor_of,
    tensor_text,
)
from quantcore.commands.command import PATH, Command
from quantcore.commands.exits import DONE, FOUND, REFUSED
from quantcore.commands.output import print_json, print_table, refused
from quantcore.diagnosis import SEVERITIES
from quantcore.errors import QuantError
from quantcore.wording import count, joined, megabytes, short


def _check(options: argparse.Namespace) -> int:
    checkpoint, found = None, []
    try:
        against = open_checkpoint(options.against) if options.against else None
    except QuantError as reason:
        return refused(f"--against: {reason}")
    try:
        checkpoint = open_checkpoint(options.path)
        found = checkpoint.findings(against)
    except NotFound as reason:
        return refused(reason)
    except QuantError as reason:
        found = [CheckpointFinding("unreadable", "error", str(reason))]
    if options.json:
        print_json(_as_dict(options.path, checkpoint, found))
    else:
        _print_text(options.path, checkpoint, found)
    counted = ("error", "warning") if options.strict else ("error",)
    return FOUND if any(finding.severity in counted for finding in found) else DONE


def _as_dict(
    path: str, checkpoint: Checkpoint | None, findings: Sequence[CheckpointFinding]
) -> dict[str, object]:
    return {
        "path": path,
        "format": checkpoint.format if checkpoint else None,
        "tensors": len(checkpoint.tensors) if checkpoint else 0,
        "counts": _counts(findings),
        "findings": [finding.as_dict() for finding in findings],
    }


def _print_text(path: str, checkpoint: Checkpoint | None, findings: Sequence[CheckpointFinding]) -> None:
    if checkpoint:
        size = sum(tensor.num_bytes for tensor in checkpoint.tensors.values())
        print(f"{path}: {checkpoint.format}, {count(len(checkpoint.tensors), 'tensor')}, {megabytes(size)}")
    for finding in findings:
        print(f"{finding.severity}: {finding.sentence} [{finding.kind}]")
    print(joined([count(n, severity) for severity, n in _counts(findings).items()]) + ".")


def _counts(findings: Sequence[CheckpointFinding]) -> dict[str, int]:
    return {s: sum(finding.severity == s for finding in findings) for s in SEVERITIES}


def _list(options: argparse.Namespace) -> int:
    try:
        checkpoint = open_checkpoint(options.path)
    except QuantError as reason:
        return refused(reason)
    entries = listing(checkpoint.tensors)
    total = Totals.of(entries)
    if options.json:
        content = {
            "path": options.path, "format": checkpoint.format, "facts": facts(checkpoint.config),
            "elements": total.elements, "bytes": total.num_bytes, "bits_per_weight": total.bits,
            "problems": [problem.sentence for problem in checkpoint.problems],
            "tensors": [{**asdict(entry), "bits_per_weight": entry.bits} for entry in entries],
        }  # fmt: skip
        print_json(content)
        return FOUND if checkpoint.problems else DONE
    said = [checkpoint.format, count(len(entries), "tensor"), megabytes(total.num_bytes)]
    bits = [] if math.isnan(total.bits) else [f"{total.bits:.4g} bits per weight"]
    print(f"{options.path}: {', '.join([*said, *bits, *facts(checkpoint.config)])}")
    rows = [["shape", "size", "bits", "tensor", "stored as"], *map(_listed, entries)]
    print_table(rows, right=(0, 1, 2))
    for problem in checkpoint.problems:
        print(f"{problem.severity}: {problem.sentence}")
    return FOUND if checkpoint.problems else DONE


def _listed(entry: ListedTensor) -> list[str]:
    shape, bits = "×".join(map(str, entry.shape)), "" if entry.problem else f"{entry.bits:.4g}"
    return [shape, megabytes(entry.num_bytes), bits, short(entry.name, 120), entry.storage]


def _inspect(options: argparse.Namespace) -> int:
    try:
        checkpoint = open_checkpoint(options.path)
        tensor = checkpoint.tensors[options.tensor]
    except (QuantError, KeyError) as reason:
        return refused(reason.args[0])
    try:
        found = tensor_of(tensor, ranges=options.element is None)
        if options.element is not None:
            found["element"] = element_of(tensor, options.element)
    except QuantError as reason:
        print(reason, file=sys.stderr)
        return FOUND
    if options.json:
        print_json(found)
        return DONE
    print(*tensor_text(found), *(element_text(found["element"]) if "element" in found else ()), sep="\n")
    return DONE


def index_of(text: str) -> tuple[int, ...]:
    """Read an index, such as ``3,17``."""
    try:
        return tuple(int(part) for part in text.strip("()[] ").split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{short(text)} is not an index; write one such as 3,17") from None


def _add_check(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("path", metavar="PATH", help=PATH)
    parser.add_argument(
        "--against", metavar="PATH", help="the original that it was quantized from, to compare it with"
    )
    parser.add_argument("--json", action="store_true", help="print the findings as JSON")
    parser.add_argument("--strict", action="store_true", help="make warnings count as errors do")


def _add_list(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("path", metavar="PATH", help=PATH)
    parser.add_argument("--json", action="store_true", help="print everything as JSON")


def _add_inspect(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("path", metavar="PATH", help=PATH)
    parser.add_argument("tensor", metavar="TENSOR", help="the name of a tensor, as list prints it")
    parser.add_argument(
        "element", metavar="ROW,COLUMN", nargs="?", type=index_of, help="an index, such as 3,17"
    )
    parser.add_argument("--json", action="store_true", help="print everything as JSON")


CHECK = Command(
    "check",
    "report what is wrong with a checkpoint",
    "Read a checkpoint and report what is wrong or suspicious: damaged files, missing tensors, scales "
    "and zero points that contradict the config, incorrectly packed codes.",
    {
        DONE: "nothing is wrong (warnings and notes may have been found)",
        FOUND: "a finding of severity error (with --strict also a warning), or a damaged file",
        REFUSED: "there is no checkpoint at PATH or --against, or it can't be opened",
    },
    ("%(prog)s path/to/release", "%(prog)s model-Q4_K_M.gguf --against path/to/original --json"),
    _add_check,
    _check,
)
LIST = Command(
    "list",
    "list the tensors of a checkpoint",
    "Print the shape, size, bits per weight, name and storage of every tensor, from headers.",
    {
        DONE: "every tensor is listed",
        FOUND: "something in a header is wrong; it is printed below the list",
        REFUSED: "there is no checkpoint at PATH, or it can't be opened",
    },
    ("%(prog)s path/to/release", "%(prog)s model-Q4_K_M.gguf --json"),
    _add_list,
    _list,
)
INSPECT = Command(
    "inspect",
    "show a tensor, or one of its elements down to its bits",
    "Print how a tensor is stored, and the ranges of its codes, scales and values; or of one element "
    "its bits in the file, the arithmetic of its value, and how other readers read it.",
    {
        DONE: "the tensor or element is printed",
        FOUND: "the tensor can't be read, or has no such element",
        REFUSED: "there is no checkpoint at PATH, or no such tensor in it",
    },
    (
        "%(prog)s path/to/release model.layers.0.mlp.down_proj.weight",
        "%(prog)s model-Q4_K_M.gguf blk.0.ffn_down.weight 3,17 --json",
    ),
    _add_inspect,
    _inspect,
)
