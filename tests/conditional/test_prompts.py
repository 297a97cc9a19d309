"""Prompts in files and Python objects, and the image that each belongs to."""

import os

import pytest
from raising import raising

from genpr.conditional.prompts import MAX_CHARACTERS, open_prompts
from genpr.errors import DataError, UsageError
from genpr.limits import TEXT_BYTES


def read(tmp_path, content, name="p.csv"):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return open_prompts(path)


def of(prompts, names, rows=None, total=None):
    """The texts of each image; a single text is not in a list."""
    found = prompts.match_all(names, rows or range(len(names)), total if total is not None else len(names))
    return [each[0] if len(each) == 1 else list(each) for each in found]


TWO = ["a/1.png", "b.png"]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("p.csv", "\ufeffa/1.png,a cat\r\nb.png, a dog \r\n\r\n"),
        ("p.csv", "file,prompt\na/1.png,a cat\nb.png,a dog"),
        ("p.csv", 'seed,Image ,CAPTION\n1,b.png,a dog\n2,"a\\1.png","a cat"\n'),
        ("p.csv", "图片,提示词\na/1.png,a cat\nb.png,a dog\n"),
        ("p.tsv", "a/1.png\ta cat\nb.png\ta dog\n"),
        ("p.tsv", "Prompt\tCategory\tChallenge\na cat\tx\ty\na dog\tx\ty\n"),
        ("p.jsonl", '{"file_name": "a/1.png", "text": "a cat"}\n\n{"text": "a dog", "file_name": "b.png"}\n'),
        ("p.jsonl", '{"prompt": "a cat"}\n{"prompt": "a dog"}\n'),
        ("p.json", '{"a/1.png": "a cat", "b.png": ["a dog"]}'),
        ("p.json", '[{"file": "a/1.png", "prompt": "a cat"}, {"file": "b.png", "prompt": "a dog"}]'),
        ("p.txt", "a cat\na dog\n\n"),
    ],
    ids=range(11),
)
def test_common_forms_of_prompt_files_are_read(tmp_path, name, content):
    prompts = read(tmp_path, content, name)
    assert of(prompts, TWO) == ["a cat", "a dog"]
    prompts.check_used(TWO)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("p.csv", 'a.png,one\nb.png,"a cat, a ""dog""\nand 猫"\na.png,two\n'),
        ("p.jsonl", '{"file": "a.png", "prompt": ["one", "two"]}\n{"file": "b.png", "prompt": "%s"}\n'),
        ("p.json", '{"a.png": ["one", "two"], "b.png": "%s"}'),
    ],
)
def test_one_image_may_have_several_prompts(tmp_path, name, content):
    content = content.replace("%s", 'a cat, a \\"dog\\"\\nand 猫')
    assert of(read(tmp_path, content, name), ["a.png", "b.png"]) == [["one", "two"], 'a cat, a "dog"\nand 猫']


def test_text_files_may_be_next_to_the_images_or_in_another_folder(tmp_path):
    (tmp_path / "sub").mkdir()
    files = {"a.txt": "a cat\n", "sub/b.txt": "one\n\n two\n", ".hidden.txt": "no", "a.png": ""}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    prompts = open_prompts(tmp_path)
    assert of(prompts, ["a.png", "sub/b.jpeg"]) == ["a cat", ["one", "two"]]
    prompts.check_used(["a.png", "sub/b.jpeg"])


def test_lists_and_mappings_are_prompts(tmp_path):
    prompts = open_prompts(["cat", ["dog", "hound"]])
    assert of(prompts, TWO) == ["cat", ["dog", "hound"]]
    assert open_prompts(prompts) is prompts
    assert of(open_prompts({"b.png": ("dog",), "a/1.png": "cat"}), TWO) == ["cat", "dog"]
    named = read(tmp_path, "a.png,cat\nb.png,dog\nc.png,owl\n")
    assert of(named, ["c.png"], [2], 3) == of(open_prompts(["cat", "dog", "owl"]), ["c.png"], [2], 3)
    for given in (3, b"cat"):
        with raising(UsageError, "records-kind"):
            open_prompts(given)
    for given in ([3], [[]], {"a": 1}, [b"cat"]):
        with raising(DataError, "prompts-damaged"):
            open_prompts(given)


@pytest.mark.parametrize(
    ("names", "code", "words"),
    [
        (["a.png", "b.png", "\x1b[2J.png"], "prompts-missing", "1 of 3 images have no prompt"),
        (["a.png"], "prompts-unused", r"prompts of 1 images that are not in the source: b\.png"),
        (["a.png", "B.png"], "prompts-missing", r"B\.png; a prompt without an image is of 'b\.png'"),
    ],
    ids=["missing", "unused", "case"],
)
def test_prompts_must_match_the_images(tmp_path, names, code, words):
    prompts = read(tmp_path, "a.png,cat\nb.png,dog\n")
    with pytest.raises(DataError, match=words) as caught:
        _ = of(prompts, names), prompts.check_used(names)
    assert caught.value.code == code
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    ("name", "content", "code"),
    [
        ("p.csv", "file,prompt\n", "prompts-damaged"),
        ("p.csv", "a.png,a cat, a dog\n", "prompts-damaged"),
        ("p.csv", 'a.png,"a cat\n', "bad-csv"),
        ("p.csv", "a.png,cat\nb.png, \n", "prompt-empty"),
        ("p.csv", "a.png,cat\na.png,cat\n", "prompt-repeated"),
        ("p.csv", b"a.png,\xe9t\xe9\n", "not-text"),
        ("p.csv", f"a.png,{'x' * (MAX_CHARACTERS + 1)}\n", "prompts-damaged"),
        ("p.txt", "cat\n\ndog\n", "prompt-empty"),
        ("p.txt", "", "prompts-damaged"),
        ("p.jsonl", '{"file": "a.png"}\n', "prompts-damaged"),
        ("p.jsonl", '{"prompt": "a"}\n{"prompt": "b", "file": "b.png"}\n', "prompts-damaged"),
        ("p.jsonl", '{"file": "a.png", "prompt": ["a", "a"]}', "prompt-repeated"),
        ("p.json", '{"a.png": "\\ud800"}', "prompts-damaged"),
        ("p.json", '{"a.png": 3}', "prompts-damaged"),
        ("p.json", '{"images": [], "annotations": [{"image_id": 1, "caption": "a"}]}', "prompts-damaged"),
    ],
    ids=range(15),
)
def test_damaged_prompt_files_are_errors(tmp_path, name, content, code):
    with pytest.raises(DataError) as caught:
        read(tmp_path, content, name)
    assert caught.value.code == code
    assert name in str(caught.value)
    assert str(caught.value).isprintable()


def test_missing_and_unsuitable_prompt_files_are_errors(tmp_path, monkeypatch):
    os.mkfifo(tmp_path / "pipe.csv")
    (tmp_path / "p.xlsx").write_text("x")
    monkeypatch.chdir(tmp_path)
    for path, code in {"none.csv": "path-not-found", "x" * 5000: "path-not-found", "a\0b": "path-not-found",
                       "pipe.csv": "path-not-found", "p.xlsx": "records-kind"}.items():  # fmt: skip
        with raising(UsageError, code):
            open_prompts(path)
    (tmp_path / "p.csv").write_text("a.png,a cat\n")
    os.truncate(tmp_path / "p.csv", TEXT_BYTES + 1)  # without using the disk
    with raising(DataError, "prompts-damaged"):
        open_prompts("p.csv")
