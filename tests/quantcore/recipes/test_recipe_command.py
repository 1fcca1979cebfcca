"""``python -m quantcore recipe``: of a file type, of a size, and what it refuses before anything is measured."""

import json

from grid import for_each

from quantcore.__main__ import main
from quantcore.checkpoints import EXAMPLES, open_checkpoint
from quantcore.layerwise import plan, sensitivity
from quantcore.recipes import ftype_types, recipe

MINILM = EXAMPLES["minilm"]
QUERY, DENSE = "encoder.layer.0.attention.self.query", "encoder.layer.0.output.dense"


def command(capsys, *arguments):
    code = main(["recipe", str(MINILM), *map(str, arguments)])
    return code, *capsys.readouterr()


def test_of_a_file_type(capsys):
    code, out, err = command(capsys, "--ftype", "q4_k_m", "--json")
    made = json.loads(out)
    assert (code, err) == (0, "Q4_K_M: 4.757 bits per weight, 439.3 kB of tensors\n")
    assert ftype_types(MINILM, **made["json"]) == ftype_types(MINILM, "Q4_K_M")
    assert command(capsys, "--ftype", "q4_k_m")[1] == made["text"]
    assert made["reasons"][f"{QUERY}.weight"].startswith("Q5_0: 384 columns are not whole blocks of q4_K")


def test_of_a_size(capsys, tmp_path):
    table = tmp_path / "table.json"
    texts = "int8 per_channel(0); int4 per_group(32)"
    assert main(["sensitivity", str(MINILM), "--schemes", texts, "--json", str(table)]) == 0
    capsys.readouterr()
    code, out, err = command(capsys, "--size", "0.55MB", "--for", "torchao", "--table", table)
    *_, last = sensitivity(open_checkpoint(MINILM), texts.split("; "))
    chosen = plan(last.table, 0.55e6)
    assert (code, out) == (0, recipe(chosen, "torchao", table=last.table).text)
    assert err.startswith(f"{chosen.bits_per_weight:.4g} bits per weight")
    code, measured, _ = command(capsys, "--size", "0.55MB", "--for", "torchao", "--schemes", texts)
    assert (code, measured) == (0, out)


def test_a_size_is_made_of_what_the_tool_has(capsys):
    code, out, _ = command(capsys, "--bits", 6, "--for", "mlx")
    quantization = json.loads(out)["quantization"]
    assert (code, quantization[QUERY], quantization[DENSE]) == (
        0, {"group_size": 64, "bits": 6, "mode": "affine"}, {"group_size": 64, "bits": 5, "mode": "affine"}
    )  # fmt: skip


@for_each(
    ("arguments", "said"),
    [
        (["--ftype", "Q4_K_X"], "no ftype the text 'Q4_K_X'"),
        (["--ftype", "IQ2_XXS"], "this quantization requires an imatrix!"),
        (["--ftype", "Q4_K_M", "--for", "mlx"], "MLX has no Q5_0"),
        (["--ftype", "Q4_K_M", "--for", "vllm"], "no recipes for the text 'vllm'"),
        (["--bits", "1"], "No choice takes at most"),
        (["--size", "4.2"], "--size 4.2 is not a size"),
        (["--bits", "6", "--for", "onnxruntime"], "give the ONNX model"),
        (["--bits", "6", "--schemes", "int4 per_group(32)"], "llama.cpp has no int4 symmetric per_group(32) min_max textbook; the nearest that it has is gguf.Q4_0."),
        (["--bits", "6", "--error", "output"], "The error output needs an imatrix"),
        (["--bits", "6", "--table", "none.json"], "none.json can't be read"),
    ],
)  # fmt: skip
def test_what_is_refused_before_anything_is_measured(arguments, said, capsys, monkeypatch):
    monkeypatch.setattr("quantcore.layerwise.run.measured", None)
    code, out, err = command(capsys, *arguments)
    assert (code, out) == (2, "")
    assert said in err
    assert err.count("\n") == 1


def test_groups_that_do_not_divide_a_row_are_not_chosen(capsys):
    """Rows of 384 stay as they are stored, and those of 1,536 do not; 5 bits need both."""
    told = ["--for", "torchao", "--schemes", "int4 per_group(256)"]
    code, out, _ = command(capsys, "--bits", 9, *told)
    assert (code, QUERY in out, DENSE in out) == (0, False, True)
    code, out, err = command(capsys, "--bits", 5, *told)
    assert (code, out, "No choice takes at most" in err) == (2, "", True)


def test_a_table_that_is_not_finished_is_no_plan(capsys, tmp_path):
    *_, last = sensitivity(open_checkpoint(MINILM), ["gguf.Q4_0"])
    del last.table.rows[f"{QUERY}.weight"]
    table = tmp_path / "table.json"
    table.write_text(json.dumps(last.table.as_dict()))
    code, out, err = command(capsys, "--bits", 6, "--table", table)
    assert (code, out) == (1, "")
    assert "is not finished" in err
