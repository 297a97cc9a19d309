"""Normalization of names, vocabularies with aliases, and search in texts."""

import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from raising import raising

from genpr import DataError, UsageError, Vocabulary
from genpr.conditional.vocabulary import CanonicalNames, normalize_name

ALIKE = [
    ("NEIL Armstrong", "neil armstrong"),
    ("STRASSE", "straße"),
    ("  New \u00a0 York\n", "New York"),
    ("Ｐｙｔｈｏｎ３", "Python3"),
    ("ﬁre hydrant", "fire hydrant"),
    ("café", unicodedata.normalize("NFD", "café")),
    ("尼尔・阿姆斯特朗", "尼尔 · 阿姆斯特朗"),
    ("t‑shirt", "t-shirt"),
    ("rock ’n’ roll", "rock 'n' roll"),
    ("“Mona Lisa”", "(Mona Lisa)."),
]
UNLIKE = [("貓", "猫"), ("cats", "cat"), ("résumé", "resume"), ("mercury (planet)", "mercury")]


@pytest.mark.parametrize("names", [*ALIKE, *UNLIKE])
def test_names_are_equal_after_normalization(names):
    assert (normalize_name(names[0]) == normalize_name(names[1])) is (names in ALIKE)


def test_aliases_belong_to_one_entity():
    people = Vocabulary.of({"尼尔·阿姆斯特朗": ["阿姆斯特朗", "Neil Armstrong"], "Buzz Aldrin": []})
    assert people.entities == ("尼尔·阿姆斯特朗", "Buzz Aldrin")
    assert people.canonical("阿姆斯特朗") == people.canonical("NEIL  ARMSTRONG") == "尼尔·阿姆斯特朗"
    assert people.find("阿姆斯特朗和尼尔・阿姆斯特朗, Neil Armstrong") == ("尼尔·阿姆斯特朗",)
    assert (len(people), "buzz aldrin" in people, 3 in people) == (2, True, False)


CONFLICTS = [
    {"cat": ["pet"], "dog": ["pet"]},
    {"cat": ["dog"], "dog": []},
    {"Cat": [], "cat": []},
    {"dog": [], "cat": ["DOG"]},
]
NO_VOCABULARIES = [
    ["..."],
    [3],
    [{"cat": []}],
    {"cat": "pet"},
    {"cat": [3]},
    {"cat": [["pet"]]},
    "cat",
    {3: []},
]


@pytest.mark.parametrize("entities", [*CONFLICTS, *NO_VOCABULARIES], ids=range(12))
def test_invalid_vocabularies_are_errors(entities):
    with raising(DataError, "alias-conflict" if entities in CONFLICTS else "bad-vocabulary"):
        Vocabulary.of(entities)


@pytest.mark.parametrize(
    ("text", "names", "entities"),
    [
        ("category concatenates a cat", ["cat"], ("cat",)),
        ("the New York Times in York", ["New York", "New York Times", "York"], ("New York Times", "York")),
        ("new york state", ["new york", "york state"], ("new york",)),
        ("我喜欢猫咪和狗", ["猫", "狗"], ("猫", "狗")),
        ("用Python写", ["python"], ("python",)),
        ("C++, C# and C", ["C", "C++", "C#"], ("C++", "C#", "C")),
    ],
)
def test_entities_are_found_in_text(text, names, entities):
    assert Vocabulary.of(names).find(text) == entities


@pytest.mark.parametrize("texts", [("a", "b", " "), ("猫", "狗")], ids=["spaced", "unspaced"])
@given(data=st.data())
@settings(max_examples=100, deadline=None)
def test_search_equals_its_definition(texts, data):
    """At each place the longest name, from left to right; in scripts with spaces, only whole words."""
    words = st.text(alphabet=texts, min_size=1, max_size=5).filter(normalize_name)
    names = data.draw(st.lists(words, min_size=1, max_size=8, unique_by=normalize_name))
    text = " ".join(data.draw(st.text(alphabet=texts, max_size=30)).split())
    found, place = [], 0
    while place < len(text):
        here = [each for each in map(normalize_name, names) if text.startswith(each, place)]
        if texts[0] == "a":
            bounds = [(text[place - 1 : place], text[place + len(each) :][:1]) for each in here]
            here = [each for each, ends in zip(here, bounds, strict=True) if not "".join(ends).strip()]
        found += [max(here, key=len)] if here else []
        place += len(found[-1]) if here else 1
    assert list(map(normalize_name, Vocabulary.of(names).find(text))) == list(dict.fromkeys(found))


def test_expected_names_become_entities():
    names = CanonicalNames(Vocabulary.of({"dog": ["puppy"]}))
    assert names.register(["Cat", "puppy", "cat", "..."]) == ("Cat", "dog")
    assert names.match(["CAT.", "Puppy", "bird"]) == ("Cat", "dog", "bird")
    assert names.get("bird") is None


def write(folder, name, text):
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_vocabularies_are_read_from_files(tmp_path):
    expected = {"cat": "cat", "kitty": "cat", "dog": "dog"}
    for name, text in {
        "a.csv": "\ufeffentity,alias\ncat,kitty\ndog,\n",
        "b.csv": "cat,kitty,Cat\ndog\n",
        "c.tsv": "cat\tkitty\ncat\tkitty\ndog\n",
        "d.json": '{"cat": ["kitty"], "dog": []}',
    }.items():
        assert Vocabulary.load(write(tmp_path, name, text)).by_name == expected, name
    assert Vocabulary.load(write(tmp_path, "f.txt", "cat\n\n dog \nCAT\n")).entities == ("cat", "dog")
    assert Vocabulary.load(write(tmp_path, "g.json", '["cat", "dog"]')).entities == ("cat", "dog")


@pytest.mark.parametrize(
    ("name", "text", "error", "code"),
    [
        ("a.csv", ",kitty\n", DataError, "bad-vocabulary"),
        ("b.txt", "\n \n", DataError, "bad-vocabulary"),
        ("e.json", "3", DataError, "bad-vocabulary"),
        ("e.json", '{"cat": ["kitty"], "cat": ["pet"]}', DataError, "bad-vocabulary"),
        ("e.json", '["dog", ["cat"]]', DataError, "bad-vocabulary"),
        ("none.csv", None, UsageError, "path-not-found"),
        ("h.csv", "cat,pet\ndog,pet\n", DataError, "alias-conflict"),
    ],
    ids=range(7),
)
def test_damaged_vocabularies_are_errors(tmp_path, name, text, error, code):
    with raising(error, code):
        Vocabulary.load(tmp_path / name if text is None else write(tmp_path, name, text))
