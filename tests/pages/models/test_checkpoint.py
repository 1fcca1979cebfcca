"""Models → Checkpoint without a browser: golden and corrupt checkpoints, links, findings, hostile names."""

import base64
import json

import numpy as np
import onnx
import pytest
import torch
from app_page import change, said, the_app, widget
from checkpoint_cases import FOLDER, case, cases
from grid import for_each
from onnx_models import floats, saved
from onnx_models import model as onnx_model
from parts import in_parts, some
from safetensors.torch import save_file
from streamlit.runtime.scriptrunner import StopException

import quantcore as qc
from pages.models.checkpoint import controls, findings, run, tensor, views
from pages.serving import settings
from pages.serving.work.admission import Turn
from quantcore.checkpoints import EXAMPLES, CheckpointTensor, ListedTensor, open_checkpoint
from quantcore.checkpoints.comparison import row_order
from quantcore.checkpoints.quantized import has_codes

Q = "model.layers.0.self_attn.q_proj.weight"
ACT_ORDER = "gptq_v1_4bit_g32_asym_desc_act"


@pytest.fixture(autouse=True)
def models(monkeypatch):
    """The operator's folder: the golden checkpoints."""
    use_folder(monkeypatch, FOLDER)
    yield
    settings.current.cache_clear()


def use_folder(monkeypatch, folder):
    monkeypatch.setenv("QUANTSCOPE_MODELS", str(folder))
    settings.current.cache_clear()


def at(name="", folder=None, **parameters):
    """The page with a golden checkpoint open, or one in another folder."""
    page = the_app("checkpoint")
    if name:
        given = case(name)
        parameters["ck"] = given.release.relative_to(FOLDER).as_posix()
    elif folder:
        parameters["ck"] = folder
    for key, value in parameters.items():
        page.query_params[key] = value
    return sound(page.run())


def sound(page):
    assert not page.exception, [e.value for e in page.exception]
    return page


def component(page, marker):
    """The data of the first component that contains this key."""
    sent = [json.loads(c.proto.json) for c in page.get("bidi_component") if c.proto.json]
    found = [data[0] if isinstance(data, list) else data for data in sent]  # maps get a list
    return next((data for data in found if marker in data), None)


def array(packed):
    return np.frombuffer(base64.b64decode(packed["bdata"]), packed["dtype"])


def maps(page):
    return component(page, "arrays")


def table(page):
    return page.dataframe[0].value


@pytest.fixture(scope="module")
def page():
    """The page of a visitor who opens one checkpoint after another."""
    with pytest.MonkeyPatch.context() as patch:
        use_folder(patch, FOLDER)
        return at()


@for_each("given", some(cases(""), 148), ids=str)
def test_every_checkpoint_opens_or_says_why(given, page):
    """Even corrupt ones raise no exception; what opens lists every tensor and shows one."""
    address = given.release.relative_to(FOLDER).as_posix()
    if address in widget(page, "ck").options:
        page.session_state["ck"] = address
        page.session_state[controls.TENSOR] = ""
        sound(page.run())
    else:  # AppTest can't type what is not in the menu
        page = at(str(given))
    try:
        checkpoint = open_checkpoint(given.release)
    except qc.QuantError as refusal:
        wrong = [str(refusal)]
    else:
        wrong = []
        assert list(table(page)["name"]) == list(checkpoint.tensors)
        assert component(page, "picks")
        problems = [problem.sentence[:100] for problem in checkpoint.problems]
        assert not problems or any(problems[0] in sentence for sentence in said(page.warning))
    assert said(page.error) == wrong


@for_each("given", some((c for c in cases("bad_") if c.record["expect"] != "refuse"), 4), ids=str)
def test_tensors_of_damaged_checkpoints_open_or_say_why(given):
    for name in list(open_checkpoint(given.release).tensors)[:3]:
        shown = at(str(given), ck_tensor=name)
        assert (maps(shown) is None) == bool(shown.error), name


@for_each(
    ("name", "tensor", "names"),
    [
        (ACT_ORDER, Q, ["codes", "dequantized"]),
        ("gptoss_mxfp4", "model.layers.0.mlp.experts.down_proj", ["codes", "dequantized"]),
        ("ct_sharded", "model.embed_tokens.weight", ["dequantized"]),
    ],
)
def test_the_maps_are_those_of_the_file(name, tensor, names):
    checkpoint = open_checkpoint(case(name).release)
    page = at(name, ck_tensor=tensor)
    data, window = maps(page), checkpoint.tensors[tensor]
    assert data["maps"] == names
    # and nothing else is sent of the elements, neither an original nor codes where there are none
    assert {"x", "codes"} & set(data["arrays"]) == {"codes"} & set(names)
    at_first = (0,) * (len(window.shape) - 2)
    if "codes" in names:
        assert np.array_equal(
            array(data["arrays"]["codes"]), window.window(None, at_first).result.codes.numpy().ravel()
        )
    else:
        assert np.array_equal(array(data["arrays"]["dequantized"]), window.read().numpy().ravel())


def test_a_link_restores_rows_columns_and_cell():
    page = at(ACT_ORDER, ck_tensor=Q, ck_rows="5:11", ck_cols="100:131", ck_cell="7, 130")
    data, codes = maps(page), open_checkpoint(case(ACT_ORDER).release).tensors[Q].codes()
    assert (data["rows"], data["columns"], data["selected"]) == ([5, 11], [100, 131], [7, 130])
    assert np.array_equal(array(data["arrays"]["codes"]).reshape(6, 31), codes[5:11, 100:131].numpy())
    assert not page.warning


def test_rows_are_outlined_in_the_rows_of_the_tensor():
    """The window begins inside a block of 128 rows; outline and scale must still be those of the cell's block."""
    tensors = open_checkpoint(case("ct_fp8_block").release).tensors
    name = next(n for n, t in tensors.items() if has_codes(t.layout) and t.layout.blocks.grid[0] > 1)
    tall = tensors[name]
    height = tall.layout.blocks.block[0]
    page = at("ct_fp8_block", ck_tensor=name, ck_rows=f"{height - 2}:{height + 2}", ck_cell=f"{height}, 3")
    data = maps(page)
    assert data["block"][:2] == [height, min(2 * height, tall.shape[0])]
    blocks, scales = data["blocks"], array(data["arrays"]["scale"])
    for row in (height - 1, height):
        place = (row - blocks[3]) // blocks[0] * blocks[2] if len(scales) > 1 else 0
        assert scales[place] == tall.scale()[row // height, 0]


def test_a_convolution_of_1_by_1_is_shown_as_a_matrix(tmp_path, monkeypatch):
    """An ONNX model, whose scalars have a shape too; a convolution of 3 x 3 keeps its axes."""
    weights = {"one": floats(6, 8, 1, 1), "three": floats(6, 8, 3, 3), "s": np.float32(0.5), "q": np.int8(7)}
    nodes = [onnx.helper.make_node("DequantizeLinear", ["q", "s"], ["y"])]
    saved(tmp_path / "m.onnx", onnx_model(nodes, weights))
    use_folder(monkeypatch, tmp_path)
    data = maps(at(folder="m.onnx", ck_tensor="one", ck_cell="4, 5"))
    assert np.array_equal(array(data["arrays"]["dequantized"]).reshape(6, 8), weights["one"][:, :, 0, 0])
    assert data["selected"] == [4, 5]
    shapes = dict(zip(*(table(at(folder="m.onnx"))[column] for column in ("name", "shape")), strict=True))
    assert shapes == {"one": "6 × 8", "three": "6 × 8 × 3 × 3", "q": "scalar"}
    assert list(array(maps(at(folder="m.onnx", ck_tensor="q"))["arrays"]["codes"])) == [7]


def test_a_stack_is_shown_by_its_slice():
    name, tensor = "gptoss_mxfp4", "model.layers.0.mlp.experts.down_proj"
    codes = open_checkpoint(case(name).release).tensors[tensor].codes()
    data = maps(at(name, ck_tensor=tensor, ck_at="1", ck_rows="3:9"))
    assert np.array_equal(array(data["arrays"]["codes"]), codes[1, 3:9].numpy().ravel())
    assert data["index"] == [1, "row", "column"]
    by_cell = maps(at(name, ck_tensor=tensor, ck_cell="1, 2, 3"))
    assert by_cell["index"] == [1, "row", "column"]
    assert by_cell["selected"] == [2, 3]


@for_each(
    ("parameters", "words"),
    [
        ({"ck_rows": "30:99"}, "rows 30:99 are not within 0:32"),
        pytest.param({"ck_rows": "x"}, "Rows must be two integers", marks=pytest.mark.slow),
        pytest.param({"ck_rows": "inf:nan"}, "Rows must be two integers", marks=pytest.mark.slow),
        ({"ck_rows": "9" * 5000}, "Rows must be two integers"),
        ({"ck_cols": "-4:4"}, "columns -4:4 are not within 0:256"),
        ({"ck_cell": "99, 0"}, "'99, 0' is not in a tensor of shape (32, 256)"),
        ({"ck_cell": "<script>"}, "The element must be integers"),
        pytest.param({"ck_cell": "1, 2, 3"}, "not in a tensor of shape", marks=pytest.mark.slow),
    ],
)
def test_a_bad_value_in_a_link_gets_a_sentence(parameters, words):
    page = at(ACT_ORDER, ck_tensor=Q, **parameters)
    (sentence,) = said(page.warning)
    assert words in sentence
    assert len(sentence) < 300
    assert maps(page)["rows"] == [0, 32]


@for_each(
    "name", some(["nothing", "<img src=x onerror=alert(1)>", "a" * 3000, "\u202e", "__class__", "0"], 3)
)
def test_a_tensor_that_is_not_there_gets_a_sentence(name):
    page = at(ACT_ORDER, ck_tensor=name)
    (sentence,) = said(page.error)
    assert sentence.startswith("There is no tensor ")
    assert len(sentence) < 400
    assert any(button.label == "All tensors" for button in page.button)


def test_with_the_original_there_are_four_maps_and_the_error(monkeypatch, tmp_path):
    use_folder(monkeypatch, tmp_path)
    tensors, originals = _pair(tmp_path, "ct_int8_w8a8", 1e-3)
    name, original = next(iter(originals.items()))
    page = at(folder="q", ck_original="original/model.safetensors", ck_tensor=name)
    assert maps(page)["maps"] == ["x", "codes", "dequantized", "error"]
    errors = qc.errors(original, tensors[name].read())
    text = next(e.proto.body for e in page.get("html") if "qs-facts" in e.proto.body)
    assert f"SQNR {qc.decibels(errors.sqnr_db)}" in text
    assert f"MSE {errors.mse:.3g}" in text
    assert f"max |error| {errors.max_abs_error:.3g}" in text
    other = next(n for n in tensors if n not in originals)
    alone = at(folder="q", ck_original="original/model.safetensors", ck_tensor=other)
    assert any("nothing to compare with" in sentence for sentence in said(alone.caption))


def test_search_and_order():
    page = change(at("gguf_model"), controls.SEARCH, "BLK Q6_K")
    shown = table(page)
    assert len(shown)
    assert all("blk" in n for n in shown["name"])
    assert all("Q6_K" in s for s in shown["storage"])
    everything = change(change(page, controls.SEARCH, ""), controls.SORT, "Bytes")
    assert list(table(everything)["bytes"]) == sorted(table(everything)["bytes"], reverse=True)


def test_arranged_by_words_of_name_shape_and_storage():
    entries = [
        ListedTensor("a.b", (3, 4), "plain float16", 24),
        ListedTensor("A.c", (3,), "x", 9, "broken"),
        ListedTensor("b", (), "y", 1),
    ]
    assert [e.name for e in views.arranged(entries, "a 3×4", controls.IN_FILES, {})] == ["a.b"]
    assert [e.name for e in views.arranged(entries, "", "Bits per weight", {})] == ["a.b", "b", "A.c"]
    assert [e.name for e in views.arranged(entries, "", "Name", {})] == ["A.c", "a.b", "b"]


def test_without_a_checkpoint_the_worst_element_of_an_example_is_shown():
    """With its bits and arithmetic, and the loss of its row as computed; a click on a cell opens the example there."""
    page = at()
    assert not page.error
    assert "What does a checkpoint hold?" in "".join(e.proto.body for e in page.get("html"))
    original, made = (
        open_checkpoint(EXAMPLES[name]).tensors[tensor.EXAMPLE_TENSOR].read()
        for name in ("minilm", "minilm-gptq")
    )
    error = (original - made).double()
    place = divmod(int(error.abs().argmax()), error.shape[1])
    assert any(f"Where element ({place[0]}, {place[1]}) comes from" in text for text in (each.proto.body for each in page.get("html")))
    worst = int(error.square().sum(1).argmax())
    assert any(f"Row {worst} has the largest squared error" in text.value for text in page.markdown)
    assert len([b for b in page.button if (b.key or "").startswith("_ck_card_")]) == 4
    page = sound(next(b for b in page.button if b.key == "_ck_card_chgnet-w4a16").click().run())
    assert page.session_state["ck"] == "example:chgnet-w4a16"
    assert page.session_state["ck_original"] == "example:chgnet"


def test_what_is_typed_stays_while_a_tensor_is_open():
    page = change(at(ACT_ORDER), controls.SEARCH, "q_proj")
    page.session_state[controls.TENSOR] = Q
    page = sound(page.run())
    assert maps(page)
    next(b for b in page.button if b.label == "All tensors").click()
    assert widget(sound(page.run()), controls.SEARCH).value == "q_proj"


def test_the_findings_are_those_of_the_library():
    name = "bad_gptq_v1_but_zeros_8"
    page = at(name, ck_part="Findings")  # a small one is checked without being asked
    found = open_checkpoint(case(name).release).findings()
    assert sorted(table(page)["sentence"]) == sorted(f.sentence for f in found)
    assert list(table(page)["severity"]) == [f.severity for f in found]
    assert any(caption.startswith("The only tensor checked: ") for caption in said(page.caption))


def test_a_larger_one_is_checked_when_asked_and_what_was_not_never_reads_as_sound(monkeypatch):
    monkeypatch.setattr(findings, "AT_ONCE", 100)
    page = at("ct_sharded", ck_part="Findings")
    assert any(c.startswith("No tensor has been checked yet") for c in said(page.caption))
    page = sound(next(b for b in page.button if b.key == "_ck_check_go").click().run())
    total = len(open_checkpoint(case("ct_sharded").release).tensors)
    assert any(caption.startswith(f"All {total} tensors checked: ") for caption in said(page.caption))


@for_each(("checked", "of"), [(0, 6), (5, 6)])
def test_a_check_that_is_not_complete_says_so_first(checked, of):
    """And never counts errors that it did not look for."""
    said = findings._status(checked, of, False, [])
    assert ("No tensor has been checked" if not checked else f"5 of {of} tensors checked, 1 not yet") in said
    assert "error" not in said


def test_a_check_that_was_stopped_goes_on_where_it_was(monkeypatch):
    """The tensors that were checked before the stop are not read again."""
    checkpoint = open_checkpoint(case("gguf_model").release)
    everything = list(checkpoint.tensors)
    found = findings.Findings(first=(), checked=set(everything[:4]))
    seen = [step.tensor for step in findings.steps(checkpoint, None, found.checked)]
    assert set(seen) - {""} == set(everything[4:])


def test_large_planes_are_read_in_bands_and_go_on(monkeypatch, tmp_path):
    use_folder(monkeypatch, tmp_path)
    monkeypatch.setattr(run, "BAND", 1 << 14)
    monkeypatch.setattr(controls, "AT_ONCE", 1 << 16)
    values = torch.randn(3000, 64, generator=torch.Generator().manual_seed(1))
    save_file({"w": values}, tmp_path / "m.safetensors")
    first = maps(at(folder="m.safetensors", ck_tensor="w"))
    assert first["rows"] == [0, 256]
    near = maps(at(folder="m.safetensors", ck_tensor="w", ck_cell="2999, 1"))
    assert near["rows"] == [2816, 3000]
    page = at(folder="m.safetensors", ck_tensor="w", ck_rows="all")
    data = maps(page)
    assert (data["rows"], data["step"]) == ([0, 3000], [12, 1])
    shown = array(data["arrays"]["dequantized"]).reshape(250, 64)
    boxes = values.reshape(250, 12, 64)
    assert np.array_equal(np.abs(shown), boxes.abs().amax(1).numpy())


def test_reading_that_was_stopped_goes_on_when_asked(monkeypatch):
    seen = []

    class Stopped(run.LongWork):
        def __init__(self, *about, **more):
            super().__init__(*about, **more)
            if not seen:  # like pressing Stop
                self.want(False)
            seen.append(self)

    monkeypatch.setattr(run, "LongWork", Stopped)
    page = at("ct_sharded", ck_tensor=Q, ck_rows="1:4")
    assert maps(page) is None
    button = next(b for b in page.button if b.label == "Continue reading")
    assert maps(sound(button.click().run()))["rows"] == [1, 4]


def test_a_run_that_was_ended_keeps_the_bands_that_it_read(monkeypatch, tmp_path):
    use_folder(monkeypatch, tmp_path)
    monkeypatch.setattr(run, "BAND", 1 << 12)
    values = torch.randn(640, 64)
    save_file({"w": values}, tmp_path / "m.safetensors")
    read, window = [], CheckpointTensor.window

    def counted(tensor, rows, *more):
        read.append(rows)
        if len(read) == 4:
            raise StopException
        return window(tensor, rows, *more)

    monkeypatch.setattr(CheckpointTensor, "window", counted)
    page = at(folder="m.safetensors", ck_tensor="w")
    assert maps(page) is None
    assert read[:4] == [(0, 63), (63, 126), (126, 189), (189, 252)]
    assert maps(sound(page.run()))["rows"] == [0, 640]
    assert read[4] == read[3]
    assert len(read) == 4 + (-(-640 // 63) - 3) + 1


@pytest.mark.slow  # by default, a comparison of two lets others go first, and bands that were read are kept
def test_reading_lets_others_go_first_and_goes_on(monkeypatch, tmp_path):
    """Others are always waiting here: each run reads one band and releases its place, and no band is read twice."""
    use_folder(monkeypatch, tmp_path)
    monkeypatch.setattr(run, "BAND", 1 << 12)
    values = torch.randn(640, 64)
    save_file({"w": values}, tmp_path / "m.safetensors")
    read, window, places = [], CheckpointTensor.window, []

    def seen(tensor, rows, *more):
        read.append(rows)
        return window(tensor, rows, *more)

    monkeypatch.setattr(CheckpointTensor, "window", seen)
    monkeypatch.setattr(
        Turn, "overstays", lambda turn, _: places.append(turn.place) or turn.place is not None
    )
    page = at(folder="m.safetensors", ck_tensor="w")
    assert maps(page)["rows"] == [0, 640]
    assert read == [(start, min(start + 63, 640)) for start in range(0, 640, 63)] + [(0, 1)]
    assert len(set(map(id, places))) == len(places) == len(read) - 2


@in_parts(3)
def test_hostile_names_are_text(part, monkeypatch, tmp_path):
    use_folder(monkeypatch, tmp_path)
    evil = [
        "<script>alert(1)</script>.w",
        "**bold** :red[x]",
        "a\nb\u202e",
        "x" * 3000,
        "../../etc/passwd",
        "[a](javascript:0)",
    ]
    save_file({name: torch.ones(4, 4) for name in evil}, tmp_path / "m.safetensors")
    page = at(folder="m.safetensors")
    assert len(table(page)) == len(evil)
    assert not any("\n" in name or "\u202e" in name for name in table(page)["name"])
    figure = component(page, "picks")["figure"]["data"][0]
    assert not any("<script" in text for text in [*figure["labels"], *figure["text"]])
    for name in part(evil):
        shown = at(folder="m.safetensors", ck_tensor=name)
        assert maps(shown), name
        texts = [e.proto.body for e in shown.get("html")]
        assert not any("<script>alert" in text for text in texts)


@pytest.mark.parametrize("many", [4_000, pytest.param(40_000, marks=pytest.mark.slow)])
def test_more_tensors_than_can_be_seen(many, monkeypatch, tmp_path):
    use_folder(monkeypatch, tmp_path)
    header = {f"t{i}": {"dtype": "I8", "shape": [1], "data_offsets": [i, i + 1]} for i in range(many)}
    text = json.dumps(header).encode()
    (tmp_path / "m.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + bytes(many))
    page = at(folder="m.safetensors")
    assert len(table(page)) == views.TABLE_ROWS
    assert any(f"{many:,} tensors, the first 2,000 listed" in sentence for sentence in said(page.caption))
    assert any("tensors are grouped into shared tiles" in sentence for sentence in said(page.caption))
    assert len(component(page, "picks")["picks"]) <= views.TILES


def _pair(folder, name, shift):
    """A golden release in ``q``, and an original of it whose weights differ by multiples of ``shift``."""
    (folder / "q").mkdir()
    (folder / "original").mkdir()
    for file in case(name).release.iterdir():
        (folder / "q" / file.name).write_bytes(file.read_bytes())
    tensors = open_checkpoint(case(name).release).tensors
    weights = [n for n, t in tensors.items() if has_codes(t.layout)]
    originals = {n: tensors[n].quantized().x + shift * (i + 1) for i, n in enumerate(weights)}
    save_file(originals, folder / "original" / "model.safetensors")
    return tensors, originals


def test_the_treemap_is_colored_by_what_each_tensor_lost(monkeypatch, tmp_path):
    use_folder(monkeypatch, tmp_path)
    tensors, originals = _pair(tmp_path, "ct_int8_w8a8", 1e-3)
    bad = next(iter(originals))
    rows, columns = originals[bad].shape
    originals[bad][: rows // 24, -(columns // 24) :] += 1
    save_file(originals, tmp_path / "original" / "model.safetensors")
    page = at(folder="q", ck_original="original/model.safetensors")
    errors = {name: qc.errors(x, tensors[name].read()).sqnr_db for name, x in originals.items()}
    shown = dict(zip(table(page)["name"], table(page)["SQNR"], strict=True))
    assert {n: v for n, v in shown.items() if not np.isnan(v)} == pytest.approx(errors, rel=1e-6)
    figure = component(page, "picks")["figure"]["data"][0]
    assert figure["marker"]["colorbar"]["title"]["text"] == "SQNR (dB)"
    texture = component(page, "picks")["textures"][figure["ids"][figure["customdata"].index([*tensors].index(bad))]]
    cells = np.frombuffer(base64.b64decode(texture[2]), np.uint8).reshape(texture[:2])
    assert cells.shape == (min(24, rows), min(24, columns))
    assert np.argwhere(cells == 0).tolist() == [[0, cells.shape[1] - 1]]  # by far the lowest: the corner
    ends = figure["marker"]["cmin"], figure["marker"]["cmax"]
    error = np.square(originals[bad].double().numpy() - tensors[bad].read().double().numpy())
    power = np.square(originals[bad].double().numpy()).mean()
    last = error[-(-rows * 23 // 24) :, : -(-columns // 24)].mean()  # of the cell in the opposite corner
    place = 255 * (10 * np.log10(power / last) - ends[0]) / (ends[1] - ends[0])
    assert cells[-1, 0] == pytest.approx(np.clip(place, 0, 255), abs=0.51)
    worst = change(page, controls.SORT, "SQNR, lowest first")
    assert table(worst)["name"][0] == min(errors, key=errors.get)


def test_the_worst_element_is_one_press_away(monkeypatch, tmp_path):
    use_folder(monkeypatch, tmp_path)
    _, originals = _pair(tmp_path, "ct_int8_w8a8", 1e-3)
    name = next(iter(originals))
    originals[name][9, 21] += 5
    save_file(originals, tmp_path / "original" / "model.safetensors")
    page = at(folder="q", ck_original="original/model.safetensors", ck_tensor=name)
    page = sound(next(b for b in page.button if b.label == "Go to worst").click().run())
    assert (maps(page)["rows"], maps(page)["columns"]) == ([1, 17], [13, 29])
    assert maps(page)["selected"] == [9, 21]


@pytest.mark.parametrize("heads", [4, pytest.param(2, marks=pytest.mark.slow)])
def test_rows_in_llama_cpps_order_are_compared_with_their_own(monkeypatch, tmp_path, heads):
    """llama.cpp's converter interleaves the two halves of each head of q and k."""
    use_folder(monkeypatch, tmp_path)
    was = torch.randn(64, 32, generator=torch.Generator().manual_seed(3))
    now = was.reshape(heads, 2, 32 // heads, 32).swapaxes(1, 2).reshape(64, 32).contiguous()
    for folder, values in (("original", was), ("other", now.half())):
        (tmp_path / folder).mkdir()
        save_file({Q: values}, tmp_path / folder / "model.safetensors")
        (tmp_path / folder / "config.json").write_text(json.dumps({"num_attention_heads": heads}))
    page = at(folder="other", ck_original="original", ck_tensor=Q, ck_rows="3:41", ck_cell="5, 7")
    data = maps(page)
    assert data["maps"] == ["x", "dequantized", "error"]
    assert np.array_equal(array(data["arrays"]["x"]).reshape(38, 32), now[3:41].numpy())
    assert any(
        "The maps show the original with the two halves of each head interleaved" in s
        for s in said(page.caption)
    )
    own = next(row for row in range(64) if torch.equal(was[row], now[5]))
    opened = {name: open_checkpoint(tmp_path / name) for name in ("original", "other")}
    assert row_order(opened["original"], opened["other"], Q, Q).original(5) == own
    assert row_order(opened["original"], opened["original"], Q, Q) is None


def test_an_expert_of_a_stack_is_compared_with_its_own_tensor(monkeypatch, tmp_path):
    use_folder(monkeypatch, tmp_path)
    stack = torch.randn(3, 8, 16, generator=torch.Generator().manual_seed(4))
    name = "model.layers.0.mlp.experts.{}up_proj.weight"
    for folder in ("original", "other"):
        (tmp_path / folder).mkdir()
    save_file({name.format(f"{i}."): stack[i] for i in range(3)}, tmp_path / "original" / "model.safetensors")
    save_file({name.format(""): stack.half()}, tmp_path / "other" / "model.safetensors")
    data = maps(
        at(folder="other", ck_original="original/model.safetensors", ck_tensor=name.format(""), ck_at="2")
    )
    assert data["maps"] == ["x", "dequantized", "error"]
    assert np.array_equal(array(data["arrays"]["x"]).reshape(8, 16), stack[2].numpy())
    back = maps(at(folder="original/model.safetensors", ck_original="other", ck_tensor=name.format("1.")))
    assert np.array_equal(array(back["arrays"]["x"]).reshape(8, 16), stack[1].half().float().numpy())


@pytest.mark.slow  # the quick test of the page without a checkpoint presses another of these
def test_an_example_is_one_press_away():
    page = at()
    page = sound(next(b for b in page.button if b.label == "GPTQ").click().run())
    assert len(table(page)) == len(open_checkpoint(EXAMPLES["minilm-gptq"]).tensors)
    assert controls.COLOR in page.session_state  # there is an original
