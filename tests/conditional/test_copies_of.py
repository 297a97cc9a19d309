"""Copies of training images, looked for in the features that the alignment has."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
import toy_pair
from PIL import Image
from toy_pair import ToyPair, chosen, drawings, words

import genpr
from genpr.errors import DataError, UsageError
from genpr.evaluation.result import result_of

N = 60
SCENES = chosen(2 * N)
COPIED = {3: 7, 10: 20, 40: 40}
"""Images that are copies, and of which training image."""


@pytest.fixture(scope="module")
def scenes():
    return [SCENES[N + COPIED[row]] if row in COPIED else SCENES[row] for row in range(N)]


@pytest.fixture(scope="module")
def train():
    return drawings(SCENES[N:])


def align(scenes, **options):
    prompts = [words(scene) for scene in scenes]
    return genpr.align(drawings(scenes), prompts, **{"extractor": ToyPair(), "device": "cpu", **options})


def test_the_share_of_copies_stands_beside_that_of_training_images(scenes, train):
    result = align(scenes, copies_of=train, threshold=0.999)
    rate = result.metrics["retrieval.copy_rate"]
    assert (rate.value, rate.null, rate.n_counted) == (len(COPIED) / N, 0.0, N)
    assert rate.interval[0] < rate.value < rate.interval[1]
    assert rate.variant == "cosine above 0.999 to one of 60 training images"
    assert "retrieval.copy_ap" not in result.metrics
    assert result_of(json.loads(result.to_json())) == result
    lower = align(scenes, copies_of=train, threshold=0.5).metrics["retrieval.copy_rate"]
    assert lower.value > 0.5
    assert lower.null > 0.5, "what is above that is no copy: these features call many training images alike"


def test_known_copies_are_ranked_among_all_pairs(scenes, train):
    pairs = [(f"[{image}]", f"[{original}]") for image, original in COPIED.items()]
    ap = align(scenes, copies_of=train, pairs=pairs).metrics["retrieval.copy_ap"]
    assert ap.value == pytest.approx(1.0)
    assert (ap.n_counted, ap.pool) == (3, N * N)
    wrong = align(scenes, copies_of=train, pairs=[("[0]", "[59]"), ("[1]", "[58]")]).metrics[
        "retrieval.copy_ap"
    ]
    assert wrong.value < 0.2


@pytest.mark.parametrize(
    ("options", "error", "needed"),
    [
        ({"threshold": 2}, UsageError, "from -1 to 1, not 2"),
        ({"threshold": True}, UsageError, "not True"),
        (
            {"pairs": [("[0]", "[60]")]},
            DataError,
            r"'\[60\]', which is not among the training images, such as '\[0\]'",
        ),
        ({"pairs": [("x", "[1]")]}, DataError, "'x', which is not among the images"),
        ({"pairs": [("[0]", "[1]")] * 2}, DataError, "a pair twice"),
        ({"pairs": []}, UsageError, "by their names"),
        ({"pairs": 3}, UsageError, "by their names"),
        ({"pairs": [("[0]",)]}, UsageError, "by their names"),
        ({"pairs": "none.csv"}, UsageError, "no .csv or .tsv file 'none.csv'"),
        ({"copies_of": None, "pairs": [("[0]", "[1]")]}, UsageError, "which copies_of .* must give"),
        ({"copies_of": "nowhere"}, UsageError, "nothing at 'nowhere'"),
    ],
    ids=range(11),
)
def test_refusals(scenes, train, options, error, needed):
    with pytest.raises(error, match=needed):
        align(scenes, **{"copies_of": train, **options})


def test_on_the_command_line(genpr_command, scenes, train, tmp_path):
    for name, pixels in (("fakes", drawings(scenes)), ("train", train)):
        (tmp_path / name).mkdir()
        for row, image in enumerate(pixels):
            Image.fromarray(image).save(tmp_path / name / f"{row:02d}.png")
    (tmp_path / "p.txt").write_text("\n".join(map(words, scenes)))
    (tmp_path / "known.csv").write_text(
        "image,train\n" + "".join(f"{a:02d}.png,{b:02d}.png\n" for a, b in COPIED.items())
    )
    options = [
        "--extractor",
        f"{Path(toy_pair.__file__)}:load",
        "--copies-of",
        f"{tmp_path}/train",
        "--threshold",
        ".999",
    ]
    asked = [
        "align",
        f"{tmp_path}/fakes",
        "--prompts",
        f"{tmp_path}/p.txt",
        *options,
        "--pairs",
        f"{tmp_path}/known.csv",
    ]
    page, table = tmp_path / "page.html", tmp_path / "table.csv"
    code, out, err = genpr_command(
        *asked, "--html", page, "--csv", table, "--fail-over", "retrieval.copy_rate=.01"
    )
    assert code == 5
    assert "missed: retrieval.copy_rate is 0.0500, above 0.01" in err
    assert next(line for line in out.splitlines() if "copy_ap" in line).split()[1] == "1.0000"
    assert "less is better: retrieval.copy_rate" in out
    rows = list(csv.DictReader(table.read_text().splitlines()))
    assert rows[3]["nearest_train"] == "07.png"
    assert [float(row["train_similarity"]) > 0.999 for row in rows] == [row in COPIED for row in range(N)]
    html = page.read_text()
    assert (
        "3 of 60 images have a cosine above 0.999 to a training image; for 0 % of the training images" in html
    )
    assert "07.png, the nearest training image" in html
    assert html.count("data:image/jpeg") == 12 + 2 * 24
    alone = asked[:6] + asked[-2:]
    assert "--copies-of" not in alone
    code, _, err = genpr_command(*alone)
    assert code == 2
    assert "(--copies-of) must give" in err


@pytest.fixture
def genpr_command(capsys):
    from genpr.cli.main import run

    def call(*args):
        code = run([str(arg) for arg in args])
        out, err = capsys.readouterr()
        return code, out, err

    return call
