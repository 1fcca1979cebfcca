"""Questions about a scheme's arithmetic: marks for answers, and tensors to practice on.

A wrong answer to "which code, scale or zero point?" is explained by repeating the arithmetic with one step
wrong, for each of `quantcore.mistakes.MISTAKES`, until one gives what was typed.

>>> from quantcore import INT4, Fixed, Scheme, apply
>>> result = apply([[0.5, -1.0], [2.0, 0.1]], Scheme.parse("int4"))
>>> [answer.kind for answer in mark(result, "codes", [(0, 0), (0, 1)], ["2", "-4"])]
['right', 'rounding']

An answer is right if it is right at the precision asked for, of the number that float32 arithmetic gives or
of the one that exact arithmetic with the numbers shown gives: 0.7385 / 7 is 0.1055, to three digits 0.105 and
0.106.

>>> key = number_key(apply([0.7385], Scheme.parse("int4")), "scale", (0,))
>>> [key.marks(text)[0].kind for text in ("0.105", "0.106", "0.1055", "0.107", "0.11")]
['right', 'right', 'right', 'wrong', 'too few digits']

The tensors have few digits and a scale that divides easily, yet ties, clipping and negative values:

>>> found = practice(INT4, symmetric=True, seed=0)
>>> result = apply(found.x, Scheme(INT4, range_setting=Fixed(found.low, found.high)))
>>> float(result.scale) == found.scale
True
"""

from quantcore.prediction.exact import shown
from quantcore.prediction.key import KnownWrong, Mark, NumberKey, as_typed, read
from quantcore.prediction.marking import (
    ASKED,
    DIGITS,
    check,
    correct_steps,
    mark,
    number_key,
    usual_answers,
)
from quantcore.prediction.practice import Practice, practice
