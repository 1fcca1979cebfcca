"""The tensor in a paste, whatever stands around it: code, prints, tables, arrays of C, JSON."""

import json

import numpy as np
import pandas as pd
import pytest
import torch

import quantcore as qc
from quantcore.tensors import list_tensors, parse, parse_all, read_tensor

X = [[0.5, -1.25, 3.0], [0.0, 2.0, -0.75]]
LITERAL = str(X)
ROW = X[0]
PRINT = "tensor([[ 0.5000, -1.2500,  3.0000],\n        [ 0.0000,  2.0000, -0.7500]])"
DF = pd.DataFrame(np.array(X, np.float32))
W22 = [[0.5, 1.5], [2, -3]]

READ: list[tuple[str, object]] = [
    # what surrounds one literal
    (f"import torch\n# [1, 2] of layer 3, 8 bits\nx = torch.tensor({LITERAL})\nscale = x.abs().max() / 127\n", X),
    (f">>> x = torch.tensor({LITERAL})\n>>> x\n{PRINT}\n", X),
    (">>> x = torch.tensor([0.12345678, 1.5])\n>>> x\ntensor([0.1235, 1.5000])", [0.12345678, 1.5]),
    (f"In [3]: w\nOut[3]:\n{PRINT}", X),
    ("weights (layer 2):\n0.5 -1.25 3.0\n0.0 2.0 -0.75\n", X),
    ('x = """\n0.5 -1.25 3.0\n0.0 2.0 -0.75\n"""', X),
    (f'"""\nIt\'s my tensor: [1, 2]\n"""\n{LITERAL}', X),
    (f"```python\nx = torch.tensor({LITERAL})\n```", X),
    (f"Why does it print\n\nParameter containing:\n{PRINT[:-1]}, requires_grad=True)\n\nfor me?", X),
    (f"# {PRINT}".replace("\n", "\n# "), X),
    (f"def f(x, bits=8):\n    return (x / 0.1).round()\n\nprint(f(torch.tensor({LITERAL}), bits=4))", X),
    ("[[0.5, -1.25, 3.0],  # row 0\n [0.0, 2.0, -0.75]]  # row 1", X),
    ("x = torch.tensor([0.5, -1.25, 3.0, 0.0, 2.0, -0.75]).reshape(2, 3)", X),
    ("w = np.array([[1, 2], [3, 4]]).T", [[1, 3], [2, 4]]),
    ("row 0: 0.5 -1.25 3.0\nrow 1: 0.0 2.0 -0.75", X),
    (f"shape = (2, 3)\nfor bits in [2, 4, 8]:\n    x = np.array({LITERAL})", X),
    # prints
    (f"{PRINT[:-1]}, size=(2, 3), dtype=torch.quint8,\n  quantization_scheme=torch.per_tensor_affine, scale=0.25, zero_point=10)", X),
    (repr(np.asmatrix(np.array(X, np.float32))), X),
    (f"memmap({LITERAL}, dtype=float32)", X),
    (f"<tf.Tensor: shape=(2, 3), dtype=float32, numpy=\narray({LITERAL}, dtype=float32)>", X),
    ("tf.Tensor(\n[[ 0.5  -1.25  3.  ]\n [ 0.    2.   -0.75]], shape=(2, 3), dtype=float32)", X),
    (f"<tf.Variable 'dense/kernel:0' shape=(2, 3) dtype=float32, numpy=\narray({LITERAL}, dtype=float32)>", X),
    (f"Tensor(shape=[2, 3], dtype=float32, place=Place(cpu), stop_gradient=True,\n       {LITERAL})", X),
    (f"Parameter containing:\nParameter(Params4bit({LITERAL}, requires_grad=True))", X),
    (f"Array({LITERAL}, dtype=float32)", X),
    ("\n[[ 0.5  -1.25  3.  ]\n [ 0.    2.   -0.75]]\n<NDArray 2x3 @cpu(0)>", X),
    (f"OrderedDict([('weight', tensor({LITERAL}))])", X),
    # pandas
    (str(DF), X),
    (DF.to_string(index=False), X),
    (str(DF.rename(columns=lambda n: f"c{n}", index=lambda n: f"r{n}")), X),
    (str(DF.rename_axis("row").rename_axis("col", axis=1)), X),
    (str(DF[0]), [0.5, 0.0]),
    (str(pd.DataFrame(np.arange(40.0).reshape(2, 20) + 0.5).to_string(line_width=60)), np.arange(40.0).reshape(2, 20) + 0.5),
    (str(DF.tail(1)), X[1:]),
    (f">>> df\n{DF}\n>>> ", X),
    (f"{DF}\n\n[2 rows x 3 columns]", X),
    (DF.to_csv(), X),
    (DF.to_csv(index=False), X),
    (DF.to_csv(sep="\t"), X),
    ("a;b\n0.5;1.5\n2;-3", W22),
    ("0 1 2\n3 4 5\n6 7 8", np.arange(9).reshape(3, 3)),
    # tables
    (DF.to_latex(), X),
    ("$$W = \\begin{pmatrix}\n0.5 & 1.5 \\\\\n2 & -3 \\\\\n\\end{pmatrix}$$", W22),
    ("|    |   0 |   1 |\n|---:|----:|----:|\n|  0 | 0.5 | 1.5 |\n|  1 | 2   | -3  |", W22),
    ("Results:\n\n| layer | a | b |\n|:--|--:|--:|\n| fc1 | 0.5 | 1.5 |\n| fc2 | 2 | -3 |\n\nThanks!", W22),
    ("a | b\n--- | ---\n0.5 | 1.5\n2 | -3", W22),
    ("┌─────┬──────┐\n│ a   ┆ b    │\n│ --- ┆ ---  │\n│ f64 ┆ f64  │\n╞═════╪══════╡\n│ 0.5 ┆ 1.5  │\n│ 2.0 ┆ -3.0 │\n└─────┴──────┘", W22),
    # C and its like
    ("static const int8_t w[] = {\n  -1, -2, 3,\n  4, 5, -6,\n};", [-1, -2, 3, 4, 5, -6]),
    ("#include <stdint.h>\n#define N 4\nalignas(16) const int8_t w[N] = {-1, -2, 3, 4}; /* 8 bits */\nint n = 4;", [-1, -2, 3, 4]),
    ("float w[2][3] = {0.5f, -1.25f, 3.f, 0.f, 2.f, -.75f};", X),
    ("#define CONV1_WT {-9,-22,3}", [-9, -22, 3]),
    ("const float w[] = {0x1p-1f, -0x1.4p+0f, 0x1.8p1f};", ROW),
    ("const uint8_t b[] = {0x00, 0x7F, 0xff};", [0, 127, 255]),
    ("const int8_t b[] = {0x00, 0x7F, 0xff};", [0, 127, -1]),
    ("std::vector<float> w{0.5f, -1.25f, 3.0f};", ROW),
    ("let w: [f32; 3] = [0.5_f32, -1.25, 3.0];", ROW),
    # JSON
    (json.dumps({"name": "fc1", "bits": 4, "shape": [2, 3], "weight": X, "scale": 0.05}), X),
    (json.dumps({"layers": [{"w": X}]}), X),
    ('{"text": "it\'s [1, 2]", "w": [0.5, -1.25, 3.0]}', ROW),
    # rules between rows of numbers, and headers without names
    (r"\begin{tabular}{ccc}\toprule 0.5 & -1.25 & 3 \\ \midrule 0 & 2 & -0.75 \\ \bottomrule\end{tabular}", X),
    (r"\begin{tabular}{|c|c|c|}\hline 0.5 & -1.25 & 3 \\ \hline 0 & 2 & -0.75 \\ \hline\end{tabular}", X),
    (r"\begin{tabular}{ccc}0 & 1 & 2 \\ \midrule 0.5 & -1.25 & 3 \\ 0 & 2 & -0.75 \\\end{tabular}", X),
    ("|  |  |  |\n|---|---|---|\n| 0.5 | -1.25 | 3.0 |\n| 0.0 | 2.0 | -0.75 |", X),
    # matrices and vectors of R, arrays of C++
    ("     [,1]  [,2]  [,3]\n[1,]  0.5 -1.25  3.00\n[2,]  0.0  2.00 -0.75", X),
    ("> w\n     [,1]  [,2]\n[1,]  0.5  1.50\n[2,]  2.0 -3.00\n", W22),
    (" [1]  0.5 -1.25\n [3]  3.0", ROW),
    ("constexpr std::array<float, 3> w{{0.5f, -1.25f, 3.0f}};", ROW),
    ("std::array<std::array<float, 3>, 2> w = {{{0.5f, -1.25f, 3.0f}, {0.0f, 2.0f, -0.75f}}};", X),
]  # fmt: skip

REFUSED = [
    ("x = torch.tensor([1.5, 2.5]) * 0.5", ["'* 0.5'", "column 30"]),
    ("x = 1.0e-03 * [0.5, 1.0]", ["factor", "column 13"]),
    ("x = -torch.tensor([1.5, 2.5])", ["'-'", "column 5"]),
    ("x = torch.tensor([1.5]) + torch.tensor([2.5])", ["2 tensors", "can't be read"]),
    ("x = torch.tensor([0.5, 1.0]).to(torch.int8)", [".to(torch.int8)"]),
    ("x = torch.tensor([0.5, 1.0, 2.0]).reshape(2, 2)", ["does not fit 3"]),
    (str(torch.tensor([[0.5, 0.0]]).to_sparse()), ["to_dense()"]),
    (repr(np.ma.masked_array(ROW, mask=[0, 0, 1])), ["filled(0)"]),
    (str(torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])), ["length 3", "same length"]),
    ("float w[4] = {0.5f, 1.0f};", ["declared with 4 elements", "2 are given"]),
    ("uint32_t w[] = {0x3e99999a, 0xbf19999a};", ["'0x3e99999a'", "np.uint32"]),
    ("| a | b |\n|---|---|\n| 0.5 | yes |", ["'yes'", "line 3"]),
    ("a,b\n1,2\n3,x", ["'x'", "line 3, column 3"]),
    ("       0     1\na 0  0.5 -1.25\nb 1  0.0  2.00", ["is not a number"]),
    ("0,1,2\n5,-3,7\n1,2,-4\n", ["may be a header", "[[0, 1, 2], …]"]),
    ("0 0.5\n1 1.0\n2 2.0", ["may be an index"]),
    (str(pd.DataFrame(np.ones((2, 99)))), ["omits", "to_string"]),
    ('{"w": [[0.5, 1], [2]]}', ["length 1", "length 2"]),
    ("<table><tr><td>1</td><td>2</td></tr></table>", ["HTML"]),
    ("x = torch.randn(4, 4)\ns = x.abs().max() / 127", ["print(x.tolist())"]),
    ("a = [0.5, 1]; b = [2, 3.5]", ["2 tensors: a (line 1), shape (2,) and b"]),
    (f"OrderedDict([('weight', {PRINT}), ('bias', tensor([-0.2734, -0.2165]))])", ["weight", "bias"]),
    ("Input: [0.5, 1.0]\nOutput: [4, 7]", ["Input", "Output (line 2)"]),
]


def test_one_tensor_is_found() -> None:
    for text, expected in READ:
        np.testing.assert_array_equal(parse(text), np.array(expected, np.float32), strict=True, err_msg=text)


def test_what_is_refused_says_what_to_paste() -> None:
    for text, words in REFUSED:
        with pytest.raises(qc.QuantError) as caught:
            parse(text)
        message = str(caught.value)
        assert [word for word in words if word not in message] == [], (text, message)
        assert len(message) < 400


def test_prints_of_quantized_tensors_are_read_as_values_or_refused() -> None:
    """torch prints the dequantized values; other libraries print codes, which are no values."""
    x = torch.tensor(X)
    for q in (
        torch.quantize_per_tensor(x, 0.25, 10, torch.quint8),
        torch.quantize_per_channel(x, torch.tensor([0.25, 0.5]), torch.tensor([0, 1]), 0, torch.qint8),
    ):
        (found,) = parse_all(str(q))
        np.testing.assert_array_equal(found.values, q.dequantize().numpy())
        assert "dequantized" in found.note
        assert f"({str(q.dtype).removeprefix('torch.')})" in found.note
    for text in (
        "WeightQBytesTensor(tensor([[-11, 82]], dtype=torch.int8), scale=tensor([[0.0021]]))",
        "Int8Tensor(act_quant_kwargs=None, qdata=tensor([[-11, 82]]), scale=tensor([[0.0021]]), block_size=[1, 2])",
        "AffineQuantizedTensor(layout_tensor=PlainAQTLayout(data=tensor([[127, -77]])... , scale=tensor([0.1])... )",
    ):
        with pytest.raises(qc.QuantError, match="dequantize"):
            parse(text)
    (packed,) = parse_all("Parameter(Params4bit([[163],\n [53]], dtype=torch.uint8))")
    assert "two 4-bit codes in each" in packed.note


def test_names_lines_and_dtypes_are_carried() -> None:
    text = "import torch\nw = torch.tensor([0.5, 1.5], dtype=torch.bfloat16)\nb: list = [2.5, 3.5]\n"
    assert [(t.name, t.line, t.dtype) for t in parse_all(text)] == [("w", 2, "bfloat16"), ("b", 3, "")]
    for text, dtype in (
        (str(torch.tensor(X).half()), "float16"),
        ("<tf.Tensor: shape=(2,), dtype=bfloat16, numpy=array([0.5, -1.25], dtype=bfloat16)>", "bfloat16"),
        ("x = torch.tensor([0.5, 1.5]).half()", "float16"),
        ("x = torch.tensor([0.5, 1.5]).to(torch.half)", "float16"),
        ("x = torch.tensor([0.5, 1.5]).to(dtype=torch.bfloat16)", "bfloat16"),
        (str(DF[0].astype("float16")), "float16"),
        (LITERAL, ""),
    ):
        assert [t.dtype for t in parse_all(text)] == [dtype], text
    (found,) = parse_all(DF.to_csv(index=False))
    assert found.note == "Not read as values: line 1 (0, 1, 2) is the header."
    titles = [t.title for t in parse_all("0,1,2\n5,-3,7\n1,2,-4\n")]
    assert titles == ["all numbers (line 1), shape (3, 3)", "without the first line (line 2), shape (2, 3)"]


def test_a_file_of_text_lists_every_tensor() -> None:
    (info,) = list_tensors(b"a,b\n0.5,1.5\n2,-3\n", "w.csv")
    assert (info.name, info.shape, info.how) == ("w.csv", (2, 2), "Not read as values: line 1 (a, b) is the header.")
    several = b"float w[2] = {0.5f, 1.5f};\nfloat b[3] = {1.f, 2.f, 3.5f};\n"
    found = list_tensors(several, "net.txt")
    assert [(info.name, info.shape) for info in found] == [("w (line 1), shape (2,)", (2,)), ("b (line 2), shape (3,)", (3,))]
    assert read_tensor(several, "net.txt", found[1].name).tolist() == [1.0, 2.0, 3.5]
