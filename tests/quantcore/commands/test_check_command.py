"""``python -m quantcore check`` and ``compare``: what they print, and their exit codes."""

import csv
import io
import itertools
import json
import re
import runpy
import signal
import subprocess
import sys

import numpy as np
import pytest
from checkpoint_cases import case, cases
from grid import for_each
from safetensors.numpy import save_file

from quantcore import __main__
from quantcore.__main__ import main
from quantcore.checkpoints import open_checkpoint
from quantcore.checkpoints.comparison import CheckpointComparison, by_harm

SOUND, V1 = case("gptq_v2_4bit_g128_sym").release, case("bad_gptq_v1_but_zeros_8").release


def run(capsys, *arguments):
    code = main(["check", *map(str, arguments)])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_a_sound_release(capsys):
    code, out, err = run(capsys, SOUND)
    assert (code, err) == (0, "")
    assert out.startswith(f"{SOUND}: gptq, 4 tensors, 28.8 kB\n")
    assert out.endswith("0 errors, 0 warnings and 1 note.\n")


@for_each("given", cases("bad_"), ids=str)
def test_a_damaged_release(given, capsys):
    """Everything that is visibly wrong in a file is reported as an error, in a sentence and by the exit code."""
    shows_nothing = str(given) in ("bad_awq_not_interleaved", "bad_q5k_leak")
    code, out, err = run(capsys, given.release)
    assert code == (0 if shows_nothing else 1)
    assert err == ""
    assert ("error: " in out) is not shows_nothing


@for_each("name", ["nothing", "empty", "text.txt", "folder/link"])
def test_what_can_not_be_opened(name, capsys, tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "text.txt").write_text("hello")
    for arguments in ([tmp_path / name], [SOUND, "--against", tmp_path / name]):
        code, out, err = run(capsys, *arguments)
        assert (code, out) == (2, "")
        assert err.count("\n") == 1
        assert err.endswith(".\n")


def test_json(capsys):
    code, out, _ = run(capsys, V1, "--json")
    found = json.loads(out)
    assert code == 1
    assert (found["path"], found["format"], found["tensors"]) == (str(V1), "gptq", 1)
    assert found["counts"]["error"] == 1
    first = found["findings"][0]
    assert (first["kind"], first["severity"]) == ("gptq_version", "error")
    assert first["tensors"] == ["model.layers.0.self_attn.q_proj.weight"]
    assert first["rivals"] == ["gptq_version"]  # the reading to compare this one with
    assert "the first of its stored zeros is 8" in first["sentence"]
    code, out, _ = run(capsys, case("bad_truncated").release, "--json")
    assert (code, json.loads(out)["format"], json.loads(out)["findings"][0]["kind"]) == (
        1,
        None,
        "unreadable",
    )


def test_against(capsys, tmp_path):
    given = case("bad_q5k_leak")
    (name,) = given.record["tensors"]
    save_file({name: given.expected[f"{name}|true"]}, tmp_path / "model.safetensors")
    code, out, _ = run(capsys, given.release, "--against", tmp_path)
    assert code == 1
    assert "larger errors in odd sub-blocks than in even ones" in out
    assert run(capsys, tmp_path, "--against", tmp_path)[0] == 0


def test_what_many_tensors_share_is_one_finding(capsys, tmp_path):
    bad = {f"w.{i}.weight": np.full(4, np.nan, np.float32) for i in range(40)}
    good = {"a.weight": np.ones(4, np.float32), "b.weight": np.ones(4, np.float32)}
    save_file(bad | good, tmp_path / "model.safetensors")
    code, out, _ = run(capsys, tmp_path)
    assert code == 1
    assert out.count("error: ") == 1
    assert "40 of 42 plain tensors (all but 'a.weight' and 'b.weight') contain 4 NaN" in out
    (found,) = json.loads(run(capsys, tmp_path, "--json")[1])["findings"]
    assert found["tensors"] == [f"w.{i}.weight" for i in range(40)]  # in the order of layers: 2 before 10
    assert found["facts"] == {"values": 4, "tensors": 40}
    assert found["members"][7] == {"tensors": ["w.7.weight"], "facts": {"values": 4}}


def test_strict_counts_warnings(capsys, tmp_path):
    save_file({"lm_head.weight": np.zeros((4, 4), np.float32)}, tmp_path / "model.safetensors")
    assert run(capsys, tmp_path)[0] == 0
    code, out, _ = run(capsys, tmp_path, "--strict")
    assert (code, out.count("warning: ")) == (1, 1)
    assert run(capsys, SOUND, "--strict")[0] == 0


def test_help_says_the_exit_codes(capsys):
    with pytest.raises(SystemExit, match="0"):
        main(["check", "--help"])
    assert "exit codes:" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="2"):
        main([])


def test_as_a_program(capsys, monkeypatch):
    """As with -m in CI, which the next test does in a process of its own."""
    monkeypatch.setattr(sys, "argv", ["quantcore", "check", str(V1)])
    with pytest.raises(SystemExit, match="1"):
        runpy.run_path(__main__.__file__, run_name="__main__")
    captured = capsys.readouterr()
    assert captured.err == ""
    assert "they are read as v2" in captured.out


@pytest.mark.slow  # a write while it imports ends it, too
@pytest.mark.skipif(not hasattr(signal, "SIGPIPE"), reason="Windows has no SIGPIPE")
def test_a_reader_that_has_seen_enough_ends_it_without_a_traceback():
    program = subprocess.Popen(
        [sys.executable, "-m", "quantcore", "list", V1], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    program.stdout.close()
    assert program.stderr.read() == b""
    assert program.wait() == -signal.SIGPIPE


def compared(capsys, *arguments):
    code = main(["compare", *map(str, arguments)])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.fixture
def pair(tmp_path):
    """An original, and a copy with an error in one tensor."""
    generator = np.random.default_rng(0)
    weights = {f"w{i}": generator.normal(size=(30, 50)).astype(np.float32) for i in range(3)}
    for name, changed in (("a", {}), ("b", {"w1": weights["w1"] + np.float32(0.01)})):
        (tmp_path / name).mkdir()
        save_file(weights | changed, tmp_path / name / "model.safetensors")
    return tmp_path / "a", tmp_path / "b"


def numbers_end_below_their_names(out, *columns):
    head, *rows = itertools.dropwhile(lambda line: not line.lstrip().startswith(columns[0]), out.splitlines())
    for column in columns:
        end = head.index(column) + len(column)
        assert all(row[end - 1] != " " == row[end] for row in rows), column


def test_compare(capsys, pair):
    code, out, err = compared(capsys, *pair)
    assert (code, err) == (0, "")
    assert "3 pairs compared, 2 of them bit-equal" in out
    assert "'w1'" in out.splitlines()[-1]
    numbers_end_below_their_names(out, "SQNR", "bits", "max |error|")
    low = compared(capsys, *pair, "--min-sqnr", "60")
    assert low[0] == 1
    (value,) = re.findall(r"SQNR of 'w1' is ([\d.]+) dB, below 60 dB\.", low[1])
    close = compared(capsys, *pair, "--min-sqnr", f"{float(value) + 0.06:.1f}")[1]  # the shown number lies below the limit too
    (shown, limit) = map(float, re.search(r"'w1' is ([\d.]+) dB, below ([\d.]+) dB", close).groups())
    assert shown < limit
    assert compared(capsys, *pair, "--min-sqnr", "20")[0] == 0


def test_compare_as_json_and_csv(capsys, pair):
    """Both contain the module's numbers, the tensor with the largest error first."""
    comparison = CheckpointComparison(*map(open_checkpoint, pair))
    *_, step = comparison.steps()
    results = by_harm(comparison.results(step.state))
    found = json.loads(compared(capsys, *pair, "--json", "--threads", "1")[1])
    assert found["tensors"] == [json.loads(json.dumps(r.as_dict())) for r in results]
    assert found["unpaired"] == []
    rows = list(csv.DictReader(io.StringIO(compared(capsys, *pair, "--csv")[1])))
    assert rows == [{k: str(v) for k, v in r.as_row().items()} for r in results]
    assert rows[0]["tensor"] == "w1"


def test_compare_with_what_has_no_partner(capsys, tmp_path, pair):
    save_file({"w0": np.ones((30, 50), np.float32), "w9": np.ones(3, np.float32)}, tmp_path / "c.safetensors")
    code, out, _ = compared(capsys, pair[0], tmp_path / "c.safetensors")
    assert code == 1
    assert "The original has no 'w9'." in out
    assert "The other checkpoint has no 'w1'." in out
    for arguments in ((pair[0], tmp_path / "no"), (tmp_path / "no", pair[0])):
        code, out, err = compared(capsys, *arguments)
        assert (code, out, err.count("\n")) == (2, "", 1)


def output(capsys, *arguments):
    code = main([*map(str, arguments)])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_list(capsys):
    """Every tensor with its shape, size and storage, as text and as JSON; problems make it exit with 1."""
    code, out, _ = output(capsys, "list", SOUND, "--json")
    found, opened = json.loads(out), open_checkpoint(SOUND)
    assert (code, found["format"]) == (0, "gptq")
    assert [(t["name"], tuple(t["shape"]), t["storage"], t["num_bytes"]) for t in found["tensors"]] == [
        (name, t.shape, t.storage, t.num_bytes) for name, t in opened.tensors.items()
    ]
    assert found["bytes"] == sum(t.num_bytes for t in opened.tensors.values())
    code, out, _ = output(capsys, "list", SOUND)
    assert code == 0
    numbers_end_below_their_names(out, "shape", "size", "bits")
    for name, tensor in opened.tensors.items():
        (line,) = [line for line in out.splitlines() if repr(name) in line]
        assert "×".join(map(str, tensor.shape)) in line
        assert line.endswith(tensor.storage)
    assert output(capsys, "list", case("bad_missing_shard").release)[0] == 1
    assert output(capsys, "list", "nowhere")[0] == 2


def test_inspect(capsys):
    """A tensor's ranges, and an element's bits and arithmetic: those of the library's files."""
    given, name, at = case("gptq_v1_4bit_g128_sym"), "model.layers.0.self_attn.q_proj.weight", (3, 17)
    code, out, _ = output(capsys, "inspect", given.release, name, "--json")
    found = json.loads(out)
    assert code == 0
    values, codes = given.expected[name], given.expected[f"{name}|codes"]
    assert found["values"]["largest"] == np.abs(values).max()
    assert found["values"]["zeros"] == (values == 0).sum()
    assert found["values"]["rms"] == pytest.approx(np.sqrt(np.square(values, dtype=np.float64).mean()), rel=1e-12)
    assert (found["codes"]["lowest"], found["codes"]["highest"]) == (codes.min(), codes.max())
    scale = given.expected[f"{name}|scale"]
    assert (found["parameters"]["scale"]["lowest"], found["parameters"]["scale"]["count"]) == (scale.min(), scale.size)
    code, out, _ = output(capsys, "inspect", given.release, name, "3,17", "--json")
    element = json.loads(out)["element"]
    assert (code, element["value"], element["code"]["value"]) == (0, values[at], codes[at])
    (word,) = element["code"]["words"]
    data = (given.release / word["file"]).read_bytes()[word["offset"] : word["offset"] + 4]
    bits = int.from_bytes(data, "little")
    assert sum((bits >> bit & 1) << i for i, bit in enumerate(word["bits"])) == codes[at]
    code, out, _ = output(capsys, "inspect", given.release, name, "3,17")
    assert code == 0
    for line in (*element["lines"], f"{word['tensor']}[{word['index'][0]}, {word['index'][1]}] {word['hex']}"):
        assert line in out


def test_what_can_not_be_inspected(capsys):
    """A sentence on stderr, and no traceback: 2 if there is no such tensor, 1 if it, or an element, can't be read."""
    name = "model.layers.0.self_attn.q_proj.weight"
    assert output(capsys, "inspect", SOUND, "nothing")[::2] == (2, "There is no tensor 'nothing'.\n")
    assert output(capsys, "inspect", "nowhere", name)[0] == 2
    code, out, err = output(capsys, "inspect", SOUND, name, "3,100000")
    assert (code, out, err.count("\n")) == (1, "", 1)
    broken = case("bad_missing_weight_scale_2")
    code, out, err = output(capsys, "inspect", broken.release, "model.layers.0.self_attn.k_proj.weight")
    assert (code, out) == (1, "")
    assert "weight_scale_2" in err
    with pytest.raises(SystemExit):
        main(["inspect", str(SOUND), name, "three"])
    assert "'three' is not an index" in capsys.readouterr().err
