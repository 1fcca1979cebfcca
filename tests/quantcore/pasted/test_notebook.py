"""Notebooks and text around code are pasted whole: what is not Python is passed over, on the same lines."""

import json

import pytest
from grid import for_each
from parts import some

import quantcore as qc
from quantcore.pasted.source import MAX_CHARS, MAX_LINES

pytestmark = pytest.mark.usefixtures("no_hurry")

CELLS = ["import torch\nx = torch.randn(8, 8)", "scale = x.abs().max() / 255\nscale", "q = torch.round(x / scale).clamp(-128, 127).to(torch.int8)\nq[:2]", "%matplotlib inline\nprint((x - q * scale).abs().max())"]


def ipynb(cells, lists=True, **meta):
    """A notebook's file, with outputs and prose."""
    outputs = [{"data": {"image/png": "A" * 500}}]
    sources = [cell.splitlines(True) if lists else cell for cell in cells]
    found = [{"cell_type": "code", "execution_count": 7, "outputs": outputs, "source": s} for s in sources]
    return json.dumps({"cells": [{"cell_type": "markdown", "source": ["# s = 5\n", "s = 5"]}, *found], "metadata": meta})


PASTED = {
"ipynb": (ipynb(CELLS), [(6,"divisor")]),
"ipynb strings": (ipynb(CELLS, False), [(6,"divisor")]),
"ipynb bash cell": (ipynb(["%%bash\nls -l | grep x", *CELLS]), [(10,"divisor")]),
"nbformat 3": (json.dumps({"worksheets":[{"cells":[{"cell_type":"code","input":c} for c in CELLS]}],"nbformat":3}), [(6,"divisor")]),
"ipython": ("In [1]: import torch\n\nIn [2]: def f(x):\n   ...:     s = x.max() / 127\n   ...:     return torch.round(x / s).clamp(-128, 127)\n   ...: \n\nIn [3]: f(x)\nOut[3]: \ntensor([[1., 2.],\n        [3., 4.]])\n\nIn [4]: %timeit f(x)\n12.3 µs ± 10 ns per loop\n", [(4,"absolute_value")]),
"jupyter text": ("Quantization demo\nIn [1]:\nimport torch\nimport numpy as np\n!pip install foo\nIn [2]:\ns = x.abs().max() / 255\nprint('scale', s)\nscale 0.0123\nIn [3]:\nq = torch.round(x / s).clamp(-128, 127).to(torch.int8)\nq\nOut[3]:\ntensor([[  1,   2],\n        [ -3,   4]], dtype=torch.int8)\nAs we can see, it's (almost) fine.\n", [(7,"divisor")]),
"doctest": (">>> import torch\n>>> s = x.abs().max() / 127\n>>> s\ntensor(0.0274)\n>>> q = (x / s).to(torch.int8)\n>>> q\ntensor([[1, 2]], dtype=torch.int8)\nThe result is wrong.\n>>> for i in range(2):\n...     print(i)\n...\n0\n1\n", [(5,"toward_zero")]),
"doctest in prose": ("Here is what I do:\n\n>>> s = x.max() / 127\n>>> q = torch.round(x / s).clamp(-128, 127)\n\nWhy is it wrong?\n", [(3,"absolute_value")]),
"markdown": ("# My question\n\nI quantize like this:\n\n```python\ns = x.abs().max() / 127\nq = (x / s).int().to(torch.int8)\n```\n\nand get\n\n```\ntensor([[1, 2]])\n```\nIt's off by one (sometimes). Versions:\n```bash\npip list\n```\n", [(7,"toward_zero")]),
"prose around": ("I have this code:\n\nimport numpy as np\ndef quantize(x):\n    s = np.abs(x).max() / 255\n    return np.clip(np.round(x / s), -128, 127).astype(np.int8), s\n\nq, s = quantize(x)\nprint(q)\n\nThe output is:\n\n[[  1  -2]\n [  3   4]]\n\nbut I'd expect something else (see [1]).\n", [(5,"divisor")]),
"indented in prose": ("Consider\n\n    s = x.abs().max() / 127\n    q = torch.round(x * s).clamp(-128, 127)\n\nwhich gives zeros.\n", [(4,"multiplied")]),
"traceback": ("s = x.abs().max() / 255\nq = torch.round(x / s).clamp(-128, 127).to(torch.int8)\ny = q + None\nTraceback (most recent call last):\n  File \"a.py\", line 3, in <module>\n    y = q + None\nTypeError: unsupported operand type(s) for +: 'Tensor' and 'NoneType'\n", [(1,"divisor")]),
"magics": ("%load_ext autoreload\n%%time\n!nvidia-smi\n?torch.round\nfiles = !ls\ns = x.abs().max() / 255\nq = torch.round(x / s).clamp(-128, 127)\nCPU times: user 4 ms, sys: 0 ns, total: 4 ms\nWall time: 3.9 ms\n", [(6,"divisor")]),
"broken line": ("import torch\ns = x.abs().max( / 127\nt = x.abs().max() / 255\nq = torch.round(x / t).clamp(-128, 127).to(torch.int8)\np = torch.round(x / s).to(torch.int8)\n", [(3,"divisor")]),
"printed assignments": ("s = x.abs().max() / 255\nprint(f'scale = {s}')\nq = torch.round(x / s).clamp(-128, 127)\nprint('q =', q)\nq = tensor([[1., 2.],\n        [3., 4.]])\ny = q * s\nMSE = 0.0012 (8 bit)\n", [(1,"divisor")]),
"colab": ("[1]\n0s\nimport torch\n[2]\n✓ 0s\ns = x.abs().max() / 127\nq = torch.round(x / s).to(torch.uint8)\naccount_circle\n", [(7, "middle_left_out"), (7, "wrapped")]),
"vscode": ("# %%\nimport torch\n# %% [markdown]\n# Some text\n# %%\ns = x.max() / 127\nq = torch.round(x / s).clamp(-128, 127)\n", [(6,"absolute_value")]),
"long": ("import torch\n" + "a = 1\n"*900 + "s = x.abs().max() / 255\nq = torch.round(x / s).clamp(-128, 127)\n" + "b = 2\n"*900, [(902,"divisor")]),
"two quantizers": ("In [1]: s = x.abs().max() / 255\n\nIn [2]: q = torch.round(x / s).clamp(-128, 127)\n\nIn [3]: t = x.abs().max() / 7\n\nIn [4]: p = (x / t).clamp(-8, 7).to(torch.int8)\n", [(1,"divisor"),(7,"toward_zero")]),
}


@for_each("name", some(PASTED, 7))
def test_what_is_pasted_whole_is_judged_by_its_code(name):
    text, expected = PASTED[name]
    reading = qc.read_code(text)
    assert [(f.line, f.mistake) for f in reading.mistakes] == expected
    lines = reading.text.split("\n")
    for finding in reading.mistakes:
        assert lines[finding.line - 1].strip().endswith(finding.source)
    if text[0] != "{":
        assert lines == text.split("\n")  # the numbers are those of what was pasted
    assert not {f.line for f in reading.findings} & set(reading.skipped)
    again = qc.read_code(reading.text)
    assert [(f.line, f.mistake) for f in again.mistakes] == expected


def test_a_line_that_is_not_valid_is_said_and_what_it_binds_is_not_known():
    reading = qc.read_code(PASTED["broken line"][0])
    assert reading.unread == (
        "Line 2: this is not valid Python (invalid syntax), so what depends on it is not checked.",
    )
    assert len(reading.quantizers) == 1


@for_each(
    ("text", "words"),
    [
        ('{"cells": [', "The notebook's JSON is incomplete"),
        ('{"cells": []}', "The notebook has no code cells"),
        (ipynb(CELLS, kernelspec={"language": "R"}), "The notebook is written in R"),
        ('{"cells": ' + "[" * 20000 + "]" * 20000 + "}", "The notebook's JSON is incomplete"),
        ('{"cells": ""}' + " " * 9_000_000, "The notebook has 9,000,013 characters"),
        (json.dumps({"cells": [{"cell_type": "code", "source": "x = 1\n" * MAX_LINES}]}), f"and {MAX_LINES:,} lines"),
        ("Not code.\n" * 4000, "Line 1: this is not valid Python"),
        ("(\n" * 4000, "Most of this text is not Python|is not valid Python"),
        ("a" * (MAX_CHARS + 1), "The code has 200,001 characters"),
        ("int main() {\n  float s = max / 127.0f;\n  q = (int8_t) round(x / s);\n  return 0;\n}", "is not valid Python"),
    ],
)  # fmt: skip
def test_what_is_no_notebook_is_said(text, words):
    with pytest.raises(qc.QuantError, match=words):
        qc.read_code(text)
