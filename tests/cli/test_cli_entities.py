"""`genpr entities`, of answers and of painted stripes, and `genpr align` on drawings that a toy model embeds exactly."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
import toy_colors
import toy_pair
from toy_colors import COLORS, painted, write_expected
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
        "aliases.csv": "尼尔·阿姆斯特朗,阿姆斯特朗\n",
        "vocabulary.txt": "\n".join([*names, "bus"]),
        "exclude.txt": "bus\n",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    return {name.partition(".")[0]: tmp_path / name for name in files}


def test_table_and_page_have_all_values(genpr, files, tmp_path):
    page = tmp_path / "page.html"
    arguments = ["entities", files["expected"], files["answers"], "--aliases", files["aliases"]]
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


def test_json_has_all_values(genpr, files):
    words = [part for name in ("aliases", "vocabulary", "exclude") for part in (f"--{name}", files[name])]
    code, out, err = genpr("entities", files["expected"], files["answers"], *words, "-q", "--json")
    record = json.loads(out)
    assert (code, err) == (0, "")
    assert len(record["entities"]["unreadable"]) == 4
    assert record["metrics"]["entity.precision"]["value"] == 1
    assert record["metrics"]["entity.recall"]["interval"][0] > 0
    assert record["entities"]["vocabulary"] == 5


WANTED = [
    [name for place, name in enumerate(COLORS) if (row + 1) % 8 >> place & 1] or ["red"] for row in range(48)
]
DRAWN = [[name for name in names if name != "blue" or row % 4] for row, names in enumerate(WANTED)]
FOUND = sum("blue" in names for names in DRAWN) / sum("blue" in names for names in WANTED)


def by(name):
    return f"{toy_colors.__file__}:{name}"


@pytest.fixture
def stripes(write_images, tmp_path):
    vocabulary = tmp_path / "objects.txt"
    vocabulary.write_text("\n".join(COLORS))
    return {
        "images": write_images("images", np.stack([painted(*names) for names in DRAWN])),
        "real": write_images("real", np.stack([painted(*names) for names in WANTED])),
        "expected": write_expected(tmp_path / "expected.csv", WANTED),
        "prompts": write_expected(tmp_path / "prompts.csv", WANTED, prompts=True),
        "vocabulary": vocabulary,
    }


def blue_of(out):
    (row,) = [line.split() for line in out.splitlines() if line.startswith("blue ")]
    return row


def test_detector_on_the_command_line(genpr, stripes):
    code, out, err = genpr("entities", stripes["expected"], stripes["images"], "--classifier", by("detector"))
    assert code == 0
    assert all(len(line) <= 80 for line in out.splitlines() if "/" not in line), "paths stay in one piece"
    assert float(blue_of(out)[3]) == pytest.approx(FOUND, abs=1e-3)
    assert "48 images of" in out
    assert "failure_rate" not in out
    assert "thresholds of" not in err


def test_encoder_needs_thresholds_of_labeled_images(genpr, stripes):
    """Output of a custom factory is not in the result; thresholds need labeled images."""
    options = ("--vocabulary", stripes["vocabulary"], "--classifier", by("pair"))
    code, _, err = genpr("entities", stripes["prompts"], stripes["images"], *options, "--json")
    assert (code, "--calibrate-on" in err) == (2, True)
    calibrated = ("--calibrate-on", stripes["real"], "--calibrate-expected", stripes["expected"])
    code, out, err = genpr("entities", stripes["prompts"], stripes["images"], *options, *calibrated)
    assert (code, "a user's factory may print" in err, "warning" in err) == (0, True, False)
    assert float(blue_of(out)[3]) == pytest.approx(FOUND, abs=1e-3)
    assert float(blue_of(out)[5]) == 1, "sensitivity"
    assert "thresholds: labeled" in " ".join(out.split())


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
    assert "alignment.clip_score: prompts begin with 'A photo depicts '" in out
    assert "begin with" not in genpr(*arguments[:6], "--prefix", "")[1]
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


def test_hostile_names_and_prompts_are_escaped(genpr, tmp_path, folder):
    evil = ["=cmd|x", "\x1b[31mred\x07", "<script>alert(1)</script>", "a" * 3000, "\u202etxt", "{{ 7 * 7 }}"]
    scenes, rows = chosen(N), []
    for row, scene in enumerate(scenes):
        text = words(scenes[(row + 1) % len(evil)]) if row < len(evil) else words(scene)
        rows.append({"file": f"{row:05d}.png", "prompt": f"{evil[row % 6]} and {text}"})
    path, page, table = tmp_path / "p.jsonl", tmp_path / "page.html", tmp_path / "t.csv"
    path.write_text("\n".join(map(json.dumps, rows)))
    code, out, _ = genpr(
        *("align", folder, "--prompts", path, "--extractor", TOY, "--html", page, "--csv", table)
    )
    assert code == 0
    assert not set(out) & {"\x1b", "\x07", "\u202e"}
    html = page.read_text()
    assert "<script>alert" not in html
    assert not set(html) & {"\x1b", "\x07", "\u202e"}
    assert "{{ 7 * 7 }}" in html
    assert all(not row["prompt"].startswith("=") for row in csv.DictReader(table.read_text().splitlines()))
