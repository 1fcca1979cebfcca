"""The words of students' phones: whole in every language, and all that phones ask for."""

import re
import unicodedata

from grid import for_each

from pages.learn.classroom import plan, questions
from pages.serving.classroom import phones, words
from quantcore.mistakes import MISTAKES
from quantcore.prediction import ASKED

TABLES = {"fixed": words.FIXED, "prompts": words.PROMPTS, "kinds": words.KINDS}
PAGE = phones._PAGE.decode()
LETTERS = {"zh": "CJK", "ko": "HANGUL"}


@for_each("table", TABLES)
@for_each("language", words.LANGUAGES)
def test_every_text_is_in_every_language(table, language):
    for key, texts in TABLES[table].items():
        text = getattr(texts, language)
        assert text.strip() == text != "", key
        assert re.findall(r"{\w*}|x̂", text) == re.findall(r"{\w*}|x̂", texts.en), key
        if language in LETTERS:
            assert any(LETTERS[language] in unicodedata.name(letter) for letter in text), key
        elif language != "en":
            assert text != texts.en or key == "divisor", key
    assert len({getattr(texts, language) for texts in TABLES[table].values()}) == len(TABLES[table])


def test_the_tables_have_what_phones_ask_for_and_no_more():
    script = PAGE[PAGE.index("<script>") :]
    for call in re.findall(r'words\(((?:[^()"]|"[^"]*")*)', script):
        asked_for = set(re.findall(r'"([^"]*)"', re.sub(r'"", "(prompts|kinds)"', "", call)))
        assert asked_for <= words.FIXED.keys(), call
    assert {key for key in words.FIXED if f'"{key}"' not in script} <= {"ended"}
    kinds = {m.in_answers.kind for m in MISTAKES.values() if m.in_answers}
    assert words.KINDS.keys() == kinds | {
        "not an integer",
        "off by one",
        "swapped",
        "too few digits",
        "wrong",
    }
    asked = {
        questions._prompt_key(a, many, whole) for a in ASKED for many in (1, 2) for whole in (True, False)
    }
    assert words.PROMPTS.keys() == asked | {question.asked for question in plan.questions() if question.asked}
    assert all(question.prompt == words.PROMPTS[question.asked].en for question in plan.questions())


def test_the_browser_translates_all_but_numbers_and_code():
    assert '<html lang="en">' in PAGE
    assert {re.search(r'id="(\w+)"', tag)[1] for tag in re.findall(r'<[^>]*translate="no"[^>]*>', PAGE) if "id=" in tag} == {
        "code", "language", "typed", "keys"}  # fmt: skip
