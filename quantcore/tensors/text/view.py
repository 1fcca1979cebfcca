"""What surrounds numbers in a paste, replaced by spaces: comments, strings, prompts, fences, tags.

Every view has the length and the lines of its text, so that a place in it is a place in the text.
"""

import re

# Every alternative is bounded, or takes all that it has searched, so that a hostile text takes linear time
_STRINGS = r"""
    |(?<!\w)(?:[rbfuRBFU]{1,2})?"[^"\n]{0,2000}"
    |(?<!\w)(?:[rbfuRBFU]{1,2})?'[^'\n]{0,2000}'"""
_QUOTED = r"""
    "{3}[\s\S]*?(?:"{3}|\Z)
    |\'{3}[\s\S]*?(?:\'{3}|\Z)
    |/\*[\s\S]*?(?:\*/|\Z)
    |\#(?!\s{0,9}define\b)[^\n]*"""
_LINES_OF_C = r"|//[^\n]*"
_MARKS = r"""
    ^[ \t]*(?:(?:>>>|In[ ]?\[[ \d*]{0,9}\]:)(?:[ \t]{0,9}(?:print\()?[A-Za-z_][\w.]{0,60}\)?[ \t]{0,9}$)?
        |Out[ ]?\[[ \d*]{0,9}\]:|\.{3}:|```[^\n]*)
    |\[\d{1,9}[ ]rows[ ]x[ ]\d{1,9}[ ]columns\]
    |(?:\b[Pp]arameter\ containing:)"""
_CONTINUED = r"|^\.\.\.(?=\s)"
_WRAPPER = r"<(?:tf\.\w{1,30}|\w{0,30}Variable\b)[^<>]{0,300}?\b(?:numpy|value)=\s{0,9}"
_TAGS = rf"""
    |{_WRAPPER}
    |<(?!tf\.|\w{{0,30}}Variable\b)/?[A-Za-z][^<>\n]{{0,200}}>"""
_WRAPPED_END = r"|(?<=[\])\d.])>(?=[ \t]*$)"  # of <tf.Tensor: …, numpy=3.5>
_COMMENT_MARKS = r"""
    |"{3}|\'{3}|/\*+|\*/|^[ \t]*(?:\#+(?!\s{0,9}define\b)|//+|%+|\*(?=\s))"""
_FLAGS = re.VERBOSE | re.MULTILINE
_SUFFIXED = re.compile(
    r"(?<![\w.])((?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:e[+-]?[0-9]+)?|0x[0-9a-f]+(?:\.[0-9a-f]*)?p[+-]?[0-9]+)"
    r"(_?(?:f32|f64|f16)|f|[ul]{1,3})(?=[\s,;()\[\]{}]|\Z)",
    re.IGNORECASE,
)
_BRACES = str.maketrans("{}", "[]")


def code_view(text: str) -> str:
    """Return the text without comments, strings, prompts and tags.

    >>> code_view(">>> x = [1, 2]  # of 'w'")
    '    x = [1, 2]          '
    """
    more = _LINES_OF_C if "{" in text else r"|^[ \t]*//[^\n]*"
    return _blanked(text, _QUOTED + "|" + _marks(text) + more + _STRINGS + _TAGS)


def inside_view(text: str) -> str:
    """Return the text with the contents of comments and long strings: only their marks are replaced.

    >>> inside_view("# [1, 2]")
    '  [1, 2]'
    """
    return _blanked(text, _marks(text) + _COMMENT_MARKS + _TAGS)


def numbers_view(view: str) -> str:
    """Return a view as `parse_brackets` reads it: brackets for braces, no suffixes of C and Rust.

    >>> numbers_view("{0.5f, 1u}")
    '[0.5 , 1 ]'
    """
    return _SUFFIXED.sub(lambda found: found[1] + " " * len(found[2]), view.translate(_BRACES))


def _marks(text: str) -> str:
    wrapped = re.search(_WRAPPER, text) is not None
    return _MARKS + (_CONTINUED if ">>>" in text else "") + (_WRAPPED_END if wrapped else "")


def _blanked(text: str, pattern: str) -> str:
    return re.sub(pattern, _spaces, text, flags=_FLAGS)


_STRING = re.compile(r"[rbfuRBFU]{0,2}['\"]")
_NOT_LINE = re.compile(r"[^\n]")


def _spaces(match: re.Match[str]) -> str:
    found = match.group()
    is_string = _STRING.match(found) is not None and found[:3] not in ('"""', "'''")
    return "'" + " " * (len(found) - 2) + "'" if is_string else _NOT_LINE.sub(" ", found)
