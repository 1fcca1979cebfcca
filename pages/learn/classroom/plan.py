"""The plan's questions: steps of the lessons that ask for numbers, about the lessons' own tensors."""

import functools
from typing import Any

import numpy as np

import quantcore as qc
from pages.learn import material
from pages.learn.classroom.questions import ask_about
from pages.learn.classroom.results import lesson_link
from pages.serving.classroom import Question

SEED = 5  # of the practice tensors: with a scale of 1, dividing and multiplying by it would look the same


@functools.cache
def questions() -> tuple[Question, ...]:
    """The questions, in the order of the lessons' steps; each links to its step."""
    return (
        _question("scale", "code", "codes", material.READINGS, "uint3 asymmetric fixed(0, 100)"),
        _question("zero_point", "asymmetric", "zero_point", material.RELU, "int4 asymmetric fixed(-1, 4.6)"),
        _question("granularity", "rows", "scale", material.OUTLIER_ROW, "int4 symmetric per_channel(0)"),
        *(_exercise(step) for step in ("codes", "scale", "zero_point")),
    )


def _question(lesson: str, step: str, asked: str, x: Any, scheme: str, more: str = "") -> Question:
    result = qc.apply(np.asarray(x, np.float32), qc.Scheme.parse(scheme))
    return ask_about(result, asked, lesson_link(lesson, step) + more)


def _exercise(step: str) -> Question:
    """The lesson's question as it is when its link is opened."""
    tensor, scheme = material.exercise(SEED, qc.Scheme(qc.INT4), step)
    return _question("predict", step, step, tensor.load(), str(scheme), f"&learn_predict_seed={SEED}")
