"""The command ``python -m quantcore``: `check`, `list`, `inspect`, `compare`, `sensitivity` and `recipe`."""

import argparse
import json
import math
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import torch

from quantcore.analysis import decibels
from quantcore.checkpoints import (
    Checkpoint,
    CheckpointFinding,
    NotFound,
    Totals,
    element_of,
    element_text,
    facts,
    findings,
    listing,
    open_checkpoint,
    plain,
    tensor_of,
    tensor_text,
)
from quantcore.checkpoints.comparison import (
    CheckpointComparison,
    TensorResult,
    by_harm,
    schemes_of,
    summary,
)
from quantcore.checkpoints.findings import finding_of
from quantcore.diagnosis import SEVERITIES
from quantcore.errors import QuantError
from quantcore.layerwise import command
from quantcore.numerics import apart
from quantcore.recipes import command as recipe_command
from quantcore.wording import count, joined, megabytes, short

SOUND, WRONG, NOT_OPENED = 0, 1, 2

EPILOG = """exit code:
  0  nothing is wrong (warnings and notes may have been found)
  1  something is wrong: a finding of severity error (with --strict also a warning), or a damaged file
  2  there is no checkpoint at PATH or --against, or it can't be opened

examples:
  python -m quantcore check path/to/release
  python -m quantcore check model-Q4_K_M.gguf --against path/to/original --json
"""


COMPARE_EPILOG = """exit code:
  0  every tensor has a partner and was compared; values may differ
  1  a tensor has no partner or can't be compared, or its SQNR is below --min-sqnr
  2  A or B does not exist, or can't be opened

examples:
  python -m quantcore compare path/to/original path/to/quantized
  python -m quantcore compare path/to/original model-Q4_K_M.gguf --min-sqnr 15 --csv > harm.csv
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return the exit code."""
    options = _parser().parse_args(arguments)
    run = {
        "check": _check, "list": _list, "inspect": _inspect, "compare": _compare, "sensitivity": command.run,
        "recipe": recipe_command.run,
    }  # fmt: skip
    return run[options.command](options)


def _check(options: argparse.Namespace) -> int:
    checkpoint, found = None, []
    try:
        against = open_checkpoint(options.against) if options.against else None
    except QuantError as reason:
        return _not_opened(f"--against: {reason}")
    try:
        checkpoint = open_checkpoint(options.path)
        found = checkpoint.findings(against)
    except NotFound as reason:
        return _not_opened(str(reason))
    except QuantError as reason:
        found = [CheckpointFinding("unreadable", "error", str(reason))]
    (_print_json if options.json else _print_text)(options.path, checkpoint, found)
    counted = ("error", "warning") if options.strict else ("error",)
    return WRONG if any(finding.severity in counted for finding in found) else SOUND


def _list(options: argparse.Namespace) -> int:
    try:
        checkpoint = open_checkpoint(options.path)
    except QuantError as reason:
        return _not_opened(str(reason))
    entries = listing(checkpoint.tensors)
    total = Totals.of(entries)
    if options.json:
        content = {
            "path": options.path, "format": checkpoint.format, "facts": facts(checkpoint.config),
            "elements": total.elements, "bytes": total.num_bytes, "bits_per_weight": total.bits,
            "problems": [problem.sentence for problem in checkpoint.problems],
            "tensors": [{**asdict(entry), "bits_per_weight": entry.bits} for entry in entries],
        }  # fmt: skip
        print(json.dumps(plain(content), indent=2, ensure_ascii=False, allow_nan=False))
        return WRONG if checkpoint.problems else SOUND
    said = [checkpoint.format, count(len(entries), "tensor"), megabytes(total.num_bytes)]
    bits = [] if math.isnan(total.bits) else [f"{total.bits:.4g} bits per weight"]
    print(f"{options.path}: {', '.join([*said, *bits, *facts(checkpoint.config)])}")
    for entry in entries:
        shape, bits_of = "×".join(map(str, entry.shape)), "" if entry.problem else f"{entry.bits:.4g} bits"
        size = f"{shape:>16}  {megabytes(entry.num_bytes):>9}  {bits_of:>11}"
        print(f"{size}  {short(entry.name, 120)}  {entry.storage}")
    for problem in checkpoint.problems:
        print(f"{problem.severity}: {problem.sentence}")
    return WRONG if checkpoint.problems else SOUND


def _inspect(options: argparse.Namespace) -> int:
    try:
        checkpoint = open_checkpoint(options.path)
        tensor = checkpoint.tensors[options.tensor]
    except (QuantError, KeyError) as reason:
        return _not_opened(str(reason.args[0]))
    try:
        found = tensor_of(tensor, ranges=options.element is None)
        if options.element is not None:
            found["element"] = element_of(tensor, options.element)
    except QuantError as reason:
        print(reason, file=sys.stderr)
        return WRONG
    if options.json:
        print(json.dumps(found, indent=2, ensure_ascii=False, allow_nan=False))
        return SOUND
    print(*tensor_text(found), *(element_text(found["element"]) if "element" in found else ()), sep="\n")
    return SOUND


def _index(text: str) -> tuple[int, ...]:
    """Read an index, such as ``3,17``."""
    try:
        return tuple(int(part) for part in text.strip("()[] ").split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{short(text)} is not an index; write one such as 3,17") from None


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m quantcore",
        description="Check a quantized checkpoint, compare it with another, or find what a model loses under "
        "several schemes.",
    )
    commands = parser.add_subparsers(dest="command", required=True)
    check = commands.add_parser(
        "check",
        help="report what is wrong with a checkpoint",
        description="Read a checkpoint and report what is wrong or suspicious: damaged files, missing "
        "tensors, scales and zero points that contradict the config, incorrectly packed codes.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    check.add_argument("path", metavar="PATH", help="a file, a folder with its shards, or a URL")
    check.add_argument(
        "--against", metavar="PATH", help="the original that it was quantized from, to compare it with"
    )
    check.add_argument("--json", action="store_true", help="print the findings as JSON")
    check.add_argument("--strict", action="store_true", help="make warnings count as errors do")
    listed = commands.add_parser(
        "list", help="list the tensors of a checkpoint",
        description="Print the shape, size, bits per weight, name and storage of every tensor, from headers.",
    )  # fmt: skip
    inspect = commands.add_parser(
        "inspect", help="show a tensor, or one of its elements down to its bits",
        description="Print how a tensor is stored, and the ranges of its codes, scales and values; or of one "
        "element its bits in the file, the arithmetic of its value, and how other readers read it.",
    )  # fmt: skip
    for reading in (listed, inspect):
        reading.add_argument("path", metavar="PATH", help="a file, a folder with its shards, or a URL")
        reading.add_argument("--json", action="store_true", help="print everything as JSON")
    inspect.add_argument("tensor", metavar="TENSOR", help="the name of a tensor, as list prints it")
    inspect.add_argument(
        "element", metavar="ROW,COLUMN", nargs="?", type=_index, help="an index, such as 3,17"
    )
    compare = commands.add_parser(
        "compare",
        help="report how two checkpoints differ, tensor by tensor",
        description="Compare a checkpoint with another, such as the one that it was quantized from: SQNR, "
        "errors and the worst blocks of each tensor, tensors without a partner, and rows in a different "
        "order. GGUF and Hugging Face names are mapped to each other.",
        epilog=COMPARE_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    compare.add_argument(
        "original", metavar="A", help="the original: a file, a folder with its shards, or a URL"
    )
    compare.add_argument("other", metavar="B", help="the checkpoint to compare with A")
    output = compare.add_mutually_exclusive_group()
    output.add_argument("--json", action="store_true", help="print everything as JSON")
    output.add_argument("--csv", action="store_true", help="print one line per tensor as CSV")
    compare.add_argument(
        "--min-sqnr", type=float, metavar="DB", help="the lowest acceptable SQNR of a tensor"
    )
    compare.add_argument(
        "--threads", type=int, default=_cores(), metavar="N", help="number of threads (default: one per core)"
    )
    command.add_parser(commands, _cores())
    recipe_command.add_parser(commands, _cores())
    return parser


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _compare(options: argparse.Namespace) -> int:
    opened = []
    for label, path in (("A", options.original), ("B", options.other)):
        try:
            opened.append(open_checkpoint(path))
        except QuantError as reason:
            return _not_opened(f"{label}: {reason}")
    torch.set_num_threads(1)  # parallel across tensors, not within them
    comparison = CheckpointComparison(*opened)
    *_, last = command.with_progress(comparison.steps(threads=max(1, options.threads)))
    results = by_harm(comparison.results(last.state))
    causes = _causes(comparison, opened, results)
    alone = [u for u in comparison.pairing.unpaired if u.is_weight]
    low = [r for r in results if options.min_sqnr is not None and r.sqnr_db < options.min_sqnr]
    if options.json:
        _print_comparison_json(options, comparison, results, causes)
    elif options.csv:
        print(command.csv_of([result.as_row() for result in results]), end="")
    else:
        _print_comparison(options, comparison, opened, results, low, causes)
    return WRONG if alone or low or any(r.problem for r in results) else SOUND


def _causes(
    comparison: CheckpointComparison, opened: Sequence[Checkpoint], results: Sequence[TensorResult]
) -> list[CheckpointFinding]:
    """Return why tensors differ: what a check finds against an original, or how two schemes differ."""
    a, b = opened
    differ = [result for result in results if not result.problem and not result.equal]
    if not any(a.tensors[result.original_tensor].is_quantized for result in differ):
        found: list[CheckpointFinding] = []
        if any(b.tensors[result.other_tensor].is_quantized for result in differ):
            for step in command.with_progress(findings.steps(b, a)):
                found += [f for f in step.findings if f.severity == "error"]
        return findings.grouped(found, findings.formats(b))
    why = {result.other_tensor: reason for result in differ if (reason := comparison.why(result)) is not None}
    said = [finding_of(s.severity, name, s.kind, s.words, **s.facts) for name, s in why.items()]
    return findings.grouped(said, findings.formats(b))


def _print_comparison_json(
    options: argparse.Namespace,
    comparison: CheckpointComparison,
    results: Sequence[TensorResult],
    causes: Sequence[CheckpointFinding],
) -> None:
    content = {
        "original": options.original,
        "other": options.other,
        "summary": summary(results),
        "tensors": [result.as_dict() for result in results],
        "causes": [cause.as_dict() for cause in causes],
        "unpaired": [asdict(unpaired) for unpaired in comparison.pairing.unpaired],
    }
    print(json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False))


def _print_comparison(
    options: argparse.Namespace,
    comparison: CheckpointComparison,
    opened: Sequence[Checkpoint],
    results: Sequence[TensorResult],
    low: Sequence[TensorResult],
    causes: Sequence[CheckpointFinding],
) -> None:
    for path, checkpoint in zip((options.original, options.other), opened, strict=True):
        size = sum(tensor.num_bytes for tensor in checkpoint.tensors.values())
        print(f"{path}: {checkpoint.format}, {count(len(checkpoint.tensors), 'tensor')}, {megabytes(size)}")
    print(summary(results))
    command.print_some(schemes_of(results), "more pairs of schemes.")
    for cause in causes:
        print(f"{'error: ' * (cause.severity == 'error')}{cause.sentence} [{cause.kind}]")
    compared = [result for result in results if not result.problem and not result.equal]
    harmed = [
        f"{decibels(result.sqnr_db):>12}  {result.bits_per_weight[1]:6.3g} bits  "
        f"max |error| {result.max_abs_error:.3g}  {short(result.name, 120)}"
        for result in compared
    ]
    command.print_some(harmed, "more tensors with less harm; --csv lists all.")
    said = [sentence for result in results for sentence in result.sentences()]
    least = options.min_sqnr
    for r in low:
        value = decibels(r.sqnr_db) if math.isinf(r.sqnr_db) else f"{apart(r.sqnr_db, least, digits=3)} dB"
        said.append(f"SQNR of {short(r.name, 120)} is {value}, below {least:g} dB.")
    said += [unpaired.reason for unpaired in comparison.pairing.unpaired]
    command.print_some(said, "more remarks; --json lists all.")


def _not_opened(sentence: str) -> int:
    print(sentence, file=sys.stderr)
    return NOT_OPENED


def _counts(findings: Sequence[CheckpointFinding]) -> dict[str, int]:
    return {s: sum(finding.severity == s for finding in findings) for s in SEVERITIES}


def _print_json(path: str, checkpoint: Checkpoint | None, findings: Sequence[CheckpointFinding]) -> None:
    content: dict[str, Any] = {
        "path": path,
        "format": checkpoint.format if checkpoint else None,
        "tensors": len(checkpoint.tensors) if checkpoint else 0,
        "counts": _counts(findings),
        "findings": [finding.as_dict() for finding in findings],
    }
    print(json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False))


def _print_text(path: str, checkpoint: Checkpoint | None, findings: Sequence[CheckpointFinding]) -> None:
    if checkpoint:
        size = sum(tensor.num_bytes for tensor in checkpoint.tensors.values())
        print(f"{path}: {checkpoint.format}, {count(len(checkpoint.tensors), 'tensor')}, {megabytes(size)}")
    for finding in findings:
        print(f"{finding.severity}: {finding.sentence} [{finding.kind}]")
    print(joined([count(n, severity) for severity, n in _counts(findings).items()]) + ".")


if __name__ == "__main__":
    if hasattr(signal, "SIGPIPE"):  # not on Windows
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `| head` ends the command, without a traceback
    sys.exit(main())
