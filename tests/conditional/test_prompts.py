"""Prompts from where people keep them, and which image each belongs to."""

from __future__ import annotations

import json
import os

import pytest

from genpr.conditional.prompts import MAX_CHARACTERS, Prompt, open_prompts
from genpr.errors import DataError, UsageError
from genpr.evaluation.tables import ImageValues
from genpr.limits import TEXT_BYTES


def read(tmp_path, content, name="p.csv", images="x"):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return open_prompts(path, images)


def of(prompts, names, rows=None, total=None):
    """The texts of each image; one text stands for itself."""
    found = prompts.match(names, rows or range(len(names)), total if total is not None else len(names))
    prompts.check_complete(names, found)
    texts = [[prompt.text for prompt in each] for each in found]
    return [each[0] if len(each) == 1 else each for each in texts]


TWO = ["a/1.png", "b.png"]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("p.csv", "\ufeffa/1.png,a cat\r\nb.png, a dog \r\n\r\n"),
        ("p.csv", "file,prompt\na/1.png,a cat\nb.png,a dog"),
        ("p.csv", 'seed,Image ,CAPTION\n1,b.png,a dog\n2,"a\\1.png","a cat"\n'),
        ("p.csv", "Prompt,Category\na cat,animals\na dog,animals\n"),
        ("p.tsv", "a/1.png\ta cat\nb.png\ta dog\n"),
        ("p.tsv", "Prompt\tCategory\tChallenge\na cat\tx\ty\na dog\tx\ty\n"),
        (
            "p.jsonl",
            '{"file_name": "a/1.png", "text": "a cat"}\n\n{"text": "a dog", "file_name": "b.png", "seed": 3}\n',
        ),
        ("p.jsonl", '{"image": "b.png", "prompt": "a dog"}\n{"file": "a/1.png", "caption": ["a cat"]}\n'),
        ("p.jsonl", '{"prompt": "a cat"}\n{"prompt": "a dog"}\n'),
        ("p.json", '{"a/1.png": "a cat", "b.png": ["a dog"]}'),
        ("p.json", '[{"file": "a/1.png", "prompt": "a cat"}, {"file": "b.png", "prompt": "a dog"}]'),
        ("p.txt", "a cat\na dog\n\n"),
    ],
    ids=range(12),
)
def test_what_people_write(tmp_path, name, content):
    prompts = read(tmp_path, content, name)
    assert of(prompts, TWO) == ["a cat", "a dog"]
    prompts.check_used(TWO)


def test_a_prompt_may_hold_the_separator_a_line_end_and_any_script(tmp_path):
    prompts = read(tmp_path, 'a.png,"a cat, a ""dog""\nand 猫"\n')
    assert of(prompts, ["a.png"]) == ['a cat, a "dog"\nand 猫']


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("p.csv", "a.png,one\nb.png,other\na.png,two\n"),
        ("p.jsonl", '{"file": "a.png", "prompt": ["one", "two"]}\n{"file": "b.png", "prompt": "other"}\n'),
        (
            "p.jsonl",
            '{"file": "a.png", "prompt": "one"}\n{"file": "b.png", "prompt": "other"}\n{"file": "a.png", "prompt": "two"}',
        ),
        ("p.json", '{"a.png": ["one", "two"], "b.png": "other"}'),
        (
            "p.json",
            json.dumps(
                {
                    "images": [{"id": 4, "file_name": "a.png"}, {"id": 9, "file_name": "b.png"}],
                    "annotations": [
                        {"image_id": 4, "caption": "one"},
                        {"image_id": 9, "caption": "other"},
                        {"image_id": 4, "caption": "two "},
                    ],
                }
            ),
        ),
    ],
    ids=["csv", "json lines list", "json lines", "json", "coco"],
)
def test_several_prompts_of_one_image(tmp_path, name, content):
    assert of(read(tmp_path, content, name), ["a.png", "b.png"]) == [["one", "two"], "other"]


def test_relevance_and_group_are_optional(tmp_path):
    table = "file,prompt,relevance,group_id\na.png,one,3,x\na.png,two,,\nb.png,other,0.5,x\n"
    (one, two), (other,) = read(tmp_path, table).match(["a.png", "b.png"], range(2), 2)
    assert (one, two, other) == (Prompt("one", 3.0, "x"), Prompt("two"), Prompt("other", 0.5, "x"))
    lines = '{"file": "a.png", "prompt": "one", "relevance": 2, "group": 7}'
    assert read(tmp_path, lines, "p.jsonl").match(["a.png"], range(1), 1) == [(Prompt("one", 2.0, "7"),)]


class TestTextFiles:
    @pytest.fixture
    def folder(self, tmp_path):
        (tmp_path / "sub").mkdir()
        for name, text in [
            ("a.txt", "a cat\n"),
            ("sub/b.txt", "one\n\n two\n"),
            (".hidden.txt", "no"),
            ("a.png", ""),
        ]:
            (tmp_path / name).write_text(text)
        return tmp_path

    def test_beside_the_images(self, folder):
        prompts = open_prompts("beside", folder)
        assert of(prompts, ["a.png", "sub/b.jpeg"]) == ["a cat", ["one", "two"]]
        prompts.check_used(["a.png", "sub/b.jpeg"])

    def test_in_a_folder_of_their_own(self, folder):
        assert of(open_prompts(folder, "images"), ["sub/b.png", "a.jpg"]) == [["one", "two"], "a cat"]

    def test_texts_without_an_image_are_refused(self, folder):
        with pytest.raises(DataError) as caught:
            open_prompts(folder, "images").check_used(["a.png"])
        assert caught.value.code == "prompts-unused"

    def test_an_image_without_text_is_refused(self, folder):
        with pytest.raises(DataError) as caught:
            of(open_prompts("beside", folder), ["a.png", "c.v2.png"])
        assert caught.value.code == "prompts-missing"

    @pytest.mark.parametrize("images", ["images.zip", 3, None], ids=str)
    def test_beside_needs_a_folder(self, images):
        with pytest.raises(UsageError, match="need a folder of images"):
            open_prompts("beside", images)


def test_a_part_of_the_images_by_name_and_by_place(tmp_path):
    named = read(tmp_path, "a.png,cat\nb.png,dog\nc.png,owl\n")
    assert of(named, ["c.png"], [2], 3) == ["owl"]
    named.check_used(["a.png", "b.png", "c.png"])
    assert of(open_prompts(["cat", "dog", "owl"], "x"), ["c.png"], [2], 3) == ["owl"]


def test_programs_give_lists_and_mappings():
    assert of(open_prompts(["cat", ["dog", "hound"]], "x"), TWO) == ["cat", ["dog", "hound"]]
    assert of(open_prompts({"b.png": ("dog", "hound"), "a/1.png": "cat"}, "x"), TWO) == [
        "cat",
        ["dog", "hound"],
    ]
    kept = ImageValues((), "x", "prompt")
    assert open_prompts(kept, "x") is kept


@pytest.mark.parametrize("given", [3, b"cat", [3], [[]], {"a": 1}, [b"cat"]], ids=repr)
def test_what_is_no_prompt_is_refused(given):
    with pytest.raises(UsageError) as caught:
        open_prompts(given, "x")
    assert caught.value.code == "prompts-kind"


@pytest.mark.parametrize(
    ("names", "code", "words"),
    [
        (["a.png", "b.png", "c.png"], "prompts-missing", r"1 of 3 images have no prompt.*: c\.png"),
        (
            ["a.png"],
            "prompts-unused",
            r"prompts of 1 images that are not in the source: b\.png",
        ),
        (["a.png", "B.png"], "prompts-missing", r"B\.png; a prompt without an image is of 'b\.png'"),
    ],
    ids=["missing", "unused", "case"],
)
def test_other_images_than_prompts(tmp_path, names, code, words):
    prompts = read(tmp_path, "a.png,cat\nb.png,dog\n")
    with pytest.raises(DataError, match=words) as caught:
        _ = of(prompts, names), prompts.check_used(names)
    assert caught.value.code == code


@pytest.mark.parametrize(
    ("name", "content", "code"),
    [
        ("p.csv", "", "prompts-damaged"),
        ("p.csv", "file,prompt\n", "prompts-damaged"),
        ("p.csv", "a.png,a cat, a dog\n", "prompts-damaged"),
        ("p.csv", 'a.png,"a cat\n', "prompts-damaged"),
        ("p.csv", "a.png,cat\nb.png, \n", "prompt-empty"),
        ("p.csv", "a.png,cat\na.png,cat\n", "prompt-repeated"),
        ("p.csv", "file,prompt,relevance\na.png,cat,nan\n", "prompts-damaged"),
        (
            "p.jsonl",
            '{"file": "a.png", "prompt": "a", "relevance": ' + "9" * 400 + "}\n",
            "prompts-damaged",
        ),
        ("p.csv", b"a.png,\xe9t\xe9\n", "prompts-encoding"),
        ("p.csv", "a.png,cat\n".encode("utf-16"), "prompts-encoding"),
        ("p.csv", f"a.png,{'x' * (MAX_CHARACTERS + 1)}\n", "prompts-damaged"),
        ("p.txt", "cat\n\ndog\n", "prompt-empty"),
        ("p.jsonl", '{"file": "a.png"}\n', "prompts-damaged"),
        ("p.jsonl", '{"prompt": "a"}\n{"prompt": "b", "file": "b.png"}\n', "prompts-damaged"),
        ("p.jsonl", '{"file": "a.png", "prompt": ["a", "a"]}', "prompt-repeated"),
        ("p.jsonl", '{"file": 3, "prompt": "a"}', "prompts-damaged"),
        ("p.jsonl", '{"file": "a.png", "prompt": "a", "relevance": true}', "prompts-damaged"),
        ("p.jsonl", '{"file": "a.png", "prompt": "a", "group": [1]}', "prompts-damaged"),
        ("p.json", '{"a.png": "\\ud800"}', "prompts-damaged"),
        ("p.json", "[" * 100_000, "prompts-damaged"),
        ("p.json", '{"a.png": 3}', "prompts-damaged"),
        ("p.json", '{"a.png": "cat", "a.png": "dog"}', "prompt-repeated"),
        ("p.json", '{"images": [], "annotations": [{"image_id": 1, "caption": "a"}]}', "prompts-damaged"),
    ],
    ids=range(23),
)
def test_bad_files(tmp_path, name, content, code):
    with pytest.raises(DataError) as caught:
        read(tmp_path, content, name)
    assert caught.value.code == code
    assert name in str(caught.value)
    assert str(caught.value).isprintable()


def test_names_of_files_may_be_any_bytes(tmp_path):
    prompts = read(tmp_path, '{"file": "\\udcff.png", "prompt": "cat"}', "p.jsonl")
    assert of(prompts, ["\udcff.png"]) == ["cat"]


def test_hostile_names_and_texts_are_shown_harmless(tmp_path):
    with pytest.raises(DataError) as caught:
        of(read(tmp_path, '"\x1b[31m.png","\x1b]0;x\x07"\n'), ["\x1b[2J.png"])
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    "path", ["none.csv", "", "x" * 5000, "a\0b"], ids=["missing", "empty", "long", "nul"]
)
def test_no_such_file(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises((UsageError, DataError)) as caught:
        open_prompts(path, "x")
    assert caught.value.code in {"path-not-found", "prompts-damaged"}


def test_other_kinds_of_files(tmp_path):
    with pytest.raises(UsageError, match=r"unknown kind \(\.xlsx\)"):
        read(tmp_path, "x", "p.xlsx")


def test_files_without_end_and_too_large_ones_are_not_read(tmp_path):
    os.mkfifo(tmp_path / "pipe.csv")
    with pytest.raises(UsageError, match="there are no prompts"):
        open_prompts(tmp_path / "pipe.csv", "x")
    path = tmp_path / "p.csv"
    path.write_text("a.png,a cat\n")
    os.truncate(path, TEXT_BYTES + 1)  # without using the disk
    with pytest.raises(DataError) as caught:
        open_prompts(path, "x")
    assert caught.value.code == "prompts-damaged"


def test_a_file_that_may_not_be_read(tmp_path, monkeypatch):
    (tmp_path / "p.csv").write_text("a.png,cat\n")
    monkeypatch.setattr("os.open", lambda *_: (_ for _ in ()).throw(PermissionError(13, "Permission denied")))
    with pytest.raises(DataError, match="cannot be read"):
        open_prompts(tmp_path / "p.csv", "x")


def test_headings_may_be_chinese(tmp_path):
    prompts = read(tmp_path, "图片,提示词\na.png,一只猫\n", "p.csv")
    assert list(prompts.by_name) == ["a.png"]
