"""From pasted code to what is found in it."""

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial

import torch

from quantcore.pasted import bounds
from quantcore.pasted.chain import SCALINGS
from quantcore.pasted.checks import check_codes, check_on, check_special
from quantcore.pasted.evaluation import CodeInputs
from quantcore.pasted.floats import check_floats
from quantcore.pasted.intended import RULES, confirmed, seen
from quantcore.pasted.kinds import CodeFinding, finding
from quantcore.pasted.own import OwnTensor, is_literal, own_tensor
from quantcore.pasted.packed import check_packing
from quantcore.pasted.quantizer import Quantizer, between, by_place
from quantcore.pasted.source import read_source
from quantcore.pasted.tables import check_values, table_line, table_name
from quantcore.pasted.values import Val
from quantcore.pasted.walk import Walk, probe
from quantcore.pasted.way_back import check_dequantize, check_signs
from quantcore.wording import count, joined

_NO_SCALE = ", but nothing scales the tensor before, so its codes are not checked."
_LISTED = 12  # statements that were not evaluated


@dataclass(frozen=True)
class CodeReading:
    """``text``: the text as pasted, of a notebook's file its code; ``findings``: mistakes and notes, by
    line; ``recognized``: what was recognized and checked; ``unread``: what was not evaluated; ``library``:
    library calls that quantize; ``lines_of_quantizers``: the line in which each quantizer scales x first;
    ``skipped``: the lines that are no Python: outputs, magics and prose; ``own_tensors``: the tensor of the
    code's own that each quantizer is given; None if it is given another; ``quantizers``: the quantizers on
    the first ordinary tensors, empty in a reading that comes from another process."""

    text: str
    findings: tuple[CodeFinding, ...]
    recognized: tuple[str, ...]
    unread: tuple[str, ...]
    library: tuple[str, ...] = ()
    lines_of_quantizers: tuple[int, ...] = ()
    skipped: tuple[int, ...] = ()
    own_tensors: tuple[OwnTensor | None, ...] = ()
    quantizers: tuple[Quantizer, ...] = field(default=(), compare=False, repr=False)

    @property
    def mistakes(self) -> tuple[CodeFinding, ...]:
        """The findings that are certainly mistakes."""
        return tuple(f for f in self.findings if f.certain)

    @property
    def notes(self) -> tuple[CodeFinding, ...]:
        """The findings that depend on the tensor, or on what the code does not show."""
        return tuple(f for f in self.findings if not f.certain)

    def with_findings(self, more: Iterable[CodeFinding]) -> "CodeReading":
        """Return the reading with what is found on one tensor, instead of notes on the same."""
        return replace(self, findings=in_order((*more, *self.findings)))

    @property
    def summary(self) -> str:
        """One sentence on what was found; without mistakes, only what was checked."""
        if self.mistakes and not self.lines_of_quantizers:
            return f"{count(len(self.mistakes), 'mistake')} in {lines_of(self.mistakes)}."
        if not self.lines_of_quantizers and self.library:
            return f"This code leaves rounding and clamping to the library: {joined(self.library)}."
        if not self.lines_of_quantizers and any(why.endswith(_NO_SCALE) for why in self.unread):
            return "No quantizer is recognized: the places in a table are those of a tensor without a scale."
        if not self.lines_of_quantizers and self.unread:
            return "No quantizer could be followed to its codes, because some lines are not evaluated."
        if not self.lines_of_quantizers:
            steps = "no steps that divide a tensor by a scale and then round it were found"
            return f"No quantizer is recognized: {steps}."
        checked = "; ".join(self.recognized)
        if not self.mistakes:
            return f"No known mistake found in: {checked}."
        return f"{count(len(self.mistakes), 'mistake')} in {lines_of(self.mistakes)}. Checked: {checked}."


def in_order(findings: Iterable[CodeFinding]) -> tuple[CodeFinding, ...]:
    """Return findings by line; of a kind and line the first one that is certain, if there is one."""
    kept: dict[tuple[str, int], CodeFinding] = {}
    for found in sorted(findings, key=lambda f: not f.certain):
        kept.setdefault((found.mistake, found.line), found)
    return tuple(sorted(kept.values(), key=lambda f: (f.line, not f.certain, f.mistake)))


def lines_of(findings: tuple[CodeFinding, ...]) -> str:
    """Return the lines of findings: ``line 3``, ``lines 3, 5 and 6``."""
    lines = [str(line) for line in sorted({f.line for f in findings})]
    return f"line{'s' * (len(lines) > 1)} {joined(lines)}"


def read_code(text: str, shape: tuple[int, ...] | None = None) -> CodeReading:
    """Evaluate a PyTorch or NumPy snippet on tensors of ours, and name the mistakes in its quantizer.

    The snippet is parsed, and its syntax tree walked by an interpreter of our own, with no import, no file
    and no attribute outside a fixed list.

    Args:
        shape: one more shape to try, for code that runs on no other.

    Raises:
        QuantError: the text is not Python, too long or nested too deeply, or takes too many steps or too much
            time.
    """
    source = read_source(text)
    text, tree = source.text, source.tree
    found: list[CodeFinding] = []
    # by what tells them apart: two variants, or turns of a loop, may lead to the same one
    quantizers: dict[tuple[object, ...], Quantizer] = {}
    tensors: dict[tuple[object, ...], OwnTensor | None] = {}
    end = time.thread_time() + bounds.SECONDS_IN_ALL
    probed = list(probe(partial(CodeInputs, text, tree, end=end), shape))
    for walks in probed:
        for q, own in _quantizers(walks):
            key = (*q.place[:3], q.kind, q.divisor, q.bounds, q.zero_point)
            if key not in quantizers and time.thread_time() <= end:
                codes = confirmed(q, list(check_codes(q)), walks)
                on_own = check_on(q, q.on["own"], "the code's own tensor") if "own" in q.on else ()
                back = check_values(q) if q.has_levels else check_dequantize(q)
                named = [val for _, _, val in walks["positive"].assigned]
                signs = check_signs(q, walks["positive"].vals, named)
                more = [*on_own, *codes, *back, *signs, *check_special(q)]
                if any(start <= q.codes[-1].index < end for start, end in walks["positive"].cut):
                    more = [replace(f, certain=False) for f in more]  # what follows its codes is not known
                found += [replace(f, quantizer=len(quantizers)) for f in more]
                quantizers[key], tensors[key] = q, own
    for line, name in dict.fromkeys(written for walks in probed for written in walks["positive"].written):
        clamp = name.startswith("clamp") or name == "an assignment"
        what = "This clamp" if clamp else f"{name.capitalize()} here"
        found.append(replace(finding("clamp_in_place", line, what=what), quantizer=0 if quantizers else None))
    found += [f for walks in probed for check in (check_floats, check_packing) for f in check(walks)]
    lines, first = source.lines, probed[0]["positive"]
    findings = [replace(f, source=lines[f.line - 1].strip()[:200]) for f in found]
    return CodeReading(
        text,
        in_order(findings),
        tuple(dict.fromkeys(part for q in quantizers.values() for part in _parts(q))),
        (*_unread(first), *_without_scale(first)),
        tuple(dict.fromkeys(f"{name} (line {line})" for line, name in first.library)),
        tuple(q.begin.line for q in quantizers.values()),
        source.skipped,
        tuple(tensors.values()),
        tuple(quantizers.values()),
    )


def _quantizers(walks: dict[str, Walk]) -> Iterator[tuple[Quantizer, OwnTensor | None]]:
    """Yield the code's quantizers, each on all ordinary tensors and on the special ones that show it, and the
    tensor of the code's own that it is given."""
    found = {name: by_place(walk.vals) for name, walk in walks.items()}
    first = walks["positive"]
    for place, seen_at in seen(first, found["positive"]).items():
        on = {name: chains[place] for name, chains in found.items() if place in chains}
        own = own_tensor(walks["own"], on["own"]) if "own" in on else None
        if "own" in on and not is_literal(on["own"]):
            del on["own"]
        if "negative" in on:
            yield Quantizer(on, place, first.given.flags, seen_at), own


def _parts(q: Quantizer) -> Iterator[str]:
    """Yield the parts of a quantizer that were checked, each with its line."""
    scales = torch.unique(q.factor).numel()
    shared = ", per-tensor" if scales == 1 else f", {scales} scales"
    known = q.kind not in ("unknown", "handed", "float")
    if q.scalings:
        yield f"scale (line {q.divided.line}) {q.formula}{shared if known else ''}"
    yield f"codes (line {q.round.line}) {_arithmetic(q)}"
    if q.table is not None and q.decode is not None:
        yield f"table{table_line(q)} {table_name(q.table)}"
    if q.clamp is not None:
        yield f"clamp (line {q.clamp.line}) {between(q.ends)}"
    if q.cast is not None:
        yield f"cast (line {q.cast.line}) {q.cast.dtype}"
    for step in q.zeros:
        if step.other.varies:
            yield f"zero point (line {step.added_line})"
    unscale = [s for s in q.back if s.op in SCALINGS]
    if unscale:
        yield f"dequantize (line {unscale[-1].line})"


def _arithmetic(q: Quantizer) -> str:
    """Return the order of division, rounding and zero point, with what conventions call it."""
    rule = RULES.get(q.rule, "rounded")
    product = "x · scale" if q.multiplied else "x · (1 / scale)" if q.kernel in "BD" else "x / scale"
    product = product if q.scalings else "x"
    if q.has_levels:
        return f"{q.round.dtype}({product})" if q.round.is_small_float else f"place of {product} in the table"
    shifted = [s for s in q.zeros if s.other.number != 0]
    if not shifted:
        return f"{rule}({product})"
    text = f"{rule}({product} + z)" if shifted[0] in q.early else f"{rule}({product}) + z"
    return f"{text}, in this order (kernel {q.kernel} of qc.Convention)" if rule == "round" else text


def _without_scale(walk: Walk) -> Iterator[str]:
    """Yield a sentence for each line that searches a table for what no step has scaled."""
    found: dict[int, str] = {}
    for val in (v for v in walk.vals if v.op == "level" and not v.learned):
        at: Val | None = val
        while at is not None and at.op not in SCALINGS:
            at = at.flow
        if at is None:
            found.setdefault(val.line, val.name)
    for line, name in found.items():
        yield f"Line {line}: `{name}` gives places in a table{_NO_SCALE}"


def _unread(walk: Walk) -> tuple[str, ...]:
    """Return the statements that could not be evaluated, one sentence each."""
    found: dict[int, str] = {}
    for line, why, refused in walk.unread:
        unchecked = ", so what depends on it is not checked" if refused else ""
        found.setdefault(line, f"Line {line}: {why}{unchecked}.")
    texts = [found[line] for line in sorted(found)]
    more = len(texts) - _LISTED
    if more <= 0:
        return tuple(texts)
    return (*texts[:_LISTED], f"{count(more, 'more line')} {'is' if more == 1 else 'are'} not evaluated.")
