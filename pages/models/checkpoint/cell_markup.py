"""The panel as HTML. All text from files is escaped; whatever is colored is also bold or underlined."""

import html
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby

import numpy as np

from quantcore.checkpoints import CheckpointFinding, Line, Origin, Rival, StoredNumber, Word
from quantcore.checkpoints.origin import Bit, index_text
from quantcore.tracing import number as decimal

_KINDS = 6  # colors in cell.css
_ROW = 16  # bytes of a block per line
# roles whose names in the file say little
_ROLES = {
    "codes": "code", "scale": "scale", "zero_point": "zero point", "g_idx": "group",
    "scale_code": "scale, coded",

    "global_scale": "global scale", "quant_map": "table entry", "nested_absmax": "scale of scales",
    "nested_quant_map": "table of scales", "d": "super-scale", "dmin": "super-min",
    "min_code": "min, coded", "m": "min", "counts": "count", "shift_sign": "shift",
}  # fmt: skip


def heading(origin: Origin, original: float | None) -> str:
    """Write one line: the element, its value, and the original's value."""
    parts = [
        f"<b>Where element {_text(index_text(origin.index))} comes from</b>",
        f"<span>value <code><b>{origin.result}</b></code> <span class='dim'>{origin.dtype}</span></span>",
    ]
    if original is not None:
        error = np.float32(original) - np.float32(origin.value)
        parts.append(f"<span>original <code>{decimal(original)}</code></span>")
        parts.append(f"<span>error <code>{decimal(float(error))}</code></span>")
    parts.append(f"<span class='dim'>{_text(origin.storage)}</span>")
    return f"<div class='qs-cell qs-cell-head'>{''.join(parts)}</div>"


def panel(origin: Origin, table: str) -> str:
    """Write stored numbers with their bits on the left; on the right arithmetic and other readings."""
    numbers = (origin.code, *origin.parameters.values())
    left = "".join(_block_dump(numbers)) + "".join(_number(n, k) for k, n in enumerate(numbers))
    files = ", ".join(_text(file) for file in dict.fromkeys(n.place.file for n in numbers))
    kinds = {n.symbol: k for k, n in enumerate(numbers)}
    right = "".join(_line(line, kinds) for line in origin.lines)
    legend = (
        "Bit 0, on the right, is the least significant. Words are little-endian: the lowest byte comes "
        "first in the file. Hover over a bit or a byte to see what it belongs to."
    )
    return (
        f"<div class='qs-cell qs-cell-two'><div><h4>In the file <span class='dim'>{files}</span></h4>{left}"
        f"</div><div><h4>Arithmetic</h4>{right}{table}</div></div><div class='qs-cell dim'>{legend}</div>"
    )


def _number(number: StoredNumber, k: int) -> str:
    role = _ROLES.get(number.role, number.role.replace("_", " "))
    if number.role == "codes" and number.symbol == "x":  # not quantized: the stored number is the value
        role = "value"
    words = "".join(_word(word, number, k) for word in number.words)
    return (
        f"<div class='qs-cell-number'><div><span class='sym k{k % _KINDS}'>{_text(number.symbol)}</span><br>"
        f"<span class='dim'>{_text(role)}</span></div>"
        f"<div><code>{_text(number.meaning)}</code>{words}</div></div>"
    )


def _word(word: Word, number: StoredNumber, k: int) -> str:
    where = f"byte {word.offset:,} (0x{word.offset:x})" + ("" if word.in_file else " of the unpacked data")
    if _is_block(word):
        own = sorted({position // 8 for position in word.own})
        bits = " ".join(_block_byte(word, byte, k) for byte in own)
        return f"<div class='qs-cell-word m'>{bits}</div>"
    bytes_ = f"bytes {word.data.hex(' ')}" if len(word.data) > 1 else f"byte {word.data.hex()}"
    stored = f"<span class='dim'>{_text(_inside(word))}, {word.dtype}, {where}</span>"
    if number.role != "codes" and all(bit.own for bit in word.bits):
        return f"<div>{stored} <span class='m own k{k % _KINDS}'>{bytes_}</span></div>"
    marked = ""
    for place, digit in enumerate(word.hex[2:]):
        low = 4 * (2 * len(word.data) - 1 - place)
        is_own = any(bit.own for bit in word.bits[low : low + 4])
        marked += f"<span class='own k{k % _KINDS}'>{digit}</span>" if is_own else digit
    runs = "".join(_run(word, high, low, k) for high, low in _runs(word.bits))
    bits = f"<span class='dim'>{len(word.bits) - 1}</span> {runs}<span class='dim'>0</span>"
    line = f"0x{marked} <span class='dim'>{bytes_}</span><br>{bits}"
    return f"<div>{stored}</div><div class='qs-cell-word m'>{line}</div>"


def _runs(bits: Sequence[Bit]) -> Iterable[tuple[int, int]]:
    """Yield (highest, lowest) position of each run of bits with the same owner, highest first."""
    for _, run in groupby(range(len(bits) - 1, -1, -1), lambda place: (bits[place].owner, bits[place].own)):
        places = list(run)
        yield places[0], places[-1]


def _run(word: Word, high: int, low: int, k: int) -> str:
    digits = word.binary[len(word.bits) - 1 - high : len(word.bits) - low]
    title = _text(_owner(word.bits, low, high))
    kind = f"own k{k % _KINDS} " if word.bits[low].own else ""
    return f"<span class='{kind}bit' title='{title}'>{digits}</span>"


def _owner(bits: Sequence[Bit], low: int, high: int) -> str:
    """Write ``bits 8–11: bits 0–3 of element (5, 42)``."""
    spot = f"bit {low}" if low == high else f"bits {low}–{high}"
    owner = bits[low].owner
    whose = "unused" if not owner else f"element {owner}" if owner.startswith("(") else owner
    first, last = sorted((bits[low].at, bits[high].at))
    part = f"bit {first} of " if first == last else f"bits {first}–{last} of "
    return f"{spot}: {part if owner else ''}{whose}{', this one' if bits[low].own else ''}"


def _block_dump(numbers: Sequence[StoredNumber]) -> Iterable[str]:
    """Yield the bytes of a ggml block, with those of each number marked; nothing for other formats."""
    word = numbers[0].words[0]
    if not _is_block(word):
        return
    own: dict[int, int] = {}
    for k, number in enumerate(numbers):
        for byte, _ in number.place.bits:
            own.setdefault(byte - word.offset, k)
    kind, at = f"{word.dtype} of {len(word.data)} bytes", f"byte {word.offset:,} (0x{word.offset:x})"
    where = f"{_text(_inside(word))}, {kind}, {at}"
    rows = []
    for start in range(0, len(word.data), _ROW):
        cells = ""
        for byte in range(start, min(start + _ROW, len(word.data))):
            kind = f" class='own k{own[byte] % _KINDS}'" if byte in own else ""
            bits = word.bits[8 * byte : 8 * byte + 8]
            title = "; ".join(_owner(bits, low, high) for high, low in _runs(bits))
            cells += f"<td{kind} title='+{byte:02x}: {_text(title)}'>{word.data[byte]:02x}</td>"
        rows.append(f"<tr><th class='dim'>+{start:02x}</th>{cells}</tr>")
    yield f"<div class='dim'>{where}</div><table class='qs-cell-dump'>{''.join(rows)}</table>"


def _block_byte(word: Word, byte: int, k: int) -> str:
    """Return the bits of one byte of a block."""
    start = 8 * byte
    bits = word.bits[start : start + 8]
    if k and all(bit.own for bit in bits):
        data = f"{word.data[byte]:02x}"
        return f"<span class='dim'>+{byte:02x}</span> <span class='own k{k % _KINDS}'>{data}</span>"
    part = Word(
        word.file, word.tensor, word.index, word.offset + byte, "U8", word.data[byte : byte + 1], bits
    )
    runs = "".join(_run(part, high, low, k) for high, low in _runs(bits))
    return f"<span class='dim'>+{byte:02x}</span> {runs}"


def _is_block(word: Word) -> bool:
    return word.dtype.endswith("block")


def _inside(word: Word) -> str:
    """Return the name of the stored tensor without its module, and the position in it."""
    tensor, _, place = word.name.rpartition("[")
    last = ".".join(tensor.rsplit(".", 2)[-2:])
    return f"block {place.rstrip(']')} of {tensor}" if _is_block(word) else f"{last}[{place}"


def _line(line: Line, kinds: Mapping[str, int]) -> str:
    known = f"<span class='m'><b>{_text(line.name)}</b></span>"
    parts = [part for part in dict.fromkeys((line.formula, line.numbers)) if part != line.result]
    steps = ""
    for part in parts:
        for word in re.split(r"([A-Za-z_]\w*)", part):  # names of stored numbers are marked like the numbers
            mark = f"<span class='own k{kinds[word] % _KINDS}'>{_text(word)}</span>" if word in kinds else ""
            steps += mark or _text(word)
        steps += " = "
    note = f" <span class='dim'>({_text(line.note)})</span>" if line.note else ""
    body = f"<div><span class='m'>{steps}<span class='result'>{_text(line.result)}</span></span>{note}</div>"
    return f"<div class='qs-cell-line'>{known}{body}</div>"


def rivals(
    origin: Origin, found: Sequence[Rival], findings: Mapping[str, CheckpointFinding], shape: tuple[int, ...]
) -> str:
    """Write a table of the readings, this one first."""
    if not found:
        return "<div class='dim'>No other known reading gives this element a different value.</div>"
    mine = f"<td class='n'><code><b>{origin.result}</b></code></td><td></td>"
    lines = [
        "<tr><th>Rival readings</th><th class='n'>Value</th><th>What they do</th></tr>",
        f"<tr><td><b>this reading</b></td>{mine}</tr>",
    ]
    for rival in found:
        value, counted, finding = "<span class='dim'>no element</span>", "", findings.get(rival.key)
        if rival.origin is not None:
            kind, sign = (" class='other'", "≠ ") if rival.origin.result != origin.result else ("", "")
            value = f"<code{kind}>{sign}{rival.origin.result}</code>"
        if rival.differing is not None:
            rows, where = rival.rows, ""
            if shape and rows != slice(0, shape[0]):
                where = f" in rows {rows.start:,}–{rows.stop - 1:,}"
            counted = f"{rival.differing:,} of {rival.counted:,} elements{where} differ."
        sentence = f"<span class='finding'>{_text(finding.sentence)}</span>" if finding else ""
        reader = f"<span class='dim'>Read this way by {_text(rival.reader)}. {counted}</span>"
        cells = f"<td>{_text(rival.name)}</td><td class='n'>{value}</td>"
        lines.append(f"<tr>{cells}<td>{_text(rival.difference)} {reader}{sentence}</td></tr>")
    return f"<table class='qs-cell-rivals'>{''.join(lines)}</table>"


def _text(text: str) -> str:
    """Escape a text; unprintable characters are replaced."""
    return html.escape("".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text))
