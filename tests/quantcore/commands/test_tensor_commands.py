"""The commands for a tensor in a file: what they print and write, against the library and against arithmetic."""

import io
import json
import re

import numpy as np
import pytest
import torch
from grid import for_each
from safetensors import safe_open
from safetensors.torch import save_file

import quantcore as qc
from quantcore.__main__ import main
from quantcore.checkpoints import EXAMPLES

X = np.random.default_rng(0).normal(size=(6, 8)).astype(np.float32)


@pytest.fixture
def output(capsys):
    def run(*arguments):
        code = main([*map(str, arguments)])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


@pytest.fixture
def file(tmp_path):
    np.save(tmp_path / "x.npy", X)
    return tmp_path / "x.npy"


def int4_by_rows(x):
    """The textbook's int4 codes and scales with one scale per row, in NumPy alone."""
    scale = np.abs(x).max(1, keepdims=True) / np.float32(7)
    return np.clip(np.rint(x / scale), -8, 7).astype(int), scale


def test_apply_prints_the_numbers_and_the_codes(output, file):
    code, out, err = output("apply", file, "--scheme", "int4 per_channel(0)")
    assert (code, err) == (0, "")
    codes, scale = int4_by_rows(X)
    head, _, rows = out.partition("codes:\n")
    assert [[int(c) for c in row.split()] for row in rows.splitlines()] == codes.tolist()
    error = X.astype(float) - codes * scale
    sqnr = 10 * np.log10((X.astype(float) ** 2).sum() / (error**2).sum())
    numbers = dict(re.findall(r"^  (\S.*?)  +(\S.*)$", head, re.M))
    assert numbers["SQNR"] == f"{sqnr:.1f} dB"
    assert numbers["MSE"] == f"{(error**2).mean():.4g}"
    assert numbers["MAE"] == f"{np.abs(error).mean():.4g}"
    at = np.unravel_index(np.abs(error).argmax(), X.shape)
    assert numbers["max |error|"] == f"{np.abs(error).max():.4g} at ({at[0]}, {at[1]})"
    assert numbers["codes used"] == f"{len(np.unique(codes))} of 16"
    assert numbers["bits per element"] == "8, 4× smaller than float32"  # 4 bits, and 32 for every 8 elements


def test_apply_as_json(output, file):
    code, out, _ = output("apply", file, "--scheme", "int4 per_channel(0)", "--json")
    found = json.loads(out)
    codes, scale = int4_by_rows(X)
    assert code == 0
    assert (found["shape"], found["dtype"], found["bits_per_element"]) == ([6, 8], "float32", 8)
    assert found["report"]["mse"] == pytest.approx(((X - codes * scale) ** 2).mean(), rel=1e-5)
    assert qc.Scheme.parse(found["scheme"]) == qc.Scheme.parse("int4 per_channel(0)")


def test_apply_writes_what_reads_back(output, file, tmp_path):
    codes, scale = int4_by_rows(X)
    for name in ("out.npz", "out.safetensors"):
        assert output("apply", file, "--scheme", "int4 per_channel(0)", "--out", tmp_path / name)[0] == 0
    arrays = np.load(tmp_path / "out.npz")
    with safe_open(tmp_path / "out.safetensors", "np") as stored:
        for found in (arrays, {key: stored.get_tensor(key) for key in stored.keys()}):  # noqa: SIM118
            np.testing.assert_array_equal(found["codes"], codes)
            np.testing.assert_array_equal(found["scale"], scale)
            np.testing.assert_array_equal(found["x"], X)
            np.testing.assert_array_equal(found["dequantized"], (codes * scale).astype(np.float32))


def test_apply_draws(output, file, tmp_path):
    pillow = pytest.importorskip("PIL.Image")
    page, image = tmp_path / "x.html", tmp_path / "x.png"
    assert output("apply", file, "--scheme", "int4", "--html", page, "--png", image)[0] == 0
    text = page.read_text(encoding="utf-8")
    assert "x.npy: float32 6×8" in text
    assert "<script" not in text
    assert text.count("<svg") == 4
    drawn = pillow.open(image)
    codes = qc.apply(torch.from_numpy(X), "int4").codes
    side, left, top = 320 // 8, 24 + 320 + 24, 64 + 24  # of a cell, and the corner of the map of codes
    colors = [drawn.getpixel((left + c * side + 20, top + r * side + 20)) for r in range(6) for c in range(8)]
    by_code = {}
    for code, color in zip(codes.flatten().tolist(), colors, strict=True):
        assert by_code.setdefault(code, color) == color
    assert len(set(by_code.values())) == len(by_code)


def test_trace_is_that_of_the_library(output, file):
    scheme = "int4 per_channel(0) torchao"
    steps = qc.trace(qc.apply(torch.from_numpy(X), scheme), (3, 5)).steps()
    code, out, _ = output("trace", file, "3,5", "--scheme", scheme)
    assert code == 0
    assert "element (3, 5)" in out
    for line, step in zip(out.splitlines()[2:], steps, strict=True):
        assert line.startswith(step.name)
        assert line.endswith(step.value)
        assert step.formula in line
    found = json.loads(output("trace", file, "3,5", "--scheme", scheme, "--json")[1])
    assert found["x"] == X[3, 5]
    assert found["error"] == found["x"] - found["dequantized"]
    assert found["code"] == round(found["x"] / found["scale"])
    assert [step["value"] for step in found["steps"]] == [step.value for step in steps]


def test_libraries_say_what_differs(output, tmp_path):
    """A tie at an odd zero point, where onnxruntime adds it after rounding and torch before."""
    tie = np.array([[0.125, 0.375, -0.125, 1.0]], np.float32)
    np.save(tmp_path / "tie.npy", tie)
    names = ("onnxruntime", "torch.quantize_per_tensor")
    scheme = "uint8 asymmetric given(0.25, 1)"
    codes = [qc.apply(tie, f"{scheme} {name}").codes.tolist()[0] for name in names]
    assert codes == [[1, 3, 1, 5], [2, 2, 0, 5]]
    code, out, err = output("libraries", tmp_path / "tie.npy", *names, "--scheme", scheme)
    assert (code, err) == (1, "")
    assert "onnxruntime and torch.quantize_per_tensor: 3 of 4 codes differ." in out
    assert "at (0, 0), 1 against 2" in out
    found = json.loads(output("libraries", tmp_path / "tie.npy", *names, "--scheme", scheme, "--json")[1])
    assert (found["differing"], sum(reason["count"] for reason in found["reasons"])) == (3, 3)
    equal = output("libraries", tmp_path / "tie.npy", "onnxruntime", "onnx", "--scheme", scheme)
    assert equal[0] == 0
    assert "0 of 4 codes differ." in equal[1]


@for_each("kind", ["npy", "npz", "csv", "safetensors", "pt"])
def test_every_kind_of_file_is_the_same_tensor(output, tmp_path, kind):
    path = tmp_path / f"x.{kind}"
    writers = {
        "npy": lambda: np.save(path, X),
        "npz": lambda: np.savez(path, weight=X),
        "csv": lambda: path.write_text(qc.export.to_csv(X)),
        "safetensors": lambda: save_file({"weight": torch.from_numpy(X)}, path),
        "pt": lambda: torch.save({"weight": torch.from_numpy(X)}, path),
    }
    writers[kind]()
    found = json.loads(output("apply", path, "--scheme", "int4 per_channel(0)", "--json")[1])
    own = qc.report(qc.apply(torch.from_numpy(X), "int4 per_channel(0)"))
    assert (found["shape"], found["report"]["sse"]) == ([6, 8], own.sse)


def test_a_tensor_is_quantized_in_its_own_dtype(output, tmp_path):
    x = torch.from_numpy(X).bfloat16()
    save_file({"a": x, "b": x[0].clone()}, tmp_path / "x.safetensors")
    found = json.loads(
        output("trace", tmp_path / "x.safetensors", "1,1", "--tensor", "a", "--scheme", "int4 torchao", "--json")[1]
    )
    scale = torch.tensor(found["scale"])
    assert found["dtype"] == "bfloat16"
    assert found["tensor"] == "a"
    assert scale.bfloat16().float() == scale  # torchao's scale of a bfloat16 weight is a bfloat16 number
    assert qc.apply(x.float(), "int4 torchao").scale.item() != found["scale"]


def test_a_weight_of_a_quantized_release_is_dequantized_first(output):
    name = "encoder.layer.0.output.dense.weight"
    weight = qc.checkpoints.open_checkpoint(EXAMPLES["minilm-gptq"]).tensors[name].read()
    scheme = "int8 per_channel(0)"
    arguments = ["apply", EXAMPLES["minilm-gptq"], "--tensor", name, "--scheme", scheme, "--json"]
    found = json.loads(output(*arguments)[1])
    assert found["report"]["sse"] == qc.report(qc.apply(weight, scheme)).sse


@for_each(
    ("arguments", "said"),
    [
        (["apply", "{x}", "--scheme", "int5000"], "int5000"),
        (["apply", "{x}", "--scheme", "int4", "--out", "{x}.xyz"], "does not end in .npz or .safetensors"),
        (["apply", "{x}", "--scheme", "int4", "--out", "{no}/x.npz"], "can't be written"),
        (["apply", "{x}", "--scheme", "int4", "--html", "{no}/x.html"], "can't be written"),
        (["apply", "{no}.npy", "--scheme", "int4"], "check the path"),
        (["apply", "{no}.csv", "--scheme", "int4"], "check the path"),
        (["apply", "{two}", "--scheme", "int4"], "has 2 tensors: 'a', 'b'; choose one with --tensor"),
        (["apply", "{two}", "--scheme", "int4", "--tensor", "c"], "has 2 tensors: 'a', 'b', but no 'c'"),
        (["trace", "{x}", "9,9", "--scheme", "int4"], "9"),
        (["libraries", "{x}", "torchao", "onnxruntim"], "did you mean 'onnxruntime'"),
        (["libraries", "{x}", "torchao", "onnxruntime", "--scheme", "e4m3fn"], "torchao"),
    ],
)  # fmt: skip
def test_what_can_not_be_done_is_one_sentence(output, file, tmp_path, arguments, said):
    np.savez(tmp_path / "two.npz", a=X, b=X)
    places = {"x": file, "no": tmp_path / "nothing" / "x", "two": tmp_path / "two.npz"}
    code, out, err = output(*(argument.format(**places) for argument in arguments))
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert said in err


def test_nothing_is_unpickled(output, tmp_path):
    (tmp_path / "x.pkl").write_bytes(b"\x80\x04.")
    code, _, err = output("apply", tmp_path / "x.pkl", "--scheme", "int4")
    assert (code, err.count("\n")) == (2, 1)
    buffer = io.BytesIO()
    np.save(buffer, np.array([print], dtype=object))
    (tmp_path / "x.npy").write_bytes(buffer.getvalue())
    assert output("apply", tmp_path / "x.npy", "--scheme", "int4")[0] == 2
