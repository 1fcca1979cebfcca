"""What a comparison with the original shows: one thing is broken in a sound release, and the check names it."""

from functools import cache

import pytest
import releases
import torch
from grid import for_each
from releases import HEADS, HIDDEN, WRITERS, model, quantized, save, save_gguf

from quantcore.checkpoints import open_checkpoint

AT = "model.layers.3.self_attn.q_proj"
OTHER = "model.layers.0.self_attn.q_proj"
NORM = "model.layers.3.input_layernorm.weight"
EMBEDDINGS = "model.embed_tokens.weight"
SCALES = {
    "gptq": "scales", "gptq_search": "scales", "gptq_feedback": "scales", "gptq_desc_act": "scales", "awq": "scales",
    "nf4": "weight.absmax",
}  # fmt: skip
ROUNDED = ("gptq", "awq", "ct_int4", "ct_int8", "fp8", "nvfp4", "mxfp4", "nf4")
INTEGERS = ("gptq", "gptq_feedback", "awq", "ct_int4", "ct_int8")
ALL = tuple(WRITERS)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("against")


@cache
def tensors(name):
    return quantized(model(), name)


@pytest.fixture(scope="module")
def original(folder):
    return open_checkpoint(save(folder / "original", model()))


def scale_of(name, module=AT):
    return f"{module}.{SCALES.get(name, 'weight_scale')}"


def check(folder, original, name, change):
    """The errors and warnings of a release with ``change`` applied to its stored tensors."""
    found = dict(tensors(name))
    change(found, name)
    path = save(folder / "broken", found, WRITERS[name][1])
    return [f for f in open_checkpoint(path).findings(original) if f.severity != "note"]


def requantized(change):
    """Quantize another weight in place of one."""

    def apply(found, name):
        w = model()[f"{AT}.weight"].float()
        found |= quantized({f"{AT}.weight": change(w).to(torch.bfloat16)}, name)

    return apply


def scales_of_another(found, name):
    for key in [
        k for k in found if k.startswith(OTHER) and k.endswith((scale_of(name)[len(AT) :], "weight_scale_2"))
    ]:
        found[key.replace(OTHER, AT)] = found[key]


def scales_exchanged(found, name):
    for last in (scale_of(name)[len(AT) :], ".weight_scale_2"):
        if AT + last in found:
            found[AT + last], found[OTHER + last] = found[OTHER + last], found[AT + last]


def factor(by):
    def change(found, name):
        key = f"{AT}.weight_scale_2" if name == "nvfp4" else scale_of(name)
        if name == "mxfp4":
            found[key] = found[key] + 1
        else:
            found[key] = (found[key].float() * by).to(found[key].dtype)

    return change


def row_halved(found, name):
    key = scale_of(name)
    scale = found[key].clone()
    if name.startswith(("gptq", "awq")):
        scale[:, 17] = (scale[:, 17].float() / 2).to(scale.dtype)
    elif name == "mxfp4":
        scale[17] -= 1
    elif name == "nf4":
        scale[34:36] /= 2
    else:
        scale[17] = (scale[17].float() / 2).to(scale.dtype)
    found[key] = scale


def flip(tensor, index, bit):
    """A copy with one bit of one number flipped."""
    size = tensor.element_size()
    kind = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[size]
    bits = tensor.clone().contiguous().view(kind)
    value = int(bits[index]) ^ (1 << bit)
    top = 1 << (8 * size - 1)
    bits[index] = value if size == 1 else value - 2 * top if value >= top else value
    return bits.view(tensor.dtype)


def scale_bit(found, name):
    """A bit of the exponent, with which the scale is 16 times as large or as small (2 times for E8M0 and E4M3)."""
    key = scale_of(name)
    bit = {torch.float16: 12, torch.bfloat16: 9, torch.float32: 25, torch.uint8: 1, torch.float8_e4m3fn: 4}[
        found[key].dtype
    ]
    index = (40,) if found[key].dim() == 1 else (0, 20) if name.startswith(("gptq", "awq")) else (20, 0)
    found[key] = flip(found[key], index, bit)


def global_bit(found, name):
    found[f"{AT}.weight_scale_2"] = flip(found[f"{AT}.weight_scale_2"].reshape(1), 0, 20).reshape(())


def code_bit(found, name):
    """The lowest bit of one code."""
    key = next(
        k for k in found if k.startswith(AT + ".") and k.endswith((".qweight", ".weight_packed", ".weight"))
    )
    index = (3, 5) if found[key].shape[-1] > 5 else (700, 0)
    found[key] = flip(found[key], index, 0 if found[key].dtype != torch.int32 else 8)


def permuted(places):
    return requantized(lambda w: w[places(len(w))])


def rotary(n, heads=HEADS):
    return torch.arange(n).view(heads, 2, n // heads // 2).transpose(1, 2).reshape(-1)


def nibbles(found, name):
    key = next(
        k for k in found if k.startswith(AT + ".") and k.endswith((".qweight", ".weight_packed", ".weight"))
    )
    bits = found[key].contiguous().view(torch.uint8)
    found[key] = (bits >> 4 | bits << 4).view(found[key].dtype)


def another(found, name):
    for key in [k for k in found if k.startswith(OTHER + ".")]:
        found[key.replace(OTHER, AT)] = found[key]


def codes_of_another(found, name):
    for key in [
        k
        for k in found
        if k.startswith(OTHER + ".") and k.endswith((".qweight", ".weight_packed", ".weight"))
    ]:
        found[key.replace(OTHER, AT)] = found[key]


def zeroed(found, name):
    """The codes of row 17 are 0, and its scale is as it was."""
    key = f"{AT}.weight" if name == "ct_int8" else f"{AT}.qweight"
    codes = found[key].clone()
    if name == "ct_int8":
        codes[17] = 0
    else:
        codes[:4, 17] = -0x77777778  # eight codes of 8, the zero point
    found[key] = codes


def other_bits(found, name):
    key = scale_of(name)
    kind = torch.float16 if found[key].dtype == torch.bfloat16 else torch.bfloat16
    found[key] = found[key].view(kind)


def zero_points(found, name):
    found[f"{AT}.qzeros"] = (found[f"{AT}.qzeros"].long() + 0x11111111).to(torch.int32)


def zero_point_of_a_group(found, name):
    """The zero point of the third group of row 20 is 3 more."""
    key, row = f"{AT}.qzeros", 20
    shift = 4 * releases.AWQ_ORDER.index(row % 8)
    words = found[key].clone().long() & 0xFFFFFFFF
    own = int(words[2, row // 8] >> shift) & 15
    changed = (own + 3) % 16
    words[2, row // 8] += (changed - own) << shift
    found[key] = torch.where(words >= 1 << 31, words - (1 << 32), words).to(torch.int32)


def codes_of_rows(found, name):
    """Codes and zero points of rows are swapped in pairs, scales are not."""
    w = model()[f"{AT}.weight"]
    other = releases.awq(AT, w[torch.arange(len(w)) ^ 1])
    found |= {f"{AT}.{last}": other[f"{AT}.{last}"] for last in ("qweight", "qzeros")}


def g_idx_shuffled(found, name):
    order = torch.randperm(HIDDEN, generator=torch.Generator().manual_seed(1))
    found[f"{AT}.g_idx"] = found[f"{AT}.g_idx"][order]


def shuffled(n):
    return torch.randperm(n, generator=torch.Generator().manual_seed(2))


def plain(name, change):
    def apply(found, _):
        found[name] = change(found[name])

    return apply


# what is broken -> the change, the kind of the finding, its facts, the formats
DAMAGES = {
    "scales of layer 0": (scales_of_another, "scales_of_another", {"other": f"{OTHER}.weight"}, ALL),
    "scales exchanged": (scales_exchanged, "scales_exchanged", {"other": f"{OTHER}.weight"}, ALL),
    "scales of a row halved": (row_halved, "scale_wrong", {"factor": 0.5, "row": 17}, ALL),
    "a bit of a scale": (scale_bit, "scale_wrong", {"row": 20}, [n for n in ALL if n != "mxfp4"]),
    "a global scale": (global_bit, "constant_factor", {}, ["nvfp4"]),
    "a factor": (factor(1.25), "constant_factor", {"factor": 1.25}, [n for n in ALL if n != "mxfp4"]),
    "a factor of 2": (factor(2.0), "constant_factor", {"factor": 2.0}, ALL),
    "heads permuted": (permuted(rotary), "rows_permuted", {"heads": HEADS, "order": "pairs"}, ALL),
    "rows reversed": (permuted(lambda n: torch.arange(n).flip(0)), "rows_permuted", {"order": "reversed"}, ALL),
    "rows shuffled": (permuted(shuffled), "rows_permuted", {}, ALL),
    "rows shifted": (permuted(lambda n: torch.arange(n).roll(1)), "rows_permuted", {"order": "shifted by 1"}, ALL),
    "two rows exchanged": (
        permuted(lambda n: torch.tensor([0, 9, *range(2, 9), 1, *range(10, n)])), "rows_permuted", {"moved": 2}, ALL
    ),
    "columns shuffled": (requantized(lambda w: w[:, shuffled(w.shape[1])]), "columns_permuted", {}, ALL),
    "columns exchanged": (
        requantized(lambda w: w[:, [0, 9, *range(2, 9), 1, *range(10, w.shape[1])]]), "columns_permuted", {"moved": 2}, ALL
    ),
    "transposed": (requantized(lambda w: w.T), "transposed", {}, ALL),
    "negated": (requantized(lambda w: -w), "sign_flipped", {}, ALL),
    "nibbles swapped": (nibbles, "nibbles_swapped", {}, [n for n in ALL if n not in ("ct_int8", "fp8", "awq")]),
    "nibbles of AWQ swapped": (nibbles, "codes_permuted", {}, ["awq"]),
    "another weight": (another, "another_weight", {"other": f"{OTHER}.weight"}, ALL),
    "codes of another": (codes_of_another, "codes_of_another", {"other": f"{OTHER}.weight"}, ALL),
    "bits of the other 16-bit float": (
        other_bits, "bits_reinterpreted", {}, [n for n in ALL if n not in ("fp8", "nvfp4", "mxfp4", "nf4")]
    ),
    "zero points off by one": (zero_points, "zero_point_off", {"by": 1}, ["awq"]),
    "a zero point of a group": (zero_point_of_a_group, "zero_point_wrong", {"steps": 3, "row": 20, "first": 64}, ["awq"]),
    "codes of rows swapped": (
        codes_of_rows, "codes_permuted", {"axis": "rows", "order": "swapped in pairs", "which": "codes and zero points"}, ["awq"]
    ),
    "g_idx shuffled": (g_idx_shuffled, "g_idx_wrong", {}, ["gptq_desc_act"]),
    "a bit of a code": (code_bit, "code_impossible", {"elements": 1, "bit": 0}, ROUNDED),
    "codes of 0": (zeroed, "zeroed", {"runs": 1, "row": 17}, ["ct_int8", "gptq"]),
    "plain bits": (
        plain(EMBEDDINGS, lambda w: w.view(torch.float16)), "bits_reinterpreted", {"truth": "bfloat16"}, ["ct_int4"]
    ),
    "a norm changed": (plain(NORM, lambda w: w * 1.5), "constant_factor", {"factor": 1.5}, ["ct_int4"]),
    "a norm at one place": (plain(NORM, lambda w: w + (torch.arange(HIDDEN) == 7)), "plain_differs", {"values": 1}, ["ct_int4"]),
    "a norm of another layer": (
        plain(NORM, lambda w: model()["model.layers.1.input_layernorm.weight"]), "another_weight",
        {"other": "model.layers.1.input_layernorm.weight"}, ["ct_int4"],
    ),
    "a norm shuffled": (plain(NORM, lambda w: w[shuffled(len(w))]), "rows_permuted", {}, ["ct_int4"]),
}  # fmt: skip


def table():
    """Every 40th damage in one format, and all of them in all formats as slow tests."""
    for number, (what, (_, _, _, names)) in enumerate(DAMAGES.items()):
        first = "ct_int4" if "ct_int4" in names else names[0]
        for name in names:
            yield pytest.param(
                what, name, marks=[] if name == first and number % 40 == 0 else pytest.mark.slow
            )


@for_each(("what", "name"), list(table()))
def test_what_is_broken_is_named(what, name, folder, original):
    change, kind, facts, _ = DAMAGES[what]
    found = check(folder, original, name, change)
    errors = [f for f in found if f.severity == "error" and f.kind == kind]
    assert errors, [f.sentence for f in found]
    tensor = NORM if "norm" in what else EMBEDDINGS if what == "plain bits" else f"{AT}.weight"
    assert any(tensor in f.tensors for f in errors)
    members = [m for f in errors for m in (f.members or (f,)) if tensor in m.tensors]
    shown = {key: value for m in members for key, value in m.facts.items()}
    for key, value in facts.items():
        assert (
            shown.get(key) == pytest.approx(value, rel=0.05)
            if isinstance(value, float)
            else shown.get(key) == value
        ), shown


@pytest.mark.parametrize(
    "bit", [7, *(pytest.param(b, marks=pytest.mark.slow) for b in (0, 1, 4, 10, 13, 16, 18))]
)
@pytest.mark.parametrize("shared", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_any_bit_of_a_global_scale(bit, shared, folder, original):
    """Codes rounded to nearest don't show the low ones; max |w| / 2,688, to which all others keep, shows each."""

    def change(found, name):
        if shared:  # by q and k of a layer, as vLLM needs it
            for layer in range(releases.LAYERS):
                _share(found, f"model.layers.{layer}.self_attn.")
        key = f"{AT}.weight_scale_2"
        found[key] = flip(found[key].reshape(1), 0, bit).reshape(())

    (error,) = check(folder, original, "nvfp4", change)
    assert (error.kind, error.facts["bit"], error.facts["constant"]) == ("global_scale_wrong", bit, 2688)
    assert error.tensors == (f"{AT}.weight",)
    assert error.facts["by"] == pytest.approx(abs(error.facts["scale"] / error.facts["computed"] - 1))


def _share(found, start):
    weights = {m: model()[f"{start}{m}.weight"] for m in ("q_proj", "k_proj")}
    one = max(w.float().abs().max() for w in weights.values()) / (6 * 448)
    for module, w in weights.items():
        x = w.float().reshape(len(w), -1, 16)
        scale = (x.abs().amax(-1) / 6 / one).to(torch.float8_e4m3fn)
        codes = releases.fp4_codes(x / (scale.float() * one)[..., None]).reshape(w.shape)
        new = {"weight": releases.bytes_of(codes), "weight_scale": scale, "weight_scale_2": one.reshape(())}
        found |= {f"{start}{module}.{last}": t for last, t in new.items()}


@pytest.mark.slow  # another quantized model, as long as the next test
def test_columns_that_nothing_divides(folder, original):
    """AWQ's factors without the norm that undoes them change the model."""
    weights = scaled(model())
    for layer in range(releases.LAYERS):
        name = f"model.layers.{layer}.input_layernorm.weight"
        weights[name] = model()[name]
    path = save(folder / "half scaled", quantized(weights, "awq"), WRITERS["awq"][1])
    found = open_checkpoint(path).findings(original)
    errors = {
        name for f in found if f.severity == "error" and f.kind == "column_factors" for name in f.tensors
    }
    assert errors == {
        f"model.layers.{i}.self_attn.{m}_proj.weight" for i in range(releases.LAYERS) for m in "qk"
    }
    notes = {name for f in found if f.severity == "note" and "column_factors" in f.kind for name in f.tensors}
    assert f"model.layers.{3}.mlp.down_proj.weight" in notes


FAST = ("nvfp4", "Q4_K")


def scaled(weights):
    """The weights as AWQ scales them: columns by factors by which the norm before, or the rows before, are divided."""
    generator = torch.Generator().manual_seed(5)
    found = {name: w.float().clone() for name, w in weights.items()}
    for layer in range(releases.LAYERS):
        start = f"model.layers.{layer}."
        before, inside = (
            torch.exp(0.5 * torch.randn(n, generator=generator)) for n in (HIDDEN, releases.INNER)
        )
        found[f"{start}input_layernorm.weight"] /= before
        for module in ("self_attn.q_proj", "self_attn.k_proj"):
            found[f"{start}{module}.weight"] *= before
        found[f"{start}mlp.up_proj.weight"] /= inside[:, None]
        found[f"{start}mlp.down_proj.weight"] *= inside
    return {name: w.to(torch.bfloat16) for name, w in found.items()}


@pytest.mark.slow  # test_compressor.py scales a release in the same way
def test_a_release_that_awq_scaled(folder, original):
    """Equivalent scaling is noted, and what was multiplied is matched with what was divided."""
    path = save(folder / "scaled", quantized(scaled(model()), "awq"), WRITERS["awq"][1])
    found = open_checkpoint(path).findings(original)
    assert [f.sentence for f in found if f.severity != "note"] == []
    assert {"norm_scaled", "column_factors", "row_factors"} <= {f.kind for f in found}


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=[] if n in FAST else pytest.mark.slow) for n in (*WRITERS, *releases.GGUF_TYPES)],
)
def test_a_sound_release_of_several_layers(name, folder, original):
    if name in WRITERS:
        path = save(folder / "sound", tensors(name), WRITERS[name][1])
    else:
        path = save_gguf(folder / f"{name}.gguf", model(), name)
    assert [f.sentence for f in open_checkpoint(path).findings(original) if f.severity != "note"] == []


def test_weights_that_the_original_has_in_a_layer_are_missed(folder, original):
    def without(found, name):
        for key in [
            k
            for k in found
            if k.startswith(("model.layers.2.self_attn.q_proj", "model.layers.2.self_attn.k_proj"))
        ]:
            del found[key]

    (finding,) = [f for f in check(folder, original, "ct_int4", without) if f.kind == "missing_tensor"]
    assert finding.severity == "error"
    assert set(finding.tensors) == {f"model.layers.2.self_attn.{m}_proj.weight" for m in "qk"}
