"""`genpr entities EXPECTED IMAGES --by NAME`, with toy classifiers of painted stripes."""

import numpy as np
import pytest
import toy_colors
from toy_colors import COLORS, painted, write_expected

WANTED = [
    [name for place, name in enumerate(COLORS) if (row + 1) % 8 >> place & 1] or ["red"] for row in range(48)
]
DRAWN = [[name for name in names if name != "blue" or row % 4] for row, names in enumerate(WANTED)]
FOUND = sum("blue" in names for names in DRAWN) / sum("blue" in names for names in WANTED)


def by(name):
    return f"{toy_colors.__file__}:{name}"


@pytest.fixture
def files(write_images, tmp_path):
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


def test_detector_from_the_command_line(genpr, files):
    code, out, err = genpr("entities", files["expected"], files["images"], "--by", by("detector"))
    assert code == 0
    assert all(len(line) <= 80 for line in out.splitlines() if "/" not in line), "paths stay in one piece"
    assert float(blue_of(out)[3]) == pytest.approx(FOUND, abs=1e-3)
    assert "48 images of" in out
    assert "failure_rate" not in out
    assert "thresholds of" not in err


def test_prompts_and_encoders(genpr, files):
    """What a user's factory prints is not in the result; thresholds need labeled images."""
    options = ("--vocabulary", files["vocabulary"], "--by", by("pair"))
    code, _, err = genpr("entities", files["prompts"], files["images"], *options, "--json")
    assert (code, "--calibrate-on" in err) == (2, True)
    calibrated = ("--calibrate-on", files["real"], "--calibrate-expected", files["expected"])
    code, out, err = genpr("entities", files["prompts"], files["images"], *options, *calibrated)
    assert (code, "a user's factory may print" in err, "warning" in err) == (0, True, False)
    assert float(blue_of(out)[3]) == pytest.approx(FOUND, abs=1e-3)
    assert float(blue_of(out)[5]) == 1, "sensitivity"
    assert "chosen on labeled images" in " ".join(out.split())
