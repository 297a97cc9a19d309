"""`genpr entities`, of answers and of painted stripes, and `genpr align` on drawings that a toy model embeds exactly."""

import csv
import json
from pathlib import Path

import pytest
import toy_pair
from toy_pair import chosen, drawings, words


@pytest.fixture
def files(tmp_path):
    names = ["cat", "dog", "traffic light", "尼尔·阿姆斯特朗"]
    expected, answers = ["id,expected"], []
    for i in range(24):
        relevant = names[: 1 + i % 4]
        expected.append(f"img{i},{';'.join(relevant)}")
        found = ["阿姆斯特朗" if name[0] == "尼" else name for name in relevant if (i + len(name)) % 5]
        text = json.dumps({"实体": found}) if i % 6 else "I see a lot of things, and more."
        answers.append(json.dumps({"id": f"img{i}", "answer": text}))
    files = {
        "expected.csv": "\n".join(expected),
        "answers.jsonl": "\n".join(answers),
        "vocabulary.csv": "\n".join([*names[:3], "尼尔·阿姆斯特朗,阿姆斯特朗", "bus"]),
        "exclude.txt": "bus\n",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    return {name.partition(".")[0]: tmp_path / name for name in files}


def test_table_and_page_have_all_values(genpr, files, tmp_path):
    page = tmp_path / "page.html"
    arguments = ["entities", files["expected"], files["answers"], "--vocabulary", files["vocabulary"]]
    code, out, err = genpr(*arguments, "--html", page)
    assert code == 0
    lines = out.splitlines()
    assert all(len(line) <= 80 for line in lines if "/" not in line), "paths stay in one piece"
    recall, *_ = [line.split() for line in lines if line.startswith("entity.recall ")]
    assert len(recall) == 5  # value and interval
    failed, *_ = [line.split() for line in lines if line.startswith("entity.failure_rate ")]
    assert failed[1] == "0.1667"
    assert any(line.startswith("img0 ") for line in lines)
    assert "warning [unreadable-answers]: 4 of 24 answers could not be parsed" in err
    text = page.read_text(encoding="utf-8")
    for part in ("entity.recall", "尼尔·阿姆斯特朗", "img0", "I see a lot of things"):
        assert part in text
    for part in ("<dt>ties", "unknown extractor", "<dt>distances"):
        assert part not in text
    assert genpr(*arguments, "--html", tmp_path)[0] == 2


TOY = f"{Path(toy_pair.__file__)}:load"
N, WRONG = 60, 4


@pytest.fixture
def folder(write_images):
    return write_images("drawings", drawings(chosen(N)))


@pytest.fixture
def prompts(tmp_path):
    """Each of the first four images has the prompt of the next."""
    scenes = chosen(N)
    texts = [words(scenes[row + 1 if row < WRONG else row]) for row in range(N)]
    path = tmp_path / "prompts.csv"
    path.write_text("file,prompt\n" + "".join(f"{row:05d}.png,{text}\n" for row, text in enumerate(texts)))
    return path


def test_align_writes_table_page_and_ranks(genpr, tmp_path, folder, prompts):
    table, page = tmp_path / "ranks.csv", tmp_path / "page.html"
    arguments = ("align", folder, "--prompts", prompts, "--extractor", TOY, "--csv", table, "--html", page)
    code, out, err = genpr(*arguments)
    assert code == 0
    assert all(len(line) <= 80 for line in out.splitlines() if "/" not in line), "paths stay in one piece"
    row = next(line for line in out.splitlines() if line.startswith("retrieval.r_precision"))
    assert row.split()[1] == f"{(N - WRONG) / N:.4f}"
    assert row.split()[-1] == str(N - 1), "two images share a prompt"
    worst = out.partition("its prompt")[2]
    assert worst.count(".png") == WRONG
    assert "own prompt among 59" in worst
    assert "59 candidates instead of 100" in err
    assert "prompts  59 prompts of" in out
    assert "images   60 images of" in out
    rows = list(csv.DictReader(table.read_text().splitlines()))
    assert [row["name"] for row in rows] == [f"{row:05d}.png" for row in range(N)]
    assert [float(row["rank"]) > 1 for row in rows] == [row < WRONG for row in range(N)]
    assert all(float(row["winner_score"]) >= float(row["score"]) for row in rows[:WRONG])
    assert page.read_text().count("data:image/jpeg") == 2 * WRONG
