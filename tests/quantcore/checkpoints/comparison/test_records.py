"""The results of a pair from its sums: metrics, what is undefined and why, remarks, rows and order; all written out by hand."""

import json
import math

import pytest
import releases
import torch
from suspects import M, W, weight

from quantcore.checkpoints import open_checkpoint
from quantcore.checkpoints.comparison import Comparison, ComparisonState, stream
from quantcore.checkpoints.comparison.boxes import PairSums
from quantcore.checkpoints.comparison.pairing import Pair
from quantcore.checkpoints.comparison.parts import Part
from quantcore.checkpoints.comparison.record import (
    Record,
    TensorResult,
    WorstBlock,
    by_harm,
    metrics,
    summary,
)

NAN, INF = math.nan, math.inf


def result(name="w", **more):
    given = {"original": "v", "shape": (2, 3), "storage": ("plain", "int4"), "elements": 6, "num_bytes": (24.0, 3.4), "bits_per_weight": (32.0, 4.5)}
    return TensorResult(name, **(given | more))


METRICS = {
    "both": (PairSums(6, 4.0, 9.0, 5.0, 1.0, 2.0, 0.75, 5, 4), {"sqnr_db": 20 * math.log10(2), "mse": 1 / 6, "max_abs_error": 0.75, "cosine": 5 / 6}, {}),
    "equal": (PairSums(6, 4.0, 4.0, 4.0, 0.0, 0.0, 0.0, 0, 0), {"sqnr_db": INF, "mse": 0.0, "max_abs_error": 0.0, "cosine": 1.0}, {}),
    "opposite": (PairSums(6, 4.0, 4.0, -4.0 - 1e-15, 16.0, 9.0, 2.0, 1, 6), {"sqnr_db": -20 * math.log10(2), "cosine": -1.0}, {}),
    "nothing in the other": (PairSums(6, 4.0, 0.0, 0.0, 4.0, 3.0, 2.0, 1, 6), {"sqnr_db": 0.0, "cosine": NAN}, {"cosine": "the other is zero everywhere"}),
    "nothing": (
        PairSums(6, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0, 2), {"mse": 0.0, "cosine": NAN}, {"cosine": "the original is zero everywhere and the other is zero everywhere"},
    ),
    "none finite": (
        PairSums(0, 0.0, 0.0, 0.0, 0.0, 0.0, -1.0, 0, 6, (1, 2, 3, 4)), {"sqnr_db": NAN, "mse": NAN, "max_abs_error": NAN, "cosine": NAN},
        dict.fromkeys(("sqnr_db", "mse", "max_abs_error", "cosine"), "no element is finite in both"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", METRICS)
def test_metrics(what):
    sums, wanted, undefined = METRICS[what]
    found = metrics(sums, (2, 3))
    assert {k: found[k] for k in wanted} == {k: pytest.approx(v, nan_ok=True) for k, v in wanted.items()}
    assert undefined.items() <= found["undefined"].items()
    assert set(found["undefined"]) == {k for k in ("sqnr_db", "mse", "max_abs_error", "cosine") if math.isnan(found[k])}
    assert -1 <= found["cosine"] <= 1 or math.isnan(found["cosine"])
    assert found["max_abs_error_index"] == (divmod(sums.worst_at, 3) if sums.count else None)
    assert (found["different"], found["equal"]) == (sums.different, sums.different == 0)
    assert list(found["nonfinite"].values()) == list(sums.nonfinite)
    assert (found["power"], found["squared_error"]) == (sums.xx, sums.ee)
    assert metrics(sums, ())["max_abs_error_index"] == (() if sums.count else None)


def test_the_order_with_the_smallest_error():
    """As stored, if another is no better."""
    for errors, order in (({"as stored": 2.0, "halves": 1.0}, "halves"), ({"halves": 1.0, "as stored": 1.0}, "as stored"), ({}, "as stored"), ({"pairs": 3.0}, "pairs")):
        record = Record({name: PairSums(ee=e) for name, e in errors.items()})
        assert record.order == order
        again = Record.of_dict(json.loads(json.dumps(record.as_dict())))
        assert again == record
    failed = Record(problem="no file")
    assert Record.of_dict(failed.as_dict()) == failed
    record = Record()
    record.add({"as stored": PairSums(count=3, ee=1.0)})
    record.add({"as stored": PairSums(count=4, ee=0.5)})
    assert (record.sums["as stored"].count, record.sums["as stored"].ee) == (7, 1.5)


SENTENCES = [
    ({"problem": "no file."}, ["'w' is not compared: no file."]), ({}, []), ({"note": "Tied."}, ["Tied."]), ({"orders": {"as stored": 20.0}}, []),
    ({"orders": {"as stored": 20.0, "pairs": 3.0}}, ["'w' has its rows in the original's order: SQNR 20.0 dB as stored, 3.0 dB if read as the original with the two halves of each head interleaved."]),
    ({"orders": {"as stored": 3.0, "pairs": 20.0}, "order": "pairs"},
     ["'w' is the original with the two halves of each head interleaved: SQNR 20.0 dB with that undone, 3.0 dB as stored. The metrics are computed with it undone."]),
    ({"nonfinite": {"original_nan": 1, "original_inf": 0, "other_nan": 0, "other_inf": 2}, "note": "Tied."},
     ["Tied.", "'w': 1 NaN value in the original and 2 infinite values in the other checkpoint, excluded from the metrics."]),
]  # fmt: skip


@pytest.mark.parametrize(("given", "wanted"), SENTENCES)
def test_remarks(given, wanted):
    one = result(**given)
    assert list(one.sentences()) == wanted
    assert one.as_row()["remark"] == (wanted[0] if wanted else "")


def test_rows_and_plain_data():
    worst = WorstBlock((1, 2), 1, 3.5, 0.25, (1, 2), (0, 2))
    one = result(worst=(worst, WorstBlock((0, 0), 3, 9.0, 0.1, (0, 0), (1, 0))), max_abs_error_index=(1, 0), nonfinite={"original_nan": 2, "other_inf": 3}, sqnr_db=INF, mse=NAN, cosine=-INF)
    row = one.as_row()
    assert {k: row[k] for k in ("tensor", "original", "shape", "storage", "original_storage", "max_abs_error_index", "nonfinite")} == {
        "tensor": "w", "original": "v", "shape": "2×3", "storage": "int4", "original_storage": "plain", "max_abs_error_index": "1, 0", "nonfinite": 5,
    }  # fmt: skip
    assert (row["bits_per_weight"], row["original_bits_per_weight"], row["bytes"]) == (4.5, 32.0, 3)
    assert (row["worst_block"], row["worst_block_sqnr_db"]) == ("1, 2", 3.5)
    assert (result().as_row()["worst_block"], result().as_row()["max_abs_error_index"]) == ("", "")
    plain = json.loads(json.dumps(one.as_dict(), allow_nan=False))
    assert (plain["sqnr_db"], plain["mse"], plain["cosine"]) == ("inf", "nan", "-inf")
    assert plain["worst"][0] == {"index": [1, 2], "columns": 1, "sqnr_db": 3.5, "mse": 0.25, "original_index": [1, 2], "other_index": [0, 2]}


def test_the_most_harm_first():
    levels = {"a": 20.0, "b": NAN, "c": 3.0, "d": INF}
    some = [result(n, sqnr_db=v, cosine=v, mse=v) for n, v in levels.items()]
    assert [r.name for r in by_harm(some)] == [r.name for r in by_harm(some, "cosine")] == ["c", "a", "d", "b"]
    assert [r.name for r in by_harm(some, "mse")] == ["d", "a", "c", "b"]


SUMMARIES = [
    ([], "No tensors were compared."), ([result(problem="x")], "No tensors were compared."),
    ([result(equal=True, sqnr_db=INF)], "1 pair compared, 1 of them bit-equal."),
    ([result("a", sqnr_db=20.0, power=100.0, squared_error=1.0), result("b", sqnr_db=0.0, power=1.0, squared_error=1.0), result(problem="x")],
     "2 pairs compared, 0 of them bit-equal; overall SQNR of the pairs 17.0 dB, lowest 0.0 dB in 'b'."),
    ([result("a", sqnr_db=20.0, power=100.0, squared_error=1.0), result("e", equal=True, sqnr_db=INF, power=1e9), result("n")],
     "3 pairs compared, 1 of them bit-equal; overall SQNR of the others 20.0 dB, lowest 20.0 dB in 'a'."),
]  # fmt: skip


@pytest.mark.parametrize(("results", "said"), SUMMARIES)
def test_summaries(results, said):
    assert summary(results) == said


def compared(folder, original, other, name=None):
    sides = (original, None), (other, releases.WRITERS[name][1] if name else None)
    return Comparison(*(open_checkpoint(releases.save(folder / f"{i}", given, config)) for i, (given, config) in enumerate(sides)))


def test_memory(tmp_path, monkeypatch):
    """That of the boxes of each thread, and four times the largest weight that is not stored by rows, up to a limit."""
    x, small = {W: weight(), "b.weight": weight(8)}, {"b.weight": weight(8)}
    plain = compared(tmp_path / "plain", x, x)
    one = plain.memory()
    assert [plain.memory(n) for n in (1, 2, 5)] == [one, 2 * one, 5 * one]
    codes = compared(tmp_path / "codes", x, releases.ct_int4(M, weight()) | small, "ct_int4")
    held = codes.other.tensors[W].num_bytes
    assert [codes.memory(n) for n in (1, 3)] == [one + 4 * held, 3 * one + 4 * held]
    monkeypatch.setattr(stream, "IN_MEMORY", 1000)
    assert held > 1000
    assert codes.memory() == one + 4000


def test_where_a_comparison_goes_on(tmp_path):
    """The first step names the pair that comes next, the last one if none does."""
    names = ["a.weight", "b.weight", "c.weight"]
    given = compared(tmp_path, dict.fromkeys(names, weight()), dict.fromkeys(names, weight()))
    order = [str(pair) for pair in given.pairing.pairs]
    for finished, name in enumerate([*order, order[-1]]):
        state = ComparisonState(given.identity, [Record() for _ in range(finished)])
        step = next(given.steps(state))
        assert (step.name, step.done, step.total) == (name, finished * given.total // 3, given.total)
    none = compared(tmp_path / "none", {"a.weight": weight()}, {"b.weight": weight(8)})
    assert next(none.steps()).name == ""


@pytest.mark.parametrize("shape", [(1,), (2,), (1, 1), (3, 5)])
def test_bytes_and_bits_of_a_weight(shape, tmp_path):
    """Also of a single number."""
    x = torch.ones(shape)
    given = compared(tmp_path, {W: x}, {W: x.bfloat16()})
    state = [step.state for step in given.steps()][-1]
    (one,) = given.results(state)
    assert (one.num_bytes, one.bits_per_weight) == ((4 * x.numel(), 2 * x.numel()), (32, 16))


@pytest.mark.parametrize(("original", "other", "heads"), [(W, "qkv.weight", 4), ("qkv.weight", W, 4), (W, W, 4), ("qkv.weight", "b.weight", 0)])
def test_heads_by_the_name_of_either_side(original, other, heads, tmp_path):
    given = compared(tmp_path, {original: weight(64)}, {other: weight(64)})
    orders, likely = given.orders_of(Pair(Part(original), Part(other), (64, 128)))
    assert (orders.heads, likely) == (heads, ())
