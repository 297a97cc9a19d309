"""The training example: images, logs, loss spikes, checkpoints and their selection."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from PIL import Image

import genpr
from genpr.images.arrays import to_levels

SCRIPTS = Path(__file__).parents[2] / "scripts"


@pytest.fixture(scope="module")
def script() -> Iterator[ModuleType]:
    sys.path.insert(0, str(SCRIPTS))
    try:
        import train_gan

        yield train_gan
    finally:
        sys.path.remove(str(SCRIPTS))


@pytest.fixture(scope="module")
def network(script) -> ModuleType:
    return sys.modules["small_gan"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Thirty plain images of each of two kinds, and a file that is not an image."""
    root = tmp_path_factory.mktemp("kinds")
    rng = np.random.default_rng(0)
    for kind, color in (("red", (200, 40, 40)), ("blue", (40, 40, 200))):
        (root / kind).mkdir()
        for number in range(30):
            pixels = np.clip(rng.normal(color, 25, size=(40, 36, 3)), 0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(root / kind / f"{number}.png")
    (root / "red" / "readme.txt").write_text("no image")
    return root


@pytest.fixture(scope="module")
def trained(script, folder, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("run") / "gan"
    options = ["--steps", "3", "--every", "1", "--batch-size", "8", "--n", "50", "--extractor", "pixels"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(script, "PSIS", (0.5, 1.0))
        done = CliRunner().invoke(
            script.main, [str(folder), *options, "--device", "cpu", "--out", str(out)], catch_exceptions=False
        )
    assert done.exit_code == 0, done.output
    (out / "output.txt").write_text(done.output)
    return out


def test_log_has_losses_and_scores(trained):
    lines = [json.loads(line) for line in (trained / "log.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [1, 2, 3]
    facts = {"step", "epoch", "lr", "loss_g", "loss_d", "grad_g", "grad_d", "spikes"}
    scores = {f"genpr/{name}" for name in ("precision", "recall", "density", "coverage", "f1", "recall_low")}
    assert all(facts | scores <= line.keys() for line in lines)
    assert lines[0]["lr"] > lines[1]["lr"]


def test_checkpoints_samples_and_sweep_are_written(trained):
    assert sorted(path.name for path in trained.glob("*.pt")) == [f"step-00000{n}.pt" for n in (1, 2, 3)]
    for name in ("samples.png", "training.png", "sweep/sweep.png"):
        with Image.open(trained / name) as picture:
            assert min(picture.size) > 200
    output = (trained / "output.txt").read_text()
    assert "chosen" in output
    assert len(json.loads((trained / "sweep" / "sweep.json").read_text())["points"]) == 2


def test_logged_scores_are_those_of_the_kept_checkpoint(script, network, folder, trained):
    """The checkpoint is chosen by the average network, which was saved: its images have the logged scores."""
    torch.manual_seed(0)
    images = script.read_images(folder, None)
    network.Training(3, torch.device("cpu"))
    reals = images[torch.randperm(60)[:50]]
    evaluator = genpr.Evaluator(reals, extractor="pixels")
    latents = torch.randn(50, 64)
    generator = network.load(str(trained / "step-000002.pt")).eval()
    with torch.no_grad():
        drawn, _ = to_levels(generator(latents), (-1.0, 1.0))
    line = json.loads((trained / "log.jsonl").read_text().splitlines()[1])
    found = evaluator.score(drawn).to_flat_dict()
    assert found == {name: line[name] for name in found}
