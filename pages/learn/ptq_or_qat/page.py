"""Lesson: quantize a network after training (PTQ), or during it (QAT)."""

from collections.abc import Callable

import streamlit as st

import quantcore as qc
from pages.learn import frame, views
from pages.learn.ptq_or_qat import controls, run
from pages.learn.ptq_or_qat.controls import TrainingPlan
from pages.learn.ptq_or_qat.views import accuracy, choose, curve, percent, qat, read_digits, show_digits
from pages.shared import messages
from pages.shared.state import choice, link
from quantcore.figures import lessons

SHOWN = 10  # digits in a row
SLOPES = {"rounding": "rounding", "through": "through", "scales": "to_scale"}


def network() -> None:
    """Draw the data, the network, and its accuracy before quantization."""
    words, picture = views.side_by_side()
    with words:
        known = run.float_network(controls.seed())
    found = run.digits()
    sizes = [tuple(w.shape) for w in known.network.weights]
    count = sum(t.numel() for t in (*known.network.weights, *known.network.biases))
    words.markdown(
        f"The network learns from {len(found.train_labels):,} handwritten digits of 8×8 pixels and is tested "
        f"on {len(found.test_labels)} others. It has {sizes[0][1]} inputs, one per pixel, {sizes[0][0]} "
        f"hidden units with a ReLU, and one output per digit. Its {count:,} parameters are float32, "
        f"initialized from the seed and trained for {known.epochs} epochs."
    )
    read, labels = read_digits(known.network), found.test_labels.tolist()
    wrong = [i for i, (a, b) in enumerate(zip(read, labels, strict=True)) if a != b]
    with words:
        views.figures(
            ("accuracy in float32", percent(known.accuracy)),
            ("misread", f"{len(wrong)} of {len(read)}"),
            ("weights", " + ".join(f"{a}×{b}" for a, b in sizes)),
            ("training loss", f"{known.loss:.3g}"),
        )
        link.reworded("train_show", {"read wrongly": "misread"})
        shown = choice.segmented("Show", "train_show", {"each": "one of each", "misread": "misread"})
    places = wrong[:SHOWN] if shown == "misread" else [labels.index(digit) for digit in range(SHOWN)]
    with picture:
        show_digits(places, read, "train_digits")


def ptq(plan: TrainingPlan) -> None:
    """Draw the accuracy before and after PTQ, what is newly misread, and the maps of the weights."""
    before, after = run.float_network(plan.seed), run.afterwards(plan)
    was, now, labels = read_digits(before.network), read_digits(after), run.digits().test_labels.tolist()
    lost = [i for i, label in enumerate(labels) if was[i] == label != now[i]]
    sizes = [w.x.numel() for w in after.weights]
    bits = [qc.bits_per_element(w.scheme, tuple(w.x.shape)) for w in after.weights]
    right = accuracy(after)
    of_weights = controls.is_of_weights()
    words, picture = views.side_by_side(views.for_maps(6) if of_weights else (2, 3))
    with words:
        if not of_weights:
            st.markdown(
                "**Post-training quantization** quantizes the trained weights as it would any tensor, "
                "without further training. With a scheme for the activations, the input of every layer is "
                "quantized too."
            )
        views.figures(
            ("float32", percent(before.accuracy)),
            ("PTQ", percent(right)),
            ("difference", f"{100 * (right - before.accuracy):+.1f} points"),
            ("newly misread", f"{len(lost)} of {len(labels)}"),
            ("bits per weight", f"{sum(b * n for b, n in zip(bits, sizes, strict=True)) / sum(sizes):.2f}"),
        )
        with st.container(horizontal=True):
            of_weights = controls.shows_weights()
            layer = controls.layer(after) if of_weights else 0
    if of_weights:
        views.explore("ptq_or_qat", *run.weights_of(after, layer, f"ptq {plan}"), words, picture)
        return
    with picture:
        if lost:
            st.markdown(f"**Newly misread{f', the first {SHOWN}' if len(lost) > SHOWN else ''}**")
            show_digits(lost[:SHOWN], now, "train_lost")
        else:
            st.markdown("Every digit that the float32 network reads correctly is still read correctly.")
            show_digits([labels.index(digit) for digit in range(SHOWN)], now, "train_lost")


def slopes(which: str) -> None:
    """Draw fake quantization over x, and one of its slopes below."""
    words, picture = views.side_by_side()
    with words:
        text = st.container()
        bits = st.slider("Bits", 2, 4, 2, key="train_slope_bits", bind="query-params")
        scale = st.slider("Scale", 0.25, 2.0, 1.0, 0.25, key="train_slope_scale", bind="query-params")
    found = lessons.slopes(bits, scale)
    flat, passed = int((found.rounding == 0).sum()), int((found.through == 1).sum())
    texts = {
        "rounding": "Training follows a slope: it changes a weight in the direction that lowers the loss. "
        "Between two jumps of the staircase a small change does nothing, and at a jump there is no slope. "
        f"Asked for the gradient of `round`, torch returns 0 at {flat:,} of {found.x.size:,} points: no "
        "weight would ever move.",
        "through": "The backward pass pretends. The staircase follows the dotted line, whose slope is 1; "
        f"the **straight-through estimator** passes the gradient on as if x̂ were x, here at {passed:,} of "
        f"{found.x.size:,} points. Beyond the last code x̂ no longer changes, and the slope is 0. The "
        "forward pass does not pretend: the loss is that of the quantized weights.",
        "scales": "The scale can be learned like a weight: x̂ = round(x/s) · s. Inside the range, its slope "
        "is round(x/s) − x/s, the rounding error in steps: a sawtooth. Clipped values pull harder toward a "
        "wider range: their slope is the last code. **LSQ** (learned step size quantization) balances the "
        "two by gradient descent.",
    }
    text.markdown(texts[which])
    with picture:
        views.figure(lessons.slope(found, SLOPES[which], **frame.plot_style()), f"train_slope_{which}")


step = frame.head("ptq_or_qat")
job: run.Job | None = None
if step == "network":
    network()
elif step in SLOPES:
    slopes(step)
else:
    try:
        with st.container(key="lesson_plan"):
            plan = controls.plan(seeded=step in ("ptq", "qat"))
        if plan:
            draw: dict[str, Callable[[TrainingPlan], run.Job | None]] = {
                "ptq": ptq,
                "qat": qat,
                "curve": curve,
                "choose": choose,
            }
            job = draw[step](plan)
    except qc.QuantError as error:
        messages.error(str(error))
frame.foot(
    "straight-through estimator: Bengio et al. 2013, arXiv 1308.3432",
    "learned scales: Esser et al. 2020, arXiv 1902.08153",
    "PTQ and QAT in practice: Nagel et al. 2021, arXiv 2106.08295",
    "digits: Alpaydin and Kaynak 1998, UCI, CC BY 4.0, as scikit-learn ships them",
)
# Last, after everything else is drawn: the script steps through the training, which ends when the script does
if job and job():
    st.rerun()
