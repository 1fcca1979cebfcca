"""Models → Two checkpoints without a browser: start, stop, continue, messages, tables, export, links."""

import csv
import io
import itertools
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from app_page import change, said, the_app
from parts import some
from safetensors.torch import save_file
from streamlit.testing.v1 import AppTest

import quantcore as qc
from pages.models.opening import compared
from pages.models.two_checkpoints import views
from pages.models.two_checkpoints.controls import Chosen
from pages.serving import settings
from pages.serving.work.admission import Turn
from pages.shared import tables
from quantcore.checkpoints import EXAMPLES, open_checkpoint
from quantcore.checkpoints.comparison import CheckpointComparison, by_harm


def opened(original: Any, other: Any, page: str = "compare-checkpoints", **parameters: str) -> AppTest:
    at = the_app(page)
    parameters |= {"ck_original": Path(original).name, "ck": Path(other).name}
    for key, value in parameters.items():
        at.query_params[key] = value
    at = at.run()
    assert not at.exception
    return at


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The folder from which checkpoints may be opened."""
    monkeypatch.setenv("QUANTSCOPE_MODELS", str(tmp_path))
    settings.current.cache_clear()
    yield
    settings.current.cache_clear()


@pytest.fixture
def comparing(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many boxes each comparison compared; the first step of each compares none."""
    calls: list[int] = []
    steps = CheckpointComparison.steps

    def counted(*given: Any) -> Iterator[Any]:
        calls.append(-1)
        for step in steps(*given):
            calls[-1] += 1
            yield step

    monkeypatch.setattr(CheckpointComparison, "steps", counted)
    return calls


@pytest.fixture
def pair(tmp_path: Path, request: pytest.FixtureRequest) -> tuple[Path, Path]:
    """Two checkpoints: of four tensors all but one differ, and one has no partner; of fewer, if asked, the first."""
    generator, tensors = torch.Generator().manual_seed(0), getattr(request, "param", 4)
    weights = {f"a.{i}.weight": torch.randn(16, 300, generator=generator) for i in range(tensors)}
    changed = {n: w + 0.01 * (i + 1) * torch.randn(w.shape, generator=generator) for i, (n, w) in enumerate(weights.items())}  # fmt: skip
    changed |= {"a.2.weight": weights["a.2.weight"]} if "a.2.weight" in weights else {}
    for name, tensors in (("x", weights | {"alone": torch.ones(3)}), ("y", changed)):
        (tmp_path / name).mkdir()
        save_file(tensors, tmp_path / name / "model.safetensors")
    return tmp_path / "x", tmp_path / "y"


def results_of(pair: tuple[Path, Path]) -> list:
    comparison = CheckpointComparison(*map(open_checkpoint, pair))
    *_, step = comparison.steps()
    return comparison.results(step.state)


def test_nothing_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    """An example is compared, live, and cards open it and the others with their originals."""
    at = the_app("compare-checkpoints").run()
    original, other = (open_checkpoint(EXAMPLES[name]) for name in ("chgnet", "chgnet-w4a16"))
    assert f"{len(other.tensors)} pairs compared" in " ".join(said(at.markdown))
    (card,) = [b for b in at.button if b.key == "_ck_card_minilm-gptq"]
    monkeypatch.setattr(compared, "AT_ONCE", 0)  # what the card opens need not be compared too
    at = card.click().run()
    assert (at.session_state["ck_original"], at.session_state["ck"]) == ("example:minilm", "example:minilm-gptq")
    assert original.tensors.keys() == other.tensors.keys()


def test_a_cold_link_of_a_small_pair_compares_at_once(pair: tuple[Path, Path]) -> None:
    at = opened(*pair)
    assert "1 tensor has no partner, or can't be compared." in said(at.warning)[0]
    assert "no 'alone'" in said(at.warning)[0]
    frame, wanted = at.dataframe[0].value, by_harm(results_of(pair))
    assert (
        list(frame["tensor"])
        == [r.name for r in wanted]
        == ["a.3.weight", "a.1.weight", "a.0.weight", "a.2.weight"]
    )
    assert list(frame["max_abs_error"]) == [r.max_abs_error for r in wanted]
    text = next(s for s in said(at.markdown) if "pairs compared" in s)
    assert text.startswith("4 pairs compared, 1 of them bit-equal")
    assert f"lowest {qc.decibels(wanted[0].sqnr_db)} in 'a.3.weight'" in text
    assert "A plain float32, B plain float32: 4 tensors (A: the original)." in said(at.caption)
    (chart,) = at.get("plotly_chart")
    layout = json.loads(chart.proto.spec or chart.proto.figure.spec)["layout"]
    assert layout["meta"]["words"].startswith(f"{views.NAME}. ")  # what screen readers say
    change(at, "cmp_part", "Worst blocks")
    frame = at.dataframe[0].value
    blocks = sorted(((b.mse * b.columns, r, b) for r in wanted for b in r.worst), key=lambda i: -i[0])
    assert list(frame["place"]) == [", ".join(map(str, b.other_index)) for _, _, b in blocks]
    assert frame["sqnr_db"][0] == blocks[0][2].sqnr_db
    change(at, "cmp_part", "Remarks")
    assert any("The other checkpoint has no 'alone'." in text for text in said(at.markdown))


def test_why_two_quantized_releases_differ(tmp_path: Path) -> None:
    """The divisors of the scales of the tensor with the largest error, next to both schemes."""
    x = torch.randn(32, 64, generator=torch.Generator().manual_seed(0)) * 0.03
    for name, divisor in (("x", 127.0), ("y", 128.0)):
        scale = x.abs().amax(1, keepdim=True) / divisor
        (tmp_path / name).mkdir()
        codes = (x / scale).round().clamp(-128, 127).to(torch.int8)
        save_file({"a.0.weight": codes, "a.0.weight_scale": scale}, tmp_path / name / "model.safetensors")
    (text,) = [t for t in said(opened(tmp_path / "x", tmp_path / "y").caption) if "(A: the original)" in t]
    assert "A divides max |w| by 127, B by 128" in text.replace("\\", "")


@pytest.mark.parametrize(
    ("sort", "metric", "order"),
    [
        pytest.param("Layer", "mse", "0123", marks=pytest.mark.slow),
        pytest.param("Layer", "sqnr_db", "0123", marks=pytest.mark.slow),
        pytest.param("Harm", "mse", "3102", marks=pytest.mark.slow),
        pytest.param("Harm", "cosine", "3102", marks=pytest.mark.slow),
        pytest.param("Bytes", "mse", "0123", marks=pytest.mark.slow),
    ],
)
def test_links_restore_sort_and_metric(
    sort: str, metric: str, order: str, pair: tuple[Path, Path]
) -> None:
    at = opened(*pair, cmp_sort=sort, cmp_metric=metric)
    assert at.session_state["cmp_metric"] == metric
    assert [n[2] for n in at.dataframe[0].value["tensor"]] == list(order)


def test_links_restore_sort_metric_and_filter_and_nothing_may_fit_it(pair: tuple[Path, Path]) -> None:
    at = opened(*pair, cmp_filter="WEIGHT a.1", cmp_sort="Layer", cmp_metric="mse")
    assert list(at.dataframe[0].value["tensor"]) == ["a.1.weight"]
    assert at.session_state["cmp_metric"] == "mse"
    assert list(change(at, "cmp_filter", "").dataframe[0].value["tensor"]) == [f"a.{i}.weight" for i in range(4)]
    assert change(at, "cmp_filter", "frobnicate").dataframe[0].value.empty


def test_layers_are_in_their_order(tmp_path: Path) -> None:
    weights = {f"a.{i}.weight": torch.ones(3) for i in (10, 9, 2)}
    save_file(weights, tmp_path / "m.safetensors")
    frame = views.rows_of(results_of((tmp_path / "m.safetensors",) * 2), Chosen("sqnr_db", "Layer", ""))
    assert list(frame["tensor"]) == ["a.2.weight", "a.9.weight", "a.10.weight"]


def test_the_table_as_csv_and_markdown(pair: tuple[Path, Path]) -> None:
    """Both contain the module's numbers; in CSV they are exact."""
    rows = [r.as_row() for r in by_harm(results_of(pair))]
    frame = views.rows_of(results_of(pair), Chosen("sqnr_db", "Harm", ""))
    text = frame.drop(columns="place").to_csv(index=False)
    found = list(csv.DictReader(io.StringIO(text)))
    assert [list(row) for row in found] == [list(row) for row in rows]
    for got, wanted in zip(found, rows, strict=True):
        for name, value in wanted.items():
            if isinstance(value, float) and not math.isnan(value):
                assert float(got[name]) == value
    lines = tables.markdown(frame[views.SHOWN], views.head).splitlines()
    assert len(lines) == 6
    assert lines[2].startswith("| a.3.weight | ")


def test_a_large_pair_starts_stops_and_continues(
    pair: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other visitors see the results so far, and the final ones equal those of an uninterrupted run."""
    monkeypatch.setattr(compared, "AT_ONCE", 0)
    at = opened(*pair)
    (button,) = [b for b in at.button if b.key == "cmp_go"]
    assert button.label == "Compare 153.6 kB"
    assert not at.dataframe
    # another visitor pressed Stop after these steps
    (found,) = at.session_state["_shared_records"]["comparison"].values()
    steps = found.comparison.steps(found.state)
    for step in itertools.islice(steps, 3):
        found.done, found.name = step.done, step.name
    steps.close()
    at = at.run()
    (button,) = [b for b in at.button if b.key == "cmp_go"]
    assert button.label.startswith("Continue: ")
    assert any(text.startswith("Stopped at ") and "2 of 4 pairs" in text for text in said(at.caption))
    assert len(at.dataframe[0].value) == 2
    another = opened(*pair)
    assert len(another.dataframe[0].value) == 2
    wanted = [r.as_row() for r in results_of(pair)]
    at = button.click().run()
    assert not at.exception
    for got, row in zip(found.results, wanted, strict=True):
        assert json.dumps(got.as_row()) == json.dumps(row)
    assert len(another.run().dataframe[0].value) == 4
    assert not [b for b in another.button if b.key == "cmp_go"]


def test_what_one_page_has_compared_nobody_compares_again(
    pair: tuple[Path, Path], comparing: list[int]
) -> None:
    """Neither on Models → Checkpoint, nor for another visitor."""
    wanted = {r.name: f"{r.sqnr_db:.1f}" for r in results_of(pair) if math.isfinite(r.sqnr_db)}
    comparing.clear()
    opened(*pair)
    assert len(comparing) == 1
    shown = opened(*pair, page="checkpoint", ck_color="SQNR").dataframe[0].value.set_index("name")["SQNR"]
    assert {name: text for name, text in shown.items() if name in wanted} == wanted
    assert len(comparing) == 1


@pytest.mark.parametrize("pair", [2], indirect=True)
@pytest.mark.parametrize("page", some(["compare-checkpoints", "checkpoint"], 2))
def test_a_comparison_lets_others_go_first_and_goes_on(
    pair: tuple[Path, Path], page: str, comparing: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others are always waiting here: each run compares one box, then releases its place and the lock."""
    wanted = [json.dumps(r.as_row()) for r in results_of(pair)]
    comparing.clear()
    monkeypatch.setattr(Turn, "overstays", lambda turn, seconds: turn.place is not None)
    at = opened(*pair, page=page, **({"ck_color": "SQNR"} if page == "checkpoint" else {}))
    (found,) = at.session_state["_shared_records"]["comparison"].values()
    assert comparing == [1] * len(wanted)
    assert [json.dumps(r.as_row()) for r in found.results] == wanted
    assert not found.lock.locked()
