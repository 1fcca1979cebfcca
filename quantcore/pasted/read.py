"""From pasted code to what is found in it."""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import torch

from quantcore.pasted import bounds
from quantcore.pasted.case import Case, between
from quantcore.pasted.checks import check_codes, check_dequantize, check_special
from quantcore.pasted.intended import confirmed
from quantcore.pasted.kinds import CodeFinding, finding
from quantcore.pasted.probes import Probed, probe
from quantcore.pasted.quantizer import SCALINGS, Chain, chains, dtype_of, number_of, other
from quantcore.pasted.source import parse
from quantcore.pasted.trace import Trace
from quantcore.wording import count, joined

MOST = 1 << 16  # elements that a quantizer is followed on
_LISTED = 12  # statements that were not evaluated
_CASES = 24  # quantizers that are checked; a loop has one for each turn


@dataclass(frozen=True)
class CodeReading:
    """``text``: the code without prompts; ``findings``: mistakes and notes, by line;
    ``recognized``: what was recognized and checked; ``unread``: what was not evaluated;
    ``library``: library calls that quantize; ``quantizers``: the quantizers, on the first ordinary tensors."""

    text: str
    findings: tuple[CodeFinding, ...]
    recognized: tuple[str, ...]
    unread: tuple[str, ...]
    library: tuple[str, ...] = ()
    quantizers: tuple[Case, ...] = field(default=(), compare=False, repr=False)

    @property
    def mistakes(self) -> tuple[CodeFinding, ...]:
        """The findings that are certainly mistakes."""
        return tuple(f for f in self.findings if f.certain)

    @property
    def notes(self) -> tuple[CodeFinding, ...]:
        """The findings that depend on the tensor, or on what the code does not show."""
        return tuple(f for f in self.findings if not f.certain)

    @property
    def summary(self) -> str:
        """One sentence on what was found; without mistakes, only what was checked."""
        if not self.quantizers and self.library:
            return f"This code leaves rounding and clamping to the library: {joined(self.library)}."
        if not self.quantizers and self.unread:
            return "No quantizer could be followed to its codes, because some lines are not evaluated."
        if not self.quantizers:
            return "No quantizer is recognized: no steps that divide a tensor by a scale and then round it were found."
        checked = "; ".join(self.recognized)
        if not self.mistakes:
            return f"No known mistake found in: {checked}."
        return f"{count(len(self.mistakes), 'mistake')} in {lines_of(self.mistakes)}. Checked: {checked}."


def lines_of(findings: tuple[CodeFinding, ...]) -> str:
    """The lines of findings: ``line 3``, ``lines 3, 5 and 6``."""
    lines = [str(line) for line in sorted({f.line for f in findings})]
    return f"line{'s' * (len(lines) > 1)} {joined(lines)}"


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
    found: list[CodeFinding] = []
    cases: dict[tuple[object, ...], Case] = {}  # two variants, or turns of a loop, may lead to the same one
    end = time.thread_time() + bounds.SECONDS_IN_ALL
    probed = probe(tree, text, shape, end)
    for variant in probed:
        for case in _cases(variant):
            key = (*case.place[:3], case.form.kind, case.divisor, case.bounds, case.zero)
            if key not in cases and time.thread_time() <= end:
                # in the second, the largest magnitude is negative
                codes = confirmed(case, list(check_codes(case)), variant.ordinary[:2])
                more = [*codes, *check_dequantize(case), *check_special(case)]
                found += [replace(f, quantizer=len(cases)) for f in more]
                cases[key] = case
    written = dict.fromkeys(w for p in probed for w in p.ordinary[0].trace.written)
    found += [replace(_written(line, name), quantizer=0 if cases else None) for line, name in written]
    # of the same kind and line one is kept: the first one that is certain, if there is one
    order = sorted(range(len(found)), key=lambda i: (found[i].certain, -i))
    kept = {(found[i].kind, found[i].line): found[i] for i in order}.values()
    lines = text.split("\n")
    findings = [replace(f, source=lines[f.line - 1].strip()[:200]) for f in kept]
    first = probed[0].ordinary[0].trace
    return CodeReading(
        text,
        tuple(sorted(findings, key=lambda f: (f.line, not f.certain, f.kind))),
        tuple(dict.fromkeys(part for case in cases.values() for part in _parts(case))),
        _unread(first),
        tuple(dict.fromkeys(f"{name} (line {line})" for line, name in first.library)),
        tuple(cases.values()),
    )


def _written(line: int, name: str) -> CodeFinding:
    clamp = name.startswith("clamp") or name == "an assignment"
    return finding("clamp-in-place", line, what="This clamp" if clamp else f"{name.capitalize()} here")


def _cases(variant: Probed) -> Iterator[Case]:
    """The quantizers of the code, each on all ordinary tensors and on the special ones that it can be found on."""
    found, flags = [by_place(w.trace) for w in variant.ordinary], variant.ordinary[0].given.flags
    special = {name: by_place(w.trace) for name, w in variant.special.items()}
    for key in list(found[0])[:_CASES]:
        if all(key in f for f in found):
            others = {name: s[key] for name, s in special.items() if key in s}
            yield Case([f[key] for f in found], key, flags, others)


def by_place(trace: Trace) -> dict[tuple[int, ...], Chain]:
    """The quantizers of an evaluation by the lines of their rounding, stored codes and dequantized values."""
    found: dict[tuple[int, ...], Chain] = {}
    for chain in chains(trace):
        if 1 < chain.x.numel() <= MOST:
            end = chain.end.line if chain.end else 0
            key: tuple[int, ...] = (chain.round.line, chain.codes[-1].line, end)
            while key in found:
                key = (*key, 0)
            if len(key) < _CASES:
                found[key] = chain
    return found


def _parts(case: Case) -> Iterator[str]:
    """The parts of a quantizer that were checked, each with its line."""
    chain = case.chain
    scales = torch.unique(chain.factor).numel()
    shared = ", per-tensor" if scales == 1 else f", {scales} scales"
    known = case.form.kind not in ("unknown", "handed")
    yield f"scale (line {case.divided.line}) {case.formula}{shared if known else ''}"
    yield f"codes (line {chain.round.line}) {_arithmetic(case)}"
    if chain.clamp is not None:
        yield f"clamp (line {chain.clamp.line}) {between(*chain.ends)}"
    if chain.cast is not None:
        yield f"cast (line {chain.cast.line}) {dtype_of(chain.cast)}"
    for step in chain.zeros:
        if other(step).varies and not case.random:
            yield f"zero point (line {other(step).line or step.line})"
    unscale = [s for s in chain.back if s.op in SCALINGS]
    if unscale:
        yield f"dequantize (line {unscale[-1].line})"


def _arithmetic(case: Case) -> str:
    """The order of division, rounding and zero point, with the letter of the convention's kernel."""
    chain, rule = case.chain, case.rule
    product = "x · (1 / scale)" if case.kernel in "BD" else "x / scale"
    product = "x · scale" if case.form.multiplied else product
    early = [] if case.is_raised else case.early
    late = [s for s in chain.zeros if s not in case.early]
    if all(number_of(other(s)) == 0 for s in (*early, *late)):
        return f"{rule}({product})"
    before = any(number_of(other(s)) != 0 for s in early)
    text = f"{rule}({product} + z)" if before else f"{rule}({product}) + z"
    return f"{text}, kernel {case.kernel}" if rule == "round" else text


def _unread(trace: Trace) -> tuple[str, ...]:
    """The statements that could not be evaluated, one sentence each."""
    found: dict[int, str] = {}
    for line, why, refused in trace.unread:
        unchecked = ", so what depends on it is not checked" if refused else ""
        found.setdefault(line, f"Line {line}: {why}{unchecked}.")
    texts = [found[line] for line in sorted(found)]
    more = len(texts) - _LISTED
    if more <= 0:
        return tuple(texts)
    return (*texts[:_LISTED], f"{count(more, 'more line')} {'is' if more == 1 else 'are'} not evaluated.")
