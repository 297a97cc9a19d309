"""Entity recall of lists and of answers."""

import json

import pytest
from raising import raising

import genpr
from genpr import DataError, UsageError
from genpr.evaluation.result import result_of


def write(path, text):
    path.write_text(text, encoding="utf-8")
    return path


ANSWERS = ['{"entities": ["cat"]}', '["狗", "cat"]', "I am not sure what I see", "[]"]


def test_answers_are_read_from_files(tmp_path):
    expected = write(tmp_path / "expected.csv", "image,expected\na,cat;dog\nb,狗\nc,cat\nd,car\n")
    lines = [json.dumps({"id": name, "answer": text}) for name, text in zip("abcd", ANSWERS, strict=True)]
    answers = write(tmp_path / "answers.jsonl", "\n".join(lines))
    result = genpr.score_entities(expected, answers, vocabulary={"dog": ["狗"], "cat": [], "car": []})
    assert result["entity.recall"] == pytest.approx((1 / 2 + 1 + 0) / 3)
    assert result["entity.failure_rate"] == 0.25
    (bad,) = result.entities.unreadable
    assert (bad.name, bad.answer) == ("c", ANSWERS[2])
    assert {item.code for item in result.notices} == {"unreadable-answers"}
    assert result_of(json.loads(result.to_json())) == result
    assert result.roles == ("prompts", "answers")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("f.jsonl", '{"image_id": "a", "found": ["cat"]}\n\n{"image_id": "b", "found": []}\n'),
        ("f.tsv", "id\tfound\na\tcat\nb\t[]\n"),
        ("f.json", '[{"file": "a", "output": "I see: [\\"cat\\"]"}, {"file": "b", "output": "[]"}]'),
        ("f.json", '{"b": [], "a": ["cat"]}'),
        ("f.csv", '\ufeffmodel,id,answer,cost\nx,a,"{""entities"": [""cat""]}",3\nx,b,[],4\n'),
    ],
)
def test_all_forms_of_answer_files_are_read(tmp_path, name, text):
    result = genpr.score_entities({"a": ["cat"], "b": ["dog"]}, write(tmp_path / name, text))
    assert (result["entity.recall"], result["entity.failure_rate"]) == (0.5, 0)
    assert result.metrics["entity.recall"].n_counted == 2


def test_answers_may_be_python_objects_in_order():
    result = genpr.score_entities([["cat"], ["dog"], {"bus"}, ["a"]], [("cat",), {"dog"}, ["BUS"], None])
    assert (result["entity.recall"], result["entity.failure_rate"]) == (1, 0.25)


@pytest.mark.parametrize(
    ("cell", "recall", "failed"),
    [("cat;dog", 1, 0), ("cat, dog", 1, 0), ("dog", 0.5, 0), ('["cat"]', 0.5, 0), (" ", None, 1)],
)
def test_cells_of_found_entities_are_lists_of_names(tmp_path, cell, recall, failed):
    quoted = cell.replace('"', '""')
    path = write(tmp_path / "f.csv", f'id,found\na,"{quoted}"\n')
    result = genpr.score_entities({"a": ["cat", "dog"]}, path)
    found = result["entity.recall"] if recall is not None else None
    assert (found, result["entity.failure_rate"]) == (recall, failed)


def test_entities_are_found_in_prompts(tmp_path):
    rows = "id,prompt,seed\n1,a cat on a hot dog,0\n2,a cat on a hot dog,1\n3,clouds,0\n"
    prompts = write(tmp_path / "prompts.csv", rows)
    answers = {"1": ["cat"], "2": ["hot dog", "dog", "moon"], "3": []}
    with pytest.raises(UsageError, match="needs a vocabulary"):
        genpr.score_entities(prompts, answers)
    result = genpr.score_entities(prompts, answers, vocabulary=["cat", "dog", "hot dog"])
    assert result["entity.recall"] == 0.5
    assert result["entity.precision"] == 0.75
    assert result.metrics["entity.recall"].n_counted == 1  # both are of one prompt
    assert result.entities.vocabulary == 3
    codes = {item.code: item.message for item in result.notices}
    assert "1 of 3 prompts" in codes["nothing-expected"]
    assert "moon" in codes["outside-vocabulary"]


def test_files_may_have_groups_and_exclusions(tmp_path):
    rows = ["id,expected,exclude,group", *(f"{i},cat,dog,{i // 4}" for i in range(40))]
    found = {str(i): ["cat", "dog"] if i % 8 == 0 else ["cat"] for i in range(40)}
    result = genpr.score_entities(write(tmp_path / "e.csv", "\n".join(rows)), found)
    assert result["entity.all_found"] == 35 / 40
    assert result["entity.precision"] == pytest.approx((35 + 2.5) / 40)
    assert result.metrics["entity.recall"].n_counted == 10
    excluded = genpr.score_entities({"a": ["cat"]}, {"a": ["cat", "dog"]}, exclude=["DOG"])
    assert excluded["entity.all_found"] == 0


def test_metadata_of_geneval_is_read(tmp_path):
    lines = [{"id": 0, "include": [{"class": "bench", "count": 1}], "prompt": "a photo of a bench"}]
    lines += [{"id": 1, "include": [{"class": "cat"}, {"class": "dog"}], "exclude": [{"class": "bus"}]}]
    path = write(tmp_path / "m.jsonl", "\n".join(map(json.dumps, lines)))
    result = genpr.score_entities(path, {"0": ["bench"], "1": ["cat", "dog", "bus"]})
    values = [result[f"entity.{name}"] for name in ("recall", "all_found", "precision")]
    assert values == [1, 0.5, pytest.approx(5 / 6)]


NAMES = ["dog", "salt and pepper", "Washington, D.C."]
CELLS = [";".join(NAMES), json.dumps(NAMES).replace('"', '""')]


@pytest.mark.parametrize("cell", CELLS, ids=range(2))
def test_expected_names_are_not_parsed(tmp_path, cell):
    path = write(tmp_path / "e.csv", f'id,expected\na,"{cell}"\n')
    result = genpr.score_entities(path, {"a": ["salt and pepper", "dog", "washington, d.c."]})
    assert (result["entity.recall"], len(result.entities.rows)) == (1, 3)


@pytest.mark.parametrize(
    ("found", "code"),
    [
        ({"a": []}, "answers-missing"),
        (dict.fromkeys("abcd", ()), "answers-unused"),
        ([[]] * 3, "ids-do-not-match"),
    ],
)
def test_ids_must_match(found, code):
    with raising(DataError, code):
        genpr.score_entities({"a": ["x"], "b": ["y"], "c": ["z"]}, found)


@pytest.mark.parametrize(
    ("name", "text", "code"),
    [
        ("f.jsonl", '{"id": "a", "answer": "x"}\n{"id": "b",', "bad-records"),
        ("f.csv", "id,color\na,red\n", "bad-records"),
        ("f.csv", "id,answer\n ,cat\n", "bad-records"),
        ("f.csv", "id,answer\na,cat\na,dog\n", "duplicate-ids"),
        ("f.xlsx", "x", "records-kind"),
    ],
)
def test_damaged_files_are_errors(tmp_path, name, text, code):
    with raising((DataError, UsageError), code):
        genpr.score_entities({"a": ["cat"]}, write(tmp_path / name, text))


@pytest.mark.parametrize(
    ("text", "vocabulary"),
    [
        ('{"id": "a", "expected": [{"x": 1}]}', None),
        ('{"id": "a", "expected": ["cat"]}\n{"id": "b", "prompt": "x"}', None),
        ('{"id": "a", "expected": ["horse"]}', ["cat"]),
        ('{"id": "a", "expected": ["cat"], "exclude": ["Cat"]}', None),
        ('{"id": "a", "prompt": 3}', ["cat"]),
    ],
    ids=range(5),
)
def test_invalid_expectations_are_errors(tmp_path, text, vocabulary):
    with raising(DataError, "bad-expectation"):
        genpr.score_entities(write(tmp_path / "e.jsonl", text), {"a": ["cat"]}, vocabulary=vocabulary)
