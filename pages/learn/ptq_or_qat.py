"""Lesson 7: a network that is quantized after its training, and one that is trained on with it."""

import streamlit as st

import quantcore as qc
from pages.shared import lesson, lesson_view, say, training_choice, training_results, training_runs
from pages.shared.training_choice import Plan
from pages.shared.training_results import accuracy, percent, reads, show_digits
from quantcore.figures import gradients

STEPS = {
    "network": "A small network that reads digits",
    "ptq": "PTQ: train first, quantize afterwards",
    "rounding": "Rounding has no slope to learn from",
    "through": "Straight through: the slope of the line that the stairs follow",
    "qat": "QAT: train on with the quantized weights",
    "scales": "A slope for the scale as well",
    "curve": "Accuracy against bits",
    "choose": "Which of the two, and when",
}
SHOWN = 10  # digits in a row
SLOPES = {"rounding": "rounding", "through": "through", "scales": "to_scale"}


def network() -> None:
    """The data, the network, and how well it reads before anything is quantized."""
    with st.columns([1, 4])[0]:
        known = training_runs.float_network(training_choice.seed())
    found = training_runs.digits()
    sizes = [tuple(w.shape) for w in known.network.weights]
    count = sum(t.numel() for t in (*known.network.weights, *known.network.biases))
    st.markdown(
        f"{len(found.train_labels):,} handwritten digits of 8×8 pixels to learn from, {len(found.test_labels)} "
        f"others to be judged by. The network: 64 pixels, {sizes[0][0]} hidden units with a ReLU, a score for "
        f"each digit. Its {count:,} numbers are float32, drawn by a seed, then trained for {known.epochs} epochs."
    )
    read, labels = reads(known.network), found.test_labels.tolist()
    wrong = [i for i, (a, b) in enumerate(zip(read, labels, strict=True)) if a != b]
    lesson_view.figures(
        ("accuracy in float32", percent(known.accuracy)),
        ("read wrongly", f"{len(wrong)} of {len(read)}"),
        ("weights", " + ".join(f"{a}×{b}" for a, b in sizes)),
        ("loss in training", f"{known.loss:.3g}"),
    )
    shown = st.segmented_control("Show", ["one of each", "read wrongly"], default="one of each",
                                 key="train_show", required=True, bind="query-params")  # fmt: skip
    places = wrong[:SHOWN] if shown == "read wrongly" else [labels.index(digit) for digit in range(SHOWN)]
    show_digits(places, read, "train_digits")


def ptq(plan: Plan) -> None:
    """The trained weights replaced by codes: accuracy before and after, and the maps."""
    before, after = training_runs.float_network(plan.seed), training_runs.afterwards(plan)
    was, now, labels = reads(before.network), reads(after), training_runs.digits().test_labels.tolist()
    lost = [i for i, label in enumerate(labels) if was[i] == label != now[i]]
    sizes = [w.x.numel() for w in after.weights]
    bits = [qc.bits_per_element(w.scheme, tuple(w.x.shape)) for w in after.weights]
    right = accuracy(after)
    lesson_view.figures(
        ("float32", percent(before.accuracy)),
        ("PTQ", percent(right)),
        ("difference", f"{100 * (right - before.accuracy):+.1f} points"),
        ("right before, wrong now", f"{len(lost)} of {len(labels)}"),
        ("bits per weight", f"{sum(b * n for b, n in zip(bits, sizes, strict=True)) / sum(sizes):.2f}"),
    )
    if lost:
        show_digits(lost[:SHOWN], now, "train_lost")
    layer = training_choice.layer(after)
    lesson_view.explored("ptq_or_qat", *training_runs.weights_of(after, layer, f"ptq {plan}"))


def slopes(which: str) -> None:
    """Fake quantization over x with one of its slopes below."""
    left, right = st.columns(2)
    bits = left.slider("Bits", 2, 4, 2, key="train_slope_bits", bind="query-params")
    scale = right.slider("Scale", 0.25, 2.0, 1.0, 0.25, key="train_slope_scale", bind="query-params")
    found = gradients.slopes(bits, scale)
    flat, passed = int((found.rounding == 0).sum()), int((found.through == 1).sum())
    say_of = {
        "rounding": "To learn is to follow a slope: shift a weight a little, see whether the loss falls. Between two "
        "steps of the stairs a little shift changes nothing; on a step the slope does not exist. Asked for the "
        f"gradient of `round`, torch answers 0 at {flat:,} of {found.x.size:,} places: no weight would ever move.",
        "through": "So backward we pretend. The stairs follow the dotted line, whose slope is 1; the "
        "**straight-through estimator** hands the gradient on as if x̂ were x, here at "
        f"{passed:,} of {found.x.size:,} places. Where the codes end, x̂ stays put however x moves, "
        "and 0 is the truth. Forward nothing is pretended: the loss is that of the quantized weights.",
        "scales": "The scale can be learned like a weight: x̂ = round(x/s) · s. Inside the range a wider scale moves "
        "x̂ by round(x/s) - x/s, the rounding error in steps: a saw. Clipped values pull harder, by the last code "
        "itself, and so ask for a wider range. **LSQ** (learned step size quantization) balances the two by descent.",
    }
    st.markdown(say_of[which])
    lesson_view.figure(gradients.slope(found, SLOPES[which], **lesson.look()), f"train_slope_{which}")


TEXTS = {
    "ptq": "**Post-training quantization** takes the trained weights and stores codes in their place, as for any "
    "tensor. Nothing is learned again. Quantize the activations too, and every layer's input is rounded as it comes.",
    "qat": "**Quantization-aware training** goes on from the trained network. Forward it computes with the codes' "
    "values, backward straight through. The float weights drift until their codes work, not until they are "
    "near. Where PTQ loses little there is little to win: set 2 or 3 bits on the left, and train.",
    "curve": "Every width, each way of quantizing, several seeds: the point is the mean, the bar goes from the worst "
    "seed to the best, the band is float32. Points appear as they are computed; Stop keeps what is there.",
    "choose": "PTQ needs no labels and no training, only the weights and a few inputs for the ranges of the "
    "activations: where it loses little, it is the choice. QAT costs a training and its data, and pays where few "
    "bits leave PTQ behind. Say what you can afford to lose, and read off how narrow each may be.",
}
step = lesson.head("ptq_or_qat", STEPS)
job: training_runs.Job | None = None
if step == "network":
    network()
elif step in SLOPES:
    slopes(step)
else:
    st.markdown(TEXTS[step])
    try:
        if plan := training_choice.plan(seeded=step in ("ptq", "qat")):
            draw = {
                "ptq": ptq,
                "qat": training_results.qat,
                "curve": training_results.curve,
                "choose": training_results.choose,
            }
            job = draw[step](plan)
    except qc.QuantError as error:
        say.error(str(error))
lesson.foot(
    "straight-through estimator: Bengio et al. 2013, arXiv 1308.3432",
    "learned scales: Esser et al. 2020, arXiv 1902.08153",
    "PTQ and QAT in practice: Nagel et al. 2021, arXiv 2106.08295",
    "digits: Alpaydin and Kaynak 1998, UCI, CC BY 4.0, as scikit-learn ships them",
)
# After everything else stands: the script steps through the training, and whatever ends the script ends it
if job and job():
    st.rerun()
