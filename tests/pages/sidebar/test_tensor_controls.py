"""The tensor's controls without a browser: a file is kept, the grid starts with the tensor shown, each page has its
own sidebar, and links with bad numbers."""

import io
import itertools
import json
import math
import random
import struct

import numpy as np
import pytest
import safetensors.numpy
import torch
from app_page import change, said, script_of, the_app, widget
from grid import for_each
from parts import Part, in_parts, some
from places import MAIN
from streamlit.testing.v1 import AppTest

import quantcore as qc
from pages.models import keys as model_keys
from pages.registry import KEYS, PAGES
from pages.shared import curriculum
from pages.shared.computing import cache
from pages.sidebar import activations
from pages.sidebar.scheme_controls import default_group_size
from quantcore import tensors
from tests.pages.explore.test_explore import assert_clean, assert_codes, opened, scheme

X = np.arange(12, dtype=np.float32).reshape(3, 4) - 5
LONG = "model.layers.0.self_attn.q_proj.weight_of_a_name_that_no_field_of_a_sidebar_is_wide_enough_for"
SEVERAL = {
    "a_bias": np.array([7, 8, 9], np.float32),
    "b_index": np.array([[1, 2]], np.int64),
    "c_weight": X.astype(np.float16),
    LONG: -2 * X,
}


def upload(at: AppTest, arrays: dict[str, np.ndarray], name: str = "several.safetensors") -> AppTest:
    return at.file_uploader[0].upload(name, safetensors.numpy.save(arrays)).run()


def captions(at: AppTest) -> list[str]:
    return said(at.caption)


def bfloat16_file(**values: list[float]) -> bytes:
    """A .safetensors file of bfloat16, each value the upper half of a float32."""
    header, body = {}, b""
    for name, numbers in values.items():
        data = (np.array(numbers, np.float32).view(np.uint32) >> 16).astype("<u2").tobytes()
        offsets = [len(body), len(body) + len(data)]
        header[name] = {"dtype": "BF16", "shape": [1, len(numbers)], "data_offsets": offsets}
        body += data
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + body


def npy(x: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, x)
    return file.getvalue()


# A dtype


@pytest.mark.parametrize("dtype", some(["bfloat16", "float16"]))
def test_every_source_has_a_dtype(dtype: str) -> None:
    """The values of the source are rounded, the link says how, and float32 has them as they were."""
    x = torch.tensor([[8.31, 0.5, 0.1]])
    at = opened(src="paste", dtype=dtype, t=tensors.encode(x.numpy()))
    rounded = x.to(getattr(torch, dtype))
    assert_codes(at, rounded)
    change = (rounded.float() - x).abs().max()
    said = f"shape (1, 3), 3 elements, rounded to {dtype}: 2 of 3 values changed, by at most {change:.3g}"
    assert said in captions(at)
    assert at.query_params["dtype"] == dtype
    again = opened(**at.query_params)
    assert_codes(again, rounded)
    for source in ("edit", "example") if dtype == "bfloat16" else ():
        widget(at, "src").set_value(source).run()
        assert not at.exception
        assert widget(at, "dtype").value == dtype
        assert cache.values(at.session_state["_current"].tensor).dtype == rounded.dtype
    widget(at, "src").set_value("paste").run()
    widget(at, "dtype").set_value("float32").run()
    assert_codes(at, x)
    assert "shape (1, 3), 3 elements, float32" in captions(at)


def test_numbers_beyond_a_dtype_are_one_sentence() -> None:
    at = opened(src="paste", dtype="float16", t=tensors.encode(np.array([70000, 1, -1e9, 65519], np.float32)))
    assert said(at.sidebar.warning) == [
        "2 of 4 values are beyond float16, whose largest is 65504, and became ±∞; choose bfloat16, or scale the tensor down."
    ]
    assert [float(v) for v in cache.values(at.session_state["_current"].tensor)] == [math.inf, 1, -math.inf, 65504]


@for_each("dtype", some(["int8", "float64", "", "bf16"], 2))
def test_tampered_dtype_is_one_sentence(dtype: str) -> None:
    at = opened(dtype=dtype)
    assert widget(at, "dtype").value == "float32"
    assert [text for text in said(at.warning) if f"dtype={dtype}" in text]
    assert len(at.warning) == 1


# A file


def test_file_opens_on_its_first_weight_under_its_whole_name_and_dtype() -> None:
    at = upload(opened(src="upload"), SEVERAL)
    assert_codes(at, -2 * X)
    assert widget(at, "tensor").value == LONG
    assert LONG in captions(at)
    assert "shape (3, 4), 12 elements, float32" in captions(at)
    assert at.query_params["file"] == "several.safetensors"
    change(at, "tensor", "c_weight")
    assert_codes(at, torch.from_numpy(X).half())
    assert "shape (3, 4), 12 elements, float16" in captions(at)


@for_each(
    ("arrays", "first", "note"),
    [
        ({"a": np.ones(3, np.int64), "b": np.ones((2, 2), np.int8), "c": np.ones(2, np.float32)}, "c", ""),
        ({"b": np.ones((2, 3), np.uint8), "c": np.ones((1, 3), np.int64)}, None, "no tensor"),
        ({"a": np.ones((2, 0), np.float32), "b": np.full((1, 2), 3, np.float64)}, "b", ""),
    ],
)
def test_file_without_a_weight(arrays: dict[str, np.ndarray], first: str | None, note: str) -> None:
    at = upload(opened(src="upload"), arrays)
    assert_clean(at)
    if first is not None:
        assert widget(at, "tensor").value == first
    notes = [text for text in captions(at) if "floating-point type" in text]
    assert len(notes) == bool(note)
    if note:
        assert arrays[str(widget(at, "tensor").value)].dtype.name in notes[0]


@for_each(
    ("name", "data", "dtype", "said"),
    [
        ("x.csv", b"1,2\n3,4\n", "float32", "stored as text, converted to float32"),
        ("x.safetensors", bfloat16_file(w=[1, 2.5, -3]), "bfloat16", "3 elements, bfloat16"),
        pytest.param(
            "x.npy", npy(np.array([1, 2.5, -3], np.float16)), "float16", "3 elements, float16", marks=pytest.mark.slow
        ),
    ],
)
def test_file_brings_its_dtype(name: str, data: bytes, dtype: str, said: str) -> None:
    """The dtype can be changed, and stays changed; the next file brings its own."""
    at = opened(src="upload")
    at.file_uploader[0].upload(name, data).run()
    assert widget(at, "dtype").value == dtype
    assert at.query_params.get("dtype", "float32") == dtype
    assert any(said in text for text in captions(at))
    other = "float16" if dtype == "bfloat16" else "bfloat16"
    change(change(at, "dtype", other), "bits", 5)
    assert widget(at, "dtype").value == other
    assert any(text.endswith(f"stored as {'text' if name == 'x.csv' else dtype}, converted to {other}") for text in captions(at))
    at.file_uploader[0].upload("y.npy", npy(X)).run()
    assert widget(at, "dtype").value == "float32"


def test_a_file_of_float64_is_said_to_be_read_as_float32() -> None:
    at = opened(src="upload")
    at.file_uploader[0].upload("x.npy", npy(np.array([1, 2.1, -3]))).run()
    for dtype, words in (
        ("float32", "3 elements, stored as float64, read as float32"),
        ("float64", "3 elements, stored as float64, read as float32, converted to float64"),
        ("bfloat16", "stored as float64, read as float32, rounded to bfloat16: 1 of 3 values changed"),
    ):
        change(at, "dtype", dtype)
        assert any(words in text for text in captions(at)), captions(at)
    assert_clean(at)


def test_another_file_opens_on_its_own_first_weight() -> None:
    at = change(upload(opened(src="upload"), SEVERAL), "tensor", "c_weight")
    other = {"a_bias": X[0], "b_weight": X + 1, "c_weight": X * 3}
    upload(at, other, "other.safetensors")
    assert widget(at, "tensor").value == "b_weight"
    assert_codes(at, X + 1)
    assert at.query_params["file"] == "other.safetensors"


def test_link_of_a_small_tensor_says_where_it_is_from() -> None:
    at = change(upload(opened(src="upload"), SEVERAL), "tensor", LONG)
    other = opened(**dict(at.query_params))
    assert_codes(other, -2 * X)
    assert f"Shown: several.safetensors {LONG}" in captions(other)


def test_link_of_a_large_tensor_asks_for_the_file_and_finds_the_tensor() -> None:
    rng = np.random.default_rng(0)
    large = {
        "a": rng.normal(size=(90, 90)).astype(np.float32),
        "b": rng.normal(size=(2, 4500)).astype(np.float32),
    }
    at = change(upload(opened(src="upload"), large), "tensor", "b")
    assert "t" not in at.query_params
    assert any("send it along" in text for text in said(at.markdown))
    other = opened(**dict(at.query_params) | {"tensor": "b"})  # the browser writes this
    (hint,) = said(other.info)
    assert "the tensor b of the file several.safetensors" in hint
    assert not other.warning
    upload(other, large)
    assert widget(other, "tensor").value == "b"
    assert_clean(other)


def test_source_that_was_chosen_before_is_not_taken_for_a_file() -> None:
    at = change(change(opened(src="paste"), "_pasted", "1 2\n3 4"), "src", "upload")
    assert "upload a file" in said(at.info)[0]


# The grid


@for_each("shape", some(["20x300", "8x8", "5", "40", "3x20x4", "1", "2x3x4x5"], 7))
def test_edit_begins_with_the_tensor_that_was_shown_and_leads_back(shape: str) -> None:
    lengths = tensors.parse_shape(shape)
    x = tensors.generate(tensors.Generated("normal", lengths, 3))
    at = change(opened(dist="normal", shape=shape, seed="3"), "src", "edit")
    rows = np.atleast_2d(x[(0,) * (x.ndim - 2)] if x.ndim > 2 else x)
    assert_codes(at, rows[:16, :16])
    (told,) = [text for text in captions(at) if text.startswith("Starts from")]
    assert str(lengths) in told
    assert ("16" in told.split(" of ")[0]) == (max(lengths[-2:]) > 16)
    (back,) = [b for b in at.button if b.label.startswith("Back to ")]
    back.click().run()
    assert_clean(at)
    assert widget(at, "src").value == "generate"
    assert widget(at, "shape").value == shape


@pytest.mark.slow  # by default, a generated tensor is edited and leads back
def test_edit_of_an_uploaded_tensor_leads_back_to_it() -> None:
    at = change(upload(opened(src="upload"), SEVERAL), "tensor", LONG)
    change(at, "src", "edit")
    assert_codes(at, -2 * X)
    assert any(LONG in text for text in captions(at))
    next(b for b in at.button if b.label.startswith("Back to ")).click().run()
    assert widget(at, "tensor").value == LONG
    assert_codes(at, -2 * X)
    change(change(at, "tensor", "c_weight"), "src", "edit")
    assert_codes(at, X)


def test_edited_tensor_of_a_link_wins() -> None:
    at = opened(src="edit", t=tensors.encode(X))
    assert_codes(at, X)
    assert not [b for b in at.button if b.label.startswith("Back to ")]
    assert_codes(opened(src="edit"), tensors.generate(tensors.Generated()))


# Which controls a page shows


def hidden(at: AppTest) -> str:
    """The style that hides parts of the sidebar; empty if the page uses both."""
    styles = [e.proto.body for e in at.get("html") if "_controls{display:none}" in e.proto.body]
    return "".join(styles[-1:])


def assert_shown(at: AppTest, parts: set[str]) -> None:
    assert not at.exception
    for part in ("tensor", "scheme"):
        gone = f".st-key-{part}_controls" in hidden(at) or "stSidebar" in hidden(at)
        assert gone != (part in parts), (part, hidden(at))
    assert ("stSidebar" in hidden(at)) == (not parts)


BOTH = {"tensor", "scheme"}
SHOWN: list[tuple[str, dict[str, str], set[str]]] = [
    ("", {}, BOTH),
    ("ranges", {}, BOTH),
    ("formats", {}, set()),
    ("formats", {"fmt_shown": "fitted"}, {"tensor"}),
    ("libraries", {}, BOTH),
    ("schemes", {}, BOTH),
    ("match", {}, {"tensor"}),
    *((f"learn-{name.replace('_', '-')}", {}, set()) for name in curriculum.LESSONS),
    *((f"learn-{n.replace('_', '-')}", {curriculum.step_key(n): "yours"}, BOTH)
      for n in ("scale", "zero_point", "granularity", "error")),
    ("learn-mistakes", {"learn_mistakes_mine": "true"}, {"tensor"}),
    ("learn-predict", {"learn_predict_mine": "true"}, BOTH),
    ("learn-ptq-or-qat", {curriculum.step_key("ptq_or_qat"): "rounding"}, set()),
    ("learn-ptq-or-qat", {curriculum.step_key("ptq_or_qat"): "ptq"}, {"scheme"}),
]  # fmt: skip


def test_sidebar_shows_what_acts_on_the_page() -> None:
    """Of what a page declares, one of each kind is opened."""
    for url, parameters, parts in SHOWN:
        (page,) = [page for page in PAGES if page.url_path == url]
        assert page.used({key: [value] for key, value in parameters.items()}) == parts, (url, parameters)
    kinds = {frozenset(shown[-1]): shown for shown in reversed(SHOWN)}
    assert len(kinds) == 4
    del kinds[frozenset({"scheme"})]  # the lesson's own tests open it, as it trains a network
    for url, parameters, parts in kinds.values():
        assert_shown(opened(url, **parameters), parts)
    at = opened(bits="7", seed="5", sw_set="chosen")
    for url in ("match", "learn-scale", ""):
        at.switch_page(script_of(url)).run()
    assert scheme(at) == "int7 symmetric per_tensor min_max textbook"
    assert_codes(at, tensors.generate(tensors.Generated(seed=5)))


def test_page_names_only_problems_of_what_acts_on_it() -> None:
    wrong = {"shape": "0x", "per": "block", "block": "abc"}
    for url, more, count in (("", {}, 2), ("match", {}, 1), ("formats", {"src": "paste"}, 0), ("learn-scale", {}, 0)):
        at = opened(url, **wrong, **more)
        assert not at.exception
        assert len(at.error) == count, (url, said(at.error))
        assert not at.info, url


def test_sidebar_follows_the_step() -> None:
    at = opened("learn-scale")
    assert_shown(at, set())
    change(at, curriculum.step_key("scale"), "yours")
    assert_shown(at, BOTH)
    change(at, curriculum.step_key("scale"), "bits")
    assert_shown(at, set())
    other = opened("learn-scale", **{curriculum.step_key("scale"): "YOURS"})
    assert_shown(other, set())  # there is no such step


def test_every_page_is_declared() -> None:
    folder = MAIN.parent
    scripts = {str(p.relative_to(folder)) for p in folder.rglob("page.py") if p.parent.name != "shared"}
    scripts |= {curriculum.script(name) for name in curriculum.LESSONS} | {"learn/overview.py"}
    assert sorted(page.script for page in PAGES) == sorted(scripts)
    assert {f"learn-{name.replace('_', '-')}" for name in curriculum.LESSONS} <= {p.url_path for p in PAGES}
    assert len({page.url_path for page in PAGES}) == len({page.order for page in PAGES}) == len(PAGES)
    for page in PAGES:
        assert page.required | page.free_text <= page.keys
        for part, when in page.uses.items():
            assert part in BOTH
            assert bool(when.key) == bool(when.values)
            assert not when.key or when.key in page.keys
    for page, other in itertools.combinations(PAGES, 2):
        of_section = {"Models": model_keys.KEYS}
        shared = of_section.get(page.section, set()) if page.section == other.section else set()
        assert page.keys & other.keys <= shared | activations.KEYS  # x of a layer is the same on every page


def test_no_script_but_main_stands_beside_the_folders_of_pages() -> None:
    """Streamlit would treat others as pages."""
    assert [p.name for p in MAIN.parent.glob("*.py") if p.name != "__init__.py"] == ["main.py"]


# Group size, libraries


def test_usual_group_size() -> None:
    for length, must in itertools.product(range(1, 2000), (False, True)):
        size = default_group_size(length, must)
        assert size != 3
        assert size <= max(length, 1)
        powers = [n for n in (32, 16, 8, 4, 2) if length % n == 0]
        if powers:
            assert size == max(powers)
        if must:
            assert length % size == 0
        qc.Scheme(granularity=qc.PerGroup(size))


def test_libraries_begin_with_the_library_of_the_sidebar() -> None:
    def compared(**link: str) -> str:
        at = opened("libraries", shape="2x3", **link)
        assert_clean(at)
        names = qc.INTEGER_CONVENTIONS
        (label,) = [
            column["label"]
            for column in json.loads(at.dataframe[0].proto.columns).values()
            if str(column.get("label")).startswith("Codes that differ from ")
        ]
        a, b = label.removeprefix("Codes that differ from "), widget(at, "lib_b")
        assert a in names
        return f"{a} {b.value or b.placeholder}"

    assert compared(library="torchao") == "torchao aimet.Quantize"
    assert compared(library="aimet.Quantize") == "aimet.Quantize onnxruntime"
    assert compared(library="torchao", lib_a="onnxruntime", lib_b="onnx") == "onnxruntime onnx"


# Numbers in a link


def test_infinite_number_is_dropped_and_named() -> None:
    at = opened(seed="1e309", bits="5")
    assert_codes(at, tensors.generate(tensors.Generated()))
    assert said(at.warning) == ["This link has 1 parameter that can't be used and is ignored: seed=1e309."]
    assert at.query_params == {"bits": "5"}


UNUSUAL = ["1e309", "-1e309", "nan", "inf", "-Infinity", "", "1" + "0" * 400, "x" * 3000, "٣", "0x10", "1_000", "-0", "1e-400",
       "[1, 2]", "½", "1,5", " 7 ", "\x00", ["1", "2"], ["inf", "3"], ["a", ""]]  # fmt: skip


@in_parts(17)  # odd, as every second run is of another kind
def test_unusual_values_of_every_parameter(part: Part) -> None:
    """Each run gives every parameter a different one of them, on a different page."""
    assert len(KEYS) > 100
    rng, keys = random.Random(0), sorted(KEYS)
    pages = [page.url_path for page in PAGES if page.uses]
    for number in part(range(2 * len(pages))):
        first = rng.randrange(len(UNUSUAL))
        # in every second run all are empty, which a row of choices must not accept
        values = [""] if number % 2 else UNUSUAL
        at = the_app(pages[number // 2])
        at.query_params.update({key: values[(first + i) % len(values)] for i, key in enumerate(keys)})
        at.run()
        assert not at.exception, at.exception[0].message
        for row in at.get("button_group"):
            assert row.value is not None or not row.proto.required, row.key


@for_each("place", some(range(3), 3))
def test_an_empty_field_offers_what_to_paste(place: int) -> None:
    """Each example does in 4 bits what its card says."""
    at = opened(src="paste")
    assert not at.exception
    keys = [b.key for b in at.button if (b.key or "").startswith("_paste_card_")]
    assert len(keys) == 3
    at = at.button(key=f"_paste_card_{place}").click().run()
    assert not at.exception
    x = tensors.parse(at.session_state["_pasted"])
    result = qc.apply(x, qc.Scheme.parse("int4 symmetric per_tensor"))
    halves = (x / result.scale.item()) % 1 == 0.5
    said = [
        int((result.codes != 0).sum()) == 1 and x.max() == 8,
        halves.sum() == x.size - 1,
        int(result.codes.min()) >= 0,
    ]
    assert said[place]


# A paste


def test_one_of_several_pasted_tensors_is_chosen() -> None:
    """Nothing typed is lost, the text's dtype is taken, and the link carries what was chosen."""
    at = opened(src="paste")
    text = "w = torch.tensor([[0.5, -1.25], [2.0, 0.75]], dtype=torch.bfloat16)\nb = [1.5, 2.5, 3.5]"
    at.text_area[0].set_value(text).run()
    assert not at.exception
    assert "t" not in at.query_params
    assert not [b for b in at.button if (b.key or "").startswith("_paste_card_")]  # would replace the text
    (which,) = [box for box in at.selectbox if box.label == "Tensor in the text"]
    assert which.options == ["w (line 1), shape (2, 2)", "b (line 2), shape (3,)"]
    which.select_index(0).run()
    assert widget(at, "dtype").value == "bfloat16"
    assert_codes(at, torch.tensor([[0.5, -1.25], [2.0, 0.75]]))
    assert at.text_area[0].value == text
    assert_codes(opened(**at.query_params), torch.tensor([[0.5, -1.25], [2.0, 0.75]]))


def test_what_is_not_read_of_a_paste_is_said() -> None:
    at = opened(src="paste")
    at.text_area[0].set_value("0,1,2\n0.5,-1.25,3.0\n0.0,2.0,-0.75\n").run()
    assert_codes(at, torch.tensor([[0.5, -1.25, 3.0], [0.0, 2.0, -0.75]]))
    assert "Not read as values: line 1 (0, 1, 2) is the header." in captions(at)
    at.text_area[0].set_value("x = torch.tensor([1.5, 2.5]) * 0.5").run()
    assert any("'* 0.5' at line 1, column 30" in text for text in said(at.error))
