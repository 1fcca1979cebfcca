"""From pasted code to the findings."""

import ast
import time
from collections.abc import Iterable, Iterator

import torch

from quantcore.pasted.bounds import SECONDS_IN_ALL
from quantcore.pasted.case import Case, Found, bound, closest, formula
from quantcore.pasted.checks_codes import check_codes, check_overflowing_zero
from quantcore.pasted.checks_dequantize import check_dequantize
from quantcore.pasted.forms import divided
from quantcore.pasted.kinds import KINDS
from quantcore.pasted.probes import Probed, given, ordinary, probe
from quantcore.pasted.quantizer import Chain, chains, other, type_limits
from quantcore.pasted.record import CodeFinding, CodeReading
from quantcore.pasted.repairs import confirmed
from quantcore.pasted.source import parse
from quantcore.pasted.trace import Trace, ancestors, numbers
from quantcore.wording import count

MOST = 1 << 16  # elements that a quantizer is followed on
_LISTED = 12  # statements that were not evaluated
_CASES = 24  # quantizers that are checked; a loop has one for each turn


def read_code(text: str, shape: tuple[int, ...] | None = None) -> CodeReading:
    """Evaluate a PyTorch or NumPy snippet on tensors of ours, and name the mistakes in its quantizer.

    The snippet is parsed, and its syntax tree walked by an interpreter of our own, with no import, no file and no
    attribute outside a fixed list.

    Args:
        shape: one more shape to try, for code that runs on no other.

    Raises:
        QuantError: the text is not Python, too long or nested too deeply, or takes too many steps or too much time.
    """
    text, tree = parse(text)
    found: dict[tuple[str, int], tuple[Found, int | None]] = {}
    cases: list[Case] = []
    end = time.thread_time() + SECONDS_IN_ALL
    probed = probe(tree, text, shape, end)
    for variant in probed:
        for case, chains_of in _cases(variant):
            if any(_same(case, c) for c in cases) or time.thread_time() > end:
                continue
            cases.append(case)
            for finding in _findings(case, variant, chains_of, tree, text, end):
                _keep(found, finding, len(cases) - 1)
    for line, name in (w for p in probed for w in p.ordinary[0].trace.written):
        _keep(found, _written(line, name), 0 if cases else None)
    lines = text.split("\n")
    findings = sorted((_finding(f, place, lines) for f, place in found.values()), key=lambda f: (f.line, not f.certain, f.kind))
    library = {f"{name} (line {line})": None for line, name in probed[0].ordinary[0].trace.library}
    return CodeReading(text, tuple(findings), _recognized(cases), _unread(probed), tuple(library), tuple(cases))


def _keep(found: dict[tuple[str, int], tuple[Found, int | None]], one: Found, place: int | None) -> None:
    kept = found.get((one.kind, one.line))
    if kept is None or (one.certain and not kept[0].certain):
        found[one.kind, one.line] = (one, place)


def _written(line: int, name: str) -> Found:
    what = "This clamp" if name.startswith("clamp") or name == "an assignment" else f"{name.capitalize()} here"
    return Found(
        "clamp-in-place", line,
        f"{what} modifies the caller's tensor: an error computed afterwards is measured against the changed tensor.",
        "Use the operation that returns a new tensor, such as clamp without an underscore.",
    )  # fmt: skip


Special = dict[str, Chain]


def _key(chain: Chain) -> tuple[int, int, int]:
    return chain.round.line, chain.stored.line, chain.end.line if chain.end is not None else 0


def _cases(variant: Probed) -> Iterator[tuple[Case, Special]]:
    """The quantizers of the code, each on all ordinary tensors and on the special ones that it can be found on."""
    found = [by_place(w.trace) for w in variant.ordinary]
    others = {name: by_place(w.trace) for name, w in variant.special.items()}
    for key in list(found[0])[:_CASES]:
        if all(key in f for f in found):
            yield Case([f[key] for f in found], key, variant.flags), {name: o[key] for name, o in others.items() if key in o}


def by_place(trace: Trace) -> dict[tuple[int, ...], Chain]:
    """The quantizers of an evaluation by the lines of their rounding, stored codes and dequantized values."""
    found: dict[tuple[int, ...], Chain] = {}
    for chain in chains(trace):
        if 1 < numbers(chain.data.value).numel() <= MOST:
            key: tuple[int, ...] = _key(chain)
            while key in found:
                key = (*key, 0)
            if len(key) < _CASES:
                found[key] = chain
    return found


def _same(a: Case, b: Case) -> bool:
    """Whether two variants of the arguments, or two turns of a loop, lead to the same quantizer."""
    def facts(case: Case) -> tuple[object, ...]:
        return case.place[:3], case.form.kind, closest(case.form.divisor), case.bounds, case.zero

    return facts(a) == facts(b)


def _findings(case: Case, variant: Probed, others: Special, tree: ast.Module, text: str, end: float) -> list[Found]:
    outlier = others.get("outlier")
    wide = Case([*case.chains, outlier]) if outlier is not None and case.form.kind in ("given", "handed") else case
    found = list(check_codes(wide))
    # in the second, the largest magnitude is negative
    found = confirmed(case, found, tree, [given(x, text, variant.flags, end) for x in ordinary(variant.shape)[:2]])
    return [*found, *check_dequantize(case), *_shown_by_probes(case, others)]


def _shown_by_probes(case: Case, others: Special) -> Iterator[Found]:
    """What does not show on an ordinary tensor."""
    if "one-sided" in others:
        yield from check_overflowing_zero(Case([others["one-sided"]]))
    if case.form.kind in ("given", "handed"):
        return
    tiny = others.get("subnormal")
    empty = [others[n].factor for n in ("zeros", "constant") if n in others]
    if any(bool((torch.eq(factor, 0) | ~factor.isfinite()).any()) for factor in empty):
        yield Found(
            "zero-scale", divided(case.chain).line,
            f"{formula(case)} is 0 where the range is empty, and x / 0 gives NaN or infinity.",
            "Keep the scale above 0: scale.clamp(min=1e-12) or np.maximum(scale, 1e-12).", False,
        )  # fmt: skip
    if tiny is not None:
        for scaling in tiny.scalings:
            for val in ancestors(other(scaling)):
                if val.op == "cast" and str(getattr(val.value, "dtype", "")).endswith("float16") and bool(((numbers(val.value) == 0) & (numbers(val.args[0].value) != 0)).any()):
                    yield Found(
                        "scale-in-float16", val.line,
                        "The scale is cast to float16, whose smallest number above 0 is 6e-8: a scale below half of that underflows to 0.",
                        "Keep scales in float32, or make sure they are large enough.", False,
                    )  # fmt: skip


def _finding(found: Found, place: int | None, lines: list[str]) -> CodeFinding:
    source = lines[found.line - 1].strip() if 0 < found.line <= len(lines) else ""
    kind = KINDS[found.kind]
    return CodeFinding(found.kind, found.line, source[:200], found.what, found.fix, found.certain, kind.lesson, kind.step, place)


def _recognized(cases: Iterable[Case]) -> tuple[str, ...]:
    found: dict[str, None] = {}
    for case in cases:
        found |= dict.fromkeys(_parts(case))
    return tuple(found)


def _parts(case: Case) -> Iterator[str]:
    """The parts of a quantizer that were checked, each with its line."""
    chain = case.chain
    count_ = torch.unique(chain.factor).numel()
    shared = "" if case.form.kind in ("unknown", "handed") else ", per-tensor" if count_ == 1 else f", {count_} scales"
    yield f"scale (line {divided(chain).line}) {formula(case)}{shared}"
    yield kernel(case)
    low, high, clamp, _ = case.clamped
    if clamp is not None:
        yield f"clamp (line {clamp.line}) {bound(low)}..{bound(high)}"
    if chain.cast is not None and type_limits(chain.cast.value):
        yield f"cast (line {chain.cast.line}) {case.dtype}"
    for step in chain.zeros:
        if other(step).varies and not case.random:
            yield f"zero point (line {other(step).line or step.line})"
    if chain.unscale:
        yield f"dequantize (line {chain.unscale[-1].line})"


def kernel(case: Case) -> str:
    """The order of division, rounding and zero point, with the letter of the convention's kernel."""
    chain = case.chain
    inverse = any(s.op == "mul" for s in chain.scalings)
    product = "x · (1 / scale)" if inverse else "x / scale"
    shifts = [s for s in chain.zeros if not (case.half and s in chain.before) and (other(s).varies or bool((numbers(other(s).value) != 0).any()))]
    before, after = any(s in chain.before for s in shifts), any(s in chain.post for s in shifts)
    name = chain.round.name
    rule = "half up" if case.half else "round" if name in ("round", "rint", "around") else name if name in ("floor", "ceil") else "truncate"
    letter = {(False, False): "A", (False, True): "C", (True, False): "B", (True, True): "D"}[inverse, before]
    text = f"{rule}({product} + z)" if before else f"{rule}({product}) + z" if after else f"{rule}({product})"
    named = f", kernel {letter}" if rule == "round" and (before or after) else ""
    return f"codes (line {chain.round.line}) {text}{named}"


def _unread(probed: list[Probed]) -> tuple[str, ...]:
    """The statements that no variant could evaluate, one sentence each."""
    found: dict[int, str] = {}
    for line, why, refused in probed[0].ordinary[0].trace.unread:
        sentence = why if why.endswith("checked") else f"{why}, so what depends on it is not checked"
        found.setdefault(line, f"Line {line}: {sentence}." if refused else f"Line {line}: {why}.")
    texts = [found[line] for line in sorted(found)]
    more = len(texts) - _LISTED
    return tuple([*texts[:_LISTED], f"{count(more, 'more line')} {'is' if more == 1 else 'are'} not evaluated."] if more > 0 else texts)
