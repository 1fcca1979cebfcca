"""The lesson "Why quantize" without a browser: sizes counted from the shipped file, and sentences that follow the
times that were measured.
"""

import json

import pytest
from app_page import said, widget
from grid import for_each
from lesson_app import assert_clean, opened

from pages.learn import measured
from quantcore.checkpoints import EXAMPLES

NAME = "why_quantize"


@pytest.fixture(autouse=True)
def known_measurements(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measured, "bandwidth", lambda: 20e9)
    times = measured.ProductTimes(2e-3, 0.5e-3, "AVX2", 2)
    monkeypatch.setattr(measured, "product_times", lambda: times)


def drawn(name: str) -> list[str]:
    (chart,) = opened(NAME, name).get("plotly_chart")
    return list(json.loads(chart.proto.spec)["data"][0]["text"])[::-1]


def test_the_shipped_model_weighs_what_its_shapes_say() -> None:
    raw = next(EXAMPLES["charlm"].glob("*.safetensors")).read_bytes()
    header = json.loads(raw[8 : 8 + int.from_bytes(raw[:8], "little")])
    shapes = [entry["shape"] for name, entry in header.items() if name != "__metadata__"]
    matrices = [(s[0], s[1]) for s in shapes if len(s) == 2]
    vectors = sum(s[0] for s in shapes if len(s) == 1)
    n = sum(rows * columns for rows, columns in matrices)
    sizes = {
        "float32": 4 * (n + vectors), "bfloat16": 2 * (n + vectors), "int8": n + 4 * sum(r for r, _ in matrices) + 2 * vectors,
        "Q8_0": n * 34 // 32 + 2 * vectors, "Q4_0": n * 18 // 32 + 2 * vectors, "MXFP4": n * 17 // 32 + 2 * vectors,
    }  # fmt: skip
    full = sizes["float32"]
    texts = ["1.1 MB", *(f"{size / 1e3:.1f} kB" for size in list(sizes.values())[1:])]
    assert full == 1_068_288
    assert drawn("size") == [
        f"{text} · {full / size:.3g}×" for text, size in zip(texts, sizes.values(), strict=True)
    ]
    assert f"has {n + vectors:,} weights" in " ".join(said(opened(NAME, "size").markdown))


@for_each("billions", ["1", "7", "70"])
def test_tokens_per_second_follow_from_bandwidth(billions: str) -> None:
    shown = opened(NAME, "bandwidth", learn_why_quantize_billions=billions).table[0].value
    sizes = [int(billions) * bits / 8 for bits in (32, 16, 8 + 32 / 4096, 8.5, 4.5, 4.25)]
    assert list(shown["Size"]) == [f"{size:.3g} GB" for size in sizes]
    assert list(shown["Tokens per second, at most"]) == [f"{20 / size:.3g}" for size in sizes]


@for_each(("float32", "int8", "told"), [
    (3e-3, 2e-3, "int8 was **1.5 times as fast** as float32"), (1e-3, 3e-3, "int8 took **3 times as long** as float32"),
])  # fmt: skip
def test_the_sentence_follows_the_times(float32: float, int8: float, told: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measured, "product_times", lambda: measured.ProductTimes(float32, int8, "AVX2", 1))
        at = opened(NAME, "product")
    assert_clean(at)
    assert told in " ".join(said(at.markdown))
    assert "AVX2 and 1 thread," in " ".join(said(at.markdown))


def test_times_are_measured() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measured, "SIZE", 64)
        found = measured._product_times.__wrapped__()
    assert 0 < found.float32 < 1
    assert 0 < found.int8 < 1


@for_each(("answer", "verdict"), [("3.94 GB", "Right."), ("3.5 GB", "Not quite."), ("7 GB", "Not quite.")])
def test_the_question_and_its_answer(answer: str, verdict: str) -> None:
    at = opened(NAME, "question")
    widget(at, "learn_why_quantize_answer").set_value(answer).run()
    assert_clean(at)
    assert verdict in " ".join(said(at.markdown))
