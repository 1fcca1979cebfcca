"""Exported files read back bit for bit and name the scheme that made them."""

import io

import numpy as np
import safetensors
import safetensors.torch
import torch
from grid import for_each

import quantcore as qc
from quantcore.export import arrays, to_csv, to_npz, to_safetensors

SCHEMES = [
    "int4 per_group(3)",
    "uint8 asymmetric per_tensor",
    "uint16 asymmetric per_tensor",
    "int16 per_tensor",
]
CASES = [((4, 7), text) for text in SCHEMES] + [
    ((), "int8"),
    ((5,), "int8"),
    ((2, 3, 4), "int4 per_channel(1)"),
]


DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def result_of(shape, text, dtype=torch.float32):
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    return qc.apply(x.to(dtype), qc.Scheme.parse(text))


@for_each(("shape", "text", "dtype"), [(*case, dtype) for case in CASES for dtype in DTYPES])
def test_npz_reads_back(shape, text, dtype):
    result = result_of(shape, text, dtype)
    with np.load(io.BytesIO(to_npz(result)), allow_pickle=False) as file:
        assert qc.Scheme.parse(str(file["scheme"])) == result.scheme
        assert getattr(torch, str(file["dtype"])) == dtype
        assert set(file) == {"x", "codes", "scale", "zero_point", "dequantized", "scheme", "dtype"}
        for name, expected in arrays(result).items():
            if expected.dtype == torch.bfloat16:
                expected = expected.float()
            assert torch.equal(torch.from_numpy(file[name]), expected)
            assert file[name].dtype == expected.numpy().dtype


@for_each("dtype", DTYPES)
def test_x_is_read_in_its_dtype(dtype):
    """As an upload reads it, from both kinds of file."""
    result = result_of((4, 6), "int8 per_channel(0)", dtype)
    for name, data in (("r.npz", to_npz(result)), ("r.safetensors", to_safetensors(result))):
        info = next(one for one in qc.tensors.list_tensors(data, name) if one.name == "x")
        assert info.dtype_name == str(dtype).removeprefix("torch.")
        assert np.array_equal(qc.tensors.read_tensor(data, name, "x"), result.x.float())


@for_each(("shape", "text", "dtype"), [(*case, dtype) for case in CASES for dtype in DTYPES])
def test_safetensors_reads_back(shape, text, dtype, tmp_path):
    result = result_of(shape, text, dtype)
    data = to_safetensors(result)
    read = safetensors.torch.load(data)
    assert read.keys() == arrays(result).keys()
    for name, expected in arrays(result).items():
        assert torch.equal(read[name], expected)
        assert read[name].dtype == expected.dtype
    (tmp_path / "result.safetensors").write_bytes(data)
    with safetensors.safe_open(tmp_path / "result.safetensors", "pt") as file:
        assert qc.Scheme.parse(file.metadata()["scheme"]) == result.scheme
        assert file.metadata()["dtype"] == str(dtype).removeprefix("torch.")
        assert file.get_tensor("x").dtype == dtype
        assert torch.equal(qc.apply(file.get_tensor("x"), result.scheme).codes, result.codes)


def test_files_take_a_tensor_that_is_not_row_major():
    x = torch.randn((6, 4), generator=torch.Generator().manual_seed(0)).t()
    result = qc.apply(x, qc.Scheme())
    assert torch.equal(safetensors.torch.load(to_safetensors(result))["x"], x)
    assert np.array_equal(np.load(io.BytesIO(to_npz(result)))["x"], x.numpy())


def test_arrays_are_not_copied():
    result = result_of((4, 7), "int8")
    assert arrays(result)["x"].data_ptr() == result.x.data_ptr()
    assert arrays(result)["codes"].data_ptr() == result.codes.data_ptr()


def test_csv_of_floats_reads_back_bit_for_bit():
    bits = np.random.default_rng(0).integers(0, 2**32, (50, 40), dtype=np.uint32).view(np.float32)
    values = np.where(np.isfinite(bits), bits, np.float32(7.038530691851209e-26))
    read = np.loadtxt(io.StringIO(to_csv(values)), delimiter=",", dtype=np.float64).astype(np.float32)
    assert np.array_equal(read.view(np.uint32), values.view(np.uint32))


@for_each("dtype", [torch.int8, torch.uint8, torch.int16, torch.int32])
def test_csv_of_codes_has_whole_numbers(dtype):
    codes = torch.tensor([[1, 2], [3, 100]], dtype=dtype)
    assert to_csv(codes) == "1,2\n3,100\n"


@for_each(
    ("shape", "text"),
    [((), "0\n"), ((3,), "0,1,2\n"), ((2, 2, 2), "0,1\n2,3\n4,5\n6,7\n"), ((2, 1), "0\n1\n")],
)
def test_csv_lays_leading_axes_one_under_another(shape, text):
    assert to_csv(torch.arange(int(np.prod(shape))).reshape(shape)) == text
