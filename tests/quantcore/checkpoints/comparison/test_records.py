"""The sums of a pair, computed again element by element, and the results that follow from them, written out by hand.

PairSums of a chunk, its worst element and its worst blocks; metrics, what is undefined and why, remarks, rows and order.
"""

import json
import math

import numpy as np
import pytest
import releases
import torch
from grid import for_each
from suspects import M, W, weight

from quantcore.analysis import sums as module
from quantcore.checkpoints import open_checkpoint
from quantcore.checkpoints.comparison import CheckpointComparison, ComparisonState, stream
from quantcore.checkpoints.comparison.boxes import WORST, PairRecord, PairSums, pair_sums
from quantcore.checkpoints.comparison.pairing import Pair
from quantcore.checkpoints.comparison.parts import Part
from quantcore.checkpoints.comparison.record import (
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


@for_each("what", METRICS)
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
        record = PairRecord({name: PairSums(ee=e) for name, e in errors.items()})
        assert record.order == order
        again = PairRecord.of_dict(json.loads(json.dumps(record.as_dict())))
        assert again == record
    failed = PairRecord(problem="no file")
    assert PairRecord.of_dict(failed.as_dict()) == failed
    record = PairRecord()
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


@for_each(("given", "wanted"), SENTENCES)
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


@for_each(("results", "said"), SUMMARIES)
def test_summaries(results, said):
    assert summary(results) == said


def compared(folder, original, other, name=None):
    sides = (original, None), (other, releases.WRITERS[name][1] if name else None)
    return CheckpointComparison(*(open_checkpoint(releases.save(folder / f"{i}", given, config)) for i, (given, config) in enumerate(sides)))


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
        state = ComparisonState(given.identity, [PairRecord() for _ in range(finished)])
        step = next(given.steps(state))
        assert (step.name, step.done, step.total) == (name, finished * given.total // 3, given.total)
    none = compared(tmp_path / "none", {"a.weight": weight()}, {"b.weight": weight(8)})
    assert next(none.steps()).name == ""


@for_each("shape", [(1,), (2,), (1, 1), (3, 5)])
def test_bytes_and_bits_of_a_weight(shape, tmp_path):
    """Also of a single number."""
    x = torch.ones(shape)
    given = compared(tmp_path, {W: x}, {W: x.bfloat16()})
    state = [step.state for step in given.steps()][-1]
    (one,) = given.results(state)
    assert (one.num_bytes, one.bits_per_weight) == ((4 * x.numel(), 2 * x.numel()), (32, 16))


@for_each(("original", "other", "heads"), [(W, "qkv.weight", 4), ("qkv.weight", W, 4), (W, W, 4), ("qkv.weight", "b.weight", 0)])
def test_heads_by_the_name_of_either_side(original, other, heads, tmp_path):
    given = compared(tmp_path, {original: weight(64)}, {other: weight(64)})
    orders, likely = given.orders_of(Pair(Part(original), Part(other), (64, 128)))
    assert (orders.heads, likely) == (heads, ())


def pair(*shape, seed=0):
    generator = np.random.default_rng(seed)
    x = generator.normal(size=shape).astype(np.float32)
    return x, (x + 0.1 * generator.normal(size=shape)).astype(np.float32)


def blocks_of(x, y, start, size):
    """Σe², Σx², the flat index of the first element, and the columns of every block of a row with an error, the worst first."""
    found = []
    for row in range(x.shape[0]):
        for column in range(0, x.shape[1], size):
            a, b = (t[row, column : column + size].astype(np.float64) for t in (x, y))
            found.append((((a - b) ** 2).sum(), (a**2).sum(), start + row * x.shape[1] + column, len(a)))
    return sorted((f for f in found if f[0] > 0), key=lambda f: (-f[0], f[2]))[:WORST]


@for_each("piece", [1 << 16, 16, 8, 1])
@for_each("shape", [(1, 1), (1, 5), (1, 37), (7, 3), (7, 8), (7, 9), (3, 40), (1, 8), (1, 16)])
def test_sums(shape, piece, monkeypatch):
    """In pieces of any size: of lines, of columns, or of both."""
    monkeypatch.setattr(module, "RUN", 8)
    monkeypatch.setattr(module, "_PIECE", piece)
    x, y = pair(*shape)
    found = pair_sums(torch.from_numpy(x), torch.from_numpy(y), 100)
    a, b = x.astype(np.float64), y.astype(np.float64)
    assert (found.count, found.different, found.nonfinite) == (x.size, int((x != y).sum()), (0, 0, 0, 0))
    assert (found.xx, found.yy, found.xy, found.ee) == pytest.approx(((a * a).sum(), (b * b).sum(), (a * b).sum(), ((a - b) ** 2).sum()))
    worst = np.abs(a - b)
    assert (found.worst, found.worst_at) == (worst.max(), 100 + int(worst.argmax()))
    assert found.relative == pytest.approx(math.sqrt(((a - b) ** 2).sum() / (a * a).sum()))
    wanted = blocks_of(x, y, 100, 8)
    assert [block[2:] for block in found.blocks] == [block[2:] for block in wanted]
    assert [block[:2] for block in found.blocks] == [pytest.approx(block[:2]) for block in wanted]
    assert PairSums.of_list(found.as_list()) == found


def test_worst_of_equal_ones(monkeypatch):
    """The first of the largest differences, and the first of equal blocks; none without an error."""
    monkeypatch.setattr(module, "RUN", 4)
    x = np.zeros((400, 8), np.float32)
    y = x.copy()
    y[3:, 5] = 2.0
    y[7, 1] = -2.0
    found = pair_sums(torch.from_numpy(x), torch.from_numpy(y), 0)
    assert (found.worst, found.worst_at) == (2.0, 29)
    assert [block[2] for block in found.blocks] == [28, 36, 44, 52, 56]
    assert [block[0] for block in found.blocks] == [4.0] * 5
    assert found.relative == math.inf
    same = pair_sums(torch.from_numpy(y), torch.from_numpy(y), 0)
    assert (same.blocks, same.worst, same.worst_at, same.different, same.relative) == ([], 0.0, 0, 0, 0.0)


VALUES = {
    "x": ([NAN, INF, -INF, 1, 2], [0, 0, 0, 1, 4], (1, 2, 0, 0)), "y": ([0, 0, 0, 1, 2], [NAN, NAN, INF, 1, 4], (0, 0, 2, 1)),
    "both": ([NAN, INF, INF, 1, 2], [NAN, INF, 1, 1, 4], (1, 2, 1, 1)), "large": ([3e38, 0, 0, 1, 2], [-3e38, 0, 0, 1, 4], (0, 0, 0, 0)),
}  # fmt: skip


@for_each("what", VALUES)
def test_values_that_are_not_finite(what):
    """Counted by side and left out on both; −0 and 0, and one NaN and another, differ in their bits."""
    x, y, nonfinite = VALUES[what]
    a, b = np.array([x], np.float32), np.array([y], np.float32)
    found = pair_sums(torch.from_numpy(a), torch.from_numpy(b), 10)
    good = np.isfinite(a) & np.isfinite(b)
    p, q = a[good].astype(np.float64), b[good].astype(np.float64)
    assert (found.nonfinite, found.count) == (nonfinite, int(good.sum()))
    assert found.different == int((a.view(np.int32) != b.view(np.int32)).sum())
    assert (found.xx, found.yy, found.xy, found.ee) == pytest.approx(((p * p).sum(), (q * q).sum(), (p * q).sum(), ((p - q) ** 2).sum()))
    assert (found.worst, found.worst_at) == (np.abs(p - q).max(), 10 + (4 if what != "large" else 0))
    assert pair_sums(torch.tensor([[0.0]]), torch.tensor([[-0.0]]), 0).different == 1


def test_sums_of_chunks_add_up():
    """In order; the worst of all chunks, the first on ties."""
    x, y = pair(60, 300)
    y[50, 7] = y[20, 9] = 9.0
    x[50, 7] = x[20, 9] = 0.0
    whole = pair_sums(torch.from_numpy(x), torch.from_numpy(y), 0)
    added = PairSums()
    for first in range(0, 60, 20):
        added.merge(pair_sums(torch.from_numpy(x[first : first + 20]), torch.from_numpy(y[first : first + 20]), first * 300))
    assert (added.count, added.different, added.worst, added.worst_at, added.blocks) == (
        whole.count, whole.different, 9.0, 20 * 300 + 9, whole.blocks,
    )  # fmt: skip
    assert (added.xx, added.yy, added.xy, added.ee) == pytest.approx((whole.xx, whole.yy, whole.xy, whole.ee), rel=1e-12)
    assert pair_sums(torch.zeros(0, 5), torch.zeros(0, 5), 0) == PairSums()
    with pytest.raises((TypeError, ValueError)):
        PairSums.of_list(added.as_list()[:-1])
