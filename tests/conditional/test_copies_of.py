"""Detection of copies of training images in the features of the alignment."""

import csv
from pathlib import Path

import pytest
import toy_pair
from PIL import Image
from toy_pair import ToyPair, chosen, drawings, words

import genpr
from genpr.cli.main import run
from genpr.errors import UsageError
from genpr.evaluation.result import result_of

N = 60
SCENES = chosen(2 * N)
COPIED = {3: 7, 10: 20, 40: 40}
"""Images that are copies, and of which training image."""
MADE = [SCENES[N + COPIED[row]] if row in COPIED else SCENES[row] for row in range(N)]
TRAIN = drawings(SCENES[N:])


def align(**options):
    given = {"extractor": ToyPair(), "device": "cpu", "copies_of": TRAIN, **options}
    return genpr.align(drawings(MADE), [words(scene) for scene in MADE], **given)


def test_copy_rate_has_the_rate_among_training_images_as_its_null():
    result = align(threshold=0.999)
    rate = result.metrics["retrieval.copy_rate"]
    assert (rate.value, rate.null, rate.n_counted) == (len(COPIED) / N, 0.0, N)
    assert rate.interval[0] < rate.value < rate.interval[1]
    assert rate.variant == "cosine above 0.999 to one of 60 training images"
    assert result_of(result.to_dict()) == result
    lower = align(threshold=0.5).metrics["retrieval.copy_rate"]
    assert min(lower.value, lower.null) > 0.5, "these features call many training images alike"


@pytest.mark.parametrize("options", [{"threshold": 2}, {"threshold": True}, {"copies_of": "no"}], ids=str)
def test_invalid_options_of_copy_detection_are_errors(options):
    with pytest.raises(UsageError):
        align(**options)


def test_copy_rate_on_the_command_line(capsys, tmp_path):
    for name, pixels in (("fakes", drawings(MADE)), ("train", TRAIN)):
        (tmp_path / name).mkdir()
        for row, image in enumerate(pixels):
            Image.fromarray(image).save(tmp_path / name / f"{row:02d}.png")
    (tmp_path / "p.txt").write_text("\n".join(map(words, MADE)))
    page, table = tmp_path / "page.html", tmp_path / "table.csv"
    arguments = ["align", tmp_path / "fakes", "--prompts", tmp_path / "p.txt", "--html", page, "--csv", table]
    arguments += ["--extractor", f"{Path(toy_pair.__file__)}:load", "--copies-of", tmp_path / "train"]
    code = run([*map(str, arguments), "--threshold", ".999", "--fail-over", "retrieval.copy_rate=.01"])
    out, err = capsys.readouterr()
    assert code == 5
    assert "missed: retrieval.copy_rate is 0.0500, above 0.01" in err
    assert "lower is better: retrieval.copy_rate" in " ".join(out.split())
    rows = list(csv.DictReader(table.read_text().splitlines()))
    assert rows[3]["nearest_train"] == "07.png"
    assert [float(row["train_similarity"]) > 0.999 for row in rows] == [row in COPIED for row in range(N)]
    html = page.read_text()
    assert "3 of 60 images have a cosine similarity above 0.999 to a training image" in html
    assert "07.png, the nearest training image" in html
    assert html.count("data:image/jpeg") >= 2 * 24
