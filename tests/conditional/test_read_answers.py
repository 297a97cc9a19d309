"""Answers of language models are read where they can mean one thing only, and are told to be unreadable elsewhere."""

import json
import random
import time
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from genpr import read_entities
from genpr.conditional.parse_answers import Answer, Unreadable

with Path(__file__).with_name("answers.jsonl").open(encoding="utf-8") as file:
    CASES = [json.loads(line) for line in file]
"""Answers of language models: what they list, or the code of the reason why they cannot be read."""

SEEDS = [case["answer"] for case in CASES]
TOO_LONG = [
    "[" * 40_000,
    '{"a":' * 9_000,
    "cat, " * 2_000_000,
    "\n".join(f"- e{i}" for i in range(1_001)),
    ("[" + "1," * 400 + "1] ") * 60,
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["case"])
def test_answers_are_read_or_told_to_be_unreadable(case):
    found = read_entities(case["answer"])
    if "code" in case:
        assert isinstance(found, Unreadable), found
        assert found.code == case["code"]
        assert found.reason
    else:
        assert isinstance(found, Answer), found
        assert list(found.entities) == case["entities"]


@pytest.mark.parametrize("text", TOO_LONG, ids=range(5))
def test_what_is_too_long_is_unreadable(text):
    assert read_entities(text).code == "too-long"


@pytest.mark.parametrize(
    ("text", "repaired"),
    [
        ('{"entities": ["cat"]}', ()),
        ("{'entities': ['cat',]}", ("single quotes", "trailing comma")),
        ('{"animals": ["cat"]}', ("the list stood under 'animals'",)),
        ("{entities: [cat]}", ("keys without quotes", "names without quotes")),
        ('```\n["cat"]', ("code fence not closed",)),
        ('[{"name": "cat"}]', ("objects with names",)),
        ("- cat: a pet\n- dog: a pet", ("explanations left out",)),
        ('{"entities": ["a"\n"b"]}', ("missing comma",)),
        ('["none"]', ("a list with a word for none",)),
        (
            "{'entities': {'cat': True, 'dog': False}}",
            ("single quotes", "Python's None, True or False", "names with yes or no"),
        ),
    ],
    ids=range(10),
)
def test_repairs_are_told(text, repaired):
    assert read_entities(text).repaired == repaired


@pytest.mark.parametrize(
    ("text", "how"),
    [
        ('["cat"]', "JSON"),
        ('x ["cat"] y', "JSON with text around"),
        ('```\n["cat"]\n```', "JSON in a code fence"),
        ("- cat\n- dog", "bullet list"),
        ("1. cat\n2. dog", "numbered list"),
        ("a\nb", "lines"),
        ("a, b", "names with commas between"),
        ("Entities: a, b", "names behind a label"),
    ],
    ids=range(8),
)
def test_forms_are_told(text, how):
    assert read_entities(text).how == how


def test_a_name_alone_is_a_list_only_if_it_is_known():
    assert isinstance(read_entities("cat"), Unreadable)
    assert read_entities("Cat.", known=lambda name: name.lower() == "cat").entities == ("Cat",)
    assert isinstance(read_entities("Rate limit", known=lambda name: name == "cat"), Unreadable)
    assert isinstance(read_entities("ok", known=lambda _: True), Unreadable)


def test_and_is_split_where_it_is_known_how():
    parts, whole = (
        (lambda name: name in {"cat", "dog", "猫", "狗"}),
        (lambda name: name in {"salt and pepper", "salt", "pepper"}),
    )
    assert read_entities("The entities are: cat and dog.", known=parts).entities == ("cat", "dog")
    assert read_entities("实体：猫和狗", known=parts).entities == ("猫", "狗")
    assert read_entities("Entities: salt and pepper", known=whole).entities == ("salt and pepper",)
    assert read_entities("Entities: cat, salt and pepper", known=whole).entities == ("cat", "salt and pepper")
    assert read_entities("- cat and dog\n- a sofa", known=parts).entities == ("cat", "dog", "a sofa")
    assert isinstance(read_entities("Entities: cat and bird", known=parts), Unreadable)


def test_brackets_belong_to_a_name_where_it_is_known_with_them():
    known = {"Mercury (planet)", "Neil Armstrong", "Paris"}.__contains__
    text = "- Mercury (planet)\n- 尼尔 (Neil Armstrong)\n- Paris (city)\n- Moon (large)"
    names = ("Mercury (planet)", "尼尔 (Neil Armstrong)", "Paris", "Moon")
    assert read_entities(text, known=known).entities == names
    assert read_entities(text.replace("- ", "").replace("\n", ", "), known=known).entities == names
    assert read_entities('["Mercury (planet)", "Moon (large)"]').entities == (
        "Mercury (planet)",
        "Moon (large)",
    )


def test_words_for_more_are_names_where_they_are_known():
    assert read_entities("cat, others", known={"others"}.__contains__).entities == ("cat", "others")
    assert read_entities("猫、狗等", known={"狗"}.__contains__).entities == ("猫", "狗")
    assert read_entities("自由、平等", known={"平等"}.__contains__).entities == ("自由", "平等")


def test_yes_and_no_of_known_names():
    known = {"cat", "dog"}.__contains__
    assert read_entities('{"cat": true, "dog": "no"}', known=known).entities == ("cat",)
    assert isinstance(read_entities('{"success": true, "dog": false}', known=known), Unreadable)
    assert isinstance(read_entities('{"cat": true, "dog": "no"}'), Unreadable)


def test_parsed_json_is_read_like_its_text():
    assert read_entities({"result": {"实体": ["猫"]}}).entities == ("猫",)
    assert read_entities(("cat", "dog")).entities == ("cat", "dog")
    assert read_entities([{"name": "cat"}]).entities == ("cat",)


def test_names_come_once():
    assert read_entities('["Cat", "ｃａｔ", "cat ", "dog"]').entities == ("Cat", "dog")


def cyclic():
    found = []
    found.append(found)
    return found


@pytest.mark.parametrize(
    "answer",
    [None, 3, True, b"cat", object(), [object()], cyclic(), {"entities": b"x"}, float("nan"), {1: [2]}],
    ids=range(10),
)
def test_other_objects_are_unreadable(answer):
    assert isinstance(read_entities(answer), Unreadable)


@given(st.text(max_size=300) | st.text(alphabet="[]{}\"':,-*•1.\n `猫：、cat", max_size=200))
@settings(max_examples=150, deadline=None)
@example("[[]")
@example("{'a'")
def test_any_text_has_an_outcome(text):
    found = read_entities(text)
    assert isinstance(found, Answer | Unreadable)
    assert isinstance(read_entities({"entities": text}), Answer | Unreadable)


@given(st.lists(st.from_regex(r"\A[a-z]{3,8}[0-9]\Z"), min_size=2, max_size=6, unique=True))
@settings(max_examples=40, deadline=None)
def test_all_forms_of_a_list_read_the_same(names):
    forms = [
        json.dumps({"entities": names}),
        json.dumps({"x": {"实体": names}}, indent=2),
        str(names),
        "Entities: " + ", ".join(names),
        "实体：" + "、".join(names),
        "\n".join(f"- {name}" for name in names),
        "\n".join(f"{i}. {name}" for i, name in enumerate(names, 1)),
        "```\n" + json.dumps(names) + "\n```",
        "Sure:\n" + json.dumps([{"name": name} for name in names]) + "\nDone.",
    ]
    assert [read_entities(form).entities for form in forms] == [tuple(names)] * len(forms)


def mutated(seed, rng):
    letters = list(seed)
    for _ in range(rng.randint(1, 8)):
        place = rng.randrange(len(letters) + 1)
        kind = rng.randrange(4)
        if kind == 0:
            letters.insert(place, rng.choice("[]{}\"'`*-:：,，、。.\n \\“”‘’【】<>/()01aA猫#|·•\u200b\ud800"))
        elif kind == 1 and letters:
            del letters[place - 1]
        elif kind == 2:
            letters[place:place] = rng.choice(SEEDS)
        else:
            letters[place:place] = letters[: rng.randrange(40)] * rng.choice([1, 2, 30])
    return "".join(letters)[:100_000]


def fuzz(rounds, seed):
    """Mutated answers; the slowest of them in seconds of this process."""
    rng, slowest = random.Random(seed), 0.0
    for _ in range(rounds):
        text = mutated(rng.choice(SEEDS), rng)
        started = time.process_time()
        found = read_entities(text)
        slowest = max(slowest, time.process_time() - started)
        assert isinstance(found, Answer | Unreadable)
        if isinstance(found, Answer):
            assert all(name.strip() for name in found.entities)
    return slowest


def test_damaged_answers_have_an_outcome():
    assert fuzz(1_000, seed=0) < 0.5


@pytest.mark.parametrize(
    "text",
    [
        "[" * 10**6,
        "(" * 49_999,
        '"' * 49_999,
        "[" + "'a'," * 12_000 + "'b']",
        "**a " * 12_000,
        "a and " * 8_000,
        "- a\n" * 12_000,
        "a:" * 24_000,
        "```" * 16_000,
        "['" + "\\" * 49_000,
        "[ [" * 16_000,
        "{}" * 24_000,
        "- [ ] a\n" * 900,
        "cat " * 2_500_000,
        "- cat" + " " * 49_000 + "x\n- dog",
        "cat, dog" + " " * 49_000 + "x",
        "Entities: cat" + "\u3000" * 20_000 + "x",
        '["cat' + " " * 49_000 + 'x", "dog"]',
        "```" + " " * 49_000 + "x\n- dog\n```",
        "- cat" + "\u0301\u0316" * 10_000,
        "\n".join(f"- entity {i}" for i in range(1_000)),
        json.dumps([{"name": f"entity {i}"} for i in range(1_000)]),
    ],
    ids=range(22),
)
def test_no_answer_takes_long(text):
    started = time.process_time()
    assert isinstance(read_entities(text), Answer | Unreadable)
    assert time.process_time() - started < 0.3  # some 20 ms; machines differ
