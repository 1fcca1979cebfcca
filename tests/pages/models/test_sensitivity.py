"""Models → Sensitivity without a browser: the example, links, estimates, the chosen cell, the budget, stopping."""

import json
import re
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from app_page import change, said, the_app, widget
from grid import for_each
from streamlit.testing.v1 import AppTest

import quantcore as qc
from pages.models.sensitivity import run, views
from pages.serving import scheduler, settings
from quantcore.checkpoints import EXAMPLES, open_checkpoint
from quantcore.errors import QuantError
from quantcore.layerwise import plan, sensitivity, trade_off, traits
from quantcore.recipes import TOOLS, ftype_points, recipe

QUERY = "encoder.layer.0.attention.self.query.weight"
DENSE = "encoder.layer.0.output.dense.weight"


def opened(**parameters: Any) -> AppTest:
    at = the_app("sensitivity")
    for key, value in parameters.items():
        at.query_params[key] = value
    at = at.run()
    assert not at.exception
    return at


@pytest.fixture
def measured() -> AppTest:
    """The page of a small example: the cases of a loop change the same one."""
    return opened(ck="example:minilm", sn_more="int8", sn_sort="harm")


def picture(at: AppTest) -> str:
    """The table of weights and schemes, as HTML."""
    (table,) = [data["table"] for c in at.get("bidi_component") if "table" in (data := json.loads(c.proto.json or "{}"))]
    return str(table)


def cells(at: AppTest) -> dict[str, list[str]]:
    """What the picture says of each weight: its name -> the text of its cells."""
    rows = re.findall(r"<tr data-row=.*?</tr>", picture(at))
    return {re.sub("<.*?>", "", row.partition("</th>")[0]): re.findall(r"<td.*?>(.*?)</td>", row) for row in rows}


def test_the_picture_the_cell_and_the_budget() -> None:
    texts = ["int8 per_channel(0)", "gguf.Q8_0", "int4 per_group(32)"]
    more = {"sn_bits": "8.0", "sn_minimum": "*query*=6"}
    at = opened(ck="example:minilm", sn_more="; ".join(texts), sn_tensor=QUERY, sn_scheme="gguf.Q8_0", **more)
    tensors = open_checkpoint(EXAMPLES["minilm"]).tensors
    reports = [
        [qc.report(qc.apply(tensors[name].read(), qc.PRESETS.get(text) or qc.Scheme.parse(text))) for text in texts]
        for name in (QUERY, DENSE)
    ]
    wanted = [[qc.decibels(report.sqnr_db).removesuffix(" dB") for report in row] for row in reports]
    assert cells(at) == {QUERY.removesuffix(".weight"): wanted[0], DENSE.removesuffix(".weight"): wanted[1]}
    text = " ".join(said(at.markdown))
    *_, step = sensitivity(open_checkpoint(EXAMPLES["minilm"]).as_matrices(), texts)
    assert f"{QUERY}** under `{step.table.schemes[1]}`: SQNR {qc.decibels(reports[0][1].sqnr_db)}." in text
    x = tensors[QUERY].read().double().numpy()
    sizes = abs(x).max(0)
    assert not (sizes > 3 * np.sort(sizes)[(len(sizes) - 1) // 2]).any()
    assert f"in none of {len(sizes)} is max |x| above 3 times that of the median column" in text
    assert f"Kurtosis {((x - x.mean()) ** 4).mean() / x.var() ** 2:#.3g} (" in text
    assert f"The largest |x| is {sizes.max() / (x**2).mean() ** 0.5:.3g} times the RMS. Clipped: {reports[0][1].clipped:,} of" in text
    chosen = plan(step.table, sum(row.elements for row in step.table.ordered), minimum={"*query*": 6})
    assert chosen.schemes != plan(step.table, sum(row.elements for row in step.table.ordered)).schemes
    assert f"{chosen.bits_per_weight:.4g} bits per weight" in text
    assert f"total error {chosen.error:.4g}" in text
    assert any("how much the model's output depends on each" in line for line in said(at.caption))
    marked = re.findall(r'class="(qs-chosen |)(qs-taken|)"', picture(at))
    taken = [chosen.schemes[name] == scheme for name in (QUERY, DENSE) for scheme in step.table.schemes]
    assert marked == [("qs-chosen " if i == 1 else "", "qs-taken" if each else "") for i, each in enumerate(taken)]
    downloads = [button.proto.label for button in at.get("download_button")]
    assert downloads[downloads.index("Picture (HTML)") :][:3] == ["Picture (HTML)", "CSV", "Markdown"]
    best, uniform = trade_off(step.table).best, trade_off(step.table).uniform
    assert best[0][1] >= best[-1][1] == 0.0
    assert best[0][0] <= min(size for size, _ in uniform.values())
    (button,) = [b for b in at.button if b.label == "Open in Checkpoint"]
    at = button.click().run()
    assert not at.exception
    assert at.session_state["ck_tensor"] == QUERY
    assert widget(at, "ck").value == "example:minilm"


def test_a_button_per_tool_has_its_recipe_or_says_what_it_lacks() -> None:
    texts = ["int8 per_channel(0)", "int4 per_group(32)"]
    at = opened(ck="example:minilm", sn_more="; ".join(texts), sn_bits="6.0")
    checkpoint = open_checkpoint(EXAMPLES["minilm"])
    *_, step = sensitivity(checkpoint, texts)
    chosen = plan(step.table, 6 / 8 * sum(row.elements for row in step.table.ordered))
    downloads = {button.proto.label for button in at.get("download_button")}
    assert downloads & set(TOOLS) == {"compressed-tensors", "torchao", "AutoRound"}
    text = " ".join(said(at.markdown))
    for tool in TOOLS.keys() - downloads:
        with pytest.raises(QuantError) as reason:
            recipe(chosen, tool, checkpoint, step.table)
        assert str(reason.value) in text


@pytest.mark.slow  # by default, quantcore's tests have these points
def test_the_file_types_of_llama_cpp_are_in_the_curve() -> None:
    at = opened(ck="example:minilm", sn_more="gguf.Q5_0; gguf.Q4_K", sn_bits="6.0")
    *_, step = sensitivity(open_checkpoint(EXAMPLES["minilm"]), ["gguf.Q5_0", "gguf.Q4_K"])
    points = ftype_points(open_checkpoint(EXAMPLES["minilm"]), step.table)
    (figure,) = [json.loads(c.proto.spec or c.proto.figure.spec) for c in at.get("plotly_chart")]
    drawn = {trace["name"]: trace for trace in figure["data"]}
    assert list(drawn["llama.cpp's file types"]["text"]) == ["Q4_K_M"]
    assert len(drawn["llama.cpp's file types: sizes alone"]["customdata"]) == len(points) - 1
    assert "told from headers, without an imatrix" in " ".join(said(at.caption))


def test_the_example_comes_first_and_a_budget_below_the_floor_is_refused() -> None:
    at = opened(sn_more="int8 per_channel(0)", sn_bits="0.5", sn_sort="harm", sn_kinds="true")
    assert not said(at.warning)
    (problem,) = said(at.error)
    assert problem.startswith("No choice takes at most")
    known = [float(own[0]) for own in cells(at).values()]
    assert len(known) == 52
    assert " ± " not in picture(at)
    kinds = [[float(value) for value in re.findall(r'<tr data-row=.*?<td.*?>(.*?)<', part)] for part in picture(at).split('class="qs-kind"')[1:]]
    assert sum(map(len, kinds)) == 52 > len(kinds)
    assert all(kind == sorted(kind) for kind in kinds)
    headings = re.findall(r'class="qs-kind"><th.*?>(.*?)<', picture(at))
    assert len(headings) == len(set(headings)) == len(kinds)
    assert all(heading.startswith("role not known: ") for heading in headings if "mlp" in heading)
    (folded,) = [text for text in said(at.markdown) if text.startswith("- ")]
    vectors = sum(len(tensor.shape) < 2 for tensor in open_checkpoint(EXAMPLES["chgnet"]).tensors.values())
    assert f"- {vectors} tensors, the first " in folded
    assert "each is a norm, a bias or another vector" in folded
    assert folded.count("\n") < 3


@for_each(
    ("more", "problem"),
    [pytest.param("int4 per_frog", "per_frog", marks=pytest.mark.slow), ("; ".join(f"int8 percentile({90 + i / 2})" for i in range(13)), "Give 1 to 12 schemes, not 13."), pytest.param(" ", "Give 1 to 12 schemes, not 0.", marks=pytest.mark.slow)],
)  # fmt: skip
def test_schemes_that_cannot_be_used(measured: AppTest, more: str, problem: str) -> None:
    at = change(measured, "sn_more", more)
    assert problem in said(at.error)[0]
    assert widget(change(at, "sn_more", "int8"), "sn_sort").value == "harm"


def test_a_minimum_that_is_not_understood_is_one_sentence() -> None:
    at = opened(ck="example:minilm", sn_more="int8; int4", sn_minimum="query=8")
    assert said(at.error) == ["The minimum for 'query' fits no weight that is measured; write a part of its name between *."]
    assert "qs-taken" not in picture(at)
    assert "qs-taken" in picture(change(at, "sn_minimum", "*query*=8"))


def test_a_large_checkpoint_is_estimated_stops_and_continues(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "AT_ONCE", 0)
    monkeypatch.setattr(run, "EXACT_AT_ONCE", 0.0)
    at = opened(ck="example:minilm", sn_more="int8 percentile(99.5); int4 per_group(16)")
    assert not [c for c in at.get("bidi_component") if "qs-layers" in (c.proto.json or "")]
    assert not said(at.warning)
    at = widget(at, "sn_sample_go").click().run()
    estimates = cells(at)
    assert all(" ± " in own[1] for own in estimates.values())
    assert estimates[DENSE.removesuffix(".weight")][0] == "–"  # no interval can be given
    (found,) = at.session_state["_shared_records"]["sensitivity"].values()
    seconds = found.table.estimates[QUERY].cells[1].seconds
    assert f"the exact number takes about {seconds:.2g} s on one core" in picture(at)
    steps = sensitivity(found.opened.checkpoint, found.schemes, table=found.table)  # another visitor, who then pressed Stop
    while len(found.table.rows) < 2:
        next(steps)
    steps.close()
    at = at.run()
    assert widget(at, "sn_exact_go").label == "Continue"
    assert any(text.startswith(f"2 of {len(found.table.names)} tensors done; ") for text in said(at.caption))
    assert "The choice needs the exact errors of all weights." in said(at.caption)
    at = widget(at, "sn_exact_go").click().run()
    assert not [b for b in at.button if b.key == "sn_exact_go"]
    tensors = open_checkpoint(EXAMPLES["minilm"]).tensors
    for name in (QUERY, DENSE):
        reports = [qc.report(qc.apply(tensors[name].read(), scheme)) for scheme in found.schemes]
        assert cells(at)[name.removesuffix(".weight")] == [f"{report.sqnr_db:.1f}" for report in reports]


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """What any checkpoint is then, on a server whose operator names a scheduler."""
    monkeypatch.setattr(run, "AT_ONCE", 0)
    monkeypatch.setattr(run, "EXACT_AT_ONCE", 0.0)
    monkeypatch.setenv("QUANTSCOPE_SCHEDULER", "tcp://127.0.0.1:9")
    settings.current.cache_clear()


@pytest.mark.usefixtures("large")
def test_a_cluster_measures_what_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    from distributed import Client, LocalCluster  # takes half a second, in each worker

    texts: list[str] = []
    step = run._step
    monkeypatch.setattr(run, "_step", lambda *given: texts.append(step(*given).text) or step(*given))
    two = LocalCluster(n_workers=2, threads_per_worker=1, processes=False, dashboard_address="127.0.0.1:0")
    with two as cluster, Client(cluster, set_as_default=False) as client:
        monkeypatch.setattr(scheduler, "client", lambda: client)
        at = widget(opened(ck="example:minilm", sn_more="int8; int4 per_group(16)"), "sn_sample_go").click().run()
        assert any(", shared by the workers of a cluster. Until then" in text for text in said(at.caption))
        at = widget(at, "sn_exact_go").click().run()
    assert any(re.fullmatch(rf"Estimate \d of 6 at 2 workers: {QUERY}", text) for text in texts)
    assert any(re.fullmatch(rf"[\d.]+ [kM]B of [\d.]+ [kM]B at 2 workers: {QUERY}", text) for text in texts)
    tensors = open_checkpoint(EXAMPLES["minilm"]).tensors
    wanted = [f"{qc.report(qc.apply(tensors[QUERY].read(), qc.Scheme.parse(text))).sqnr_db:.1f}" for text in ("int8", "int4 per_group(16)")]
    assert cells(at)[QUERY.removesuffix(".weight")] == wanted


@pytest.mark.usefixtures("large")
def test_a_cluster_that_does_not_answer_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler, "_SECONDS", 0.05)
    monkeypatch.setattr(scheduler, "_connection", scheduler._Connection())
    at = widget(opened(ck="example:minilm", sn_more="int8; int3 per_group(16)"), "sn_sample_go").click().run()
    note = "The cluster of this server can't be used now, so the server measures by itself."
    assert note in said(at.caption)
    assert "127.0.0.1" not in str(said(at.caption)) + str(said(at.markdown))
    at = widget(at, "sn_exact_go").click().run()
    assert said(at.caption).count(note) == 1
    assert len(cells(at)) == 2
    assert " ± " not in picture(at)


def test_of_a_quantized_checkpoint_the_stored_values_are_the_original() -> None:
    at = opened(ck="example:minilm-gptq", sn_more="int8")
    assert "errors are against the values that it stores" in " ".join(said(at.caption))
    stored = open_checkpoint(EXAMPLES["minilm-gptq"]).as_matrices().tensors
    error = [qc.report(qc.apply(stored[name].read(), qc.Scheme.parse("int8"))).sqnr_db for name in (QUERY, DENSE)]
    assert sorted(cells(at).values()) == sorted([f"{each:.1f}"] for each in error)


@pytest.mark.slow  # by default, the cell is that of a scheme in float32, and a library that refuses is told by Libraries
def test_the_cell_and_its_maps_are_in_the_dtype_of_the_weight(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[qc.Quantized] = []
    draw = views.four_maps.draw

    def kept(place: Any, tensor: Any, scheme: qc.Scheme, *more: Any) -> None:
        drawn.append(views.cache.result(tensor, scheme))
        draw(place, tensor, scheme, *more)

    monkeypatch.setattr(views.four_maps, "draw", kept)
    scheme = qc.Scheme.parse("int8 per_channel(0) torchao")
    at = opened(ck="example:minilm", sn_more=str(scheme), sn_tensor=QUERY, sn_scheme=str(scheme))
    x = open_checkpoint(EXAMPLES["minilm"]).tensors[QUERY].read()
    report, of_float32 = (qc.report(qc.apply(each, scheme)) for each in (x.bfloat16(), x))
    assert qc.decibels(report.sqnr_db) != qc.decibels(of_float32.sqnr_db)
    text = " ".join(said(at.markdown))
    assert f"under `{scheme}`, computed in bfloat16: SQNR {qc.decibels(report.sqnr_db)}." in text
    assert f"Clipped: {report.clipped:,} of" in text
    assert qc.report(drawn[-1]) == report
    refused = qc.Scheme.parse("int8 per_tensor torch.quantize_per_tensor")
    at = opened(ck="example:minilm", sn_more=str(refused), sn_tensor=QUERY, sn_scheme=str(refused))
    with pytest.raises(qc.QuantError) as reason:
        qc.apply(x.bfloat16(), refused)
    assert f"**{QUERY}** under `{refused}`: {reason.value}" in said(at.markdown)


@pytest.mark.slow  # the quick test of an imatrix presses the same button
def test_a_click_leads_to_the_layer_of_a_weight() -> None:
    scheme = str(qc.Scheme.parse("int4 per_group(32)"))
    at = opened(ck="example:minilm", sn_more=scheme, sn_tensor=DENSE, sn_scheme=scheme)
    (button,) = [b for b in at.button if b.label == "Open in Layer"]
    at = button.click().run()
    assert not at.exception
    assert not at.error
    w = open_checkpoint(EXAMPLES["minilm"]).tensors[DENSE].read().bfloat16()
    x = qc.outputs.activations(8, w.shape[1], correlation=0, sample=qc.outputs.HELD_OUT)
    found = qc.outputs.layer(x, w, scheme, "int8")
    shown = " ".join(e.proto.body for e in at.get("html"))
    assert f"Output SQNR {qc.decibels(found.sqnr_db)}:" in shown
    assert "x: 8 tokens, 1 outlier channel ×20" in shown


def test_traits() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(1000, 64, generator=generator)
    plain = traits(x)
    assert plain.outlier_columns == 0
    assert plain.kurtosis == pytest.approx(3, abs=0.1)
    x[:, 5] *= 20
    found = traits(x)
    centered = x.double().numpy() - x.double().numpy().mean()
    assert found.kurtosis == pytest.approx((centered**4).mean() / centered.var() ** 2)
    assert (found.outlier_columns, found.largest_column, found.columns) == (1, 5, 64)
    assert found.peak == pytest.approx(float(x.abs().max()) / float(x.double().square().mean()) ** 0.5)


def test_an_imatrix_gives_the_error_of_outputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUANTSCOPE_MODELS", str(tmp_path))
    settings.current.cache_clear()
    means = np.linspace(0.5, 2, 384, dtype=np.float32)
    name = QUERY.encode()
    entry = struct.pack("<i", len(name)) + name + struct.pack("<ii", 1, len(means)) + means.tobytes()
    (tmp_path / "m.dat").write_bytes(struct.pack("<i", 1) + entry)
    scheme = str(qc.Scheme.parse("int4 per_group(32)"))
    at = opened(ck="example:minilm", ck_imatrix="m.dat", sn_error="output", sn_more=scheme, sn_tensor=QUERY, sn_scheme=scheme)
    assert "DENSE has no output error" in said(at.error)[0].replace(DENSE, "DENSE")
    assert any("no entry" in text for text in said(at.markdown))
    assert any("imatrix: 1 of 2 weights" in block.proto.popover.label for block in at.get("popover"))
    (button,) = [b for b in at.button if b.label == "Open in Layer"]
    at = button.click().run()
    settings.current.cache_clear()
    assert "x: 64 tokens, generated with the mean squares in m.dat" in " ".join(e.proto.body for e in at.get("html"))
    w = open_checkpoint(EXAMPLES["minilm"]).tensors[QUERY].read().bfloat16()
    found = qc.outputs.layer(qc.outputs.of_mean_squares(means, 64), w, scheme, "int8")
    assert f"Output SQNR {qc.decibels(found.sqnr_db)}:" in " ".join(e.proto.body for e in at.get("html"))
