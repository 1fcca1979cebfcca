"""Where tensors are written in a text of any kind: the largest groups of brackets that hold only numbers.

One pass over the tokens with a stack, without recursion. A group is judged when its bracket closes: it holds
only numbers and such groups; or it contains groups as a dictionary or a call does, and these are found; or it
mixes numbers with other words and can't be read.
"""

import re
from dataclasses import dataclass, field

from quantcore.tensors.text.brackets import CALL

_TOKEN = re.compile(
    r"""(?P<number>(?<![\w.])[+-]?(?:0x[0-9a-f]{1,16}(?:\.[0-9a-f]{0,16})?(?:p[+-]?[0-9]{1,5})?
        |(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:e[+-]?[0-9]+)?)(?:f32|f64|f16|[ful]{1,3})?(?![\w.]))
    |(?P<name>[A-Za-z_][\w.]{0,80})
    |(?P<open>[\[({])
    |(?P<close>[\])}])
    |(?P<comma>,)
    |(?P<colon>:)
    |(?P<other>\w{1,80}|[^\s\w])""",
    re.VERBOSE | re.IGNORECASE,
)
_PAIRS = {"[": "]", "(": ")", "{": "}"}
_NUMBERS = re.compile(r"nan|inf(?:inity)?", re.IGNORECASE)
_LINES = re.compile(r"[^\n]")
_KEYWORDS = frozenset(
    [
        "return",
        "in",
        "and",
        "or",
        "not",
        "if",
        "else",
        "elif",
        "yield",
        "print",
        "assert",
        "is",
        "lambda",
        "await",
        "case",
    ]
)


@dataclass
class NumberGroup:
    """Brackets that hold a tensor, or look like it, from ``start`` to ``end`` of the text.

    Attributes:
        kind: "call", "list" (or braces), "tuple", or "broken" for numbers among other words.
        inside: whether it is part of another expression: an argument, an entry of a dictionary.
        parts: the groups in it.
    """

    start: int
    end: int
    kind: str
    inside: bool = False
    parts: list["NumberGroup"] = field(default_factory=list)


@dataclass
class _Frame:
    start: int
    bracket: str = ""
    kind: str = "list"  # or "tuple", "call"; "applied": the arguments of any other call, or an index
    numbers: int = 0
    words: bool = False
    colon: bool = False
    parts: list[NumberGroup] = field(default_factory=list)
    loose: list[NumberGroup] = field(default_factory=list)  # in dictionaries and calls within these brackets


def groups(view: str) -> tuple[list[NumberGroup], str] | None:
    """Return the groups of a `code_view` from first to last, and the view without what is in brackets.

    None if the brackets do not match.
    """
    if sum(map(view.count, _PAIRS)) > sum(map(view.count, _PAIRS.values())):
        return None  # at once: of a hundred thousand brackets, the frames would take most of a second
    stack, last, kind = [_Frame(0)], -1, ""
    name_start, outside, rest = 0, 0, []
    for match in _TOKEN.finditer(view):
        frame, word, position = stack[-1], match.group(), match.start()
        before, kind = kind, match.lastgroup or ""
        touches = position == last and before in ("name", "close")
        last = match.end()
        if kind == "open":
            frame_kind, start = _opened(view, word, position, name_start if before == "name" else -1, touches)
            if len(stack) == 1:
                rest.append(view[outside:start])
            stack.append(_Frame(start, word, frame_kind))
        elif kind == "close":
            if len(stack) == 1 and word == ")" and view[position - 1].isalnum():
                continue  # 1) …
            if len(stack) == 1 or _PAIRS[frame.bracket] != word:
                return None
            stack.pop()
            _close(frame, last, stack[-1])
            if len(stack) == 1:
                rest.append(_LINES.sub(" ", view[frame.start : last]))
                outside = last
        elif kind == "number":
            frame.numbers += 1
        elif kind == "name":
            name_start = position
            called = view[last : last + 1] == "(" and CALL.fullmatch(word + "(") is not None
            frame.words |= not called and _NUMBERS.fullmatch(word) is None
        elif kind != "comma":
            frame.colon |= kind == "colon"
            frame.words = True
    root = stack.pop()
    if stack:
        return None
    return sorted(root.parts + root.loose, key=lambda group: group.start), "".join(rest) + view[outside:]


def _opened(view: str, bracket: str, position: int, name_start: int, touches: bool) -> tuple[str, int]:
    """Return the kind and the start of brackets that open; ``name_start``: of the name before them, or -1."""
    kind = "tuple" if bracket == "(" else "list"
    if not touches or bracket == "{":
        return kind, position
    name = "" if name_start < 0 else view[name_start:position]
    if name in _KEYWORDS and name != "print":
        return kind, position
    if bracket == "(" and name and CALL.fullmatch(name + "("):
        return "call", name_start
    return "applied", position


def _close(frame: _Frame, end: int, parent: _Frame) -> None:
    """Judge the brackets of a frame and hand what they hold to the frame around them."""
    kind, found = frame.kind, frame.parts + frame.loose
    mixed = frame.words or bool(frame.loose)
    if kind == "call":
        parent.parts.append(NumberGroup(frame.start, end, kind, parts=found))
    elif kind == "applied" or (frame.bracket == "{" and frame.colon):
        parent.loose += _within(found)
    elif not mixed:
        if frame.numbers or frame.parts:
            parent.parts.append(NumberGroup(frame.start, end, kind, parts=frame.parts))
    elif kind == "tuple" or not (frame.numbers or any(part.kind != "call" for part in frame.parts)):
        parent.loose += _within(found)
    else:
        if frame.numbers > 1 or found:
            parent.parts.append(NumberGroup(frame.start, end, "broken", parts=found))


def _within(found: list[NumberGroup]) -> list[NumberGroup]:
    for group in found:
        group.inside = True
    return found
