"""Files: which ones are read, and that every hostile file, built here by hand, is refused with one sentence."""

import functools
import importlib
import io
import json
import pickle
import random
import struct
import tracemalloc
import zipfile
import zlib
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from bounded import in_seconds
from grid import for_each
from parts import in_parts, some

from quantcore.errors import QuantError
from quantcore.tensors import (
    EXTENSIONS,
    MAX_BYTES,
    MAX_TEXT_FILE_BYTES,
    TensorInfo,
    list_tensors,
    read_tensor,
)

X = np.array([[0, 1, 2], [3, 4, 5]], dtype=np.float32)


def npy(x: Any, **options: Any) -> bytes:
    stream = io.BytesIO()
    np.save(stream, x, **options)
    return stream.getvalue()


def npz(compressed: bool = True, **arrays: Any) -> bytes:
    stream = io.BytesIO()
    (np.savez_compressed if compressed else np.savez)(stream, **arrays)
    return stream.getvalue()


def npy_header(descr: object, shape: tuple[int, ...], data: bytes = b"") -> bytes:
    """A .npy file with this header, whatever its data."""
    header = f"{{'descr': {descr!r}, 'fortran_order': False, 'shape': {shape!r}, }}\n".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + data


def zipped(members: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", method) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return stream.getvalue()


def st(header: object, body: bytes = b"") -> bytes:
    """A .safetensors file with this header."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + body


def record(dtype: str = "F32", shape: object = (1,), offsets: object = (0, 4)) -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


def test_dtype_under_its_usual_name() -> None:
    """For every dtype that torch writes to .safetensors files and NumPy to .npy files."""
    dtypes = ["float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool"]
    data = safetensors.torch.save({name: torch.ones(1, 2).to(getattr(torch, name)) for name in dtypes})
    listed = {info.name: info for info in list_tensors(data, "x.safetensors")}
    assert {info.dtype_name for info in listed.values()} == set(dtypes)
    for name, info in listed.items():
        assert info.dtype_name == name
        assert info.is_floating == getattr(torch, name).is_floating_point
    for dtype in (">f8", "<f2", "|b1", ">i4", "u2"):
        (info,) = list_tensors(npy(np.ones((1, 2), dtype)), "x.npy")
        assert info.dtype_name == np.dtype(dtype).name
    (info,) = list_tensors(st({"x": record("F8_E4M3", (1, 4))}, bytes(4)), "x.safetensors")
    assert (info.dtype_name, info.is_floating) == ("F8_E4M3", False)


def torch_file(**options: Any) -> bytes:
    stream = io.BytesIO()
    torch.save({"w": torch.ones(2)}, stream, **options)
    return stream.getvalue()


def encrypted() -> bytes:
    """A .npz whose two headers both mark its member as encrypted."""
    data = bytearray(npz(a=X))
    central = data.rfind(b"PK\x01\x02")
    data[6] |= 1
    data[central + 8] |= 1
    return bytes(data)


def wrong_crc() -> bytes:
    data = bytearray(npz(compressed=False, a=X))
    data[data.index(X.tobytes())] ^= 1
    return bytes(data)


@functools.cache
def bomb(size: int) -> bytes:
    """A zip file of zeros that unpacks to a thousand times its size."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("a.npy", "w") as file:
        file.write(npy_header("<f4", (size // 4,)))
        for _ in range(size // 2**22):
            file.write(bytes(2**22))
    return stream.getvalue()


READABLE = [
    (npy(X), "a.npy"),
    (npy(X), "A.NPY"),
    (npy(np.asfortranarray(X)), "a.npy"),
    (npy(X.astype(">f4")), "a.npy"),
    (npy(X.astype(">f8")), "a.npy"),
    *[(npy(X.astype(d)), "a.npy") for d in ("f2", "f8", "i1", "u1", "i2", ">u2", "i4", ">i8", "u8")],
    (npz(a=X), "a.npz"),
    (npz(compressed=False, a=X), "a.npz"),
    (npz(a=np.asfortranarray(X.astype(">i4"))), "a.npz"),
    (b"0,1,2\n3,4,5\n", "a.csv"),
    (b"\xef\xbb\xbf0;1,0;2\r\n3;4;5\r\n", "a.csv"),
    (b"0\t1\t2\n3\t4\t5", "a.tsv"),
    (b"tensor([[0., 1., 2.],\n        [3., 4., 5.]])", "a.txt"),
    (b"[[0, 1, 2], [3, 4, 5.0]]", "a.json"),
    (b'{"w": [[0, 1, 2], [3, 4, 5]]}', "a.json"),
    *[
        (safetensors.torch.save({"w": torch.tensor(X).to(dtype)}), "a.safetensors")
        for dtype in (
            torch.float64,
            torch.float32,
            torch.float16,
            torch.bfloat16,
            torch.int64,
            torch.int32,
            torch.int16,
            torch.int8,
            torch.uint8,
        )
    ],
]


@for_each(("data", "name"), READABLE)
@for_each("wrap", [bytes, memoryview])
def test_reads(data: bytes, name: str, wrap: Any) -> None:
    (info,) = list_tensors(wrap(data), name)
    assert info.shape == (2, 3)
    for tensor in (None, info.name):
        result = read_tensor(wrap(data), name, tensor)
        np.testing.assert_array_equal(result, X, strict=True)
        assert result.flags.c_contiguous
        assert result.flags.writeable


def test_values_of_each_dtype() -> None:
    values = torch.tensor([1.5, -2.25, float("inf"), float("-inf"), 65504.0, 2.0**-14])
    for dtype in (torch.bfloat16, torch.float16, torch.float64):
        data = safetensors.torch.save({"w": values.to(dtype)})
        np.testing.assert_array_equal(read_tensor(data, "a.safetensors"), values.to(dtype).float().numpy())
    assert read_tensor(npy(np.array([True, False])), "a.npy").tolist() == [1.0, 0.0]
    flags = safetensors.torch.save({"w": torch.tensor([True, False])})
    assert read_tensor(flags, "a.safetensors").tolist() == [1.0, 0.0]
    assert np.isnan(read_tensor(npy(np.float64("nan")), "a.npy"))
    assert read_tensor(npy(np.array([2**24, 2**24 + 1])), "a.npy").tolist() == [2.0**24, 2.0**24]
    assert read_tensor(npy(np.array([np.inf, 3.4e38])), "a.npy")[0] == np.inf
    assert read_tensor(b"[1, NaN, -Infinity]", "a.json")[2] == -np.inf
    assert read_tensor(npy(np.float32(3)), "a.npy").shape == ()


def test_list_names_every_tensor() -> None:
    data = npz(first=X, second=np.zeros((4,), np.int8))
    assert list_tensors(data, "a.npz") == [
        TensorInfo("first", (2, 3), "float32", 24),
        TensorInfo("second", (4,), "int8", 4),
    ]
    assert read_tensor(data, "a.npz", "second").tolist() == [0, 0, 0, 0]
    tensors = {"b.weight": torch.zeros(2, 2, dtype=torch.bfloat16), "a": torch.ones(3)}
    infos = list_tensors(safetensors.torch.save(tensors, {"format": "pt"}), "m.safetensors")
    assert {i.name: (i.shape, i.dtype, i.nbytes) for i in infos} == {
        "b.weight": ((2, 2), "BF16", 8),
        "a": ((3,), "F32", 12),
    }
    assert [i.name for i in list_tensors(b'{"w": [1], "v": [[2.5]]}', "a.json")] == ["w", "v"]
    assert list_tensors(npy(np.array([{}])), "a.npy")[0].dtype == "object"


REFUSED = [
    # .npy
    (npy(np.zeros((0, 3))), "a.npy", ["'a.npy'", "no elements", "(0, 3)"]),
    (npy(np.array([{}]), allow_pickle=True), "a.npy", ["Python objects", "unpickling"]),
    (npy(X + 1j), "a.npy", ["complex"]),
    (npy(np.array(["a"])), "a.npy", ["strings"]),
    (npy(np.array([b"a"])), "a.npy", ["strings"]),
    (npy(np.zeros(2, dtype=[("a", "f4")])), "a.npy", ["records"]),
    (npy(np.array(["2020-01-01"], dtype="M8[D]")), "a.npy", ["dates"]),
    (npy(np.array([[1, 2], [3, 1e39]])), "a.npy", ["1e+39", "(1, 1)", "3.4e38"]),
    (npy_header("<f4", (10**9,)), "a.npy", ["4,000.0 MB", "0 bytes follow"]),
    (npy_header("<f4", (3,), b"\0" * 8), "a.npy", ["claims 12 bytes", "8 bytes follow"]),
    (npy_header("<f4", (1,), b"\0" * 8), "a.npy", ["claims 4 bytes", "8 bytes follow"]),
    (npy_header("<f4", (-1,)), "a.npy", ["impossible shape"]),
    (npy_header("<f4", (-1, -1), b"\0" * 4), "a.npy", ["impossible shape"]),
    (npy_header("<f4", (10**4000,)), "a.npy", ["impossible shape"]),
    (npy_header("<f4", (10**12,) * 5), "a.npy", ["million GB"]),
    (npy_header("<f4", (2**63, 2)), "a.npy", ["impossible shape"]),
    (npy_header("<f4", (1,) * 17, b"\0" * 4), "a.npy", ["17 axes", "16"]),
    (npy_header("(2,)<f4", (1,), b"\0" * 8), "a.npy", ["records"]),
    (npy_header("|O", (10**3,), b"\0"), "a.npy", ["Python objects"]),
    (npy_header("__import__('os')", (1,)), "a.npy", ["header"]),
    (npy_header("<f4", ("a",)), "a.npy", ["header"]),  # type: ignore[arg-type]
    (b"\x93NUMPY\x01\x00\x10\x00" + b"(" * 16, "a.npy", ["header"]),
    (b"\x93NUMPY\x02\x00\xff\xff\xff\xff{", "a.npy", ["header"]),
    (b"\x93NUMPY\x09\x00\x10\x00", "a.npy", ["header"]),
    (b"\x93NUMPY", "a.npy", ["header"]),
    # .npz
    (npz(a=X, b=X), "a.npz", ["2 tensors", "'a', 'b'", "choose one"]),
    (npz(**{f"t{i}": X for i in range(9)}), "a.npz", ["9 tensors", "and 4 more"]),
    (npz(a=X)[:-30], "a.npz", ["truncated"]),
    (npz(a=X)[:60], "a.npz", ["truncated"]),
    (npz(a=X)[:4], "a.npz", ["truncated"]),
    (wrong_crc(), "a.npz", ["'a.npy'", "damaged"]),
    (encrypted(), "a.npz", ["'a.npy'", "encrypted", "password"]),
    (npz(a=np.array([{}])), "a.npz", ["'a'", "Python objects"]),
    (zipped({}), "a.npz", ["something else"]),
    (zipped({"readme.md": b"x", "a.npy": npy(X)}), "a.npz", ["does not contain only .npy arrays"]),
    (zipped({"a.npy": b"x"}), "a.npz", ["'a'", "header"]),
    (zipped({"../../x.npy": npy_header("<f4", (9,))}), "a.npz", ["'../../x'", "claims 36 bytes"]),
    (zipped({"a.npy": npy(X)}, zipfile.ZIP_LZMA), "a.npz", ["compression"]),
    (zipped({"a.npy": npy(X)}, zipfile.ZIP_BZIP2), "a.npz", ["compression"]),
    # pickles, under their own name and under others
    (torch_file(), "m.pt", ["'m.pt'", "pickle", "weights_only=True", "save_file", "np.save"]),
    (torch_file(), "m.pth", ["pickle", "weights_only=True"]),
    (torch_file(), "pytorch_model.bin", ["pickle", "weights_only=True"]),
    (torch_file(), "m.ckpt", ["pickle"]),
    (torch_file(), "m.npz", ["torch checkpoint", "weights_only=True"]),
    (torch_file(), "m.npy", [".npy", "zip"]),
    *[(pickle.dumps({"a": 1}, protocol=p), "m.pkl", ["pickle"]) for p in (0, 2, 5)],
    *[
        (pickle.dumps({"a": 1}, protocol=p), f"m{end}", ["pickle", "weights_only"])
        for p in (2, 3, 4, 5)
        for end in (".npy", ".npz", ".csv", ".json", ".txt")
    ],
    (torch_file(_use_new_zipfile_serialization=False), "m.npy", ["pickle"]),
    (pickle.dumps({"a": 1}), "m.safetensors", ["does not begin"]),
    # .safetensors
    (st({"w": record(offsets=(0, 8))}, b"\0" * 8), "a.safetensors", ["'w'", "shape", "number of bytes"]),
    (st({"w": record(offsets=(4, 0))}, b"\0" * 4), "a.safetensors", ["'w'", "number of bytes"]),
    (st({"w": record()}), "a.safetensors", ["'w'", "ends beyond"]),
    (st({"w": record(offsets=(4, 8))}, b"\0" * 8), "a.safetensors", ["'w'", "gap"]),
    (st({"v": record(), "w": record()}, b"\0" * 8), "a.safetensors", ["'v'", "'w'", "overlap"]),
    (st({"w": record()}, b"\0" * 8), "a.safetensors", ["4 bytes", "no tensor"]),
    (st({"w": record(shape=(2**40, 2**40))}), "a.safetensors", ["'w'", "number of bytes"]),
    (st({"w": record(shape=(10**30,))}), "a.safetensors", ["impossible shape"]),
    (st({"w": record(shape=(-1,))}), "a.safetensors", ["record of 'w'"]),
    (st({"w": record(shape=(True,))}, b"\0" * 4), "a.safetensors", ["record of 'w'"]),
    (st({"w": record(shape=[1] * 17)}, b"\0" * 4), "a.safetensors", ["17 axes"]),
    (st({"w": record(offsets=(0, 2, 4))}, b"\0" * 4), "a.safetensors", ["record of 'w'"]),
    (st({"w": record(dtype="X9")}, b"\0" * 4), "a.safetensors", ["'w'", "unknown dtype 'X9'"]),
    (st({"w": record("C64", (1,), (0, 8))}, b"\0" * 8), "a.safetensors", ["complex"]),
    (st({"w": record("F8_E4M3", (4,))}, b"\0" * 4), "a.safetensors", ["'w'", "F8_E4M3 codes", "scales"]),
    (st({"w": record(shape=(0,), offsets=(0, 0))}), "a.safetensors", ["'w'", "no elements", "(0,)"]),
    (st({"w": 3}), "a.safetensors", ["record of 'w'"]),
    (st({}), "a.safetensors", ["no tensor"]),
    (st({"__metadata__": {"a": "b"}}), "a.safetensors", ["no tensor"]),
    (st(b'{"w":1,"w":2}'), "a.safetensors", ["the duplicate key 'w'"]),
    (st(b"{" + b"[" * 9999), "a.safetensors", ["header"]),
    (st(b'{"a":' * 9999), "a.safetensors", ["too deep"]),
    (st(b'{"a":' + b"9" * 5000 + b"}"), "a.safetensors", ["digits"]),
    (st(b'{"\xff": 1}'), "a.safetensors", ["UTF-8"]),
    (b"\xff" * 8 + b"{}", "a.safetensors", ["does not begin"]),
    (struct.pack("<Q", 10**6) + b"{}", "a.safetensors", ["does not begin"]),
    (b"{}", "a.safetensors", ["does not begin"]),
    (
        struct.pack("<Q", 17 * 2**20) + b"{" + b" " * (17 * 2**20),
        "a.safetensors",
        ["header length of 17,825,792 bytes"],
    ),
    # text
    (b"1,2\n3,x\n", "a.csv", ["'x'", "line 2, column 3"]),
    (b"1,2\n3\n", "a.csv", ["Line 2 has 1 number"]),
    (b"\xff\xfe1\x00", "a.csv", ["UTF-16", "UTF-8"]),
    (b"1,\xe9", "a.csv", ["UTF-8", "byte 2", "0xe9"]),
    (b"1\0002", "a.txt", ["not a number"]),
    (b"[[1,2],[3]]", "a.json", ["Row [1]", "column 10"]),
    (b"[1, true]", "a.json", ["'true'", "column 5"]),
    (b'["a"]', "a.json", ["'\"a\"'", "column 2"]),
    (b'{"v": [1], "w": [1, "2"]}', "a.json", ["'w'", "not a rectangular"]),
    (b'{"w": [[1], [2, 3]]}', "a.json", ["'w'", "not a rectangular"]),
    (b"[" + b"[1]," * 2_000_000 + b"[1]]", "a.json", ["more than 2,000,000 lists", ".npy"]),
    (b"{" + b", ".join(b'"%d": 1' % i for i in range(10_001)) + b"}", "a.json", ["10,001 tensors", "save fewer"]),
    (b'{"w": []}', "a.json", ["'w'", "no elements", "(0,)"]),
    (b'{"w": ' + b"[" * 17 + b"1" + b"]" * 17 + b"}", "a.json", ["'w'", "not a rectangular"]),
    (b'{"w": {"a": 1}}', "a.json", ["'w'"]),
    (b'{"w": [true]}', "a.json", ["'w'"]),
    (b'{"w": [1, false]}', "a.json", ["'w'"]),
    (b'{"w": null}', "a.json", ["'w'"]),
    (b'{"w": 1e400}', "a.json", ["'1e400'", "3.4e38"]),
    (b'{"w": [1, 1e39]}', "a.json", ["1e+39", "(1,)"]),
    (b'{"w": 1, "w": 2}', "a.json", ["the duplicate key 'w'"]),
    (b"{}", "a.json", ["no tensor"]),
    (b"[" * 10**6, "a.json", ["too deep"]),
    (b"[" * 500 + b"1" + b"]" * 500, "a.json", ["nested", "16"]),
    (b"[1, 2", "a.json", ["line 1, column 6"]),
    (b"9" * 5000, "a.json", ["digits"]),
    # names
    *[(b"", f"a{end}", ["is empty"]) for end in EXTENSIONS],
    (b"x", "a.xlsx", ["'a.xlsx'", ".npy", ".safetensors"]),
    (b"x", "noextension", ["'noextension'", ".npy"]),
    (b"x", "", ["''", ".npy"]),
    (npy(X), "a.csv", [".csv", ".npy array"]),
    (npz(a=X), "a.csv", [".csv", "zip"]),
    (npz(a=X), "a.npy", [".npy", "zip"]),
    (npy(X), "a.npz", [".npz", ".npy array"]),
    (b"1,2", "a.npy", ["something else"]),
    (b"1,2", "a.npz", ["something else"]),
    (b"1,2", "a.safetensors", ["does not begin"]),
    (b"\x89HDF\r\n", "a.txt", ["HDF5"]),
    (b"x", "a" * 300 + "\n<script>.exe", ["'" + "a" * 29 + "…'"]),
]


@for_each(("data", "name", "words"), REFUSED)
def test_refuses(data: bytes, name: str, words: list[str]) -> None:
    with in_seconds(10), pytest.raises(QuantError) as caught:
        read_tensor(data, name)
    message = str(caught.value)
    assert [w for w in words if w not in message] == [], message
    assert "\n" not in message
    assert len(message) < 400


def test_refuses_a_zip_of_too_many_members() -> None:
    members = {f"{i}{'x' * 200}.npy": b"" for i in range(5000)}
    with in_seconds(10), pytest.raises(QuantError, match="too many") as caught:
        read_tensor(zipped(members, zipfile.ZIP_STORED), "a.npz")
    assert len(str(caught.value)) < 400


def test_refuses_an_unknown_tensor() -> None:
    with pytest.raises(QuantError, match=r"'a.npz' has no tensor 'w'; it contains 'a'\."):
        read_tensor(npz(a=X), "a.npz", "w")


@pytest.mark.parametrize("read", some([read_tensor, list_tensors]))
def test_zip_bomb_is_refused_from_its_directory(read: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    data = bytearray(bomb(2**22))
    size = data.rfind(b"PK\x01\x02") + 24  # what the directory says
    data[size : size + 4] = struct.pack("<I", 512 * 2**20 + 128)
    monkeypatch.setattr(zipfile.ZipFile, "open", lambda *_: pytest.fail("a member is unpacked"))
    tracemalloc.start()
    try:
        with pytest.raises(QuantError, match=r"536\.9 MB once unpacked; the limit is 268\.4 MB"):
            read(data, "bomb.npz")
        assert tracemalloc.get_traced_memory()[1] < 20e6
    finally:
        tracemalloc.stop()


def test_two_arrays_of_one_name() -> None:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("a.npy", npy(X))
        with pytest.warns(UserWarning, match="Duplicate"):
            archive.writestr("a.npy", npy(X + 1))
    with pytest.raises(QuantError, match="two arrays named 'a'"):
        list_tensors(stream.getvalue(), "a.npz")


def test_bombs_together_are_refused() -> None:
    members = {f"{i}.npy": npy_header("<f4", (2**18,), bytes(2**20)) for i in range(5)}
    with pytest.raises(QuantError, match="once unpacked"):
        list_tensors(zipped(members), "a.npz", limit=4 * 2**20)
    assert len(list_tensors(zipped(members), "a.npz", limit=6 * 2**20)) == 5


@for_each("claimed", [100, 10**6, 0])
def test_zip_that_lies_about_its_size(claimed: int) -> None:
    data = bytearray(zipped({"a.npy": npy(np.zeros(1000, np.float32))}))
    central = data.rfind(b"PK\x01\x02")
    data[central + 24 : central + 28] = struct.pack("<I", claimed)
    with pytest.raises(QuantError, match="'a"):
        read_tensor(bytes(data), "a.npz")


def test_zip_member_that_ends_before_its_size() -> None:
    short = npy_header("<f4", (1000,), bytes(40))
    data = bytearray(zipped({"a.npy": short}))  # its checksum is right
    central = data.rfind(b"PK\x01\x02")
    data[central + 24 : central + 28] = struct.pack("<I", len(short) - 40 + 4000)
    assert list_tensors(bytes(data), "a.npz")[0].shape == (1000,)
    with pytest.raises(QuantError, match=r"'a' in the \.npz is truncated"):
        read_tensor(bytes(data), "a.npz")


def test_limit_is_on_the_file_and_on_the_tensor_as_float32() -> None:
    data = npy(np.zeros(1000, np.int8))
    assert read_tensor(data, "a.npy", limit=4000).size == 1000
    with pytest.raises(QuantError, match=r"\(1000,\).*4\.0 kB.*4\.0 kB|takes 4\.0 kB"):
        read_tensor(data, "a.npy", limit=3999)
    for name in ("a.npy", "a.csv", "a.safetensors"):
        with pytest.raises(QuantError, match=r"the limit is 100 bytes"):
            list_tensors(data, name, limit=100)
    assert MAX_BYTES >= 4 * 4096 * 14336


def test_text_files_have_a_limit_of_their_own() -> None:
    for name in ("a.csv", "a.json"):
        with in_seconds(5), pytest.raises(QuantError, match=r"33\.6 MB of text.*\.npy"):
            read_tensor(b"1 " * (MAX_TEXT_FILE_BYTES // 2 + 1), name)


def test_large_csv_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.import_module("quantcore.tensors.text.parse"), "MAX_TEXT_CHARS", 20_000)
    x = np.random.default_rng(0).standard_normal((40, 10)).astype(np.float32)
    data = "\n".join(",".join(f"{value:.60f}" for value in row) for row in x.tolist()).encode()
    assert len(data) > 20_000  # the limit for pasted text
    np.testing.assert_array_equal(read_tensor(data, "a.csv"), x)
    with pytest.raises(QuantError, match="'x1' at line 41, column 1 "):
        read_tensor(data + b"\nx1", "a.csv")


@in_parts(8)
def test_fuzz(part: Any) -> None:
    rng = random.Random(0)
    seeds = [pair for pair in READABLE if len(pair[0]) < 2000]
    read, messages = 0, [""]
    for _ in part(range(6000)):
        data, name = rng.choice(seeds)
        mutated = bytearray(data)
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(len(mutated) + 1)
            if rng.random() < 0.5:
                mutated[at : at + 1] = rng.randbytes(1)
            else:
                mutated[at : at + rng.randint(0, 8)] = rng.randbytes(rng.randint(0, 8))
        if rng.random() < 0.1:
            del mutated[rng.randrange(len(mutated) + 1) :]
        try:
            infos = list_tensors(bytes(mutated), name)
            result = read_tensor(bytes(mutated), name, infos[0].name)
            assert result.dtype == np.float32
            assert result.size > 0
            read += 1
        except QuantError as error:
            messages.append(str(error))
    assert len(part(range(100))) < read < len(part(range(5700)))
    assert max(map(len, messages)) < 400


@in_parts(8)
def test_fuzz_members_behind_a_right_checksum(part: Any) -> None:
    rng = random.Random(1)
    original = npy(X)
    for _ in part(range(2000)):
        mutated = bytearray(original)
        for _ in range(rng.randint(1, 3)):
            mutated[rng.randrange(128)] = rng.choice(
                b"0123456789(){},'<>fiOUV|" + bytes([rng.randrange(256)])
            )
        data = zipped({"a.npy": bytes(mutated)})
        assert zlib.crc32(bytes(mutated)) == zipfile.ZipFile(io.BytesIO(data)).infolist()[0].CRC
        try:
            assert read_tensor(data, "a.npz").dtype == np.float32
        except QuantError:
            continue
