"""The plan of a class as its steps: each part's question first, and then the lesson's step that shows it."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple
from urllib.parse import urlencode

import numpy as np

import quantcore as qc
from pages.learn import material
from pages.learn.classroom.questions import ask_about, part_of, scheme_facts
from pages.learn.classroom.results import lesson_link
from pages.serving.classroom import PROMPTS, ClassStep, Question
from pages.shared.curriculum import LESSONS
from quantcore.prediction import NumberKey, shown

SEED = 5  # of the practice tensors: with a scale of 1, dividing and multiplying by it would look the same
TIE = [0.0, 0.2, 0.5, 0.9, 1.25, 2.2, 3.1, 4.6]  # 1.25 / 0.5 is a tie
Ask = Callable[[str], Question]  # what asks, given the link to the step that shows the answer
READ = "uint3 asymmetric fixed(0, 100)"  # how the thermometer of the lesson on scales is read


def _apply(x: Any, scheme: str) -> qc.Quantized:
    return qc.apply(np.asarray(x, np.float32), qc.Scheme.parse(scheme))


def _about(x: Any, scheme: str, asked: str, *places: tuple[int, ...]) -> Ask:
    return lambda link: ask_about(_apply(x, scheme), asked, link, places=places)


def _marks(link: str) -> Question:
    fmt = qc.Scheme.parse(READ).format
    assert isinstance(fmt, qc.IntFormat)
    bits, right = fmt.bits + 1, 2 ** (fmt.bits + 1) - 1
    facts = f"{fmt.bits} bits: {fmt.qmax + 1} marks, and {fmt.qmax} steps between them"
    key = NumberKey(f"{right}", how=f"{bits} bits have {right + 1} codes, and {right} steps between them.")
    return Question(PROMPTS["steps"].en, facts, ("steps",), (key,), asked="steps", link=link)


def _back(link: str) -> Question:
    result = _apply(material.READINGS, READ)
    errors = result.error.abs().tolist()
    worst = int(np.argmax(errors))
    x, back = float(result.x[worst]), float(result.dequantized[worst])
    choices = tuple(f"{shown(value)} °C" for value in material.READINGS)
    half = shown(float(result.scale) / 2)
    off = shown(errors[worst])
    how = f"{shown(x)} comes back as {shown(back)}: off by {off}, and none by more than s / 2 = {half}."
    facts = " · ".join(scheme_facts(result, "dequantized")) + f" · scale {shown(float(result.scale))}"
    return Question(
        PROMPTS["worst"].en,
        facts,
        ("reading",),
        (NumberKey(f"{worst}", how=how),),
        choices,
        asked="worst",
        link=link,
    )


def _one_sided(link: str) -> Question:
    result = _apply(material.RELU, "int4")
    fmt = result.scheme.format
    assert isinstance(fmt, qc.IntFormat)
    usable = fmt.qmax - max(fmt.qmin, 0) + 1
    how = f"x / s is never negative: of the codes {fmt.qmin} to {fmt.qmax}, 0 to {fmt.qmax} are left."
    return Question(
        PROMPTS["usable"].en,
        " · ".join(scheme_facts(result, "codes")),
        ("codes that can occur",),
        (NumberKey(f"{usable}", how=how),),
        asked="usable",
        link=link,
        part=part_of(result),
    )


def _zero_rows(link: str) -> Question:
    result = _apply(material.OUTLIER_ROW, "int4")
    zero = [not row.any() for row in result.codes.numpy()]
    scale, most = float(result.scale), shown(float(result.x.abs().max()))
    how = (
        f"{most} sets the scale {shown(scale)}, and |x| below s / 2 = {shown(scale / 2)} becomes 0: "
        f"rows {', '.join(str(i) for i, each in enumerate(zero) if each)}."
    )
    return Question(
        PROMPTS["zero_rows"].en,
        " · ".join([*scheme_facts(result, "codes"), "one scale for the tensor"]),
        ("rows",),
        (NumberKey(f"{sum(zero)}", how=how),),
        asked="zero_rows",
        link=link,
        part=part_of(result),
    )


def _tie(link: str) -> Question:
    """Ask for codes with a zero point, one of them of a tie; its own view shows it."""
    result = _apply(TIE, "int4 asymmetric fixed(-1, 6.5)")
    scheme = {"bits": 4, "mode": "asymmetric", "range": "fixed", "low": -1, "high": 6.5}
    view = {"src": "paste", "t": qc.tensors.encode(result.x.numpy()), **scheme}
    return ask_about(result, "codes", f"?{urlencode(view)}", places=[(4,), (5,)])


def _practice(asked: str) -> Ask:
    def ask(link: str) -> Question:
        x, scheme = material.exercise(SEED, qc.Scheme(qc.INT4), asked)
        return ask_about(_apply(x.load(), str(scheme)), asked, link)

    return ask


class PlanPart(NamedTuple):
    """A step of a lesson that a class takes together.

    ``minutes``: with what comes before it; ``before``: what is asked, or a question to talk about.
    """

    lesson: str
    step: str
    minutes: int
    before: str | tuple[Ask, ...]


CLASS = (
    PlanPart("scale", "marks", 3, (_marks,)),
    PlanPart("scale", "code", 3, (_about(material.READINGS, READ, "codes"),)),
    PlanPart("scale", "back", 3, (_back,)),
    PlanPart("scale", "range", 5,
             (_about(material.READINGS, "uint3 asymmetric fixed(0, 80)", "error", (5,)),)),
    PlanPart("zero_point", "one-sided", 4, (_one_sided,)),
    PlanPart("zero_point", "asymmetric", 5,
             (_about(material.RELU, "int4 asymmetric fixed(-1, 4.6)", "zero_point"), _tie)),
    PlanPart("predict", "codes", 8, (_practice("codes"),)),
    PlanPart("granularity", "tensor", 4, (_zero_rows,)),
    PlanPart("granularity", "rows", 5,
             (_about(material.OUTLIER_ROW, "int4 symmetric per_channel(0)", "scale"),)),
    PlanPart("granularity", "cost", 4, (_about(np.ones((8, 64)), "int4 per_group(32)", "bits"),)),
    PlanPart("error", "clipping", 6, "Guess the best range, then drag to it. Why is it not max|x|?"),
    PlanPart("mistakes", "cast-without-clamp", 6, "Mark the wrong cells first. Which line causes them?"),
    PlanPart("ptq_or_qat", "ptq", 4, "Choose 2 bits: how many digits are newly misread?"),
)  # fmt: skip
# Parts that a lecturer may add, or take in place of others
CHOICES = (
    PlanPart("inside_a_layer", "sums", 6, "Which of the four sums does not depend on the input?"),
    PlanPart("why_quantize", "bandwidth", 4, "A model is read once per token: how many tokens per second?"),
    PlanPart("outliers", "move", 5, "Drag α: where is the outlier at 0, and where at 1?"),
    PlanPart("gptq", "columns", 8, "Column 0 is rounded: which columns change, and by how much?"),
    PlanPart("rotation", "spread", 5, "How large is each channel after the rotation? Add up the first row."),
    PlanPart("small_floats", "scales", 5, "Which numbers are clipped at 7.5, and which codes unused at 4?"),
)  # fmt: skip


@functools.cache
def steps() -> tuple[ClassStep, ...]:
    """Return the steps of the plan; a part that nothing is computed of is a question to talk about."""
    return tuple(step for part in CLASS for step in steps_of(part))


@functools.cache
def questions() -> tuple[Question, ...]:
    """Return the questions of the plan, in its order; each links to the lesson's step."""
    return tuple(step.question for step in steps() if step.question)


def steps_of(part: PlanPart) -> list[ClassStep]:
    """Return the steps of a part: what comes before, and the lesson's step."""
    link = lesson_link(part.lesson, part.step)
    link += f"&learn_predict_seed={SEED}" * (part.lesson == "predict")
    if isinstance(part.before, str):
        asking, before = 1, [ClassStep(part.before, 1)]
    else:
        asking = (part.minutes - part.minutes // 2) // len(part.before)
        before = [ClassStep("", asking, question=ask(link)) for ask in part.before]
    headline = LESSONS[part.lesson].steps[part.step].headline
    return [*before, ClassStep(headline, part.minutes - asking * len(before), view=link)]
