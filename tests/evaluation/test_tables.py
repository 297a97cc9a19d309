"""Tables of image values: one reader for all formats, and matching of names."""

import json

import pytest
from raising import raising

from genpr.errors import DataError
from genpr.evaluation.tables import ImageValues, TableFormat, names_like, read_table

FORM = TableFormat(
    what="scores",
    code="bad-scores-file",
    fields={"id": "id filename", "score": "score value", "note": "note"},
    main="score",
    text="note",
    headless=("id", "score"),
)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("t.csv", "a,1\nb,2\n,\n"),
        ("t.csv", "File_Name,x,VALUE\na,0,1\nb,0,2"),
        ("t.tsv", "value\tid\n1\ta\n2\tb\n"),
        ("t.jsonl", '{"file-name": "a", "Score": "1"}\n\n{"id": "b", "value": "2"}\n'),
        ("t.json", '[{"id": "a", "score": "1"}, {"id": "b", "score": "2"}]'),
    ],
    ids=range(5),
)
def test_all_formats_give_the_same_rows(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    rows = read_table(tmp_path / name, FORM)
    assert [(row.values["id"], row.values["score"]) for row in rows] == [("a", "1"), ("b", "2")]


def test_texts_in_a_mapping_have_a_separate_field(tmp_path):
    path = tmp_path / "t.json"
    path.write_text(json.dumps({"a": 1, "b": "none"}))
    rows = [dict(row.values) for row in read_table(path, FORM)]
    assert rows == [{"id": "a", "score": 1}, {"id": "b", "note": "none"}]


@pytest.mark.parametrize(
    ("name", "text", "code"),
    [
        ("t.csv", "a,1\nb\n", "bad-scores-file"),
        ("t.csv", "\n", "bad-scores-file"),
        ("t.csv", 'a,"1\n', "bad-csv"),
        ("t.csv", "a,\0\n", "bad-scores-file"),
        ("t.json", '{"a": 1, "a": 2}', "bad-scores-file"),
        ("t.json", "[3]", "bad-scores-file"),
        ("t.jsonl", "[" * 100_000, "bad-scores-file"),
    ],
    ids=range(7),
)
def test_damaged_tables_are_errors(tmp_path, name, text, code):
    (tmp_path / name).write_text(text)
    with raising(DataError, code):
        list(read_table(tmp_path / name, FORM))


@pytest.mark.parametrize(
    ("names", "known", "form"),
    [
        (["x/a.png", "y/b.png"], {"x/a.png", "y/b.png"}, ["x/a.png", "y/b.png"]),
        (["x\\a.png", "./y/b.png"], {"x/a", "y/b"}, ["x/a", "y/b"]),
        (["x/a.png", "y/b.png"], {"a.png", "b.png"}, ["a.png", "b.png"]),
        (["x/a.png", "y/b.png"], {"a", "b"}, ["a", "b"]),
        (["x/a.png", "y/b.png"], {"x/a.png", "b"}, ["x/a.png", "y/b.png"]),
        (["x/a.png", "y/a.png"], {"a.png"}, ["x/a.png", "y/a.png"]),
        (["a.png", "a.jpg"], {"a"}, ["a.png", "a.jpg"]),
    ],
    ids=["paths", "stems", "files", "file stems", "a tie is of paths", "shared files", "shared stems"],
)
def test_names_are_matched_to_the_form_of_the_table(names, known, form):
    assert names_like(names, known) == form


def test_values_belong_to_names_or_to_rows():
    named = ImageValues({"a": 1, "b": 2}, "x", "score")
    assert named.match(["b.png", "c.png"], [0, 1], 2) == [2, None]
    assert ImageValues((1, 2, 3), "x", "score").match(["[2]", "[0]"], [2, 0], 3) == [3, 1]
    for rows, total in (([0], 2), ([0], 4), ([3], None)):
        with raising(DataError, "score-count"):
            ImageValues((1, 2, 3), "x", "score").match(["n"], rows, total)
