"""The plan of a class as its steps: each part's question first, and then the lesson's step that shows it."""

import functools
from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode

import numpy as np

import quantcore as qc
from pages.learn import material
from pages.learn.classroom.questions import ask_about, part_of, scheme_facts
from pages.learn.classroom.results import lesson_link
from pages.serving.classroom import ClassStep, Question
from pages.shared.lesson_plan import CLASS, LESSONS, PlanPart
from quantcore.prediction import NumberKey, shown

SEED = 5  # of the practice tensors: with a scale of 1, dividing and multiplying by it would look the same
TIE = [0.0, 0.2, 0.5, 0.9, 1.25, 2.2, 3.1, 4.6]  # 1.25 / 0.5 is a tie
READ = "uint3 asymmetric fixed(0, 100)"  # how the thermometer of the lesson on scales is read


@functools.cache
def steps() -> tuple[ClassStep, ...]:
    """Return the steps of the plan; a part that nothing is computed of is a question to talk about."""
    return tuple(step for part in CLASS for step in _steps(part))


@functools.cache
def questions() -> tuple[Question, ...]:
    """Return the questions of the plan, in its order; each links to the lesson's step."""
    return tuple(step.question for step in steps() if step.question)


def _steps(part: PlanPart) -> list[ClassStep]:
    asks = _QUESTIONS.get((part.lesson, part.step), ())
    link = lesson_link(part.lesson, part.step)
    link += f"&learn_predict_seed={SEED}" * (part.lesson == "predict")
    asking = (part.minutes - part.minutes // 2) // len(asks) if asks else 1
    headline = LESSONS[part.lesson].steps[part.step].headline
    before = [ClassStep("", asking, question=ask(link)) for ask in asks] or [ClassStep(part.ask, asking)]
    return [*before, ClassStep(headline, part.minutes - asking * len(before), view=link)]


def _apply(x: Any, scheme: str) -> qc.Quantized:
    return qc.apply(np.asarray(x, np.float32), qc.Scheme.parse(scheme))


def _about(x: Any, scheme: str, asked: str, *places: tuple[int, ...]) -> Callable[[str], Question]:
    return lambda link: ask_about(_apply(x, scheme), asked, link, places=places)


def _marks(link: str) -> Question:
    fmt = qc.Scheme.parse(READ).format
    assert isinstance(fmt, qc.IntFormat)
    bits, right = fmt.bits + 1, 2 ** (fmt.bits + 1) - 1
    facts = f"{fmt.bits} bits: {fmt.qmax + 1} marks, and {fmt.qmax} steps between them"
    key = NumberKey(f"{right}", how=f"{bits} bits have {right + 1} codes, and {right} steps between them.")
    return Question(
        "With one more bit, how many steps are between the marks?", facts, ("steps",), (key,), link=link
    )


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
        "Which reading is off by the most?",
        facts,
        ("reading",),
        (NumberKey(f"{worst}", how=how),),
        choices,
        link=link,
    )


def _one_sided(link: str) -> Question:
    result = _apply(material.RELU, "int4")
    fmt = result.scheme.format
    assert isinstance(fmt, qc.IntFormat)
    usable = fmt.qmax - max(fmt.qmin, 0) + 1
    how = f"x / s is never negative: of the codes {fmt.qmin} to {fmt.qmax}, 0 to {fmt.qmax} are left."
    return Question(
        "No value is negative. How many codes can they get?",
        " · ".join(scheme_facts(result, "codes")),
        ("codes that can occur",),
        (NumberKey(f"{usable}", how=how),),
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
        "How many of these rows become 0 as a whole?",
        " · ".join([*scheme_facts(result, "codes"), "one scale for the tensor"]),
        ("rows",),
        (NumberKey(f"{sum(zero)}", how=how),),
        link=link,
        part=part_of(result),
    )


def _tie(link: str) -> Question:
    """Ask for codes with a zero point, one of them of a tie; its own view shows it."""
    result = _apply(TIE, "int4 asymmetric fixed(-1, 6.5)")
    scheme = {"bits": 4, "mode": "asymmetric", "range": "fixed", "low": -1, "high": 6.5}
    view = {"src": "paste", "t": qc.tensors.encode(result.x.numpy()), **scheme}
    return ask_about(result, "codes", f"?{urlencode(view)}", places=[(4,), (5,)])


def _practice(asked: str) -> Callable[[str], Question]:
    def ask(link: str) -> Question:
        x, scheme = material.exercise(SEED, qc.Scheme(qc.INT4), asked)
        return ask_about(_apply(x.load(), str(scheme)), asked, link)

    return ask


_QUESTIONS: dict[tuple[str, str], tuple[Callable[[str], Question], ...]] = {
    ("scale", "marks"): (_marks,),
    ("scale", "code"): (_about(material.READINGS, READ, "codes"),),
    ("scale", "back"): (_back,),
    ("scale", "range"): (_about(material.READINGS, "uint3 asymmetric fixed(0, 80)", "error", (5,)),),
    ("zero_point", "one-sided"): (_one_sided,),
    ("zero_point", "asymmetric"): (
        _about(material.RELU, "int4 asymmetric fixed(-1, 4.6)", "zero_point"),
        _tie,
    ),
    ("predict", "codes"): (_practice("codes"),),
    ("granularity", "tensor"): (_zero_rows,),
    ("granularity", "rows"): (_about(material.OUTLIER_ROW, "int4 symmetric per_channel(0)", "scale"),),
    ("granularity", "cost"): (_about(np.ones((8, 64)), "int4 per_group(32)", "bits"),),
}
