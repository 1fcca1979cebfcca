"""A tensor in a link: every bit is restored, and every kind of corruption is detected."""

import base64
import random
import re
import struct
import zlib

import numpy as np
import pytest
from grid import for_each

from quantcore.errors import QuantError
from quantcore.tensors import (
    EXAMPLES,
    MAX_LINK_CHARS,
    Generated,
    content_hash,
    decode,
    decode_text,
    encode,
    encode_text,
    fits_link,
    generate,
)


def pack(plain: bytes, crc: int | None = None) -> str:
    """Any bytes as a link text of the current version, with the right checksum unless ``crc`` is given."""
    packed = zlib.compress(plain, 9)
    return wrap(struct.pack("<I", zlib.crc32(packed) if crc is None else crc) + packed)


def wrap(raw: bytes) -> str:
    return "1." + base64.urlsafe_b64encode(raw).decode().rstrip("=")


def ones(*shape: int, count: int) -> bytes:
    return struct.pack(f"<B{len(shape)}I", len(shape), *shape) + b"\0" * 4 * count


@for_each("shape", [(), (1,), (7,), (3, 4), (2, 1, 3), (1,) * 16, (30, 30)])
def test_round_trip(shape: tuple[int, ...]) -> None:
    x = np.asarray(np.random.default_rng(0).standard_normal(shape), dtype=np.float32)
    text = encode(x)
    assert re.fullmatch(r"[A-Za-z0-9._-]+", text)
    assert len(text) <= MAX_LINK_CHARS
    result = decode(text)
    assert content_hash(result) == content_hash(x)
    assert result.flags.writeable


def test_every_bit_is_kept() -> None:
    bits = np.array([0, 0x80000000, 0x7F800000, 0xFF800000, 0x7FC00001, 0xFFC12345, 1, 0x7F7FFFFF], np.uint32)
    np.testing.assert_array_equal(decode(encode(bits.view(np.float32))).view(np.uint32), bits)


@for_each(
    "x", [np.arange(12, dtype=np.float32).reshape(3, 4).T, np.arange(9, dtype=np.float32)[::2]]
)
def test_any_memory_layout(x: np.ndarray) -> None:
    np.testing.assert_array_equal(decode(encode(x)), x)
    np.testing.assert_array_equal(decode(encode(x.astype(">f4").astype(np.float32))), x)


def test_links_that_exist_are_still_read() -> None:
    np.testing.assert_array_equal(decode("1.C89LVXjaY2RmgIEGBQd7hwMABu8CJA"), [1, 2.5, -3])


def test_sizes_that_fit() -> None:
    assert fits_link(generate(Generated("normal", (32, 32))))
    assert not fits_link(generate(Generated("normal", (48, 48))))
    assert fits_link(EXAMPLES["randn-seed-0-4x4"].load())
    assert not fits_link(np.zeros((0, 3), np.float32))
    assert not fits_link(np.zeros(3, np.float64))


def test_large_tensors_are_not_compressed_to_find_out(monkeypatch: pytest.MonkeyPatch) -> None:
    compressed: list[int] = []
    monkeypatch.setattr(zlib, "compress", lambda data, level: compressed.append(len(data)) or b"")
    assert not fits_link(np.zeros((4096, 14336), dtype=np.float32))
    assert not compressed
    assert fits_link(np.zeros((4, 4), dtype=np.float32))
    assert len(compressed) == 1


@for_each(
    ("x", "words"),
    [
        (np.zeros(3), ["float64", "astype"]),
        (np.zeros((0, 3), np.float32), ["no elements", "(0, 3)"]),
        (
            np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32),
            ["(64, 64)", "6,000", "file"],
        ),
        (np.zeros(2**17, np.float32), ["(131072,)", "too large"]),
    ],
)
def test_encode_refuses(x: np.ndarray, words: list[str]) -> None:
    with pytest.raises(QuantError) as caught:
        encode(x)
    assert [w for w in words if w not in str(caught.value)] == [], caught.value


GOOD = pack(ones(2, 3, count=6))


@for_each(
    ("text", "words"),
    [
        ("", ["''", "version"]),
        ("hello", ["version"]),
        ("2" + GOOD[1:], ["'2'", "version 1"]),
        ("1.", ["characters"]),
        (GOOD + "=", ["characters"]),
        (GOOD[:6] + "+" + GOOD[7:], ["characters"]),
        (GOOD[:6] + " " + GOOD[7:], ["characters"]),
        (GOOD + "\n", ["characters"]),
        (GOOD[:-4], ["damaged"]),
        ("1.AAA", ["truncated"]),
        (pack(ones(2, 3, count=6), crc=1), ["checksum"]),
        (wrap(struct.pack("<I", zlib.crc32(b"junk")) + b"junk"), ["decompress"]),
        (pack(b""), ["shape"]),
        (pack(b"\xff"), ["shape"]),
        (pack(b"\x02\0\0"), ["shape"]),
        (pack(bytes([17]) + b"\1\0\0\0" * 17 + b"\0" * 4), ["shape"]),
        (pack(ones(2, 3, count=5)), ["(2, 3)", "data"]),
        (pack(ones(2, 3, count=7)), ["(2, 3)", "data"]),
        (pack(ones(0, 3, count=0)), ["(0, 3)"]),
        (pack(ones(2**32 - 1, 2**32 - 1, count=1)), ["shape"]),
        (pack(b"\0" * 4_000_000), ["length"]),
        ("1." + "A" * 10_000, ["10,002", "6,000"]),
    ],
)
def test_decode_refuses(text: str, words: list[str]) -> None:
    with pytest.raises(QuantError) as caught:
        decode(text)
    assert [w for w in words if w not in str(caught.value)] == [], caught.value


def test_trailing_bytes_are_refused() -> None:
    raw = zlib.compress(ones(1, count=1)) + b"more"
    with pytest.raises(QuantError, match="length"):
        decode(wrap(struct.pack("<I", zlib.crc32(raw)) + raw))


def test_every_changed_or_lost_character_is_found() -> None:
    text = encode(np.random.default_rng(0).standard_normal((2, 3)).astype(np.float32))
    for at in range(len(text)):
        for damaged in (
            text[:at] + text[at + 1 :],
            text[:at] + ("A" if text[at] != "A" else "B") + text[at + 1 :],
        ):
            with pytest.raises(QuantError):
                decode(damaged)


@for_each("n", range(1, 7))
def test_bits_beyond_the_last_byte_are_damage(n: int) -> None:
    text = encode(np.random.default_rng(n).standard_normal(n).astype(np.float32))
    for char in set(text) - set("."):
        if char != text[-1]:
            with pytest.raises(QuantError):
                decode(text[:-1] + char)


def test_fuzz() -> None:
    rng = random.Random(0)
    plain = ones(2, 3, count=6)
    read, messages = 0, [""]
    for _ in range(4000):
        # mutate what the checksum covers, which would otherwise catch everything
        data = bytearray(plain)
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(len(data) + 1)
            data[at : at + rng.randint(0, 2)] = rng.randbytes(rng.randint(0, 3))
        try:
            assert decode(pack(bytes(data))).size > 0
            read += 1
        except QuantError as error:
            messages.append(str(error))
    assert 100 < read < 3900
    assert max(map(len, messages)) < 300


@for_each(
    "x", [np.zeros(3, np.float32), np.float32(1) + np.zeros(()), np.zeros((0, 2), np.float32)]
)
def test_content_hash_is_forty_digits(x: np.ndarray) -> None:
    assert re.fullmatch("[0-9a-f]{40}", content_hash(x))


def test_content_hash_sees_everything() -> None:
    x = np.zeros((1000, 1000), np.float32)
    y = x.copy()
    y[567, 891] = 1e-30
    variants = [x, y, x.reshape(-1), x.view(np.int32), x.reshape(500, 2000), -x]
    assert len({content_hash(v) for v in variants}) == len(variants)
    assert content_hash(y.T) == content_hash(np.ascontiguousarray(y.T)) != content_hash(y)
    with pytest.raises(QuantError, match="objects"):
        content_hash(np.array([{}]))


@for_each("text", ["a", "s = x.abs().max() / 127\nq = x / s\n", "é ✓ \ud800", "x" * 200_000])
def test_a_text_comes_back_from_a_link(text):
    assert decode_text(encode_text(text)) == text
    assert len(encode_text(text)) < 1_000


def test_a_text_that_is_too_long_or_damaged_is_refused():
    noise = "".join(random.Random(0).choices("abcdefghij0123456789", k=90_000))
    for text in ("", noise, "x" * (1 << 19)):
        with pytest.raises(QuantError, match="does not fit in a link"):
            encode_text(text)
    good = encode_text("s = 1\n" * 40)
    for text in (good[:-3], good[:9] + "AAAA" + good[13:], "2." + good[2:], encode(np.zeros(1, np.float32))[:-1]):
        with pytest.raises(QuantError, match="The text in the link"):
            decode_text(text)
