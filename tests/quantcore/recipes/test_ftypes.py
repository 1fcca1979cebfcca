"""The types and sizes of llama.cpp's files, told from headers, against files that llama.cpp wrote."""

import base64
import gzip
import json
import math
from functools import cache

import pytest
from grid import for_each
from parts import in_parts
from places import ROOT

from quantcore.checkpoints import EXAMPLES, open_checkpoint
from quantcore.errors import QuantError
from quantcore.layerwise import sensitivity
from quantcore.recipes import FTYPES, ftype_file, ftype_points, ftype_size, ftype_types

DATA = ROOT / "tests/data/golden/ftypes.json.gz"
WRITTEN, REAL = ("llama8", "qwen2_tied", "mixtral8"), ("Llama-3.1-8B", "Mixtral-8x7B", "Qwen3-0.6B")
# architectures with rules of their own, numbers of experts and layers, a width of 1,000, and names and shapes that
# are never quantized
OTHERS = ("falcon", "llama4ex", "llama100", "names")
LARGE = ("llama70b", "llama7b", "llama16ex", "qwen2_72b", "phi3gqa", "gemma3", "qwen3moe")


@cache
def golden():
    return json.loads(gzip.decompress(DATA.read_bytes()))


@pytest.fixture(scope="module")
def headers(tmp_path_factory):
    """A folder of headers with the recorded sizes of files, and no data."""
    folder = tmp_path_factory.mktemp("headers")
    for name, (size, header) in golden()["files"].items():
        with open(folder / name, "wb") as file:
            file.write(base64.b64decode(header))
            file.truncate(size)
    return folder


@pytest.fixture
def files(headers, monkeypatch):
    monkeypatch.chdir(headers)  # the name of an imatrix, as it is given, is in the header


def answers(cases):
    """What is told of each case, and what llama.cpp did."""
    opened = {}
    for case in cases:
        file = case["file"]
        for name in {file, case["imatrix"]} - opened.keys():
            opened[name] = name if isinstance(name, bool) else open_checkpoint(name)
        told = {"id": case["id"]}
        try:
            made = ftype_file(opened[file], case["ftype"], opened[case["imatrix"]], **case["options"])
            told |= {"types": dict(made.types)} | ({"bytes": made.num_bytes} if "bytes" in case else {})
        except QuantError as refusal:
            told["refused"] = str(refusal)
        yield case, told


def expected(case, order):
    if "refused" in case:
        return {"id": case["id"], "refused": case["refused"]}
    kinds = [case["types"][ord(letter) - ord("a")] for letter in case["code"]]
    types = dict(zip(case.get("order", order), kinds, strict=True))
    return {"id": case["id"], "types": types} | {key: case[key] for key in ("bytes",) if key in case}


@in_parts(3)
@for_each(
    "model", [*WRITTEN, *OTHERS, *(pytest.param(name, marks=pytest.mark.slow) for name in (*REAL, *LARGE))]
)
def test_types_sizes_and_refusals_are_llama_cpps(model, part, files):
    recorded = golden()["models"][model]
    turn = [*WRITTEN, *OTHERS, *REAL, *LARGE].index(model) % 3
    checked = 0
    for case, told in answers(part(recorded["cases"][turn:] + recorded["cases"][:turn])):
        assert told == expected(case, recorded["order"])
        assert "refused" in told or list(told["types"]) == case.get("order", recorded["order"])
        checked += 1
    assert checked >= len(part(range(60)))


@pytest.mark.parametrize("model", REAL)
def test_what_a_dry_run_only_warns_of_is_refused(model, files):
    source = open_checkpoint(f"{model}.gguf")
    needing = [case["ftype"] for case in golden()["models"][model]["cases"] if case.get("needs_imatrix")]
    assert len(needing) == 9
    for ftype in needing:
        with pytest.raises(QuantError, match=r"^this quantization requires an imatrix!$"):
            ftype_types(source, ftype)


def test_an_imatrix_that_lacks_a_needed_weight_is_refused(files):
    words = "imatrix size 768 is different from tensor size 512 for blk.0.ffn_down.weight"
    with pytest.raises(QuantError, match=f"^{words}$"):
        ftype_types("qwen2_tied.gguf", "Q4_K_M", "llama8.imatrix.gguf")
    with pytest.raises(QuantError, match=r"^Missing importance matrix for tensor blk\.0\.ffn_gate_exps\.weight in a"):
        ftype_types("mixtral8.gguf", "IQ2_XXS", "llama8.imatrix.gguf")


def test_the_path_of_an_imatrix_is_in_the_file(files):
    short, long = (ftype_size("llama8.gguf", "Q4_K_M", f"{up}llama8.imatrix.gguf") for up in ("", "./" * 80))
    assert short < long <= short + 128  # a text of 127 bytes at most, padded


def test_a_reason_stands_by_every_tensor(files):
    made = ftype_file("llama8.gguf", "Q4_K_M", tensor_types=[("attn_k", "q8_0")])
    assert made.reasons.keys() == made.types.keys()
    assert made.reasons["blk.0.attn_k.weight"] == "the first pattern that fits is attn_k"
    assert made.reasons["blk.0.attn_v.weight"] == "Q4_K_M gives q6_K to this tensor instead of q4_K"
    assert made.reasons["blk.0.attn_norm.weight"] == "as stored: llama.cpp never quantizes it"
    assert made.reasons["blk.0.attn_q.weight"] == "the type of most tensors in Q4_K_M"


def test_a_hugging_face_model_has_llama_cpps_names():
    made = ftype_file(EXAMPLES["minilm"], "q4_k_m")
    assert made.ftype == "Q4_K_M"
    assert made.origins["blk.0.attn_q.weight"] == ("encoder.layer.0.attention.self.query.weight",)
    assert made.types["blk.0.attn_q.weight"] == "Q5_0"  # 384 columns are not whole blocks of 256
    assert "384 columns are not whole blocks of q4_K" in made.reasons["blk.0.attn_q.weight"]
    with pytest.raises(QuantError, match=r"convert_hf_to_gguf\.py"):
        ftype_size(EXAMPLES["minilm"], "Q4_K_M")


@for_each(
    ("arguments", "options", "words"),
    [
        (("minilm", "Q4_K_X"), {}, r"no ftype the text 'Q4_K_X'; the nearest is Q4_K_[SM]"),
        (("minilm", 15), {}, "no ftype the number 15"),
        (("minilm", "Q4_K_M"), {"output_tensor_type": "int4"}, "no type the text 'int4'"),
        (("minilm", "Q4_K_M"), {"tensor_types": [("attn_(", "Q8_0")]}, r"attn_\(' of tensor_types is not a regular"),
        (("minilm-gptq", "Q4_K_M"), {}, "is quantized already"),
        (("chgnet", "Q4_K_M"), {}, "the model_type 'chgnet' is not known"),
        (("minilm", "NVFP4"), {}, "invalid output file type 39"),
    ],
)  # fmt: skip
def test_what_cannot_be_told_is_said(arguments, options, words):
    with pytest.raises(QuantError, match=words):
        ftype_types(EXAMPLES[arguments[0]], arguments[1], **options)


def test_an_unknown_option_is_not_ignored():
    with pytest.raises(TypeError):
        ftype_types(EXAMPLES["minilm"], "Q4_K_M", token_embeding_type="Q8_0")


def test_every_ftype_has_been_compared():
    assert {case["ftype"] for case in golden()["models"]["llama8"]["cases"]} == set(FTYPES)


def test_a_file_type_has_an_error_where_its_types_were_measured():
    minilm = open_checkpoint(EXAMPLES["minilm"])
    *_, last = sensitivity(minilm, ["gguf.Q5_0", "gguf.Q4_K", "int8 per_channel(0)"])
    points = ftype_points(minilm, last.table)
    assert [name for name, (_, error) in points.items() if not math.isnan(error)] == ["Q4_K_M"]
    rows = last.table.rows
    query, dense = (rows[f"encoder.layer.0.{name}.weight"] for name in ("attention.self.query", "output.dense"))
    of_q5_0, of_q4_k = query.cells[0].sse / query.power, dense.cells[1].sse / dense.power
    assert points["Q4_K_M"][1] == pytest.approx(of_q5_0 + of_q4_k, rel=1e-12)
    norms_and_biases = 4 * 4 * 384
    assert points["Q4_K_M"][0] == 384 * 384 * 22 / 32 + 384 * 1536 * 144 / 256 + norms_and_biases
    assert points["Q8_0"][0] == (384 * 384 + 384 * 1536) * 34 / 32 + norms_and_biases
