"""A scheme's text reads back as the same scheme, and any text is either read or refused, without side effects."""

import itertools
import warnings

import pytest
from bounded import in_seconds
from grid import for_each
from parts import in_parts

import quantcore as qc
from quantcore.notation import split_words

FORMATS = [
    qc.IntFormat(bits, signed, narrow)
    for bits in (2, 3, 8, 16)
    for signed in (True, False)
    for narrow in (False, True)
]
GRANULARITIES = [
    qc.PerTensor(),
    qc.PerChannel(),
    qc.PerChannel(1),
    qc.PerChannel(-2),
    qc.PerGroup(32),
    qc.PerGroup(1, axis=0),
    qc.PerGroup(7, axis=-3),
    qc.PerBlock((2, 4)),
    qc.PerBlock((-1,)),
    qc.PerBlock((1, -1, 3)),
]
RANGE_SETTINGS = [
    qc.MinMax(),
    qc.Percentile(99),
    qc.Percentile(99.9),
    qc.Percentile(50.0000001),
    qc.Fixed(-1, 1),
    qc.Fixed(-0.1, 1e-45),
    qc.Fixed(-3.4e38, 1e22),
    qc.Given(0.1),
    qc.Given(1 / 3, -7),
    qc.Given(1e-40, 128),
    qc.Given(((0.1, 1e30), (3, 1.4e-45)), ((0, -1), (2**31 - 1, -(2**31)))),
]
CONVENTIONS = [qc.TEXTBOOK, qc.Convention.of("textbook", overflow="wrap")]


@in_parts(37)
@for_each("granularity", GRANULARITIES, ids=str)
@for_each("setting", RANGE_SETTINGS, ids=str)
def test_text_reads_back(granularity, setting, part):
    for fmt, symmetric, convention in part(itertools.product(FORMATS, (True, False), CONVENTIONS)):
        scheme = qc.Scheme(fmt, symmetric, granularity, setting, convention)
        text = str(scheme)
        assert qc.Scheme.parse(text) == scheme
        assert str(qc.Scheme.parse(text)) == text
        assert qc.Scheme.parse(" · ".join(reversed(split_words(text)))) == scheme


@pytest.mark.slow  # by default, each text that is read is the scheme again
def test_texts_are_distinct():
    schemes = [
        qc.Scheme(*choice)
        for choice in itertools.product(FORMATS, (True, False), GRANULARITIES, RANGE_SETTINGS, CONVENTIONS)
    ]
    assert len({str(scheme) for scheme in schemes}) == len(schemes)


@for_each(
    ("scheme", "text"),
    [
        (qc.Scheme(), "int8 symmetric per_tensor min_max textbook"),
        (
            qc.Scheme(qc.UINT4, False, qc.PerGroup(32), qc.Percentile(99.9)),
            "uint4 asymmetric per_group(32) percentile(99.9) textbook",
        ),
        (
            qc.Scheme(
                qc.IntFormat(8, narrow=True), True, qc.PerChannel(-1), qc.Given(0.5, 3), CONVENTIONS[1]
            ),
            "int8n symmetric per_channel(axis=-1) given(0.5, zero_point=3) textbook(overflow=wrap)",
        ),
        (
            qc.Scheme(granularity=qc.PerBlock((-1, 4)), range_setting=qc.Given(((0.5, 1e-3),))),
            "int8 symmetric per_block([-1,4]) given([[0.5,0.001]]) textbook",
        ),
    ],
)
def test_known_texts(scheme, text):
    assert str(scheme) == text
    assert qc.Scheme.parse(text) == scheme


@for_each(
    ("text", "scheme"),
    [
        ("", qc.Scheme()),
        ("  \n\t · ", qc.Scheme()),
        ("int4", qc.Scheme(qc.INT4)),
        ("min_max int4", qc.Scheme(qc.INT4)),
        ("int4 · asymmetric · per_group(size=32, axis=0)", qc.Scheme(qc.INT4, False, qc.PerGroup(32, 0))),
        ("per_group( 32 ,axis = -1 )", qc.Scheme(granularity=qc.PerGroup(32))),
        ("per_tensor()", qc.Scheme()),
        ("per_channel(1)", qc.Scheme(granularity=qc.PerChannel(1))),
        ("per_group(32.0)", qc.Scheme(granularity=qc.PerGroup(32))),
        ("textbook()", qc.Scheme()),
        ("textbook(overflow=saturate)", qc.Scheme()),
        ("given((0.5, 2))", qc.Scheme(range_setting=qc.Given((0.5, 2)))),
    ],
)
def test_texts_that_people_write(text, scheme):
    assert qc.Scheme.parse(text) == scheme


@for_each(
    ("text", "words"),
    [
        ("int4 int8", "gives its format twice"),
        ("symmetric asymmetric", "gives its symmetry twice"),
        ("per_tensor per_channel", "gives its granularity twice"),
        ("min_max percentile(99)", "gives its range setting twice"),
        ("textbook textbook", "gives its convention twice"),
        ("int99", r"outside 2\.\.16"),
        ("float32", "not a format"),
        ("per_group", "does not match the arguments of per_group"),
        ("per_group(1, 2, 3)", "does not match the arguments of per_group"),
        ("per_group(4, size=4)", "does not match the arguments of per_group"),
        ("per_group(size=4, size=5)", "names an argument twice"),
        ("per_group(0)", "group size must be 1 or more"),
        ("per_group(four)", "group size must be an integer"),
        ("per_group('4')", "not a number, a word or a list"),
        ("per_group(1e999)", "integer"),
        ("per_group(4j)", "not a number, a word or a list"),
        ("per_group(true)", "integer"),
        ("per_group(1+1)", "not a number, a word or a list"),
        ("per_block(4)", "list of lengths"),
        ("per_block([])", "list of lengths"),
        ("per_block([[2]])", "integer"),
        ("percentile(10)", "greater than 50"),
        ("percentile(nan)", "finite"),
        ("fixed(1,-1)", "low < high"),
        ("fixed(-inf,inf)", "not a number, a word or a list"),
        ("fixed(inf,1)", "finite"),
        ("given(0)", "positive"),
        ("given(-0.1)", "positive"),
        ("given(0.1, zero_point=0.5)", "integer"),
        ("given(0.1, zero_point=[1,[2.5]])", "integer"),
        ("textbook(overflow=explode)", "saturate or wrap"),
        ("textbook(overflow=[1])", "saturate or wrap"),
        ("textbook(name=evil)", "'name' is not a choice"),
        ("textbook(wrap)", "only named choices"),
        ("other(overflow=wrap)", "not a format"),
        ("int8(4)", "not a format"),
        ("symmetric(1)", "not a format"),
        ("per_group(4", "can't be read"),
        ("per_group)4(", "can't be read"),
        ("[", "can't be read"),
        ("per_group(*a)", "not a number, a word or a list"),
        ("per_group(**a)", "does not match the arguments"),
        ("per_group(**{})", "not a number, a word or a list"),
        ("per_group(size:=4)", "not a number, a word or a list"),
        ("a.b(4)", "not a format"),
        ("f(4)(5)", "not a choice"),
        ("[4]", "not a choice"),
        ("4", "not a choice"),
        ("'int8'", "not a choice"),
        ("None", "not a choice"),
        ("int8;int4", "can't be read"),
        ("int8\0", "can't be read"),
        ("\ud800", "."),
        ("日本", "not a format"),
    ],
)
def test_texts_that_are_no_scheme(text, words):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(qc.QuantError, match=words):
            qc.Scheme.parse(text)


HOSTILE = {
    "call": "__import__('os').system('touch {marker}')",
    "call in an argument": "per_group(__import__('os').system('touch {marker}'))",
    "call in a list": "per_block([open('{marker}','w')])",
    "open": "open('{marker}','w')",
    "lambda": "per_group((lambda: open('{marker}','w'))())",
    "comprehension": "per_block([open('{marker}','w') for a in [1]])",
    "walrus": "per_group((a := open('{marker}','w')))",
    "format string": "per_group(f\"{{open('{marker}','w')}}\")",
    "attribute": "given(scale.__class__.__mro__)",
    "dunder": "__class__",
    "await": "per_group(await a)",
    "power": "per_group(9**9**9**9)",
    "shift": "per_group(1<<1000000000)",
    "product": "per_block([1]*1000000000)",
    "many digits": "per_group(" + "9" * 5000 + ")",
    "digits beyond float64": "per_group(" + "9" * 400 + ")",
    "scale beyond float64": "given(" + "9" * 400 + ")",
    "zero point beyond float64": "given(1, zero_point=" + "9" * 400 + ")",
    "deep list": "per_block(" + "[" * 90 + "]" * 90 + ")",
    "deeper list": "per_block(" + "[" * 5000 + "]" * 5000 + ")",
    "open brackets": "(" * 50_000,
    "close brackets": ")" * 50_000,
    "signs": "given(" + "-" * 900 + "1)",
    "more signs": "given(" + "-" * 50_000 + "1)",
    "nots": "given(" + "not " * 5000 + "1)",
    "long name": "a" * 90_000,
    "too long": "int8 " * 30_000,
    "words": "int8 " * 15_000,
    "list": "per_block([" + "1," * 40_000 + "'a'])",
    "attributes": "a" + ".a" * 5000,
    "calls": "a" + "()" * 5000,
    "plus": "per_group(" + "1+" * 5000 + "1)",
    "newlines": "per_group(\n\n4\n,\n'a')",
    "comment": "per_group(4 # )",
    "backslash": "per_group(\\\n'q')",
}


@for_each("text", HOSTILE.values(), ids=HOSTILE)
def test_hostile_texts_are_refused_at_once(text, tmp_path):
    marker = tmp_path / "marker"
    with in_seconds(15), pytest.raises(qc.QuantError) as caught:
        qc.Scheme.parse(text.replace("{marker}", str(marker)))
    assert not marker.exists()
    assert len(str(caught.value)) < 300


def test_schemes_are_values():
    one, other = qc.Scheme.parse("int4 per_group(32)"), qc.Scheme(qc.INT4, granularity=qc.PerGroup(32))
    assert one == other
    assert hash(one) == hash(other)
    assert one != qc.Scheme(qc.INT4, granularity=qc.PerGroup(32, axis=0))
    with pytest.raises(AttributeError):
        one.symmetric = False


def test_overflow_is_one_of_two():
    for overflow in ("Wrap", "", None, 3):
        with pytest.raises(qc.QuantError, match="saturate or wrap"):
            qc.Convention.of("textbook", overflow=overflow)
