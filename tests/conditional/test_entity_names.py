"""Names that are one, vocabularies with aliases, and where they occur in texts."""

import time
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from genpr import DataError, UsageError, Vocabulary
from genpr.conditional.spacy_finder import find_with_spacy, vocabulary_from_spacy
from genpr.conditional.vocabulary import (
    CanonicalNames,
    NameMatcher,
    mark_word_edges,
    normalize_name,
    normalize_text,
)

ALIKE = {
    "case": ("NEIL Armstrong", "neil armstrong"),
    "sharp-s": ("STRASSE", "straße"),
    "spaces": ("  New \u00a0 York\n", "New York"),
    "full-width": ("Ｐｙｔｈｏｎ３", "Python3"),
    "half-width-kana": ("ﾈｺ", "ネコ"),
    "ligature": ("ﬁre hydrant", "fire hydrant"),
    "composed": ("café", unicodedata.normalize("NFD", "café")),
    "dot-katakana": ("尼尔・阿姆斯特朗", "尼尔·阿姆斯特朗"),
    "dot-bullet": ("尼尔•阿姆斯特朗", "尼尔·阿姆斯特朗"),
    "dot-half-width": ("尼尔･阿姆斯特朗", "尼尔·阿姆斯特朗"),
    "dot-spaced": ("尼尔 · 阿姆斯特朗", "尼尔·阿姆斯特朗"),
    "hyphen": ("t‑shirt", "t-shirt"),
    "apostrophe": ("rock ’n’ roll", "rock 'n' roll"),
    "quotes": ("“Mona Lisa”", "Mona Lisa"),
    "book-marks": ("《红楼梦》", "红楼梦"),
    "full-stop": ("cat.", "cat"),
    "chinese-stop": ("猫。", "猫"),
    "zero-width": ("ca\u200bt", "cat"),
    "soft-hyphen": ("ele\u00adphant", "elephant"),
    "brackets": ("(cat)", "cat"),
}
UNLIKE = {
    "traditional": ("貓", "猫"),
    "plural": ("cats", "cat"),
    "accent": ("résumé", "resume"),
    "plus": ("C++", "C"),
    "sharp": ("C#", "C"),
    "dot-left-out": ("尼尔阿姆斯特朗", "尼尔·阿姆斯特朗"),
    "bracket-inside": ("mercury (planet)", "mercury"),
    "leading-dot": (".NET", "NET"),
}


@pytest.mark.parametrize("case", ALIKE)
def test_spellings_are_one(case):
    a, b = ALIKE[case]
    assert normalize_name(a) == normalize_name(b)


@pytest.mark.parametrize("case", UNLIKE)
def test_names_stay_apart(case):
    a, b = UNLIKE[case]
    assert normalize_name(a) != normalize_name(b)


def test_aliases_are_one_entity():
    people = Vocabulary.of({"尼尔·阿姆斯特朗": ["阿姆斯特朗", "Neil Armstrong"], "Buzz Aldrin": []})
    assert people.entities == ("尼尔·阿姆斯特朗", "Buzz Aldrin")
    assert people.canonical("阿姆斯特朗") == people.canonical("NEIL  ARMSTRONG") == "尼尔·阿姆斯特朗"
    assert people.find("阿姆斯特朗和尼尔・阿姆斯特朗, Neil Armstrong") == ("尼尔·阿姆斯特朗",)
    assert (len(people), list(people), "buzz aldrin" in people, "Collins" in people, 3 in people) == (
        2,
        ["尼尔·阿姆斯特朗", "Buzz Aldrin"],
        True,
        False,
        False,
    )


@pytest.mark.parametrize(
    "entities",
    [
        {"cat": ["pet"], "dog": ["pet"]},
        {"cat": ["dog"], "dog": []},
        {"Cat": [], "cat": []},
        {"dog": [], "cat": ["DOG"]},
    ],
    ids=range(4),
)
def test_alias_of_two_entities_is_refused(entities):
    with pytest.raises(DataError, match="stands for two entities") as caught:
        Vocabulary.of(entities)
    assert caught.value.code == "alias-conflict"


@pytest.mark.parametrize(
    "entities", [["..."], [3], {"cat": "pet"}, {"cat": [3]}, "cat", {3: []}], ids=range(6)
)
def test_what_is_no_vocabulary_is_refused(entities):
    with pytest.raises(DataError) as caught:
        Vocabulary.of(entities)
    assert caught.value.code == "bad-vocabulary"


def test_table_adds_aliases_to_a_closed_vocabulary():
    closed = Vocabulary.of(["cat", "dog", "阿姆斯特朗", "尼尔·阿姆斯特朗"])
    table = Vocabulary.of({"feline": ["cat", "kitty"], "尼尔·阿姆斯特朗": ["阿姆斯特朗"], "car": ["auto"]})
    found = closed.with_aliases(table)
    assert found.entities == ("feline", "dog", "尼尔·阿姆斯特朗")
    assert (found.canonical("Kitty"), found.canonical("car"), found.canonical("auto")) == (
        "feline",
        None,
        None,
    )
    with pytest.raises(DataError, match="stands for two"):
        Vocabulary.of({"cat": ["kitty"]}).with_aliases(Vocabulary.of({"dog": ["kitty"], "cat": []}))


FOUND = {
    "whole-words": ("category concatenates a cat", ["cat"], ("cat",)),
    "no-word": ("categories", ["cat"], ()),
    "longest": (
        "the New York Times in New York",
        ["New York", "New York Times", "Times"],
        ("New York Times", "New York"),
    ),
    "leftmost": ("new york state", ["new york", "york state"], ("new york",)),
    "chinese-within": ("我喜欢猫咪和狗", ["猫", "狗"], ("猫", "狗")),
    "chinese-longest": ("尼尔·阿姆斯特朗登月", ["阿姆斯特朗", "尼尔·阿姆斯特朗"], ("尼尔·阿姆斯特朗",)),
    "japanese": ("公園にネコがいる", ["ネコ", "公園"], ("公園", "ネコ")),
    "korean-particle": ("고양이가 잔다", ["고양이"], ("고양이",)),
    "thai": ("มีแมวอยู่", ["แมว"], ("แมว",)),
    "hindi-mark": ("बिल्लियाँ", ["बिल्ली"], ()),
    "mixed-scripts": ("用Python写", ["python"], ("python",)),
    "programming": ("C++, C# and C", ["C", "C++", "C#"], ("C++", "C#", "C")),
    "not-c": ("C++ only", ["C"], ()),
    "digits": ("iphone15 pro", ["iphone"], ()),
    "line-break": ("traffic\n  light", ["traffic light"], ("traffic light",)),
    "punctuation": ("(dog's), 'cat'!", ["dog", "cat"], ("dog", "cat")),
    "underscore": ("my_cat", ["cat"], ()),
    "order-once": ("dog cat dog", ["cat", "dog"], ("dog", "cat")),
    "nothing": ("", ["cat"], ()),
}


@pytest.mark.parametrize("case", FOUND)
def test_entities_are_found_in_text(case):
    text, names, entities = FOUND[case]
    assert Vocabulary.of(names).find(text) == entities


def plainly(names, text):
    """The definition: at each place the longest name, from left to right."""
    searched, found, place = mark_word_edges(normalize_text(text)), [], 0
    patterns = {mark_word_edges(normalize_name(name)): name for name in names}
    while place < len(searched):
        here = [each for each in patterns if searched.startswith(each, place)]
        if here:
            found.append(patterns[max(here, key=len)])
            place += len(max(here, key=len))
        else:
            place += 1
    return tuple(dict.fromkeys(found))


@given(
    st.lists(
        st.text(alphabet="ab猫狗 +", min_size=1, max_size=5).filter(normalize_name),
        min_size=1,
        max_size=8,
        unique_by=normalize_name,
    ),
    st.text(alphabet="ab猫狗 +", max_size=30),
)
@settings(max_examples=200, deadline=None)
def test_matching_is_the_definition(names, text):
    assert Vocabulary.of(names).find(text) == plainly(names, text)


def test_search_is_linear():
    names = {f"{'a' * i}": f"e{i}" for i in range(1, 400)} | {
        f"name {i} of many": f"n{i}" for i in range(10_000)
    }
    matcher = NameMatcher(names)
    started = time.process_time()
    assert list(matcher.find("猫" + "a" * 200_000)) == []  # every prefix of every name fails late
    assert len(list(matcher.find("name 77 of many, " * 5_000))) == 5_000
    assert time.process_time() - started < 5


def test_names_learn_and_forgive_brackets():
    names = CanonicalNames(Vocabulary.of({"dog": ["puppy"]}))
    assert names.register(["Cat", "puppy", "cat", "..."]) == ("Cat", "dog")
    assert names.match(["CAT (left)", "dog (a puppy)", "bird (blue)", "数 (cat)"]) == (
        "Cat",
        "dog",
        "bird (blue)",
    )
    assert names.match(["a cat", "Two dogs", "the puppy", "2 x cat"]) == ("Cat", "two dogs", "dog")
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
        "e.json": '{"cat": "kitty", "dog": []}',
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
        ("g.xlsx", "PK", UsageError, "vocabulary-kind"),
        ("h.csv", "cat,pet\ndog,pet\n", DataError, "alias-conflict"),
    ],
    ids=range(5),
)
def test_damaged_vocabularies_are_refused(tmp_path, name, text, error, code):
    with pytest.raises(error) as caught:
        Vocabulary.load(write(tmp_path, name, text))
    assert caught.value.code == code


def test_spacy_is_asked_for_when_it_is_missing(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "spacy", None)
    with pytest.raises(UsageError, match=r"genpr\[entities\]"):
        find_with_spacy("a cat", "en_core_web_sm")


def test_spacy_finds_entities():
    spacy = pytest.importorskip("spacy")
    pipeline = spacy.blank("en")
    ruler = pipeline.add_pipe("entity_ruler")
    ruler.add_patterns(
        [
            {"label": "PERSON", "pattern": "Neil Armstrong"},
            {"label": "PERSON", "pattern": "Armstrong"},
            {"label": "GPE", "pattern": "Ohio"},
        ]
    )
    text = "Neil Armstrong was from Ohio. Armstrong flew."
    assert find_with_spacy(text, pipeline) == ("Neil Armstrong", "Ohio", "Armstrong")
    assert find_with_spacy(text, pipeline, labels=["GPE"]) == ("Ohio",)
    table = Vocabulary.of({"Neil Armstrong": ["Armstrong"]})
    assert find_with_spacy(text, pipeline, aliases=table) == ("Neil Armstrong", "Ohio")
    assert vocabulary_from_spacy([text, "Ohio"], pipeline, labels=["GPE"]).entities == ("Ohio",)
    with pytest.raises(UsageError, match="no pipeline"):
        find_with_spacy(text, spacy.blank("en"))
