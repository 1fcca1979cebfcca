"""Trainings of the lesson as they run, and their results: accuracy over epochs and against bits."""

import itertools
from functools import partial
from typing import Any

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from pages.learn import frame, views
from pages.learn.ptq_or_qat import controls, run
from pages.learn.ptq_or_qat.controls import TrainingPlan
from pages.shared import charts, curriculum, tables
from pages.shared.computing.long_work import WorkStep
from pages.shared.state import choice, link
from quantcore import training
from quantcore.figures import lessons

ACROSS = 4  # images in a row
_BIND: dict[str, Any] = {"bind": "query-params"}
_QAT = (
    "**Quantization-aware training** continues from the trained network: the forward pass uses the "
    "dequantized weights, the backward pass the straight-through estimator. Where PTQ loses little, there "
    "is little to win back: choose 2 or 3 bits, and train."
)


def percent(fraction: float) -> str:
    """Write a fraction of the held-out images in percent; one of the 599 is 0.17 %."""
    return f"{100 * fraction:.1f} %"


def accuracy(network: training.Network | training.QuantizedNetwork) -> float:
    """Return the accuracy on the held-out images, 0 to 1."""
    found = run.digits()
    return training.accuracy(network.logits(found.test_images), found.test_labels)


def read_digits(network: training.Network | training.QuantizedNetwork) -> list[int]:
    """Return the digit that a network reads in each of the held-out images."""
    return [int(i) for i in network.logits(run.digits().test_images).argmax(-1)]


def show_digits(places: list[int], read: list[int], key: str) -> None:
    """Draw some held-out images and the digits read in them."""
    found = run.digits()
    labels = [int(found.test_labels[i]) for i in places]
    shown = [read[i] for i in places]
    chart = lessons.digit_images(
        found.test_images[places], labels, shown, across=ACROSS, **frame.plot_style()
    )
    views.figure(chart, key)


def _epochs_and_scales() -> tuple[int, bool]:
    """Ask for the number of epochs and whether the scales are learned."""
    count = st.slider("Epochs", 1, 30, training.TUNING.epochs, key="train_epochs", **_BIND)
    link.reworded("train_scales", {"by the scheme": "from the scheme"})
    chosen = choice.segmented(
        "Scales", "train_scales", {"scheme": "from the scheme", "learned": "learned (LSQ)"}
    )
    return count, chosen == "learned"


def qat(plan: TrainingPlan) -> run.Job | None:
    """Draw the known epochs of the training, or the weights that it changed.

    Returns the training to run if the visitor pressed Train.
    """
    of_weights = controls.is_of_weights()
    words, picture = views.side_by_side(views.for_maps(6) if of_weights else (2, 3))
    with words:
        text_place, choices_place = st.container(), st.container()
        row = st.container(horizontal=True, vertical_alignment="center")
        with row.popover("Training") if of_weights else choices_place:
            count, learned = _epochs_and_scales()
        go = row.empty()
    before, after = run.float_network(plan.seed), run.afterwards(plan)
    known = run.epochs(plan, count, learned)
    label = "Train again" if count in known else "Train"
    levels = {"float32": before.accuracy, "PTQ": accuracy(after)}
    method = "lsq" if learned else "qat"
    wanted = go.button(label, type="primary", key="train_go")
    last = known[max(tuple(known))] if known else None
    with words:
        if last is not None:
            with row:
                of_weights = controls.shows_weights() and not wanted
            _result(levels, last)
        if not (of_weights and last is not None):
            text_place.markdown(_QAT)
    if of_weights and last is not None:
        _weights(plan, after, last, f"{plan} {count} {learned}", words, picture)
        return None
    with picture:
        chart = views.place_of_figure().empty()

    def draw(last: int) -> None:
        accuracies = [known[epoch].accuracy for epoch in range(last + 1)]
        chart.plotly_chart(
            charts.named(
                lessons.accuracy_over_epochs({method: accuracies}, levels, count, **frame.plot_style()),
                frame.asked(),
            ),
            **views.PLOT_OPTIONS,
        )

    def each(progress: training.Epoch[training.QuantizedNetwork]) -> WorkStep:
        epoch = progress.epoch
        known[epoch] = progress
        draw(epoch)
        return WorkStep(epoch / count, f"Epoch {epoch} of {count}: {percent(progress.accuracy)}")

    if not wanted:
        draw(len(known) - 1)
    tuning = training.Training(count, training.TUNING.learning_rate)
    schemes = plan.weights, plan.activations
    begin = partial(training.qat, before.network, *schemes, tuning, plan.seed, learned_scales=learned)
    again = count in known
    done = lambda: not again and count in known  # noqa: E731
    return partial(run.run, begin, each, go, done) if wanted else None


def _result(levels: dict[str, float], now: training.Epoch[training.QuantizedNetwork]) -> None:
    """Draw the accuracies before and after the training."""
    views.figures(
        *((name, percent(level)) for name, level in levels.items()),
        (f"QAT after {now.epoch} of {now.epochs} epochs", percent(now.accuracy)),
    )


def _weights(
    plan: TrainingPlan,
    after: training.QuantizedNetwork,
    now: training.Epoch[training.QuantizedNetwork],
    key: str,
    words: DeltaGenerator,
    picture: DeltaGenerator,
) -> None:
    """Draw how the training changed the weights."""
    with words:
        with st.container(horizontal=True):
            layer = controls.layer(now.network)
            which = choice.segmented("Maps", "train_maps", {"ptq": "PTQ", "qat": "QAT"}, default="qat")
        was, is_ = after.weights[layer], now.network.weights[layer]
        changed, moved = int((was.codes != is_.codes).sum()), float((was.x - is_.x).abs().max())
        st.caption(
            f"{changed:,} of {was.codes.numel():,} codes differ between PTQ and QAT; "
            f"float weights moved by up to {moved:.3g}."
        )
    network = after if which == "ptq" else now.network
    name = f"ptq {plan}" if which == "ptq" else f"qat {key} {now.epoch}"
    views.explore("ptq_or_qat", *run.weights_of(network, layer, name), words, picture)


def curve(plan: TrainingPlan) -> run.Job | None:
    """Draw the known accuracies against bits; return the missing trainings if the visitor pressed Compute."""
    words, picture = views.side_by_side()
    with words:
        st.markdown(
            "Each method at each bit width, over several seeds: a point is the mean, its bar runs from the "
            "worst seed to the best, the band is float32. Points appear as they are computed, and stay when "
            "you stop."
        )
        bits = st.multiselect("Bits", controls.WIDTHS, [2, 3, 4, 8], key="train_bits", **_BIND)
        seeds = range(st.slider("Seeds", 1, 10, 3, key="train_seeds", **_BIND))
        link.reworded("train_as", {"read wrongly": "misread"})
        shown = choice.segmented("Show", "train_as", {"accuracy": "accuracy", "misread": "misread"})
        go = st.empty()
    known = run.rows(plan)
    begin = partial(
        training.accuracy_curve, sorted(bits), seeds, weights=plan.weights, activations=plan.activations
    )
    begin().close()  # raises for formats that are not integers before anything is drawn
    asked = [(training.FLOAT, 32, seed) for seed in seeds]
    asked += list(itertools.product(training.METHODS, bits, seeds))
    with picture:
        chart = views.place_of_figure().empty()
    table = st.empty()

    def draw() -> None:
        points = training.summary([known[key] for key in asked if key in known])
        figure = lessons.accuracy_against_bits(points, errors=shown == "misread", **frame.plot_style())
        chart.plotly_chart(charts.named(figure, frame.asked()), **views.PLOT_OPTIONS)
        table.table(tables.headed(_table(points)))

    def each(row: training.MethodAccuracy) -> WorkStep:
        known[row.method, row.bits, row.seed] = row
        draw()
        done = sum(key in known for key in asked)
        what = "float32" if row.method == training.FLOAT else f"{row.method.upper()} at {row.bits} bits"
        return WorkStep(done / len(asked), f"{done} of {len(asked)}: seed {row.seed}, {what}")

    missing = sum(key not in known for key in asked)
    label = f"Compute {'the other ' * (missing < len(asked))}{missing} accuracies"
    wanted = missing and go.button(label, type="primary", key="train_compute")
    if missing < len(asked):
        draw()
    begin_rest = lambda: begin(known=[known[key] for key in asked if key in known])  # noqa: E731
    done = lambda: all(key in known for key in asked)  # noqa: E731
    return partial(run.run, begin_rest, each, go, done) if wanted else None


def choose(plan: TrainingPlan) -> None:
    """Draw the fewest bits at which each method stays within the allowed loss, among the known bit widths."""
    known = run.rows(plan)
    for row in training.accuracy_curve(
        controls.WIDTHS, [plan.seed], ["ptq"], plan.weights, plan.activations, known=tuple(known.values())
    ):  # fmt: skip
        known[row.method, row.bits, row.seed] = row
    words, picture = views.side_by_side((1, 2))
    with words:
        st.markdown(
            "PTQ needs no labels and no training, only the weights and, for activations, a few inputs to "
            "set their ranges; choose it where it loses little. QAT needs training and its data, and pays "
            "off at few bits, where PTQ fails. Set how much accuracy you can afford to lose."
        )
        lost = st.slider(
            "Accuracy you can afford to lose, in points", 0.0, 10.0, 1.0, 0.5, key="train_afford", **_BIND
        )
    points = training.summary(sorted(known.values(), key=lambda r: (r.bits, r.seed)))
    (before,) = (p.mean for p in points if p.method == training.FLOAT)
    enough = before - lost / 100
    with words:
        views.figures(("float32", percent(before)), ("accept at least", percent(enough)))
        if len({p.method for p in points}) <= 2:
            to_curve = ({curriculum.step_key("ptq_or_qat"): "curve"},)
            label = "Train with QAT, in the step “curve”"
            st.button(label, on_click=link.put, args=to_curve, key="train_to_curve")
    with picture:
        chart = lessons.accuracy_against_bits(points, enough=enough, **frame.plot_style())
        views.figure(chart, "train_chosen")
        views.table([_needs(method, points, enough) for method in training.METHODS])


def _needs(method: str, points: list[training.Point], enough: float) -> dict[str, str]:
    """Return a row of the table: the fewest known bits whose accuracy is enough."""
    known = sorted((p for p in points if p.method == method), key=lambda p: p.bits)
    fit = next((p for p in known if p.mean >= enough), None)
    if not known:
        bits, found = "not computed yet", ""
    elif fit is None:
        bits, found = "none of those computed", f"{percent(max(p.mean for p in known))} at best"
    else:
        bits, found = str(fit.bits), percent(fit.mean)
    cost = {"ptq": "no training", "qat": "more training", "lsq": "more training"}[method]
    return {
        "method": lessons.METHOD_NAMES[method],
        "fewest bits": bits,
        "accuracy": found,
        "bits computed": ", ".join(str(p.bits) for p in known),
        "cost": cost,
    }


def _table(points: list[training.Point]) -> list[dict[str, str]]:
    """Return the accuracy by bits and method: the mean over the seeds, and the worst and best seed."""
    cells = {(p.bits, p.method): _spread(p) for p in points}
    widths = sorted({bits for bits, method in cells if method != training.FLOAT}, reverse=True)
    names = [lessons.METHOD_NAMES[method] for method in training.METHODS]
    rows = [
        {"bits": "32, float"} | dict.fromkeys(names, accuracy)
        for (_, method), accuracy in cells.items()
        if method == training.FLOAT
    ]
    return rows + [
        {"bits": str(b)} | {lessons.METHOD_NAMES[m]: cells.get((b, m), "") for m in training.METHODS}
        for b in widths
    ]


def _spread(p: training.Point) -> str:
    if p.seeds == 1:
        return percent(p.mean)
    return f"{percent(p.mean)} ({percent(p.lowest)} to {percent(p.highest)} over {p.seeds} seeds)"
