"""From pasted code to the findings."""

from collections.abc import Iterable

from quantcore.code_reading.checks import words
from quantcore.code_reading.checks.codes import check_codes
from quantcore.code_reading.checks.dequantize import check_dequantize
from quantcore.code_reading.kinds import KINDS
from quantcore.code_reading.quantizer import Quantizer
from quantcore.code_reading.reader.source import parse
from quantcore.code_reading.reader.statements import Reader
from quantcore.code_reading.record import CodeFinding, CodeReading, Found
from quantcore.errors import QuantError
from quantcore.wording import count

MOST = 12  # unrecognized calls that are listed


def read_code(text: str) -> CodeReading:
    """Parse a PyTorch or NumPy snippet, without running it, and name the mistakes in its quantizer.

    Names, constants and calls of the snippet's own functions are followed. Nothing is claimed about unknown
    values.

    Raises:
        QuantError: the text is not Python, too long, or nested too deeply.
    """
    text, tree = parse(text)
    reader = Reader()
    try:
        reader.run(tree)
    except RecursionError:
        raise QuantError("The code is nested too deeply; paste only the lines that quantize.") from None
    quantizers = _quantizers(reader)
    found: dict[tuple[str, int], tuple[Found, Quantizer | None]] = {}
    for quantizer in quantizers:
        for finding in (*check_codes(quantizer), *check_dequantize(quantizer)):
            kept = found.get((finding.kind, finding.line))
            if kept is None or (finding.certain and not kept[0].certain):
                found[finding.kind, finding.line] = (finding, quantizer)
    for line, data in reader.written:
        where = next(
            (c for c in quantizers if c.codes.data.root == data.root), quantizers[0] if quantizers else None
        )
        finding = Found(
            "clamp-in-place", line,
            f"This clamp modifies {data.root}, the caller's tensor: an error computed afterwards is measured against the "
            "clipped tensor.",
            "Use clamp without an underscore, which returns a new tensor.",
        )  # fmt: skip
        found[finding.kind, line] = (finding, where)
    lines = text.split("\n")
    findings = sorted(
        (_finding(f, c, lines) for f, c in found.values()), key=lambda f: (f.line, not f.certain, f.kind)
    )
    return CodeReading(
        text, tuple(findings), _recognized(quantizers), _unread(reader), _library(reader), tuple(quantizers)
    )


def _quantizers(reader: Reader) -> list[Quantizer]:
    """The quantizers, with their dequantization; codes that are only an intermediate step are left out."""
    with_dequantize = [
        Quantizer(b.codes, b if id(b) not in reader.used else None, True) for b in reader.dequantized
    ]
    intermediate = {id(quantizer.codes) for quantizer in with_dequantize}
    without_dequantize = [
        Quantizer(codes)
        for codes in reader.codes
        if id(codes) not in reader.used and id(codes) not in intermediate
    ]
    return [
        quantizer for quantizer in (*with_dequantize, *without_dequantize) if quantizer.stored.of("round")
    ]


def _finding(found: Found, quantizer: Quantizer | None, lines: list[str]) -> CodeFinding:
    source = lines[found.line - 1].strip() if 0 < found.line <= len(lines) else ""
    kind = KINDS[found.kind]
    return CodeFinding(
        found.kind,
        found.line,
        source[:200],
        found.what,
        found.fix,
        found.certain,
        kind.lesson,
        kind.step,
        quantizer,
    )


def _recognized(quantizers: Iterable[Quantizer]) -> tuple[str, ...]:
    found: dict[str, None] = {}
    for quantizer in quantizers:
        found |= dict.fromkeys(words.recognized(quantizer))
    return tuple(found)


def _library(reader: Reader) -> tuple[str, ...]:
    calls = [(line, name) for line, name in sorted(set(reader.library)) if "quantize_per" in name]
    return tuple(f"{name} (line {line})" for line, name in calls)


def _unread(reader: Reader) -> tuple[str, ...]:
    texts = [
        f"Line {line}: `{source}` is not recognized, so what depends on it is not checked."
        for line, source in sorted(reader.unread)
    ]
    more = len(texts) - MOST
    return tuple(
        [*texts[:MOST], f"{count(more, 'more call')} {'is' if more == 1 else 'are'} not recognized."]
        if more > 0
        else texts
    )
