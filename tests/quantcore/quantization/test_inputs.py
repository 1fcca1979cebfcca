"""What is accepted as x, and the messages for what is not."""

import decimal

import numpy as np
import pytest
import torch
from grid import for_each

import quantcore as qc
from quantcore.numerics.float32 import as_float32, refuse_nonfinite

VALUES = [[0.0, 1.0, -2.0], [3.0, -4.0, 5.0]]


@for_each(
    "dtype",
    [
        torch.float16,
        torch.bfloat16,
        torch.float32,
        torch.float64,
        torch.int8,
        torch.int16,
        torch.int32,
        torch.int64,
    ],
)
def test_torch_dtypes(dtype):
    x = as_float32(torch.tensor(VALUES).to(dtype))
    assert x.dtype == torch.float32
    assert x.tolist() == VALUES


@for_each("dtype", ["f2", "f4", "f8", "i1", "i2", "i4", "i8"])
@for_each("order", ["<", ">"])
def test_numpy_dtypes_in_either_byte_order(dtype, order):
    x = as_float32(np.array(VALUES).astype(order + dtype))
    assert x.dtype == torch.float32
    assert x.tolist() == VALUES


@for_each("dtype", ["u1", "u2", "u4", "u8", ">u2", ">u8"])
def test_unsigned(dtype):
    highest = int(np.iinfo(dtype).max)
    assert as_float32(np.array([0, 7, highest], dtype=dtype)).tolist() == [0, 7, float(np.float32(highest))]


@for_each("dtype", [torch.uint8, torch.uint16, torch.uint32, torch.uint64])
def test_unsigned_tensors(dtype):
    assert as_float32(torch.tensor([0, 7, 200], dtype=dtype)).tolist() == [0, 7, 200]


def test_bool():
    for x in (torch.tensor([True, False]), np.array([True, False]), [True, False]):
        assert as_float32(x).tolist() == [1, 0]


@for_each("x", [2.5, np.float64(2.5), [2.5], ((2.5,),), np.float16(2.5), torch.tensor(2.5)])
def test_numbers_and_lists(x):
    assert as_float32(x).tolist() == np.asarray(x).tolist()


@for_each("number", [2**24 + 1, 2**24 + 3, 2**53 + 1, 2**63 - 1, -(2**24) - 1])
def test_integers_beyond_float32_go_to_the_nearest(number):
    for x in (np.array([number]), torch.tensor([number])):
        assert as_float32(x).tolist() == [float(np.float32(number))]


def test_unsigned_integers_are_rounded_once():
    # via float64 this would become a tie and be rounded down to 2^63
    number = 2**63 + 2**39 + 1
    assert as_float32(np.array([number], dtype=np.uint64)).tolist() == [float(2**63 + 2**40)]


def test_float64_is_rounded_to_the_nearest():
    x = np.array([0.1, 1 + 2.0**-24, 1 + 3 * 2.0**-24, 1e-46, 3.4028235e38])
    assert np.array_equal(as_float32(x).numpy(), x.astype(np.float32))


@for_each("number", [1e39, -1e39, 3.5e38, 1.7e308])
def test_beyond_float32(number):
    for x in ([1.0, number], np.array(number), torch.tensor([number], dtype=torch.float64)):
        with pytest.raises(qc.QuantError, match="beyond float32"):
            as_float32(x)


BASE = np.arange(24, dtype=np.float32).reshape(4, 6) - 11.5
RECORDS = np.zeros(5, dtype=[("name", "u1"), ("value", "f4")])
RECORDS["value"] = [1, -2, 3, -4, 5.5]


@for_each(
    "array",
    [BASE.T, BASE[:, ::2], BASE[::-1], BASE[:, ::-1], BASE[::-2, ::-3], BASE[1], np.asfortranarray(BASE),
     np.broadcast_to(BASE[0], (3, 6)), BASE[:, 2:5], BASE.astype(">f4")[::-1], RECORDS["value"],
     BASE.astype(np.float64)[:, ::-1], np.float32(3.5), np.array(3.5)],
)  # fmt: skip
def test_layouts_in_memory(array):
    plain = np.array(array.tolist(), dtype=np.float32)
    for scheme in (qc.Scheme(), qc.Scheme(qc.INT4, False, qc.PerTensor(), qc.Percentile(90))):
        result, expected = qc.apply(array, scheme), qc.apply(plain, scheme)
        assert torch.equal(result.codes, expected.codes)
        assert torch.equal(result.error, expected.error)
        assert np.array_equal(result.x.numpy(), plain)


@for_each(
    "turn", [lambda x: x.T, lambda x: x[:, ::2], lambda x: x[1:, 2:5], lambda x: x[0].expand(3, 6)]
)
def test_tensors_that_are_not_contiguous(turn):
    x = turn(torch.from_numpy(BASE))
    for granularity in (qc.PerTensor(), qc.PerChannel(0), qc.PerGroup(2)):
        scheme = qc.Scheme(qc.INT4, granularity=granularity)
        assert torch.equal(qc.apply(x, scheme).codes, qc.apply(x.clone().contiguous(), scheme).codes)


def test_read_only_array_is_neither_written_nor_warned_about(recwarn):
    array = BASE.copy()
    array.flags.writeable = False
    assert np.array_equal(as_float32(array).numpy(), BASE)
    assert not recwarn.list


def test_float32_is_not_copied():
    x, array = torch.ones(3), np.ones(3, dtype=np.float32)
    assert as_float32(x).data_ptr() == x.data_ptr()
    assert as_float32(array).data_ptr() == array.ctypes.data


def test_gradients_stay_outside():
    x = torch.ones(3, requires_grad=True)
    assert not qc.apply(x, qc.Scheme()).dequantized.requires_grad


@for_each(
    ("x", "words"),
    [
        ([1 + 2j], "complex"),
        (np.array([1j], dtype=np.complex64), "complex64"),
        (torch.tensor([1j]), "complex"),
        (["1.5", "2"], "dtype"),
        ("1.5", "the text"),
        (b"1.5", "a bytes"),
        ([None, 1], "object"),
        (None, "x is None"),
        ({"a": 1}, "such as x"),
        ([decimal.Decimal(1)], "object"),
        ([10**400], "object"),
        (np.array([1.5], dtype=object), "object"),
        (np.array(["2026-11-21"], dtype="datetime64[D]"), "datetime64"),
        (RECORDS, "dtype"),
        (np.zeros(2, dtype=np.longdouble), "up to float64"),
        ([[1, 2], [3]], "different lengths"),
        ([[1, 2], 3], "different lengths"),
        ([], r"no elements, shape \(0,\)"),
        ([[], []], r"no elements, shape \(2, 0\)"),
        (np.zeros((0, 3)), r"no elements, shape \(0, 3\)"),
        (torch.zeros(2, 0), r"no elements, shape \(2, 0\)"),
        (torch.eye(2).to_sparse(), "sparse"),
        ([torch.ones(2, requires_grad=True)], "not an array of numbers"),
    ],
)
def test_refused(x, words):
    with pytest.raises(qc.QuantError, match=words):
        qc.apply(x, qc.Scheme())


def test_refuse_nonfinite_says_how_many_and_where():
    x = torch.zeros(3, 4)
    refuse_nonfinite(x, "the textbook convention")
    x[1, 2], x[2, 0], x[2, 3] = float("nan"), float("inf"), -float("inf")
    with pytest.raises(
        qc.QuantError, match=r"x contains one NaN and 2 infinities, the first at index \(1, 2\); the tex"
    ):
        refuse_nonfinite(x, "the textbook convention")
