"""Answers of language models are parsed if they are unambiguous, and unreadable otherwise."""

import json
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


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["case"])
def test_answers_are_parsed_or_unreadable(case):
    found = read_entities(case["answer"])
    expected = Answer(tuple(case["entities"])) if "entities" in case else case["code"]
    assert (found if isinstance(found, Answer) else found.code) == expected, found


@pytest.mark.parametrize(
    ("known", "answer", "entities"),
    [
        ({"cat"}, "Cat", ["Cat"]),
        ({"猫"}, "猫", ["猫"]),
        ({"cat"}, "Rate limit", None),
        ({"salt and pepper"}, "cat, salt and pepper", ["cat", "salt and pepper"]),
        ({"cat", "dog"}, "cat and dog", None),
        ({"star wars: a new hope"}, "- Star Wars: A New Hope\n- Dune", ["Star Wars: A New Hope", "Dune"]),
        ({"washington, d.c."}, '["Washington, D.C."]', ["Washington, D.C."]),
    ],
)
def test_known_names_resolve_ambiguous_answers(known, answer, entities):
    found = read_entities(answer, known=lambda name: name.lower() in known)
    assert (list(found.entities) if isinstance(found, Answer) else None) == entities


def test_objects_are_parsed_as_their_text():
    assert read_entities({"result": {"实体": ["猫"]}}).entities == ("猫",)
    assert read_entities(("cat", "dog")).entities == ("cat", "dog")
    assert read_entities(["Cat", "ｃａｔ", "cat ", "dog"]).entities == ("Cat", "dog")
    cyclic = []
    cyclic.append(cyclic)
    for answer in (None, 3, b"cat", object(), [object()], cyclic, {"entities": b"x"}, {1: [2]}):
        assert isinstance(read_entities(answer), Unreadable)


PIECES = st.sampled_from([case["answer"] for case in CASES]) | st.text(max_size=5)
MARKS = st.text(alphabet="[]{}\"'`*-:：,，、。.\n \\“”【】<>/()01aA猫#|·•\u200b\ud800", max_size=6)


@st.composite
def damaged(draw):
    """Answers that are joined, truncated and mixed with special characters."""
    text = "".join(draw(st.lists(PIECES | MARKS, max_size=4)))
    for start in draw(st.lists(st.integers(0, len(text)), max_size=4)):
        text = text[:start] + draw(MARKS) * draw(st.integers(0, 9)) + text[start + draw(st.integers(0, 2)) :]
    return text


@given(damaged())
@settings(max_examples=400, deadline=None)
@example("[[]")
@example("{'a'")
def test_any_text_is_parsed_or_unreadable_within_half_a_second(text):
    started = time.process_time()
    for answer in (text, {"entities": text}):
        found = read_entities(answer)
        assert isinstance(found, Unreadable) or all(name.strip() for name in found.entities)
    assert time.process_time() - started < 0.5


@given(st.lists(st.from_regex(r"\A[a-z]{3,8}[0-9]\Z"), min_size=2, max_size=6, unique=True))
@settings(max_examples=40, deadline=None)
def test_all_forms_of_a_list_are_equivalent(names):
    forms = [
        json.dumps({"entities": names}),
        json.dumps({"x": {"实体": names}}, indent=2),
        ", ".join(names),
        "、".join(names),
        "\n".join(f"- {name}" for name in names),
        "\n".join(f"{i}. {name}" for i, name in enumerate(names, 1)),
        "```\n" + json.dumps(names) + "\n```",
        "Sure:\n" + json.dumps([[names]]) + "\nDone.",
    ]
    assert [read_entities(form).entities for form in forms] == [tuple(names)] * len(forms)


LONG = [
    *("[" * 10**6, "(" * 49_999, '"' * 49_999, "[" + "'a'," * 12_000 + "'b']", "**a " * 12_000),
    *("a:" * 24_000, "```" * 16_000, "['" + "\\" * 49_000, "[ [" * 16_000, "{}" * 24_000, "- [ ] a\n" * 900),
    *("[" + "-" * 49_000 + "1]", "[" + "1+" * 20_000 + "1]", "[" + "x[" * 180 + "]" * 180 + "]"),
    *("['a', " * 7_000, "- cat" + " " * 49_000 + "x\n- dog", "cat, dog" + "\u3000" * 20_000 + "x"),
    *("a and " * 8_000, "- cat" + "\u0301\u0316" * 10_000, '["cat' + " " * 49_000 + 'x", "dog"]'),
    *("```" + " " * 49_000 + "x\n- dog\n```", "<a>" * 8_000 + "</a>" * 8_000),
    *("{'a':[" * 4_000 + "]}" * 4_000, "\n".join(f"- entity {i}" for i in range(1_000))),
]
TOO_LONG = ['{"a":' * 9_000, "cat, " * 2_000_000, "- e\n" * 1_001]


@pytest.mark.parametrize("text", [*LONG, *TOO_LONG], ids=range(len(LONG) + len(TOO_LONG)))
def test_long_answers_are_parsed_within_a_time_limit(text):
    started = time.process_time()
    found = read_entities(text)
    assert time.process_time() - started < 0.3  # some 20 ms; machines differ
    assert found.code == "too-long" if text in TOO_LONG else isinstance(found, Answer | Unreadable)
