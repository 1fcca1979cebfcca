"""The origin of an element in every golden checkpoint: its bits in the file, its arithmetic as text, and a script.

The text is evaluated by an evaluator written for this test, and must give the value that is read.
"""

import ast
import contextlib
import io
import re
import shutil
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from checkpoint_cases import case, flipped, quantized_names, sound
from grid import for_each
from parts import some
from releases import save

from quantcore.checkpoints import Place, open_checkpoint, script
from quantcore.errors import QuantError

Q = "model.layers.0.self_attn.q_proj.weight"
WARNED = [case("bad_gptq_v1_but_zeros_8"), case("bad_awq_not_interleaved"), case("bad_q5k_leak")]
CASES = [*sound(), case("imatrix"), *(c for c in WARNED if c.record["expect"] != "ok")]


def indices(shape, seed, count=2):
    """The indices of the first, the last and some random elements."""
    generator = np.random.default_rng(seed)
    drawn = [tuple(int(generator.integers(n)) for n in shape) for _ in range(count)]
    return [(0,) * len(shape), tuple(n - 1 for n in shape), *drawn]


def evaluated(text, names=None):
    """The value of a formula; integers are exact, everything else is float32, rounded after each operation."""
    for sign, operator in {"·": "*", "^": "**", " mod ": " % "}.items():
        text = text.replace(sign, operator)
    with np.errstate(all="ignore"):
        return _number(ast.parse(text, mode="eval").body, names or {})


def _number(node, names):
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, int) else np.float32(node.value)
    if isinstance(node, ast.Name):
        return names[node.id] if node.id in names else np.float32(node.id)  # nan, inf
    if isinstance(node, ast.UnaryOp):
        return -_number(node.operand, names)
    if isinstance(node, ast.Subscript):
        return _number(node.value.elts[_number(node.slice, names)], names)
    if isinstance(node, ast.Call):
        value = _number(node.args[0], names)
        if node.func.id == "ones":
            return bin(value).count("1")
        return np.float32(torch.tensor(float(value)).to(getattr(torch, node.func.id)).float().item())
    a, b = _number(node.left, names), _number(node.right, names)
    if isinstance(node.op, ast.Pow):
        return np.float32(float(a) ** int(b)) if abs(int(b)) < 128 else np.float32(np.ldexp(1.0, int(b)))
    both = isinstance(a, int) and isinstance(b, int)
    operations = {
        ast.Add: lambda: a + b, ast.Sub: lambda: a - b, ast.Mult: lambda: a * b, ast.Mod: lambda: a % b,
        ast.RShift: lambda: a >> b, ast.Div: lambda: np.float32(a) / np.float32(b),
    }  # fmt: skip
    found = operations[type(node.op)]()
    return found if both and not isinstance(node.op, ast.Div) else np.float32(found)


def equal(a, b):
    return np.array_equal(np.float32(a), np.float32(b), equal_nan=True)


def check_lines(origin, value):
    """Evaluate each line with numbers and with names: both must give its result, and the last line the value."""
    names = {n.symbol: n.value for n in (origin.code, *origin.parameters.values())}
    for line in origin.lines:
        assert equal(evaluated(line.numbers), line.value), str(line)
        assert equal(np.float32(line.result), line.value), str(line)
        fields = re.search(r"exponent e = ([01]+)(?:, mantissa m = ([01]+))?", line.note)
        parts = (
            {k: int(digits, 2) for k, digits in zip("em", fields.groups("0"), strict=True)} if fields else {}
        )
        assert equal(evaluated(line.formula, names | parts), line.value), str(line)
        assert not re.search(r"\^\(\w+\)", line.formula + line.numbers), "brackets around a single number"
        assert str(line).startswith(f"{line.name} = ")
        assert str(line).endswith(f"= {line.result}")
        names[line.name] = line.value
    assert equal(origin.lines[-1].value, origin.value)
    assert equal(origin.value, value)


@for_each("given", some(CASES, 16), ids=str)
def test_the_lines_give_the_value(given):
    """For every tensor, the text evaluates to what `read` returns, and its code is that of `codes`."""
    checkpoint = open_checkpoint(given.release)
    for number, (name, tensor) in enumerate(checkpoint.tensors.items()):
        values = tensor.read()
        codes = (
            tensor.codes()
            if tensor.is_quantized and "q" in tensor.origin((0,) * len(tensor.shape)).numbers
            else None
        )
        grid = tensor.storage.startswith("gguf IQ") and "IQ4" not in tensor.storage
        for index in indices(tensor.shape, number):
            origin = tensor.origin(index)
            check_lines(origin, values[index])
            assert origin.index == index
            assert origin.tensor == name
            if codes is not None and not grid:
                assert origin.numbers["q"] == int(codes[index]), index


@for_each("given", some(CASES, 3), ids=str)
def test_the_bits_are_those_of_the_file(given):
    """The marked bits, read from the file, are the stored number; other bits belong to the elements named."""
    checkpoint = open_checkpoint(given.release)
    folder = given.release if given.release.is_dir() else given.release.parent
    contents = {}
    for name in list(given.record["tensors"])[:2]:
        tensor = checkpoint.tensors[name]
        index = indices(tensor.shape, 5)[-1]
        origin = tensor.origin(index)
        for number in (origin.code, *origin.parameters.values()):
            content = contents.setdefault(number.place.file, (folder / number.place.file).read_bytes())
            stored = sum((content[byte] >> bit & 1) << at for at, (byte, bit) in enumerate(number.place.bits))
            assert stored == number.raw
            marked = 0
            for word in number.words:
                assert word.in_file
                assert content[word.offset : word.offset + len(word.data)] == word.data
                assert int(word.hex, 16) == int(word.binary, 2) == int.from_bytes(word.data, "little")
                assert [position for position, bit in enumerate(word.bits) if bit.own] == sorted(word.own)
                for position in word.own:
                    marked |= int(word.binary[-1 - position]) << word.bits[position].at
            assert marked == number.raw
        for word in origin.code.words:
            check_neighbors(tensor, word)


def check_neighbors(tensor, word):
    """The bits of some neighbors are at the positions that the word gives for them."""
    owned = {}
    for position, bit in enumerate(word.bits):
        if bit.owner.startswith("(") and not bit.own:
            owned.setdefault(bit.owner, []).append((position, bit.at))
    for owner in sorted(owned)[:2]:
        place = tensor.locate(ast.literal_eval(owner.replace(")", ",)"))).code
        for position, at in owned[owner]:
            assert place.bits[at] == (word.offset + position // 8, position % 8), owner


@for_each("given", some(sound()[2:] + sound()[:2], 9), ids=str)
def test_a_flipped_bit_changes_the_code(given, tmp_path):
    """Flipping the code's first or last bit in a copy changes just that bit, and the value accordingly."""
    for name in quantized_names(given)[:1]:
        tensor = open_checkpoint(given.release).tensors[name]
        index = indices(tensor.shape, 7)[-1]
        origin = tensor.origin(index)
        bits = len(origin.code.place.bits)
        for at in {0, bits - 1}:
            other = flipped(given, origin.code.place, at, tmp_path).tensors[name]
            changed = other.origin(index)
            assert changed.code.raw ^ origin.code.raw == 1 << at
            check_lines(changed, other.read()[index])


@for_each("given", some(sound(), 5), ids=str)
def test_only_the_bytes_of_the_element_are_read(given):
    """At most its words, those of its parameters, and a row of codes or an index are read, never the tensor."""
    checkpoint = open_checkpoint(given.release)
    for name in quantized_names(given)[:2]:
        tensor = checkpoint.tensors[name]
        tensor.locate(
            (0,) * len(tensor.shape)
        )  # reads what is cached for the tensor, such as its group index
        before = checkpoint.counter.total
        origin = tensor.origin(indices(tensor.shape, 3)[-1])
        own = sum(len(word.data) for n in (origin.code, *origin.parameters.values()) for word in n.words)
        assert checkpoint.counter.total - before <= 2 * own + tensor.shape[-1] + 8


def run_script(text, folder):
    """Run a script and return what it prints."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), np.errstate(all="ignore"):
        exec(text.replace('FOLDER = "."', f"FOLDER = {str(folder)!r}"), {})
    return printed.getvalue()


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@for_each("given", some([*CASES[1:], CASES[0]], 9), ids=str)
def test_the_script_prints_the_value(given):
    folder = given.release if given.release.is_dir() else given.release.parent
    for name, tensor in open_checkpoint(given.release).tensors.items():
        index = indices(tensor.shape, 11)[-1]
        assert equal(np.float32(run_script(script(tensor.origin(index)), folder)), tensor.read()[index]), name


def test_the_script_needs_numpy_alone(tmp_path):
    given = case("ct_nvfp4")
    tensor = open_checkpoint(given.release).tensors[Q]
    (tmp_path / "script.py").write_text(script(tensor.origin((5, 42))), encoding="utf-8")
    run = [sys.executable, "-I", str(tmp_path / "script.py")]
    printed = subprocess.run(run, cwd=given.release, capture_output=True, text=True, check=True).stdout
    assert np.float32(printed) == tensor.read()[5, 42]


def test_bits_that_do_not_follow_one_another():
    """Two separate runs of bits in one byte are read separately."""
    origin = open_checkpoint(case("gptq_v1_3bit_g128").release).tensors[Q].origin((5, 42))
    place = Place("model.safetensors", "a", ((100, 0), (100, 4), (100, 5)))
    assert "(100, 0, 1), (100, 4, 2))" in script(replace(origin, code=replace(origin.code, place=place)))


def test_what_is_not_in_the_file_as_it_is(tmp_path):
    """Elements of compressed arrays have bits and values, but no script, as there is no offset to read from."""
    np.savez_compressed(tmp_path / "weights.npz", a=np.arange(6, dtype=np.float32).reshape(2, 3))
    origin = open_checkpoint(tmp_path / "weights.npz").tensors["a"].origin((1, 2))
    assert origin.value == 5
    assert not origin.code.words[0].in_file
    with pytest.raises(QuantError, match="does not hold the bytes of a as such"):
        script(origin)


def test_names_of_files_cannot_leave_the_script(tmp_path):
    """Whatever a tensor is named, its name is only text in the script."""
    name = '"""\nimport os; os.abort()\n"""\\'
    np.savez(tmp_path / "x.npz", **{name: np.arange(3, dtype=np.float32)})
    tensor = next(iter(open_checkpoint(tmp_path / "x.npz").tensors.values()))
    assert run_script(script(tensor.origin((1,))), tmp_path) == "1.0\n"


def test_there_is_no_such_element():
    tensor = open_checkpoint(case("gptq_v1_3bit_g128").release).tensors[Q]
    assert tensor.origin((-1, -1)).index == (63, 255)
    for index in [(64, 0), (0,), (0, 0, 0)]:
        with pytest.raises(QuantError, match="There is no element"):
            tensor.origin(index)


def test_how_lines_read():
    """The lines for a 3-bit code that crosses a word boundary, as the panel shows them."""
    origin = open_checkpoint(case("gptq_v1_3bit_g128").release).tensors[Q].origin((5, 42))
    assert [str(line) for line in origin.lines] == [
        "z = (z_bits + 1) mod 8 = (3 + 1) mod 8 = 4",
        "w = (q - z) · s = (5 - 4) · 0.028442383 = 0.028442383",
    ]
    assert [word.name.rpartition(".")[2] for word in origin.code.words] == ["qweight[3, 5]", "qweight[4, 5]"]
    assert [word.own for word in origin.code.words] == [(30, 31), (0,)]
    assert origin.code.meaning == "3 bits 101 = 5"
    assert origin.parameters["scale"].meaning == "F16 0x2748 = 0.028442383"


def e4m3(code):
    return float(torch.tensor([code], dtype=torch.uint8).view(torch.float8_e4m3fn).double())


SMALL_SCALES = {
    # what a byte of scales means, by their specifications: ggml halves both, as its levels are doubled, and of the
    # two NaN of E4M3, whose sign it ignores, reads 0x7F as 0 and 0xFF as the number after 448
    ("gguf_ternary_fp4", "blk.0.attn_output.weight"): lambda c: {0x7F: 0.0, 0xFF: 240.0}[c] if c & 127 == 127 else e4m3(c & 127) / 2,
    ("gguf_ternary_fp4", "blk.0.attn_v.weight"): lambda c: 2.0 ** (c - 128),
    ("ct_nvfp4", Q): e4m3,
    ("ct_mxfp4", Q): lambda c: 2.0 ** (c - 127),  # compressed-tensors reads 255 so, too
}


@for_each(("name", "tensor"), SMALL_SCALES)
def test_every_kind_of_small_scale(name, tensor, tmp_path):
    """Zero, subnormal, normal and the last ones, with either sign, written into the file: what is read, and its lines."""
    given, scale = case(name), SMALL_SCALES[name, tensor]
    source = given.release if given.release.is_dir() else given.release.parent
    shutil.copytree(source, tmp_path, dirs_exist_ok=True)
    release = tmp_path if given.release.is_dir() else tmp_path / given.release.name
    before = open_checkpoint(release).tensors[tensor]
    index = next(i for i in ((5, c) for c in range(64)) if before.read()[i])
    number = before.origin(index).parameters["scale_code"]
    level = float(before.read()[index]) / scale(number.raw)
    file, at = tmp_path / number.place.file, number.place.bits[0][0]
    data = bytearray(file.read_bytes())
    for code in (0, 1, 7, 8, 9, 0x38, 0x77, 0x7E, 0x7F, 0x80, 0x81, 0x88, 0xB8, 0xFE, 0xFF):
        data[at] = code
        file.write_bytes(data)
        after = open_checkpoint(release).tensors[tensor]
        value = after.read()[index]
        check_lines(after.origin(index), value)
        with np.errstate(all="ignore"):
            assert float(value) == pytest.approx(float(np.float32(level * scale(code))), rel=2.0**-7, abs=1e-37, nan_ok=True), code


def test_lines_of_codes_whose_leak_is_undone():
    """Of every sub-block: bit 0 of the codes in the upper half of a byte is the fifth bit of those in the lower half."""
    given = case("bad_q5k_leak")
    (tensor,) = open_checkpoint(given.release).tensors.values()
    codes, parameters = tensor.codes().numpy(), tensor.layout.parameters()
    scale, least = parameters.scale.numpy(), parameters.min.numpy()
    for column in (0, 31, 32, 45, 64, 96, 255, 288, 511):
        code = int(codes[3, column])
        leaks = column // 32 % 2 and int(codes[3, column - 32]) >> 4
        undone = code - (code & 1) if leaks else code
        found = [r for r in tensor.rivals((3, column), slice(0, 0)) if r.key == "q5k_leak"]
        assert found
        s, m = (np.float32(t[3, column // 32]) for t in (scale, least))
        check_lines(found[0].origin, float(s * np.float32(undone) + m))


DTYPES = {
    # the dtype that a stored number is shown with; None: bits that a line, a table or a formula takes apart
    ("gptq_v1_8bit_channel", "code"): None, ("gptq_v1_8bit_channel", "zero_point"): None, ("ct_int4_sym_g128", "code"): None,
    ("gptq_v1_8bit_channel", "scale"): "F16", ("ct_int8_w8a8", "code"): "I8", ("ct_fp8_channel", "code"): None,
    ("ct_mxfp4", "scale_code"): None, ("ct_mxfp4", "code"): None, ("bnb_nf4", "scale"): "F32", ("bnb_nf4_nested", "scale_code"): None,
    ("ct_int4_sym_g128", "scale"): "BF16", ("gguf_legacy", "d"): "F16", ("ct_int4_actorder_group", "g_idx"): "I32",
}  # fmt: skip


@for_each(("name", "role"), DTYPES)
def test_what_stored_numbers_mean(name, role):
    """All bits of a number of a dtype as one hexadecimal number, else each bit, and the number that they are."""
    tensor = next(t for t in open_checkpoint(case(name).release).tensors.values() if t.is_quantized and len(t.shape) == 2)
    for index in indices(tensor.shape, 4):
        origin, dtype = tensor.origin(index), DTYPES[name, role]
        number = origin.code if role == "code" else origin.parameters[role]
        shown, _, value = number.meaning.partition(" = ")
        bits = len(number.place.bits)
        assert shown == (f"{dtype} 0x{number.raw:0{bits // 4}x}" if dtype else f"{bits} bits {number.raw:0{bits}b}")
        data = number.raw.to_bytes(-(-bits // 8), "little")
        read = {"F16": torch.float16, "BF16": torch.bfloat16, "F32": torch.float32, "I8": torch.int8, "I32": torch.int32}.get(dtype)
        assert np.float32(value) == (np.float32(number.raw) if read is None else torch.frombuffer(bytearray(data), dtype=read).float().item())


def test_what_plain_numbers_mean(tmp_path):
    """The dtype, all bits as a hexadecimal number, and the number; of small floats, whose value a line computes, the bits'."""
    given = {
        "F8_E4M3": torch.tensor([1.5, -0.0, 448.0]).to(torch.float8_e4m3fn), "F8_E5M2": torch.tensor([1.5, -2.0]).to(torch.float8_e5m2),
        "U8": torch.tensor([0, 7, 255], dtype=torch.uint8), "BOOL": torch.tensor([True, False]), "I8": torch.tensor([-1, 5], dtype=torch.int8),
        "I64": torch.tensor([-1, 2**40]), "F32": torch.tensor([-1.5, 0.1]), "BF16": torch.tensor([-1.5]).bfloat16(), "F64": torch.tensor([0.25]).double(),
    }  # fmt: skip
    tensors = open_checkpoint(save(tmp_path, given)).tensors
    for dtype, numbers in given.items():
        for i, number in enumerate(numbers):
            raw = int.from_bytes(number.reshape(1).view(torch.uint8).numpy().tobytes(), "little")
            shown, _, value = tensors[dtype].origin((i,)).code.meaning.partition(" = ")
            assert shown == f"{dtype} 0x{raw:0{2 * number.itemsize}x}"
            small = dtype.startswith("F8") or dtype in ("U8", "BOOL")
            assert np.float32(value) == np.float32(raw if small else number.item())
        narrowed = ("'F64' is float64; its numbers are read as the nearest float32.",)
        assert tensors[dtype].notes() == (narrowed if dtype == "F64" else ())


def test_means_of_an_expert_that_saw_no_token():
    tensor = open_checkpoint(case("imatrix").release / "imatrix.gguf").tensors["blk.0.ffn_up_exps.weight"]
    for expert, counted in ((0, True), (1, False), (2, True)):
        index = (expert, *[3] * (len(tensor.shape) - 1))
        value = tensor.read()[index]
        assert (value != 1) == counted
        check_lines(tensor.origin(index), value)
