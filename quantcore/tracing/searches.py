"""What one of ggml's searches did for one element: its trials, and the codes of scale and min, as steps."""

import numpy as np

from quantcore.notation import write_call
from quantcore.qparams import search_of
from quantcore.quantization import Quantized
from quantcore.range_setting import MaxScale, Search
from quantcore.tracing.record import ElementNumbers, Level, Searched, Step
from quantcore.tracing.text import number, signed


def searched(result: Quantized, position: tuple[int, ...], index: tuple[int, ...]) -> Searched | None:
    """Return what the search did for the element at ``index`` of the blocked shape, in that group."""
    setting = result.scheme.range_setting
    if not isinstance(setting, Search):
        return None
    group = search_of(result.x, result.scheme, result.blocks, result.importance, position)
    levels = [None if coded is None else _level(coded, position) for coded in (result.scales, result.mins)]
    return Searched(setting, group, float(group.weights[index[-1] % result.block[-1]]), *levels)


def _level(coded: Quantized, position: tuple[int, ...]) -> Level | None:
    """Say how the scale or min at ``position`` was coded; None where it is only stored in half precision."""
    if coded.scales is None:
        return None
    block = tuple(i // b for i, b in zip(position, coded.block, strict=True))
    around = coded.x[tuple(slice(*span) for span in coded.blocks.bounds(block))].reshape(-1)
    raw = coded.params.raw
    assert raw is not None
    return Level(
        raw=float(coded.x[position]),
        setting=coded.scheme.range_setting,
        fmt=coded.scheme.format,
        extreme=float(around[around.abs().argmax()]),
        code=int(coded.codes[position]),
        unit=float(raw[block]),
        stored=float(coded.params.scale[block]),
    )


def search_steps(t: ElementNumbers) -> list[Step]:
    """Return the steps before the scale: the weight, the trials, and the codes of scale and min."""
    if t.search is None:
        return []
    group, setting = t.search.group, t.search.setting
    steps = [
        Step("weight w", f"{setting.weight.formula}, of {len(group.x)} elements", number(t.search.weight))
    ]
    steps += _trials_steps(t.search)
    for what, level in (("scale", t.search.of_scale), ("min", t.search.of_min)):
        if level is not None:
            steps += _level_steps(what, level)
    return steps


def _trials_steps(found: Searched) -> list[Step]:
    """Return the trial that a search took, its error, and the min that came with it."""
    group, name = found.group, write_call(found.setting).partition("(")[0]
    if group.best is None:
        steps = [Step("search", f"{name}: a group without a range has nothing to try", number(group.scale))]
    else:
        best, first = group.trials[group.best], group.trials[0]
        tried = best.tried if best.tried[0].isalpha() else f"1/s = {best.tried} / {found.setting.DIVISOR}"
        taken = f"{name}: trial {group.best + 1} of {len(group.trials)}, {tried}"
        worse = "" if group.best == 0 else f"; {number(float(first.error[0]))} for the first trial"
        error = f"Σ w · error of the {len(group.x)} elements{worse}"
        steps = [
            Step("search", taken, number(group.scale)),
            Step("search: error", error, number(float(best.error[0]))),
        ]
    if group.minimum is not None:
        steps.append(Step("search: min", "from the same trial", number(group.minimum)))
    return steps


def _level_steps(what: str, level: Level) -> list[Step]:
    nmax = 1 << (level.fmt.bits - 1) if level.fmt.signed else int(level.fmt.qmax)
    of = f"{what}s of the super-block"
    d = "d" if what == "scale" else "dmin"
    extreme, setting = signed(level.extreme), level.setting
    if not isinstance(setting, MaxScale):
        formula = f"{write_call(setting)}, searched over the {of}"
    elif level.unit == 0:
        formula = f"quantized as 0, since the {of} are 0"
    elif not level.fmt.signed:
        formula = f"the largest of the {of} / {nmax} = {extreme} / {nmax}"
    elif setting.reciprocal:
        formula = f"1 / (-{nmax} / the extreme of the {of}) = 1 / (-{nmax} / {extreme})"
    else:
        formula = f"the extreme of the {of} / -{nmax} = {extreme} / (-{nmax})"
    steps = [
        Step(d, formula, number(level.unit)),
        Step(f"{d}, stored", f"{number(level.unit)} quantized to half precision", number(level.stored)),
    ]
    if isinstance(setting, MaxScale) and level.unit:
        inverse = np.float32(-nmax if level.fmt.signed else nmax) / np.float32(level.extreme)
        low, high = (-nmax, nmax - 1) if level.fmt.signed else (0, nmax)
        how = f"clamp(round({signed(level.raw)} · {signed(float(inverse))}), {low}, {high})"
    else:
        how = f"{formula if isinstance(setting, MaxScale) else 'quantized by the same search'}"
    return [*steps, Step(f"{what} code", how, number(level.code))]
