"""The command line: ``python -m quantcore check PATH``."""

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Any

from quantcore.checkpoints import Checkpoint, CheckpointFinding, NotFound, open_checkpoint
from quantcore.diagnosis import SEVERITIES
from quantcore.errors import QuantError
from quantcore.tensors import megabytes
from quantcore.wording import count, joined

SOUND, WRONG, NOT_OPENED = 0, 1, 2
SHOWN = 5  # findings of one kind as text; JSON has all

EPILOG = """exit code:
  0  nothing is wrong (warnings and notes may have been found)
  1  something is wrong: a finding of severity error, or a damaged file
  2  there is no checkpoint at PATH, or it can't be opened; the same for --against

examples:
  python -m quantcore check path/to/release
  python -m quantcore check model-Q4_K_M.gguf --against path/to/original --json
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return the exit code."""
    options = _parser().parse_args(arguments)
    checkpoint, findings = None, []
    try:
        against = open_checkpoint(options.against) if options.against else None
    except QuantError as reason:
        return _not_opened(f"--against: {reason}")
    try:
        checkpoint = open_checkpoint(options.path)
        findings = checkpoint.findings(against)
    except NotFound as reason:
        return _not_opened(str(reason))
    except QuantError as reason:
        findings = [CheckpointFinding("unreadable", "error", str(reason))]
    (_print_json if options.json else _print_text)(options.path, checkpoint, findings)
    return WRONG if any(finding.severity == "error" for finding in findings) else SOUND


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m quantcore",
        description="What quantization does to a tensor, with every number at hand.",
    )
    commands = parser.add_subparsers(dest="command", required=True)
    check = commands.add_parser(
        "check",
        help="say what is wrong with a checkpoint",
        description="Read a checkpoint and say what is wrong or suspicious: damaged files, missing tensors, scales "
        "and zero points that contradict the config, codes that a packer got wrong.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    check.add_argument("path", metavar="PATH", help="a file, a folder with its shards, or a URL")
    check.add_argument(
        "--against", metavar="PATH", help="the checkpoint that it was quantized from, to compare with"
    )
    check.add_argument("--json", action="store_true", help="print the findings as JSON")
    return parser


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
        "findings": [
            {
                "kind": f.kind,
                "severity": f.severity,
                "sentence": f.sentence,
                "tensors": list(f.tensors),
                "rivals": list(f.rivals),
            }
            for f in findings
        ],
    }
    print(json.dumps(content, indent=2, ensure_ascii=False))


def _print_text(path: str, checkpoint: Checkpoint | None, findings: Sequence[CheckpointFinding]) -> None:
    if checkpoint:
        size = sum(tensor.num_bytes for tensor in checkpoint.tensors.values())
        print(f"{path}: {checkpoint.format}, {count(len(checkpoint.tensors), 'tensor')}, {megabytes(size)}")
    printed: dict[str, int] = {}
    for finding in findings:
        printed[finding.kind] = printed.get(finding.kind, 0) + 1
        if printed[finding.kind] <= SHOWN:
            print(f"{finding.severity}: {finding.sentence} [{finding.kind}]")
    for kind, n in printed.items():
        if n > SHOWN:
            print(f"{n - SHOWN:,} more of {kind}; --json lists all.")
    print(joined([count(n, severity) for severity, n in _counts(findings).items()]) + ".")


if __name__ == "__main__":
    sys.exit(main())
