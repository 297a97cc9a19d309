"""`genpr align` from the command line, on drawings and prompts that a toy model embeds exactly."""

import csv
import json
from pathlib import Path

import pytest
import toy_pair
from toy_pair import chosen, drawings, words

TOY = f"{Path(toy_pair.__file__)}:load"
N, WRONG = 60, 4


@pytest.fixture
def folder(write_images):
    return write_images("drawings", drawings(chosen(N)))


@pytest.fixture
def prompts(tmp_path):
    """Of the first four, each has the prompt of the next."""
    scenes = chosen(N)
    texts = [words(scenes[row + 1 if row < WRONG else row]) for row in range(N)]
    path = tmp_path / "prompts.csv"
    path.write_text("file,prompt\n" + "".join(f"{row:05d}.png,{text}\n" for row, text in enumerate(texts)))
    return path


def test_table_page_and_ranks(genpr, tmp_path, folder, prompts):
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
    assert "rank: of the own prompt among 59" in worst
    assert "59 candidates instead of 100" in err
    assert "prompts  59 prompts of" in out
    assert "images   60 images of" in out
    rows = list(csv.DictReader(table.read_text().splitlines()))
    assert [row["name"] for row in rows] == [f"{row:05d}.png" for row in range(N)]
    assert [float(row["rank"]) > 1 for row in rows] == [row < WRONG for row in range(N)]
    assert all(float(row["winner_score"]) >= float(row["score"]) for row in rows[:WRONG])
    assert page.read_text().count("data:image/jpeg") == 2 * WRONG


def test_hostile_names_and_prompts_do_no_harm(genpr, tmp_path, folder):
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
