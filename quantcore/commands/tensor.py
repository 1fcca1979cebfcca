"""The commands for one tensor: `apply`, `trace` and `libraries`."""

import argparse
from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any

from quantcore.analysis import Report, decibels, report
from quantcore.commands.checkpoint import index_of
from quantcore.commands.command import Command
from quantcore.commands.exits import DONE, FOUND, REFUSED
from quantcore.commands.output import print_json, print_some, print_table, replace_file, table_lines
from quantcore.commands.tensor_file import TensorRead, read_file
from quantcore.comparison import Comparison, compare
from quantcore.conventions import CONVENTIONS
from quantcore.diagnosis import index as index_text
from quantcore.errors import QuantError
from quantcore.quantization import Quantized, apply
from quantcore.scheme import bits_per_element, compression_ratio
from quantcore.tracing import trace
from quantcore.wording import count

_FILE = "a tensor: .npy, .npz, .safetensors, .csv, .txt, .json, .pt, an image, or a checkpoint"
_SMALL = 256  # elements whose codes are printed
_WRITERS = {".npz": "to_npz", ".safetensors": "to_safetensors"}


def _apply(options: argparse.Namespace) -> int:
    write = _writer_of(options.out) if options.out else None
    read = read_file(options.file, options.tensor)
    result = apply(read.x, options.scheme)
    found = report(result)
    if write is not None:
        replace_file(options.out, write(result))
    _write_pictures(options, read, result)
    if options.json:
        print_json(_as_dict(options, read, result, found))
        return DONE
    print(f"{read.title}, {result.scheme}")
    for name, value in _numbers(result, found).items():
        print(f"  {name:<16}  {value}")
    for warning in result.warnings:
        print(f"warning: {warning}")
    if result.codes.numel() <= _SMALL and result.codes.dim() <= 2:
        print("codes:")
        rows = result.codes.reshape(1, -1) if result.codes.dim() < 2 else result.codes
        texts = [[str(code) for code in row] for row in rows.tolist()]
        print(*(f"  {line}" for line in table_lines(texts, range(len(texts[0])))), sep="\n")
    return DONE


def _writer_of(file: str) -> Any:
    """Return what writes a result into a file of this name.

    Raises:
        QuantError: its extension is not that of a format.
    """
    from quantcore import export

    for extension, writer in _WRITERS.items():
        if file.lower().endswith(extension):
            return getattr(export, writer)
    raise QuantError(f"--out {file} does not end in {' or '.join(_WRITERS)}; give a name that does.")


def _write_pictures(options: argparse.Namespace, read: TensorRead, result: Quantized) -> None:
    if not (options.html or options.png):
        return
    from quantcore.commands import picture  # brings plotly, which is slow to import

    if options.html:
        replace_file(options.html, picture.page(result, read.title))
    if options.png:
        replace_file(options.png, picture.maps_png(result, read.title))


def _numbers(result: Quantized, found: Report) -> Mapping[str, str]:
    shape = tuple(result.codes.shape)
    at = found.max_abs_error_index
    dtype, own = str(result.dtype).removeprefix("torch."), 8 * result.dtype.itemsize
    bits, ratio = bits_per_element(result.scheme, shape), compression_ratio(result.scheme, shape, own)
    return {
        "bits per element": f"{bits:.4g}, {ratio:.3g}× smaller than {dtype}",
        "SQNR": decibels(found.sqnr_db),
        "MSE": f"{found.mse:.4g}",
        "MAE": f"{found.mae:.4g}",
        "max |error|": f"{found.max_abs_error:.4g}" + (f" at {index_text(at)}" if at is not None else ""),
        "clipped": f"{found.clipped:,} of {count(result.codes.numel(), 'element')}",
        "codes used": f"{found.codes_used:,} of {found.codes_available:,}",
    }


def _as_dict(
    options: argparse.Namespace, read: TensorRead, result: Quantized, found: Report
) -> dict[str, Any]:
    shape = tuple(result.codes.shape)
    return {
        **_heading(options, read, result),
        "bits_per_element": bits_per_element(result.scheme, shape),
        "report": {field.name: getattr(found, field.name) for field in fields(found)},
        "warnings": list(result.warnings),
    }


def _heading(options: argparse.Namespace, read: TensorRead, result: Quantized) -> dict[str, Any]:
    return {
        "file": options.file,
        "tensor": read.name or None,
        "shape": list(result.codes.shape),
        "dtype": str(result.dtype).removeprefix("torch."),
        "scheme": str(result.scheme),
    }


def _trace(options: argparse.Namespace) -> int:
    read = read_file(options.file, options.tensor)
    result = apply(read.x, options.scheme)
    found = trace(result, options.element)
    steps = found.steps()
    if options.json:
        numbers = {
            name: getattr(found, name)
            for name in ("x", "code", "dequantized", "error", "scale", "zero_point")
        }
        said = {"element": list(found.index), **numbers, "steps": [asdict(step) for step in steps]}
        print_json({**_heading(options, read, result), **said})
        return DONE
    print(f"{read.title}, {result.scheme}, element {index_text(found.index)}")
    print_table([["step", "formula", "value"], *([s.name, s.formula, s.value] for s in steps)])
    return DONE


def _libraries(options: argparse.Namespace) -> int:
    a, b = CONVENTIONS[options.a], CONVENTIONS[options.b]
    read = read_file(options.file, options.tensor)
    found = compare(read.x, options.scheme, a, b)
    total = found.differs.numel()
    if options.json:
        names = {"a": options.a, "b": options.b, "codes": total, "differing": found.count}
        reasons = [asdict(reason) for reason in found.reasons]
        print_json({**_heading(options, read, found.a), **names, "reasons": reasons})
    else:
        print(f"{read.title}, {options.scheme}")
        verb = "differs" if found.count == 1 else "differ"
        print(f"{options.a} and {options.b}: {found.count:,} of {count(total, 'code')} {verb}.")
        print_some(_said(found))
    return FOUND if found.count else DONE


def _said(found: Comparison) -> list[str]:
    return [
        f"{count(reason.count, 'code')}, {reason.kind}; the first at {index_text(reason.index)}, "
        f"{int(found.a.codes[reason.index])} against {int(found.b.codes[reason.index])}: {reason.sentence}"
        for reason in found.reasons
    ]


def _add_tensor(parser: argparse.ArgumentParser, scheme: str | None = None) -> None:
    default = "" if scheme is None else " (default: %(default)s)"
    parser.add_argument(
        "--scheme", metavar="SCHEME", required=scheme is None, default=scheme,
        help=f"a scheme or a preset, such as 'int4 per_group(32)' or gguf.Q4_K{default}",
    )  # fmt: skip
    parser.add_argument("--tensor", metavar="TENSOR", help="the name of a tensor, if FILE has several")
    parser.add_argument("--json", action="store_true", help="print everything as JSON")


def _add_apply(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help=_FILE)
    _add_tensor(parser)
    parser.add_argument(
        "--out",
        metavar="FILE",
        help="write x, codes, scale, zero_point and dequantized: .npz or .safetensors",
    )
    parser.add_argument("--html", metavar="FILE", help="write the numbers and the four maps as a page")
    parser.add_argument("--png", metavar="FILE", help="write the four maps as an image; needs Pillow")


def _add_trace(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help=_FILE)
    parser.add_argument("element", metavar="ROW,COLUMN", type=index_of, help="an index, such as 3,17")
    _add_tensor(parser)


def _add_libraries(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help=_FILE)
    for name in "ab":
        parser.add_argument(
            name, metavar="LIBRARY", help="a convention, such as torchao or onnxruntime" if name == "a" else
            "another one",
        )  # fmt: skip
    _add_tensor(parser, "int8")


APPLY = Command(
    "apply",
    "quantize a tensor: its error, size and codes",
    "Quantize a tensor of a file, in its own dtype, and print its error, its size and how its codes are "
    "used; of a small one also the codes.",
    {
        DONE: "the tensor is quantized",
        REFUSED: "FILE can't be read, the scheme does not fit, or a file can't be written",
    },
    (
        '%(prog)s weights.npy --scheme "int4 per_group(32)"',
        "%(prog)s model.safetensors --tensor lm_head.weight --scheme gguf.Q4_K --out codes.npz --png "
        "maps.png",
    ),
    _add_apply,
    _apply,
)
TRACE = Command(
    "trace",
    "show the arithmetic of one element",
    "Quantize a tensor of a file and print how one of its elements becomes its code and its value, step by "
    "step.",
    {
        DONE: "the arithmetic is printed",
        REFUSED: "FILE can't be read, the scheme does not fit, or there is no such element",
    },
    (
        '%(prog)s weights.npy 3,17 --scheme "int8 per_channel(0) torchao"',
        "%(prog)s weights.csv 0,0 --scheme gguf.Q4_0 --json",
    ),
    _add_trace,
    _trace,
)
LIBRARIES = Command(
    "libraries",
    "show which codes differ between two libraries, and why",
    "Quantize a tensor of a file as two libraries do, and print how many codes differ and why, with the "
    "numbers of the first of each kind.",
    {
        DONE: "all codes are equal",
        FOUND: "some codes differ",
        REFUSED: "FILE can't be read, or a library is not known or does not support the scheme",
    },
    (
        "%(prog)s weights.npy torchao onnxruntime",
        '%(prog)s weights.npy torch.fake_quantize onnx --scheme "uint8 asymmetric" --json',
    ),
    _add_libraries,
    _libraries,
)
