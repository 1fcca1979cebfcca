"""Images as tensors, against bytes that the tests write themselves: pixels that are known, and hostile files."""

import contextlib
import ctypes
import io
import multiprocessing
import re
import struct
import sys
import tracemalloc
import zlib
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from grid import for_each
from parts import Part, in_parts
from PIL import Image

from quantcore.analysis import MAX_CELLS
from quantcore.errors import QuantError
from quantcore.tensors import EXAMPLES, IMAGES, MAX_BYTES, MAX_IMAGE_SIDE, is_image, list_tensors, read_tensor
from quantcore.tensors.files.image_files import MAX_CHUNKS, MAX_SEGMENTS

GREY, RGB, PALETTE, GREY_ALPHA, RGBA = 0, 2, 3, 4, 6  # PNG's color types
RNG = np.random.default_rng(0)


def chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def png(
    width: int, height: int, bits: int, color: int, rows: bytes, *before: bytes, after: bytes = b""
) -> bytes:
    """A PNG whose rows, each with its filter byte, are given."""
    header = struct.pack(">2I5B", width, height, bits, color, 0, 0, 0)
    chunks = [chunk(b"IHDR", header), *before, chunk(b"IDAT", zlib.compress(rows)), after, chunk(b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def of(pixels: Any, color: int, *before: bytes, after: bytes = b"") -> bytes:
    """A PNG of an array [height, width] or [height, width, channels], in 8 or 16 bits."""
    array = np.asarray(pixels)
    flat = array.reshape(array.shape[0], -1)
    rows = b"".join(b"\0" + row.astype(row.dtype.newbyteorder(">")).tobytes() for row in flat)
    return png(array.shape[1], array.shape[0], 8 * array.itemsize, color, rows, *before, after=after)


def saved(x: Any, kind: str, **options: Any) -> bytes:
    stream = io.BytesIO()
    (x if isinstance(x, Image.Image) else Image.fromarray(x)).save(stream, kind, **options)
    return stream.getvalue()


def exif(orientation: int) -> bytes:
    """A TIFF header with one entry: the orientation."""
    return b"II*\0" + struct.pack("<IH", 8, 1) + struct.pack("<HHIHHI", 0x0112, 3, 1, orientation, 0, 0)


def luma(red: int, green: int, blue: int, alpha: int = 255) -> int:
    """BT.601's luma on white, rounded to the nearest integer, in exact fractions."""
    level = Fraction(299 * int(red) + 587 * int(green) + 114 * int(blue), 1000)
    level = (level * int(alpha) + 255 * (255 - int(alpha))) / 255
    return int(level + Fraction(1, 2))


G8 = RNG.integers(0, 256, (5, 7), np.uint8)
C8 = RNG.integers(0, 256, (6, 4, 3), np.uint8)
A8 = RNG.integers(0, 256, (6, 4, 4), np.uint8)
EXPECTED_C8 = [[luma(*pixel) for pixel in row] for row in C8]


def packed(bits: int, rows: list[list[int]]) -> bytes:
    return b"".join(
        b"\0" + np.packbits([(v >> b) & 1 for v in row for b in range(bits)[::-1]]).tobytes() for row in rows
    )


ONE_FRAME = chunk(b"fcTL", struct.pack(">5I2H2B", 0, 7, 5, 0, 0, 1, 10, 0, 0))
# 2 × 2 pixels in PNG's passes: the first pixel, then the one to its right, then the row below
INTERLACED = png(2, 2, 8, GREY, b"\0\1" + b"\0\2" + b"\0\3\4")
INTERLACED = INTERLACED.replace(INTERLACED[8:33], chunk(b"IHDR", struct.pack(">2I5B", 2, 2, 8, GREY, 0, 0, 1)))
READ = {
    "8 bits of grey": (of(G8, GREY), G8),
    "RGB": (of(C8, RGB), EXPECTED_C8),
    "black, white and primaries": (
        of(np.uint8([[[0, 0, 0], [255, 255, 255], [255, 0, 0], [0, 255, 0], [0, 0, 255]]]), RGB),
        [[0, 255, 76, 150, 29]],
    ),
    "alpha": (of(A8, RGBA), [[luma(*pixel) for pixel in row] for row in A8]),
    "transparent": (of(np.uint8([[[9, 9, 9, 0], [9, 9, 9, 255]]]), RGBA), [[255, 9]]),
    "grey and alpha": (of(np.uint8([[[100, 255], [100, 0], [0, 51]]]), GREY_ALPHA), [[100, 255, 204]]),
    "one transparent grey": (of(G8, GREY, chunk(b"tRNS", struct.pack(">H", G8[1, 2]))), np.where(G8[1, 2] == G8, 255, G8)),
    "16 bits of grey": (of(np.uint16([[0, 255, 256, 0x80FF, 65535]]), GREY), [[0, 0, 1, 128, 255]]),
    "16 bits, one transparent": (
        of(np.uint16([[0x0101, 0x0102]]), GREY, chunk(b"tRNS", b"\x01\x02")), [[1, 255]],
    ),
    "16 bits of RGB": (of(C8.astype(np.uint16) * 256 + 255, RGB), EXPECTED_C8),
    "16 bits of grey and alpha": (of(np.uint16([[[0x64FF, 65535], [7, 0]]]), GREY_ALPHA), [[100, 255]]),
    "1 bit": (png(10, 2, 1, GREY, packed(1, [[1, 0] * 5, [0, 1] * 5])), np.array([[1, 0] * 5, [0, 1] * 5]) * 255),
    "2 bits": (png(4, 1, 2, GREY, packed(2, [[0, 1, 2, 3]])), [[0, 85, 170, 255]]),
    "4 bits": (png(3, 1, 4, GREY, packed(4, [[0, 7, 15]])), [[0, 119, 255]]),
    "a palette": (png(2, 1, 8, PALETTE, b"\0\1\0", chunk(b"PLTE", bytes([10, 20, 30, 200, 0, 99]))), [[luma(200, 0, 99), luma(10, 20, 30)]]),
    "a palette with a transparent color": (
        png(2, 1, 8, PALETTE, b"\0\1\0", chunk(b"PLTE", bytes([10, 20, 30, 200, 0, 99])), chunk(b"tRNS", b"\0")),
        [[luma(200, 0, 99), 255]],
    ),
    "interlaced": (INTERLACED, [[1, 2], [3, 4]]),
    "with a zip behind it": (of(G8, GREY) + b"PK\x03\x04" + bytes(100), G8),
    "lossless WebP": (saved(C8, "WEBP", lossless=True), EXPECTED_C8),
    "WebP with alpha": (saved(A8, "WEBP", lossless=True, exact=True), [[luma(*pixel) for pixel in row] for row in A8]),
    "grey JPEG": (saved(np.full((9, 8), 77, np.uint8), "JPEG"), np.full((9, 8), 77)),
    "one frame of an animated PNG": (of(G8, GREY, chunk(b"acTL", struct.pack(">2I", 1, 0)), ONE_FRAME), G8),
    "EXIF that can't be read": (of(G8, GREY, chunk(b"eXIf", b"MM\0*" + b"\xff" * 40)), G8),
}  # fmt: skip


@for_each("kind", READ)
def test_pixels_become_grey_levels(kind: str) -> None:
    data, expected = READ[kind]
    for name in ("a.png", "A.JPEG", "a.webp"):  # the content decides which of the three it is
        x = read_tensor(data, name)
        np.testing.assert_array_equal(x, np.asarray(expected, np.float32), strict=True)
        (info,) = list_tensors(data, name)
        assert (info.name, info.shape, info.dtype_name) == (name, x.shape, "uint8")


def test_luma_is_exact_for_every_color_and_alpha_of_a_sample() -> None:
    colors = RNG.integers(0, 256, (40, 50, 4), np.uint8)
    colors[:20, :, 3] = 255
    expected = [[luma(*pixel) for pixel in row] for row in colors]
    np.testing.assert_array_equal(read_tensor(of(colors, RGBA), "a.png"), np.float32(expected))


# EXIF 2.32, orientation: where the 0th row and the 0th column of the file belong
SIDES = {1: ("top", "left"), 2: ("top", "right"), 3: ("bottom", "right"), 4: ("bottom", "left")}
SIDES |= {5: ("left", "top"), 6: ("right", "top"), 7: ("right", "bottom"), 8: ("left", "bottom")}


@for_each("orientation", SIDES)
@for_each("file", ["png", "png, late", "webp", "jpeg"])
def test_an_image_is_turned_upright(orientation: int, file: str) -> None:
    stored = np.full((16, 32), 128, np.uint8)
    stored[:8] += 90  # the 0th rows are the lightest, the 0th columns darker than the last
    stored[:, :8] -= 60
    tag = chunk(b"eXIf", exif(orientation))
    data = {
        "png": of(stored, GREY, tag),
        "png, late": of(stored, GREY, after=tag),
        "webp": saved(Image.fromarray(stored).convert("RGB"), "WEBP", lossless=True, exif=exif(orientation)),
        "jpeg": saved(stored, "JPEG", quality=100, exif=b"Exif\0\0" + exif(orientation)),
    }[file]
    x = read_tensor(data, "a.png")
    ends = {"top": x[:8], "bottom": x[-8:], "left": x[:, :8], "right": x[:, -8:]}
    opposite = {"top": "bottom", "bottom": "top", "left": "right", "right": "left"}
    row, column = SIDES[orientation]
    assert ends[row].mean() > ends[opposite[row]].mean() + 80
    assert ends[column].mean() < ends[opposite[column]].mean() - 50
    if file != "png, late":  # whose place is known only after the pixels
        assert list_tensors(data, "a.png")[0].shape == x.shape


def test_a_large_image_becomes_the_means_of_squares() -> None:
    pixels = RNG.integers(0, 256, (130, 600), np.uint8)
    x = read_tensor(of(pixels, GREY), "a.png")
    assert x.shape == (44, 200)  # 3 × 3 pixels each; the last row of squares has one row of pixels
    for row, column in [(0, 0), (7, 150), (43, 0), (43, 199)]:
        box = pixels[3 * row : 3 * row + 3, 3 * column : 3 * column + 3].astype(int)
        assert x[row, column] == int(Fraction(int(box.sum()), box.size) + Fraction(1, 2))
    (info,) = list_tensors(of(pixels, GREY), "a.png")
    assert info.shape == x.shape
    assert "the mean of 3 × 3 of the 130 × 600 pixels" in info.how
    assert MAX_IMAGE_SIDE == MAX_CELLS  # the maps show each element
    assert read_tensor(of(pixels[:, :256], GREY), "a.png").shape == (130, 256)
    assert read_tensor(of(pixels[:1, :257], GREY), "a.png").shape == (1, 129)


def test_it_is_said_how_the_levels_are_made() -> None:
    how = {kind: list_tensors(data, "a.png")[0].how for kind, (data, _) in READ.items()}
    assert how["8 bits of grey"] == "Grey levels from 0 (black) to 255 (white)."
    for kind, text in how.items():
        colored = "RGB" in kind or kind in ("black, white and primaries", "alpha", "transparent") or "palette" in kind
        colored = colored or "WebP" in kind
        if kind == "16 bits of grey and alpha":  # Pillow stores it as colors
            continue
        assert ("0.299 R + 0.587 G + 0.114 B (ITU-R BT.601)" in text) == colored, kind
        assert ("blended with white" in text) == any(w in kind for w in ("alpha", "transparent")), kind
        assert ("upper 8" in text) == ("16 bits" in kind), kind


def bomb(side: int) -> bytes:
    """A PNG of ``side`` × ``side`` black pixels in RGB, a thousandth of their size."""
    return png(side, side, 8, RGB, bytes(side * (3 * side + 1)))


def animated(kind: str) -> bytes:
    frames = [Image.fromarray(G8), Image.fromarray(255 - G8)]
    return saved(frames[0], kind, save_all=True, append_images=frames[1:], duration=100, lossless=True)


def segmented(many: int) -> bytes:
    """A JPEG with so many segments of EXIF more than usual."""
    data = saved(G8, "JPEG")
    return data[:2] + (b"\xff\xe1" + struct.pack(">H", 16) + b"Exif\0\0II*\0\x08\0\0\0") * many + data[2:]


CLAIMS = png(30_000, 30_000, 8, RGB, b"\0")  # 900 million pixels, and none there
WEBP_CLAIM = b"RIFF\x1e\0\0\0WEBPVP8X\x0a\0\0\0\0\0\0\0" + struct.pack("<I", 16382)[:3] * 2 + bytes(8)
REFUSED = {
    "claims more pixels than fit": (CLAIMS, ["pixels", "scale"]),
    "claims more than the limit": (png(9000, 9000, 8, RGB, b"\0"), ["9,000 × 9,000 pixels", "at most 53,687,091"]),
    "a WebP that claims more": (WEBP_CLAIM, ["more pixels than can be read"]),
    "no pixels": (png(0, 5, 8, GREY, b""), ["damaged"]),
    "truncated PNG": (of(RNG.integers(0, 256, (99, 99), np.uint8), GREY)[:3000], ["damaged or truncated"]),
    "truncated JPEG": (saved(RNG.integers(0, 256, (99, 99), np.uint8), "JPEG")[:-900], ["damaged or truncated"]),
    "truncated WebP": (saved(C8, "WEBP", lossless=True)[:-9], ["damaged or truncated"]),
    "too few interlaced rows": (
        INTERLACED.replace(INTERLACED[8:33], chunk(b"IHDR", struct.pack(">2I5B", 2, 3, 8, GREY, 0, 0, 1))), ["damaged"],
    ),
    "too few rows": (png(5, 5, 8, GREY, b"\0" * 12), ["damaged or truncated"]),
    "only its first bytes": (b"\x89PNG\r\n\x1a\n", ["damaged or truncated"]),
    "a JPEG without its end": (b"\xff\xd8\xff\xe0\0\x10JFIF", ["damaged or truncated"]),
    "a wrong filter": (png(2, 1, 8, GREY, b"\x09\1\2"), ["damaged or truncated"]),
    "a size that changes": (of(G8, GREY, chunk(b"IHDR", struct.pack(">2I5B", 7, 6, 8, 0, 0, 0, 0))), ["damaged"]),
    "a bomb of text": (of(G8, GREY, chunk(b"zTXt", b"a\0\0" + zlib.compress(bytes(10**7)))), ["damaged"]),
    "many chunks": (of(G8, GREY, chunk(b"tEXt", b"a\0b") * MAX_CHUNKS), ["too many parts", "without metadata"]),
    "many segments": (segmented(MAX_SEGMENTS + 1), ["too many parts"]),
    "animated PNG": (animated("PNG"), ["animated", "one frame"]),
    "animated WebP": (animated("WEBP"), ["animated", "one frame"]),
    "CMYK": (saved(Image.new("CMYK", (4, 4)), "JPEG"), ["CMYK", "RGB"]),
    "GIF": (saved(G8, "GIF"), ["contains a GIF image", "save it as PNG, JPEG or WebP"]),
    "TIFF": (saved(G8, "TIFF"), ["contains a TIFF image"]),
    "BMP": (saved(G8, "BMP"), ["contains something else"]),
    "HEIC": (b"\0\0\0\x18ftypheic" + bytes(40), ["HEIC or AVIF", "PNG, JPEG or WebP"]),
    "SVG": (b'<svg xmlns="http://www.w3.org/2000/svg"/>', ["contains something else"]),
    "EPS, which would start another program": (b"%!PS-Adobe-3.0 EPSF-3.0\n", ["contains something else"]),
    "numbers": (b"1, 2, 3", ["contains something else"]),
    "an array": (b"\x93NUMPY\x01\0", [".npy"]),
    "a pickle": (b"\x80\x04\x95" + bytes(20), ["pickle"]),
    "nothing": (b"", ["empty"]),
}  # fmt: skip


@pytest.mark.slow  # by default, images of one part more than the limit are refused
def test_an_image_of_many_parts_is_read() -> None:
    plain = read_tensor(of(G8, GREY), "x.png")
    assert np.array_equal(read_tensor(of(G8, GREY, chunk(b"tEXt", b"a\0b") * (MAX_CHUNKS - 9)), "x.png"), plain)
    assert np.array_equal(read_tensor(segmented(200), "x.jpg"), read_tensor(segmented(0), "x.jpg"))


@for_each("kind", REFUSED)
def test_a_hostile_image_gets_one_sentence(kind: str) -> None:
    data, words = REFUSED[kind]
    for name in ("photo.png", "photo.jpg"):
        with pytest.raises(QuantError) as error:
            read_tensor(data, name)
        text = str(error.value)
        assert all(word in text for word in words), text
        assert "\n" not in text
        assert repr(name) in text
        assert text.endswith(".")


def test_a_damaged_image_is_levels_or_one_sentence() -> None:
    random = np.random.default_rng(2)
    files = [data for data, _ in READ.values()] + [saved(C8, "JPEG", exif=b"Exif\0\0" + exif(5)), animated("WEBP")]
    read = 0
    for _ in range(400):
        data = bytearray(files[random.integers(len(files))])
        for place in random.integers(0, len(data), random.integers(1, 5)):
            data[place] = random.integers(256)
        try:
            x = read_tensor(data, "a.png")
        except QuantError as error:
            sentence = str(error)
        else:
            sentence = "."
            assert ((x >= 0) & (x <= 255)).all()
            assert max(x.shape) <= MAX_IMAGE_SIDE
            read += 1
        assert re.fullmatch(r"[^\n]*\.", sentence)
    assert 50 < read < 350


def test_an_image_under_another_name_is_refused() -> None:
    with pytest.raises(QuantError, match="contains a PNG, JPEG or WebP image; correct the extension"):
        read_tensor(of(G8, GREY), "x.csv")
    for name in ("x.svg", "x.gif", "x.heic", "x.bmp"):
        with pytest.raises(QuantError, match=r"not a supported file type; give one of .*\.webp"):
            read_tensor(of(G8, GREY), name)
    assert all(is_image(f"a{extension}") for extension in IMAGES)
    assert not any(map(is_image, ("a.npy", "png", "a.png.npy", "")))


def test_a_bomb_is_refused_before_its_pixels_are_unpacked() -> None:
    """Of 75 MB that unpack from 75 kB, with a limit that holds a tenth of that."""
    data = bomb(5000)
    assert len(data) < 100_000
    tracemalloc.start()
    with pytest.raises(QuantError, match="5,000 × 5,000 pixels; at most 2,000,000"):
        list_tensors(data, "a.png", 10**7)
    with pytest.raises(QuantError, match="5,000 × 5,000 pixels; at most 2,000,000"):
        read_tensor(data, "a.png", limit=10**7)
    assert tracemalloc.get_traced_memory()[1] < 10**6
    tracemalloc.stop()


def peak_of(data: bytes, small: bytes, results: Any) -> None:
    """The bytes by which reading an image raises the peak of a process, and what it claims.

    A small one of its kind is read before: code that is used for the first time after a fork counts, too.
    """

    def peak() -> int:
        found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
        assert found
        return 1024 * int(found[1])

    read_tensor(small, "a.png")
    with contextlib.suppress(AttributeError):
        ctypes.CDLL(None).malloc_trim(0)  # nothing of it may come from what was freed before
    Path("/proc/self/clear_refs").write_text("5")  # the peak is now what it holds, not what the tests held once
    before = peak()
    read_tensor(data, "a.png")
    results.put((peak() - before, list_tensors(data, "a.png")[0].nbytes))


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="this system doesn't tell a process its peak")
@in_parts(3)
def test_an_image_takes_no_more_memory_than_it_claims(part: Part) -> None:
    color = Image.new("RGB", (2000, 1500), (9, 99, 200))
    small = color.resize((20, 15))
    files = [
        lambda: (bomb(3500), bomb(20)),
        lambda: (saved(color, "JPEG"), saved(small, "JPEG")),
        lambda: (saved(color.resize((1000, 750)), "WEBP", lossless=True), saved(small, "WEBP", lossless=True)),
    ]
    fork = multiprocessing.get_context("fork")  # importing torch again takes seconds
    results = fork.Queue()
    for data, like_it in (file() for file in part(files)):
        process = fork.Process(target=peak_of, args=(data, like_it, results))
        process.start()
        peak, claimed = results.get(timeout=60)
        process.join()
        assert 0 < peak < claimed + 20 * 2**20
        assert claimed <= MAX_BYTES


def test_without_pillow_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(QuantError, match="needs Pillow; install it with pip install pillow"):
        read_tensor(of(G8, GREY), "a.png")


def test_the_example_images_are_grey_levels() -> None:
    images = {name: example for name, example in EXAMPLES.items() if example.is_image}
    assert len(images) == 2
    for name, example in images.items():
        x = example.load()
        assert x.shape == tuple(map(int, name.split("-")[-1].split("x")))
        assert ((x >= 0) & (x <= 255) & (x == np.round(x))).all()
        assert x.max() - x.min() > 200  # from dark to light
        assert len(np.unique(x)) > 150
