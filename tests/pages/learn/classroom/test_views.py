"""What the projector shows: counts, both votes, and text that is never markup."""

import dataclasses
import html
import re
from collections import Counter

from grid import for_each

import quantcore as qc
from pages.learn.classroom import plan, views
from pages.learn.classroom.questions import ask_about
from pages.learn.classroom.results import NO_MISTAKE
from pages.serving.classroom import Board, ClassStep, Round, Tally
from quantcore.prediction import NumberKey

RESULT = qc.apply(
    [[0.75, -1.25, 2.0, -0.1, 3.5, 0.5]], qc.Scheme.parse("int4 fixed(-3.5, 3.5) compressed_tensors")
)
ASKED = ask_about(RESULT, "codes")


def tally(phase, vote=1, **counts):
    columns = [Counter({right: counts.get("right", 0)}) for right in ASKED.right]
    columns[0] += Counter(counts.get("first", {}))
    return Tally(
        Round(vote, vote, phase, ASKED), sum(columns[0].values()), tuple(+counter for counter in columns)
    )


def text(body):
    return " ".join(html.unescape(re.sub("<[^>]*>", " ", body)).split())


def board(*votes, joined=9):
    return Board(joined, votes[-1].answered, votes[-1].round, ClassStep("", question=ASKED, id="a"), 0, 1)


def test_each_wrong_number_has_its_bar_and_its_mistakes():
    wrong = {value: [] for value, _, _ in ASKED.keys[0].wrong}
    for value, _, sentence in ASKED.keys[0].wrong:
        wrong[value].append(sentence)
    (value, sentences), *_ = wrong.items()
    votes = [tally("revealed", right=3, first={value: 2, "77": 1})]
    shown = text(views.scene(board(*votes), votes))
    assert "6 of 9 answered · revealed" in shown
    assert f"✓ {ASKED.right[0]}" in shown.replace("−", "-")
    assert f"✗ {value}" in shown.replace("−", "-")
    assert "50% right" in shown
    plain = shown.replace("−", "-")
    assert all(sentence in plain for sentence in sentences)
    assert f"{value} 2 students" in plain
    assert f"No known mistake {ASKED.fields[0]}: 77 (1)" in plain
    shares = re.findall(r"--qs-share:([\d.]+)%", views.scene(board(*votes), votes))
    assert shares[:4] == ["66.7", "50.0", "33.3", "16.7"]  # who answered; right; wrong


def test_of_two_votes_both_are_shown():
    votes = [tally("revealed", right=1, first={"77": 3}), tally("revealed", 2, right=3, first={"5": 1})]
    shown = text(views.scene(board(*votes), votes))
    assert "(vote 2)" in shown
    assert "25% → 75% right" in shown
    assert "3 → 0" in shown
    assert "0 → 1" in shown
    assert "Pale bars" in shown
    assert "Pale bars" not in text(views.scene(board(votes[0]), votes[:1]))


def test_answers_are_hidden_while_the_class_votes():
    votes = [tally("open", right=3, first={"91": 4})]
    hidden = views.scene(board(*votes), votes, "<b>join</b>")
    assert "91" not in hidden
    assert "qs-answer" not in hidden
    assert "<b>join</b>" in hidden
    assert hidden.count("qs-marked") == len(ASKED.fields)
    assert "91" in views.scene(board(*votes), votes, peek=True)


def unmarked(**counts):
    """The answers before they are revealed: the body of the page, and its first number's bars."""
    votes = [tally("open", **counts), tally("locked", 2, **counts)]
    body = views.scene(board(*votes), votes, "<b>join</b>")
    rows = re.findall(
        r'<div class="qs-given ([^"]*)"><b>(.*?)</b>',
        body.partition('class="qs-answer"')[2].partition('class="qs-answer"')[0],
    )
    return body, rows


def test_locked_answers_are_all_shown_and_nothing_tells_which_one_is_right():
    """Whatever is right: the page for answers that it is not among differs in nothing but the counts."""
    body, rows = unmarked(right=3, first={"91": 4, "88": 3})
    values = [value.replace("−", "-") for _, value in rows]
    assert values == sorted(["91", "88", ASKED.right[0]], key=float)
    assert {name for name, _ in rows} == {""}
    shown = text(body).replace("−", "-")
    assert not re.search("[✓✗]|right|mistake", shown)
    assert not [key.how for key in ASKED.keys if key.how in shown]
    assert "4 → 4" in shown
    assert "join" not in body
    _, rows = unmarked(first={"91": 4, "88": 3})
    assert ASKED.right[0] not in [value for _, value in rows]


def test_every_choice_is_shown_while_answers_are_locked():
    asked = dataclasses.replace(
        ASKED, fields=("answer",), keys=(NumberKey("1"),), choices=("up", "down", "to even"), part=None
    )
    votes = [Tally(Round(1, 1, "locked", asked), 2, (Counter({"1": 1, "2": 1}),))]
    shown = text(views.scene(board(*votes), votes))
    assert "A: up 0 B: down 1 C: to even 1" in shown
    assert "off by one" not in {mark.kind for mark in asked.reasons(0, "2")}


def test_rare_numbers_are_listed():
    votes = [tally("revealed", right=1, first={str(n): 50 - n for n in range(20, 28)})]
    shown = text(views.scene(board(*votes), votes))
    assert "also: 27 (23)" in shown
    assert f"No known mistake {ASKED.fields[0]}: 20 (30), 21 (29)" in shown.replace("−", "-")
    votes = [tally("locked", first={str(n): 50 - n for n in range(20, 29)})]
    assert "also: 27 (23), 28 (22)" in text(views.scene(board(*votes), votes))
    votes.append(tally("locked", 2, first={"28": 3}))
    assert "also: 26 (24 → 0), 27 (23 → 0)" in text(views.scene(board(*votes), votes))


def larger(*explained):
    """The size of what explains so many answers, beside the bars."""
    votes = [tally("revealed", right=1, first={known.value: 1 for known in explained})]
    return float(re.search(r"--qs-larger:([\d.]+)", views.scene(board(*votes), votes))[1])


def test_few_explanations_are_larger_and_bars_have_what_room_there_is():
    known = ASKED.keys[0].wrong
    assert larger() == max(views.LARGER)
    assert larger(known[0]) > 1
    assert larger(*known[:1]) >= larger(*known[:2]) >= larger(*known[:3])
    few, many = (
        [tally("revealed", right=1, first={str(n): 1 for n in range(20, last)})] for last in (21, 26)
    )
    lines = [float(re.search(r"--qs-lines:([\d.]+)", views.scene(board(*v), v))[1]) for v in (few, many)]
    assert lines[1] == lines[0] + 5


def test_explained_answers_stand_before_others():
    value = ASKED.keys[0].wrong[0].value
    votes = [tally("revealed", first={"77": 5, value: 1})]
    shown = text(views.scene(board(*votes), votes)).replace("−", "-")
    assert shown.index(f"{value} 1 student") < shown.index(f"No known mistake {ASKED.fields[0]}: 77 (5)")


def test_hyphens_stay_and_minus_signs_are_drawn():
    votes = [tally("open")]
    shown = text(views.scene(board(*votes), votes))
    assert "compressed-tensors" in shown
    assert "codes −8 to 7" in shown
    assert "0 of 9 answered" in shown


def test_the_size_of_a_table_is_told_to_its_style():
    """In lines and in characters, with one on either side of a cell: type is as large as the window allows."""
    for part in (ASKED.part, dataclasses.replace(ASKED.part, rows=("0", "1"), texts=ASKED.part.texts * 2)):
        shown = views.table(part)
        head, *rows = re.findall("<tr>(.*?)</tr>", shown)
        cells = re.findall("<t[hd].*?>(.*?)</t[hd]>", rows[0])
        assert head.count("<th>") == len(cells)
        assert f'"--qs-wide:{sum(len(cell) + 2 for cell in cells)};--qs-high:{1 + len(rows)}"' in shown


def test_text_is_never_markup():
    asked = type(ASKED)(
        **vars(ASKED) | {"prompt": "<img src=x>", "facts": "<b>", "fields": ("<i>",) * len(ASKED.fields)}
    )
    for phase in ("open", "revealed"):
        one = tally(phase, right=1)
        votes = [Tally(Round(1, 1, phase, asked), one.answered, one.counts)]
        shown = views.scene(board(*votes), votes)
        assert not re.search("<img|<b></|<i>", shown)
        assert "&lt;img src=x&gt;" in shown


def test_what_explains_many_answers_fills_pages_that_lose_nothing():
    wrong = {known.value: 1 for known in ASKED.keys[0].wrong} | {str(n): 1 for n in range(300, 340)}
    votes = [tally("revealed", right=1, first=wrong)]
    votes[0].counts[1].update({known.value: 2 for known in ASKED.keys[1].wrong})
    many = views.pages(votes)
    assert many >= 3
    every = [text(views.scene(board(*votes), votes, page=page)).replace("−", "-") for page in range(many)]
    assert f"✓ {ASKED.right[0]}" in every[0]
    assert "student" not in every[0]
    for page in every[1:]:
        assert "✓" not in page
    for i in (0, 1):
        for known in ASKED.keys[i].wrong:
            assert sum(known.sentence in page for page in every[1:]) >= 1, known
    assert "339 (1)" in every[-1]
    assert text(views.scene(board(*votes), votes, page=99)).replace("−", "-") == every[-1]
    assert views.pages([tally("revealed", right=5)]) == 1
    assert views.pages([tally("revealed", right=5, first={"77": 2})]) == 1


def test_a_text_is_shown_in_its_lines_and_never_as_markup():
    shown = views.text(ClassStep("<b>Why</b> -1", 3, "less memory\n\n-5 °C <i>cold</i>"))
    assert "<p>less memory</p><p>&nbsp;</p><p>−5 °C &lt;i&gt;cold&lt;/i&gt;</p>" in shown
    assert "<h1>&lt;b&gt;Why&lt;/b&gt; -1</h1>" in shown


@for_each("number", range(len(plan.questions())))
def test_the_example_has_only_answers_that_known_mistakes_give(number):
    shown = views.example(plan.questions()[number])
    assert NO_MISTAKE not in shown
    assert "24 of 24" in shown
    wrong = len(re.findall('class="qs-given qs-wrong"', shown))
    assert shown.count("<dt>") >= wrong  # each with what explains it
    assert wrong or not any(key.wrong for key in plan.questions()[number].keys)
    for card in shown.split('class="qs-answer"')[1:]:
        counts = [
            int(n) for n in re.findall(r"</div><span>(\d+)</span>", card.partition('class="qs-why"')[0])
        ]
        assert sum(counts) == 24
        assert counts[0] >= 16
