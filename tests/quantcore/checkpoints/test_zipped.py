"""NumPy's and PyTorch's zip files: listing reads headers only, no pickle is run, and unpacking is bounded."""

import io
import os
import pickle
import tracemalloc
import zipfile

import numpy as np
import pytest
import torch
from bounded import in_seconds
from grid import for_each

from quantcore import QuantError
from quantcore.checkpoints import open_checkpoint
from quantcore.checkpoints.containers import stored, torch_zip, zipped
from quantcore.checkpoints.files import sources as files
from quantcore.tensors import plain_npy_header, read_npy_header


def arrays():
    rng = np.random.default_rng(0)
    return {
        "a": rng.normal(size=(6, 8)).astype(np.float32),
        "fortran": np.asfortranarray(rng.normal(size=(5, 3)).astype(np.float16)),
        "big_endian": rng.normal(size=(4, 2)).astype(">f4"),
        "integers": rng.integers(-128, 127, (3, 4)).astype(np.int8),
        "scalar": np.float64(0.25),
        "empty": np.zeros((0, 3), np.float32),
    }


@for_each("save", [np.savez, np.savez_compressed])
def test_npz(save, tmp_path):
    save(tmp_path / "x.npz", **arrays())
    checkpoint = open_checkpoint(tmp_path / "x.npz")
    assert checkpoint.format == "npz"
    for name, array in arrays().items():
        tensor = checkpoint.tensors[name]
        assert tensor.shape == array.shape
        assert np.array_equal(tensor.read().numpy(), array.astype(np.float32))
    assert torch.equal(checkpoint.tensors["a"].read(slice(2, 4)), torch.from_numpy(arrays()["a"][2:4]))


class Steps(files.MemorySource):
    """A file whose reads are counted; those of several ranges at once as one."""

    steps = 0

    def read(self, offset, size):
        self.steps += 1
        return super().read(offset, size)

    def read_each(self, ranges):
        before = self.steps
        found = super().read_each(ranges)
        self.steps = before + 1
        return found


def test_many_arrays_are_found_in_a_few_steps():
    """A step to another process or machine has its price, and a release has thousands of tensors."""
    rng = np.random.default_rng(3)
    tensors = {f"w{i}": rng.integers(0, 9, (4, 4)).astype(np.float32) for i in range(150)}
    saved = {name: io.BytesIO() for name in ("npz", "packed", "pt")}
    np.savez(saved["npz"], **tensors)
    np.savez_compressed(saved["packed"], **tensors)
    torch.save({name: torch.from_numpy(x) for name, x in tensors.items()}, saved["pt"])
    for name, open_file in (
        ("npz", zipped.open_npz),
        ("packed", zipped.open_npz),
        ("pt", torch_zip.open_torch),
    ):
        source = Steps(name, bytearray(saved[name].getvalue()))
        found = open_file(source).tensors
        assert source.steps < 20, (name, source.steps)
        for key, x in tensors.items():
            read = found[key].source.read(found[key].offset, found[key].num_bytes)
            assert np.array_equal(np.frombuffer(read, np.float32).reshape(4, 4), x), (name, key)


def test_npy_and_places(tmp_path):
    np.save(tmp_path / "x.npy", arrays()["a"])
    tensor = open_checkpoint(tmp_path / "x.npy").tensors["x"]
    assert np.array_equal(tensor.read().numpy(), arrays()["a"])
    place = tensor.locate((2, 3)).code
    raw = (tmp_path / "x.npy").read_bytes()[place.offset :][:4]
    assert np.frombuffer(raw, np.float32)[0] == arrays()["a"][2, 3]


def test_npz_listing_reads_headers_alone(tmp_path):
    np.savez(tmp_path / "x.npz", w=np.zeros((1000, 1000), np.float32))
    checkpoint = open_checkpoint(tmp_path / "x.npz")
    assert checkpoint.counter.total < 100_000  # the directory at the end of the zip file, and the header
    before = checkpoint.counter.total
    checkpoint.tensors["w"].read(slice(10, 12))
    assert checkpoint.counter.total - before == 2 * 4000


def state():
    base = torch.arange(24, dtype=torch.float32).reshape(4, 6)
    marked, noted = torch.nn.Parameter(torch.rand(2, 2)), torch.rand(2, 2)
    marked.note = noted.note = "an attribute of its own"
    return {
        "w": base,
        "transposed": base.T,
        "window": base[1:3, 2:5],
        "expanded": torch.ones(1).expand(3, 2),
        "half": torch.rand(2, 3).bfloat16(),
        "small": torch.rand(2, 3).to(torch.float8_e4m3fn),
        "integers": torch.arange(5, dtype=torch.int8),
        "flags": torch.tensor([True, False]),
        "scalar": torch.tensor(2.5),
        "parameter": torch.nn.Parameter(torch.rand(3)),
        "marked": marked,
        "noted": noted,
        "nested": {"list": [torch.rand(2), 3, "text"], "same": base},
        "empty": torch.zeros(0, 2),
    }


def test_torch(tmp_path):
    given = state()
    torch.save(given, tmp_path / "x.pt")
    checkpoint = open_checkpoint(tmp_path / "x.pt")
    expected = {k: v for k, v in given.items() if k != "nested"}
    expected |= {"nested.list.0": given["nested"]["list"][0], "nested.same": given["w"]}
    assert set(checkpoint.tensors) == set(expected)
    for name, tensor in expected.items():
        assert torch.equal(checkpoint.tensors[name].read(), tensor.detach().float()), name
    place = checkpoint.tensors["w"].locate((2, 3)).code
    raw = (tmp_path / "x.pt").read_bytes()[place.offset :][:4]
    assert np.frombuffer(raw, np.float32)[0] == 15


def test_torch_state_of_a_module(tmp_path):
    module = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.LayerNorm(3))
    torch.save(module.state_dict(), tmp_path / "pytorch_model.bin")
    checkpoint = open_checkpoint(tmp_path)
    assert set(checkpoint.tensors) == set(module.state_dict())
    assert torch.equal(checkpoint.tensors["0.weight"].read(), module[0].weight.detach())


class Evil:
    """Creates a file when unpickled."""

    def __reduce__(self):
        return os.system, ("touch evil",)


def _pt(content, folder, **others):
    """A .pt whose pickle is ``content``."""
    with zipfile.ZipFile(folder / "x.pt", "w") as file:
        file.writestr("x/data.pkl", content)
        file.writestr("x/data/0", b"\0" * 64)
        for name, data in others.items():
            file.writestr(f"x/{name}", data)
    return folder / "x.pt"


def _pickled(shape, stride, offset=0):
    """The pickle of a tensor that claims this shape over a storage of 16 floats."""
    buffer = io.BytesIO()

    class Pickler(pickle.Pickler):
        def persistent_id(self, value):
            return ("storage", torch.FloatStorage, "0", "cpu", 16) if value == "STORAGE" else None

    class Tensor:
        def __reduce__(self):
            arguments = ("STORAGE", offset, shape, stride, False, {})
            return torch._utils._rebuild_tensor_v2, arguments

    Pickler(buffer, 2).dump({"w": Tensor()})
    return buffer.getvalue()


def test_the_pickles_of_these_tests_are_read(tmp_path):
    tensor = open_checkpoint(_pt(_pickled((4, 4), (4, 1)), tmp_path)).tensors["w"]
    assert tensor.read().tolist() == [[0] * 4] * 4


def _laughs():
    """A small pickle that expands to a billion references."""
    value = ["x"]
    for _ in range(30):
        value = [value, value]
    return pickle.dumps({"w": value}, 2)


TORCH = {
    "a call": (
        pickle.dumps({"w": Evil()}, 2),
        "the class or function 'posix.system', which is not read here, and nothing in the file is run",
    ),
    "a module": (
        pickle.dumps({"w": torch.nn.Linear(1, 1)}, 2),
        "holds the class or function 'torch.nn.modules.linear.Linear'",
    ),
    "an unknown class": (pickle.dumps({"w": io.BytesIO()}, 2), "'_io.BytesIO'"),
    "no pickle": (b"hello", "damaged"),
    "half a pickle": (_pickled((4, 4), (4, 1))[:-20], "damaged"),
    "a tensor beyond its storage": (_pickled((4, 5), (5, 1)), "does not fit the 64 bytes"),
    "strides beyond it": (_pickled((4, 4), (8, 1)), "does not fit the 64 bytes"),
    "an offset beyond it": (_pickled((4, 4), (4, 1), 1), "does not fit the 64 bytes"),
    "negative strides": (_pickled((4, 4), (-4, 1), 12), "damaged"),
    "a shape of 2^80": (_pickled((2**40, 2**40), (0, 0)), "damaged"),
    "a shape of 2^40": (_pickled((2**20, 2**20), (0, 0)), "save it as a contiguous tensor"),
    "another protocol": (pickle.dumps({"w": 1}, 4), "protocol 04, not 2; save it again"),
    "many references": (_laughs(), "nests more than"),
    "no tensor": (pickle.dumps({"a": 1}, 2), "holds no tensor"),
    "a number": (pickle.dumps(5, 2), "holds no tensor"),
    "a scheme": (b"\x80\x02ctorch\nper_tensor_affine\n.", "holds no tensor"),
    "a sparse tensor": (b"\x80\x02ctorch._utils\n_rebuild_sparse_tensor\n.", "holds a sparse tensor"),
    "a subclass": (
        b"\x80\x02ctorch._utils\n_rebuild_wrapper_subclass\n.",
        "holds a tensor of a class of its own",
    ),
}


@for_each("what", TORCH)
def test_torch_is_refused(what, tmp_path, monkeypatch):
    content, words = TORCH[what]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(torch_zip, "MAX_VISITS", 20_000)  # test_bounded.py reaches the real one
    with in_seconds(15):
        with pytest.raises(QuantError) as caught:
            open_checkpoint(_pt(content, tmp_path))
        assert words in str(caught.value)
    assert not (tmp_path / "evil").exists()


def test_old_pickles_are_refused(tmp_path):
    torch.save({"w": torch.ones(2)}, tmp_path / "x.bin", _use_new_zipfile_serialization=False)
    with pytest.raises(QuantError, match=r"not a zip file of tensors.*weights_only=True"):
        open_checkpoint(tmp_path / "x.bin")


def _bomb(folder, name, members):
    with zipfile.ZipFile(folder / name, "w", zipfile.ZIP_DEFLATED) as file:
        for member, data in members.items():
            file.writestr(member, data)
    return folder / name


@for_each("refused", [False, True])
def test_zip_files_that_inflate(refused, tmp_path, monkeypatch):
    """What all members claim together is compared with what they take in the file before any is unpacked."""
    monkeypatch.setattr(zipped, "MAX_SMALL", 0)
    w, other = np.zeros(3_000, np.float32), np.random.default_rng(0).integers(0, 2**31, 100)
    np.savez_compressed(tmp_path / "x.npz", v=w, w=w, other=other)
    with zipfile.ZipFile(tmp_path / "x.npz") as file:
        infos = file.infolist()
    claimed, packed = (sum(getattr(info, size) for info in infos) for size in ("file_size", "compress_size"))
    monkeypatch.setattr(zipped, "MAX_TIMES", claimed / packed * (0.99 if refused else 1.01))
    if not refused:
        assert len(open_checkpoint(tmp_path / "x.npz").tensors) == 3
        return
    with pytest.raises(
        QuantError, match=r"x\.npz. has \d+ bytes of compressed members that claim .* once unpacked"
    ):
        open_checkpoint(tmp_path / "x.npz")
    np.savez(tmp_path / "x.npz", v=w, w=w, other=other)
    assert len(open_checkpoint(tmp_path / "x.npz").tensors) == 3


def test_zip_files_of_zeros(tmp_path):
    """Gigabytes of them in a file of kilobytes are refused by its directory."""
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f4", "fortran_order": False, "shape": (2**26,)})
    path = _bomb(tmp_path, "x.npz", {f"w{i}.npy": header.getvalue() for i in range(8)})
    data = bytearray(path.read_bytes())
    at = -1
    while (at := data.find(b"PK\x01\x02", at + 1)) >= 0:  # the size once unpacked, in the directory
        data[at + 24 : at + 28] = (2**28 + len(header.getvalue())).to_bytes(4, "little")
    path.write_bytes(data)
    with in_seconds(2), pytest.raises(QuantError, match=r"claim 2,147\.5 MB once unpacked"):
        open_checkpoint(path)


def test_members_that_are_too_large_to_be_unpacked(tmp_path, monkeypatch):
    """All compressed members count together, those that are stored as they are not at all."""
    np.savez_compressed(tmp_path / "x.npz", v=np.arange(1_000), w=np.arange(1_000))
    np.savez(tmp_path / "stored.npz", w=np.arange(10_000))
    monkeypatch.setattr(zipped, "MAX_UNPACKED", 16_255)
    with pytest.raises(QuantError, match=r"members of .x\.npz. take .* once unpacked; the limit is"):
        open_checkpoint(tmp_path / "x.npz")
    assert len(open_checkpoint(tmp_path / "stored.npz").tensors) == 1
    monkeypatch.setattr(zipped, "MAX_UNPACKED", 16_256)  # with their headers
    assert len(open_checkpoint(tmp_path / "x.npz").tensors) == 2


def test_damaged_zip_files(tmp_path):
    np.savez(tmp_path / "x.npz", w=np.zeros(100, np.float32))
    data = (tmp_path / "x.npz").read_bytes()
    for broken in (data[:-30], data[:100], b"PK\x03\x04" + bytes(50), b""):
        (tmp_path / "y.npz").write_bytes(broken)
        with pytest.raises(QuantError, match=r"y\.npz"):
            open_checkpoint(tmp_path / "y.npz")
    objects = np.array([{"a": 1}, None], dtype=object)
    np.savez(tmp_path / "x.npz", w=objects)
    with pytest.raises(QuantError, match="not numbers"):
        open_checkpoint(tmp_path / "x.npz")
    with pytest.raises(QuantError, match="is not an array"):
        open_checkpoint(_bomb(tmp_path, "z.npz", {"readme.txt": b"hello"}))


def test_rows_of_a_deflated_member_are_unpacked_alone(tmp_path, monkeypatch):
    """From the last place before them that was noted when all of it was checked."""
    x = np.random.default_rng(1).integers(0, 30, (800, 400)).astype(np.float32)
    np.savez_compressed(tmp_path / "x.npz", x=x)
    monkeypatch.setattr(zipped, "_STEP", 1 << 14)
    monkeypatch.setattr(zipped, "_PART", 1250)
    tensor = open_checkpoint(tmp_path / "x.npz").tensors["x"]
    for first, last in ((799, 800), (0, 1), (200, 500), (0, 800), (41, 42)):
        assert np.array_equal(tensor.read(slice(first, last)).numpy(), x[first:last]), (first, last)
    (source,) = {piece.source for piece in tensor.layout.pieces.values()}
    assert 60 < len(source._places) <= x.nbytes // (1 << 14) + 1


def test_rows_of_a_deflated_member_that_are_read_in_turn_are_unpacked_once(tmp_path, monkeypatch):
    """Each read goes on where the last one ended, and one that goes back is right too."""
    x = np.random.default_rng(1).integers(0, 30, (800, 400)).astype(np.float32)
    np.savez_compressed(tmp_path / "x.npz", x=x)
    monkeypatch.setattr(zipped, "_PART", 1250)
    checkpoint = open_checkpoint(tmp_path / "x.npz")
    tensor = checkpoint.tensors["x"]
    assert tensor.read(slice(0, 1)).tolist() == x[:1].tolist()  # the whole has been checked
    before = checkpoint.counter.total
    for row in range(0, 800, 50):
        assert np.array_equal(tensor.read(slice(row, row + 50)).numpy(), x[row : row + 50]), row
    assert checkpoint.counter.total - before <= (tmp_path / "x.npz").stat().st_size
    for row in (500, 400, 401, 799, 0):
        assert np.array_equal(tensor.read(slice(row, row + 1)).numpy(), x[row : row + 1]), row


def test_a_deflated_member_is_whole_though_its_last_numbers_come_after_its_last_packed_byte(tmp_path):
    """Zeros, whose last repetition does not fit into the last part: those of a bias that was never trained."""
    for many in ((9 << 16) - 16, 18 << 16, 25 << 16):
        np.savez_compressed(tmp_path / "x.npz", x=np.zeros(many, np.float32))
        tensor = open_checkpoint(tmp_path / "x.npz").tensors["x"]
        assert tensor.read(slice(many - 4, many)).tolist() == [0.0] * 4, many


def test_a_large_deflated_member_takes_the_memory_of_the_rows_that_are_read(tmp_path):
    np.savez_compressed(tmp_path / "x.npz", x=np.zeros((1 << 10, 1 << 12), np.float32))
    tensor = open_checkpoint(tmp_path / "x.npz").tensors["x"]
    tracemalloc.start()
    try:
        assert not tensor.read(slice(1000, 1010)).any()
        assert tracemalloc.get_traced_memory()[1] < 8e6  # of 17 MB
    finally:
        tracemalloc.stop()


@for_each(("field", "change"), [("file_size", 4), ("file_size", -4), ("file_size", 1 << 25), ("CRC", 1)])
@pytest.mark.parametrize("many", [10, 1_000_000])  # unpacked as a whole, and in pieces
def test_a_deflated_member_that_lies(field, change, many, tmp_path):
    """Only the directory at the end of the file lies; the header of the array fits what it says."""
    header = io.BytesIO()
    claimed = many + change // 4 * (field == "file_size")
    np.lib.format.write_array_header_1_0(
        header, {"descr": "<f4", "fortran_order": False, "shape": (claimed,)}
    )
    with zipfile.ZipFile(tmp_path / "x.npz", "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("x.npy", header.getvalue() + bytes(4 * many))
        info = file.infolist()[0]
        setattr(info, field, getattr(info, field) + change)
    with pytest.raises(
        QuantError, match="is damaged; save the file again"
    ):  # a small one is unpacked with its header
        open_checkpoint(tmp_path / "x.npz").tensors["x"].read(slice(0, 1))


def test_a_compressed_tensor_that_must_be_rearranged_is_small(tmp_path, monkeypatch):
    array = np.asfortranarray(np.zeros((300, 400), np.float32))
    np.savez_compressed(tmp_path / "x.npz", x=array)
    assert not open_checkpoint(tmp_path / "x.npz").tensors["x"].read().any()
    monkeypatch.setattr(stored, "MAX_REARRANGED", array.nbytes - 1)
    with pytest.raises(
        QuantError,
        match=r"takes 480\.0 kB from .* bytes; save it as a contiguous tensor, without compression",
    ):
        open_checkpoint(tmp_path / "x.npz")
    np.savez(tmp_path / "x.npz", x=array)
    assert not open_checkpoint(tmp_path / "x.npz").tensors["x"].read().any()


def test_of_tensors_that_were_rearranged_the_last_are_kept(tmp_path, monkeypatch):
    arrays = {f"x{i}": np.asfortranarray(np.full((20, 30), i, np.float32)) for i in range(5)}
    np.savez(tmp_path / "x.npz", **arrays)
    checkpoint = open_checkpoint(tmp_path / "x.npz")
    sources = [
        piece.source for tensor in checkpoint.tensors.values() for piece in tensor.layout.pieces.values()
    ]
    monkeypatch.setattr(files, "MAX_KEPT", 2 * 2400)
    for i, tensor in enumerate(checkpoint.tensors.values()):
        assert (tensor.read(slice(3, 5)) == i).all()
    assert [source._data is None for source in sources] == [True, True, True, False, False]
    monkeypatch.setattr(files, "MAX_KEPT", 1)
    assert (checkpoint.tensors["x0"].read() == 0).all()
    assert [source._data is None for source in sources] == [False, True, True, True, True]


def test_a_tensor_that_would_be_rearranged_in_too_much_memory_is_refused_alone(tmp_path):
    w = torch.arange(6000, dtype=torch.float32).reshape(100, 60)
    torch.save({"w": w.T, "v": w}, tmp_path / "x.pt")
    checkpoint = open_checkpoint(tmp_path / "x.pt")
    checkpoint.counter.most_derived = w.nbytes - 1
    assert torch.equal(checkpoint.tensors["v"].read(), w)
    with pytest.raises(
        QuantError, match=r"takes 24\.0 kB of memory at once, more than the 24\.0 kB for it here; save"
    ):
        checkpoint.tensors["w"].read(slice(0, 1))
    checkpoint.counter.most_derived = w.nbytes
    assert torch.equal(checkpoint.tensors["w"].read(), w.T)


def test_a_header_of_plain_numbers_is_read_as_numpy_reads_it():
    dtypes = ["<f4", ">i2", "|b1", "|u1", "<f8", "<c8", "<U3", "<M8[s]", [("a", "<i4")]]
    for dtype in dtypes:
        for shape in [(), (3,), (0, 4), (2, 3), (1,) * 20]:
            for order in "CF":
                file = io.BytesIO()
                np.save(file, np.zeros(shape, dtype, order=order))
                data = file.getvalue()
                file.seek(8)
                told = (*np.lib.format.read_array_header_1_0(file), file.tell())
                plain = plain_npy_header(data)
                assert plain == (told if dtype in dtypes[:5] else None), (dtype, shape, order)
                assert read_npy_header(data, "x") == told
    good = (
        b"\x93NUMPY\x01\x00\x46\x00{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }".ljust(79)
        + b"\n"
    )
    assert plain_npy_header(good) is not None
    changes = {
        b"(3,)": (b"(03,)", b"(3)", b"(-3,)", b"(3L,)"),
        b"'<f4'": (b"'<f7'", b"'=f4'"),
        b"\x46": (b"\x47",),
    }
    for part, others in changes.items():
        for other in others:
            assert plain_npy_header(good.replace(part, other)) is None, other


def test_arrays_with_unusual_headers_are_few(tmp_path, monkeypatch):
    monkeypatch.setattr(zipped, "MAX_UNUSUAL", 2)
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        for i in range(6):
            with archive.open(f"{i}.npy", "w") as file:
                np.lib.format.write_array(file, np.full(3, i), (2, 0) if i < 3 else (1, 0))
    with pytest.raises(QuantError, match=r"more than 2 arrays whose headers are not as NumPy writes them"):
        open_checkpoint(tmp_path / "x.npz")
    monkeypatch.setattr(zipped, "MAX_UNUSUAL", 3)
    assert open_checkpoint(tmp_path / "x.npz").tensors["1"].read().tolist() == [1, 1, 1]
