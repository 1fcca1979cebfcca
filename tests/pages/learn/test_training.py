"""The lesson "PTQ or QAT" without a browser: what it shows, compared with quantcore, and trainings that stop."""

import dataclasses
import functools
import inspect
from collections.abc import Callable, Generator, Iterator
from typing import Any

import pytest
import streamlit as st
from app_page import key_figures, said, the_app, widget
from grid import for_each
from lesson_app import hyphens
from parts import some
from streamlit.runtime.scriptrunner import StopException
from streamlit.testing.v1 import AppTest

import quantcore as qc
from pages.learn.lesson_pages import LESSON_URLS
from pages.learn.ptq_or_qat import controls as training_choice
from pages.learn.ptq_or_qat import run as training_runs
from pages.shared import curriculum
from pages.shared.computing.long_work import WorkStep
from quantcore import training
from quantcore.training import curve, sgd
from tests.pages.sidebar.test_tensor_controls import assert_shown

STEPS = ["network", "ptq", "rounding", "through", "qat", "scales", "curve", "choose"]
NAME = "ptq_or_qat"
SCHEMES = [
    "int4",
    "int2 per_channel(axis=0)",
    "uint3 asymmetric per_group(16)",
    "e2m1 per_group(32)",
    "nf4 per_group(64)",
    "int8 symmetric per_block((8, 8))",
    "int4 asymmetric percentile(99)",
]


@pytest.fixture(autouse=True, scope="module")
def trained_once() -> Iterator[None]:
    """What the page and a test train alike, with the same arguments, is trained once, and not for 20 epochs."""
    training_runs._known._groups.clear()
    training_runs._networks._groups.clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "train", remembered(functools.partial(training.train, training.Training(2))))
        patch.setattr(training, "qat", remembered(training.qat))
        patch.setattr(curve, "train", lambda settings, seed, hidden: training.train(seed=seed))
        yield


def remembered(real: Callable[..., Iterator[Any]]) -> Callable[..., Iterator[Any]]:
    """A generator whose steps are kept, by its arguments; it is run to the end first."""
    known: dict[Any, tuple[Any, list[Any]]] = {}

    def call(*given: Any, **more: Any) -> Iterator[Any]:
        signature = inspect.signature(real).bind(*given, **more)
        signature.apply_defaults()
        key = tuple(id(v) if isinstance(v, training.Network) else v for v in signature.arguments.values())
        if key not in known:
            known[key] = signature, list(real(*given, **more))
        yield from known[key][1]

    return call


def opened(step: str, **parameters: str) -> AppTest:
    """The lesson opened by a link with these parameters."""
    at = the_app(LESSON_URLS[NAME])
    for key, value in {curriculum.step_key(NAME): step, **parameters}.items():
        at.query_params[key] = value
    return at.run()


def keys(at: AppTest) -> set[str]:
    return {str(e.key) for e in at if getattr(e, "key", None)}


def assert_clean(at: AppTest) -> None:
    assert not at.exception
    assert said(at.error) == []
    assert said(at.warning) == []


@functools.cache  # only for this module; the page trains its own in each test
def trained(seed: int = 0) -> training.Epoch[training.Network]:
    *_, last = training.train(seed=seed)
    return last


def percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def right(network: training.Network | training.QuantizedNetwork) -> float:
    digits = training.load_digits()
    return float((network.logits(digits.test_images).argmax(-1) == digits.test_labels).double().mean())


@pytest.mark.slow  # by default, links with the words of earlier versions are read
def test_its_controls_are_a_part_of_the_link() -> None:
    pages = [opened(step, per="channel") for step in STEPS if step not in ("rounding", "through")]  # as "scales"
    assert [text for at in pages for text in hyphens(at)] == []
    drawn = set().union(*map(keys, pages))
    assert_shown(pages[STEPS.index("ptq")], {"scheme"})
    ours = {key for key in drawn if key.startswith("train_")}
    buttons = {"train_go", "train_compute", "train_to_curve"}
    charts = {
        "train_digits",
        "train_lost",
        "train_chosen",
        "train_slope_scales",
    }
    assert ours - buttons - charts <= training_choice.KEYS
    assert training_choice.KEYS - ours == {"train_layer", "train_maps", "train_view"} - ours
    at = opened("ptq", train_seed="2", train_activations="uint8 asymmetric", train_layer="second")
    assert_clean(at)  # the layer of the weights, which are not shown yet
    assert widget(at, "train_seed").value == 2
    widget(at, "train_view").set_value("weights").run()
    assert widget(at, "train_layer").value == "second"


@pytest.mark.parametrize("seed", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_the_float_network(seed: int) -> None:
    found, known = key_figures(opened("network", train_seed=str(seed))), trained(seed)
    assert found["accuracy in float32"] == percent(known.accuracy)
    assert found["misread"] == f"{round(599 * (1 - known.accuracy))} of 599"


def test_a_seed_stays_from_step_to_step() -> None:
    at = opened("network")
    widget(at, "train_seed").set_value(2).run()
    for step in ("rounding", "ptq"):
        widget(at, curriculum.step_key(NAME)).set_value(step).run()
    assert widget(at, "train_seed").value == 2
    assert key_figures(at)["float32"] == percent(trained(2).accuracy)


@for_each("activations", ["", "uint4 asymmetric"])
@for_each("scheme", some(SCHEMES, 7))
def test_post_training_quantization_with_any_scheme(scheme: str, activations: str) -> None:
    at = opened("ptq", train_weights=scheme, train_activations=activations)
    assert_clean(at)
    after = training.ptq(
        trained().network, qc.Scheme.parse(scheme), qc.Scheme.parse(activations) if activations else None
    )
    assert key_figures(at)["PTQ"] == percent(right(after))


@for_each(("link", "words"), [
    ({"train_activations": "int4 per_channel"}, "choose per_tensor"),
    ({"train_weights": "int99"}, "The scheme of the weights can't be read"),
    ({"train_activations": "float37"}, "The scheme of the activations can't be read"),
    ({"train_activations": "<script>alert(1)</script>"}, "The scheme of the activations can't be read"),
    ({"per": "channel", "axis": "5"}, "axis"),
])  # fmt: skip
@for_each("step", some(["ptq", "qat"], 2))
def test_schemes_that_do_not_fit(step: str, link: dict[str, str], words: str) -> None:
    at = opened(step, **link)
    assert not at.exception
    assert any(words in sentence for sentence in said([*at.error, *at.warning]))
    for key in ("train_weights", "train_activations"):
        assert widget(at, key).value == link.get(key, "")  # nothing typed is lost


def test_the_scheme_on_the_left_unless_one_is_typed() -> None:
    network = trained().network
    left = training.ptq(network, qc.Scheme.parse("int2 per_channel(axis=0)"))
    link = {"bits": "2", "per": "channel"}
    shown = key_figures(opened("ptq", **link))
    assert shown["PTQ"] == percent(right(left))
    elements, rows = sum(w.x.numel() for w in left.weights), sum(len(w.x) for w in left.weights)
    assert shown["bits per weight"] == f"{2 + 32 * rows / elements:.2f}"  # a float32 scale for each row
    typed = training.ptq(network, qc.Scheme.parse("int3"))
    assert key_figures(opened("ptq", **link, train_weights="int3"))["PTQ"] == percent(right(typed))
    assert key_figures(opened("ptq", src="paste"))["PTQ"]  # even without a tensor


def test_the_gradient_of_rounding_is_nowhere_but_zero() -> None:
    told = " ".join(said(opened("rounding", train_slope_bits="4", train_slope_scale="0.5").markdown))
    assert "returns 0 at 1,201 of 1,201 points" in told
    assert "here at 1,201 of" not in " ".join(said(opened("through").markdown))


@for_each(("way", "learned", "epochs"), [pytest.param("from the scheme", False, 2, marks=pytest.mark.slow), ("learned (LSQ)", True, 1)])
def test_training_on_shows_what_quantcore_trains(way: str, learned: bool, epochs: int) -> None:
    link = {"bits": "2", "train_epochs": str(epochs), "train_scales": way}
    at = opened("qat", **link)
    assert "QAT" not in " ".join(key_figures(at))  # no work before it is asked for
    widget(at, "train_go").click().run()
    assert_clean(at)
    tuning = training.Training(epochs, training.TUNING.learning_rate)
    scheme = qc.Scheme.parse("int2")
    *_, last = training.qat(trained().network, scheme, training=tuning, learned_scales=learned)
    assert key_figures(at)[f"QAT after {epochs} of {epochs} epochs"] == percent(last.accuracy)
    assert widget(at, "train_go").label == "Train again"
    again = opened(
        "qat", **link, train_view="weights", train_layer="second", train_maps="PTQ"
    )  # cached for all who ask for the same
    assert_clean(again)
    assert key_figures(again)[f"QAT after {epochs} of {epochs} epochs"] == percent(last.accuracy)
    was = training.ptq(trained().network, scheme).weights[1]
    changed = int((was.codes != last.network.weights[1].codes).sum())
    assert any(caption.startswith(f"{changed} of 640 codes") for caption in said(again.caption))


@pytest.mark.slow  # it trains eight networks
def test_the_curve_shows_the_rows_of_quantcore(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(curve, "train", sgd.train)  # for all epochs, after which LSQ is the best
    rows: list[training.MethodAccuracy] = []
    asked: list[tuple[object, ...]] = []

    def noted(
        real: Callable[..., Generator[training.MethodAccuracy]], *given: object, **more: object
    ) -> Generator[training.MethodAccuracy]:
        asked.append((*given, more.get("weights"), more.get("activations")))
        for row in real(*given, **more):
            rows.append(row)
            yield row

    monkeypatch.setattr(training, "accuracy_curve", functools.partial(noted, training.accuracy_curve))
    at = opened("curve", train_bits="2", train_seeds="2")
    assert len(at.table) == 0  # no work before it is asked for
    assert widget(at, "train_compute").label == "Compute 8 accuracies"
    widget(at, "train_compute").click().run()
    assert_clean(at)
    assert "train_compute" not in keys(at)
    assert [(row.method, row.bits, row.seed) for row in rows] == [
        (method, bits, seed)
        for seed in (0, 1)
        for method, bits in (("float", 32), ("ptq", 2), ("qat", 2), ("lsq", 2))
    ]
    assert {call[2:] for call in asked} == {(qc.Scheme(qc.INT4), None)}
    points = {p.method: p for p in training.summary(rows)}
    (shown,) = at.table
    for method, column in zip(training.METHODS, shown.value.columns[1:], strict=True):
        p = points[method]
        spread = f"{percent(p.mean)} ({percent(p.lowest)} to {percent(p.highest)} over 2 seeds)"
        assert list(shown.value[column])[1] == spread
    assert widget(opened("curve", train_bits="2", train_seeds="3"), "train_compute").label == (
        "Compute the other 4 accuracies"
    )
    at = opened("choose", train_afford="10.0")
    rows = at.table[0].value
    assert list(rows["Bits computed"]) == ["2, 3, 4, 5, 6, 8", "2", "2"]
    best = [method for method in training.METHODS if points[method].mean >= points["float"].mean - 0.1]
    assert best == ["lsq"]
    assert list(rows["Fewest bits"])[2] == "2"


def test_a_format_of_one_width_has_no_curve() -> None:
    for step in ("curve", "choose"):
        at = opened(step, train_weights="e4m3fn")
        assert not at.exception
        assert any("does not come in other bit widths" in text for text in said(at.error))


def test_choosing_by_what_can_be_lost() -> None:
    rows = opened("choose", train_afford="0.5", per="channel").table[0].value
    scheme = qc.Scheme.parse("int8 per_channel(axis=0)")
    network, widths = trained().network, (2, 3, 4, 5, 6, 8)
    schemes = {bits: dataclasses.replace(scheme, format=qc.IntFormat(bits)) for bits in widths}
    accuracy = {bits: right(training.ptq(network, each)) for bits, each in schemes.items()}
    fits = min(bits for bits, share in accuracy.items() if share >= trained().accuracy - 0.005)
    assert list(rows["Fewest bits"]) == [str(fits), "not computed yet", "not computed yet"]


class Counted:
    """A generator that records how far it came and whether it was closed."""

    def __init__(self) -> None:
        self.steps, self.closed = 0, False

    def __call__(self) -> Generator[int, None, None]:
        try:
            for self.steps in range(1, 100):
                yield self.steps
        finally:
            self.closed = True


def test_whatever_ends_the_script_ends_the_training() -> None:
    work = Counted()

    def each(step: int) -> WorkStep:
        if step == 3:
            raise StopException  # what Streamlit raises when a visitor stops, moves a control or leaves
        return WorkStep(step / 100, "")

    with pytest.raises(StopException):
        training_runs.run(work, each, st.empty())
    assert (work.steps, work.closed) == (3, True)


def test_a_training_that_fails_says_so() -> None:
    def diverges() -> Generator[int, None, None]:
        yield 1
        raise qc.QuantError("Training diverged.")

    seen: list[int] = []

    def each(step: int) -> WorkStep:
        seen.append(step)
        return WorkStep(1.0, "")

    assert training_runs.run(diverges, each, st.empty()) is False
    assert seen == [1]
    done = (step for step in (2, 3))
    assert training_runs.run(lambda: done, each, st.empty()) is True
    assert seen == [1, 2, 3]


def test_links_with_the_words_of_earlier_versions_are_read() -> None:
    for step, key in (("network", "train_show"), ("curve", "train_as")):
        at = opened(step, **{key: "read wrongly"})
        assert_clean(at)
        assert widget(at, key).value == "misread"
    at = opened("qat", train_scales="by the scheme")
    assert_clean(at)
    assert at.session_state["train_scales"] == "scheme"
    assert widget(at, "train_scales").format_func("scheme") == "from the scheme"
