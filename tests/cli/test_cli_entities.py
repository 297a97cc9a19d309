"""`genpr entities`."""

import json

import pytest


@pytest.fixture
def files(tmp_path):
    names = ["cat", "dog", "traffic light", "尼尔·阿姆斯特朗"]
    expected, answers = ["id,expected"], []
    for i in range(24):
        wanted = names[: 1 + i % 4]
        expected.append(f"img{i},{';'.join(wanted)}")
        found = ["阿姆斯特朗" if name[0] == "尼" else name for name in wanted if (i + len(name)) % 5]
        text = json.dumps({"实体": found}) if i % 6 else "I see a lot of things, and more."
        answers.append(json.dumps({"id": f"img{i}", "answer": text}))
    files = {
        "expected.csv": "\n".join(expected),
        "answers.jsonl": "\n".join(answers),
        "aliases.csv": "尼尔·阿姆斯特朗,阿姆斯特朗\n",
        "vocabulary.txt": "\n".join([*names, "bus"]),
        "exclude.txt": "bus\n",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    return {name.partition(".")[0]: tmp_path / name for name in files}


def test_table_and_page_hold_everything(genpr, files, tmp_path):
    page = tmp_path / "page.html"
    arguments = ["entities", files["expected"], files["answers"], "--aliases", files["aliases"]]
    code, out, err = genpr(*arguments, "--html", page)
    assert code == 0
    lines = out.splitlines()
    assert all(len(line) <= 80 for line in lines if "/" not in line), "paths stay in one piece"
    recall, *_ = [line.split() for line in lines if line.startswith("entity.recall ")]
    assert len(recall) == 5  # value and interval
    assert "if all unreadable answers were wrong" in out
    failed, *_ = [line.split() for line in lines if line.startswith("entity.failure_rate ")]
    assert failed[1] == "0.1667"
    assert any(line.startswith("img0 ") for line in lines)
    assert "warning: 4 of 24 answers could not be read" in err
    text = page.read_text(encoding="utf-8")
    for part in ("entity.recall", "尼尔·阿姆斯特朗", "img0", "I see a lot of things"):
        assert part in text
    for part in ("<dt>ties", "unknown extractor", "<dt>distances"):
        assert part not in text
    assert genpr(*arguments, "--html", tmp_path)[0] == 2


def test_json_holds_everything(genpr, files):
    words = [part for name in ("aliases", "vocabulary", "exclude") for part in (f"--{name}", files[name])]
    code, out, err = genpr("entities", files["expected"], files["answers"], *words, "-q", "--json")
    record = json.loads(out)
    assert (code, err) == (0, "")
    assert len(record["entities"]["unreadable"]) == 4
    assert record["metrics"]["entity.precision"]["value"] == 1
    assert record["metrics"]["entity.recall"]["interval"][0] > 0
    assert record["entities"]["vocabulary"] == 5
