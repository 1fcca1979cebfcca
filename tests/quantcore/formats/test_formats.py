"""The codes of each integer format, compared with what its bits can hold."""

import itertools
import math

import numpy as np
import pytest
import torch
from grid import for_each

import quantcore as qc

ALL = [qc.IntFormat(*choice) for choice in itertools.product(range(2, 17), (True, False), (True, False))]


@for_each("fmt", ALL, ids=str)
def test_codes_of_a_format(fmt):
    codes = [n - 2 ** (fmt.bits - 1) if fmt.signed else n for n in range(2**fmt.bits)][fmt.narrow :]
    assert (fmt.qmin, fmt.qmax, fmt.available) == (codes[0], codes[-1], len(codes))
    assert fmt.middle == (0 if fmt.signed else 2 ** (fmt.bits - 1))
    assert fmt.qmin <= fmt.middle <= fmt.qmax


@for_each("fmt", ALL, ids=str)
def test_smallest_dtype(fmt):
    """int8 or uint8 depending on the sign; wider codes use int16 or, where that is too narrow, int32."""
    info = torch.iinfo(fmt.dtype)
    assert info.min <= fmt.qmin
    assert fmt.qmax <= info.max
    smaller = {1: [], 2: [np.int8, np.uint8], 4: [np.int8, np.uint8, np.int16]}[fmt.dtype.itemsize]
    lowest = fmt.qmin - fmt.narrow
    assert not any(np.iinfo(d).min <= lowest and fmt.qmax <= np.iinfo(d).max for d in smaller)
    if fmt.bits <= 8:
        assert fmt.dtype == (torch.int8 if fmt.signed else torch.uint8)


@for_each(
    ("fmt", "codes", "dtype", "text"),
    [
        (qc.INT2, (-2, 1), torch.int8, "int2"),
        (qc.INT8, (-128, 127), torch.int8, "int8"),
        (qc.IntFormat(8, narrow=True), (-127, 127), torch.int8, "int8n"),
        (qc.UINT4, (0, 15), torch.uint8, "uint4"),
        (qc.IntFormat(8, signed=False, narrow=True), (1, 255), torch.uint8, "uint8n"),
        (qc.IntFormat(9), (-256, 255), torch.int16, "int9"),
        (qc.INT16, (-32768, 32767), torch.int16, "int16"),
        (qc.IntFormat(15, signed=False), (0, 32767), torch.int16, "uint15"),
        (qc.UINT16, (0, 65535), torch.int32, "uint16"),
    ],
)
def test_known_formats(fmt, codes, dtype, text):
    assert ((fmt.qmin, fmt.qmax), fmt.dtype, str(fmt)) == (codes, dtype, text)


@for_each("fmt", ALL, ids=str)
def test_text_reads_back(fmt):
    assert qc.parse_format(str(fmt)) == fmt


def test_catalogue_is_under_its_texts():
    assert all(str(fmt) == name and qc.parse_format(name) == fmt for name, fmt in qc.FORMATS.items())


@for_each("bits", [1, 0, -8, 17, 1000, 8.5, math.nan, math.inf, "8", None, True, 10**400])
def test_widths_that_are_none(bits):
    with pytest.raises(qc.QuantError, match="bits"):
        qc.IntFormat(bits)


@for_each(
    "word",
    ["", "int", "int1", "int17", "int999", "int9999999", "int8 ", " int8", "int8nn", "int-8", "int8.0", "sint8",
     "uuint8", "int８", "int٨", "float80", "int8\n", "8", "int8(narrow=true)"],
)  # fmt: skip
def test_words_that_are_no_format(word):
    with pytest.raises(qc.QuantError):
        qc.parse_format(word)


def test_whole_float_is_taken_as_a_width():
    assert qc.IntFormat(8.0) == qc.INT8
    assert type(qc.IntFormat(8.0).bits) is int
