"""The command `compare`: two checkpoints, tensor by tensor."""

import argparse
import math
from collections.abc import Sequence
from dataclasses import asdict

import torch

from quantcore.analysis import decibels
from quantcore.checkpoints import Checkpoint, CheckpointFinding, findings, open_checkpoint
from quantcore.checkpoints.comparison import (
    CheckpointComparison,
    TensorResult,
    by_harm,
    schemes_of,
    summary,
)
from quantcore.checkpoints.findings import finding_of
from quantcore.commands.command import PATH, Command, add_threads
from quantcore.commands.exits import DONE, FOUND, REFUSED
from quantcore.commands.output import (
    SHOWN,
    csv_of,
    print_json,
    print_more,
    print_some,
    print_table,
    refused,
    with_progress,
)
from quantcore.errors import QuantError
from quantcore.numerics import apart
from quantcore.wording import count, megabytes, short


def _compare(options: argparse.Namespace) -> int:
    opened = []
    for label, path in (("A", options.original), ("B", options.other)):
        try:
            opened.append(open_checkpoint(path))
        except QuantError as reason:
            return refused(f"{label}: {reason}")
    torch.set_num_threads(1)  # parallel across tensors, not within them
    comparison = CheckpointComparison(*opened)
    *_, last = with_progress(comparison.steps(threads=max(1, options.threads)))
    results = by_harm(comparison.results(last.state))
    causes = _causes(comparison, opened, results)
    alone = [u for u in comparison.pairing.unpaired if u.is_weight]
    low = [r for r in results if options.min_sqnr is not None and r.sqnr_db < options.min_sqnr]
    if options.json:
        _print_comparison_json(options, comparison, results, causes)
    elif options.csv:
        print(csv_of([result.as_row() for result in results]), end="")
    else:
        _print_comparison(options, comparison, opened, results, low, causes)
    return FOUND if alone or low or any(r.problem for r in results) else DONE


def _causes(
    comparison: CheckpointComparison, opened: Sequence[Checkpoint], results: Sequence[TensorResult]
) -> list[CheckpointFinding]:
    """Return why tensors differ: what a check finds against an original, or how two schemes differ."""
    a, b = opened
    differ = [result for result in results if not result.problem and not result.equal]
    if not any(a.tensors[result.original_tensor].is_quantized for result in differ):
        found: list[CheckpointFinding] = []
        if any(b.tensors[result.other_tensor].is_quantized for result in differ):
            for step in with_progress(findings.steps(b, a)):
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
    print_json(content)


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
    print_some(schemes_of(results), "more pairs of schemes.")
    for cause in causes:
        print(f"{'error: ' * (cause.severity == 'error')}{cause.sentence} [{cause.kind}]")
    compared = [result for result in results if not result.problem and not result.equal]
    if compared:
        rows = [["SQNR", "bits", "max |error|", "tensor"], *map(_harmed, compared[:SHOWN])]
        print_table(rows, right=(0, 1, 2))
        print_more(len(compared), "more tensors with smaller errors; --csv lists all.")
    said = [sentence for result in results for sentence in result.sentences()]
    least = options.min_sqnr
    for r in low:
        value = decibels(r.sqnr_db) if math.isinf(r.sqnr_db) else f"{apart(r.sqnr_db, least, digits=3)} dB"
        said.append(f"SQNR of {short(r.name, 120)} is {value}, below {least:g} dB.")
    said += [unpaired.reason for unpaired in comparison.pairing.unpaired]
    print_some(said, "more remarks; --json lists all.")


def _harmed(result: TensorResult) -> list[str]:
    bits, error = f"{result.bits_per_weight[1]:.3g}", f"{result.max_abs_error:.3g}"
    return [decibels(result.sqnr_db), bits, error, short(result.name, 120)]


def _add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("original", metavar="A", help=f"the original: {PATH}")
    parser.add_argument("other", metavar="B", help="the checkpoint to compare with A")
    output = parser.add_mutually_exclusive_group()
    output.add_argument("--json", action="store_true", help="print everything as JSON")
    output.add_argument("--csv", action="store_true", help="print one line per tensor as CSV")
    parser.add_argument("--min-sqnr", type=float, metavar="DB", help="the lowest acceptable SQNR of a tensor")
    add_threads(parser)


COMPARE = Command(
    "compare",
    "report how two checkpoints differ, tensor by tensor",
    "Compare a checkpoint with another, such as the one that it was quantized from: SQNR, errors and "
    "the worst blocks of each tensor, tensors without a partner, and rows in a different order. GGUF "
    "and Hugging Face names are mapped to each other.",
    {
        DONE: "every tensor has a partner and was compared; values may differ",
        FOUND: "a tensor has no partner or can't be compared, or its SQNR is below --min-sqnr",
        REFUSED: "A or B does not exist, or can't be opened",
    },
    (
        "%(prog)s path/to/original path/to/quantized",
        "%(prog)s path/to/original model-Q4_K_M.gguf --min-sqnr 15 --csv > harm.csv",
    ),
    _add,
    _compare,
)
