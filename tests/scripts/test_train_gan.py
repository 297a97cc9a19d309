"""The training example: images, logs, loss spikes, checkpoints and their selection."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from zipfile import ZipFile

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


def test_folder_and_zip_give_the_same_images(script, folder, tmp_path):
    archive = tmp_path / "kinds.zip"
    with ZipFile(archive, "w") as file:
        for path in sorted(folder.rglob("*")):
            file.write(path, f"top/{path.relative_to(folder)}")
    images = script.read_images(folder, None)
    assert (images.shape, images.dtype) == ((60, 3, 32, 32), torch.uint8)
    assert torch.equal(images, script.read_images(archive, None))
    red = script.read_images(archive, "red")
    assert torch.equal(red, images[30:])
    assert red.float().mean(dim=(0, 2, 3)).argmax() == 0


def test_folder_without_images_is_an_error(script, folder, tmp_path):
    done = CliRunner().invoke(script.main, [str(folder), "--only", "green", "--out", str(tmp_path / "gan")])
    assert done.exit_code == 2
    assert "no images" in done.output
    assert "green" in done.output


def test_existing_run_is_not_overwritten(script, folder, trained):
    done = CliRunner().invoke(script.main, [str(folder), "--out", str(trained)])
    assert done.exit_code == 2
    assert "another --out" in done.output


def test_every_image_is_used_once_per_epoch(script):
    images = torch.arange(10, dtype=torch.uint8).view(10, 1, 1, 1).expand(10, 3, 32, 32)
    flow = script.batches(images, 4)
    seen = [next(flow) for _ in range(6)]
    assert [epoch for epoch, _ in seen] == [0, 0, 0, 1, 1, 1]
    for epoch in (0, 1):
        values = torch.cat([batch[:, 0, 0, 0] for which, batch in seen if which == epoch])
        assert torch.equal(((values + 1) * 127.5).round().sort().values, torch.arange(10.0))


def test_half_of_the_images_are_mirrored(script):
    torch.manual_seed(0)
    images = torch.zeros(200, 3, 32, 32, dtype=torch.uint8)
    images[:, :, :, 0] = 255
    _, batch = next(script.batches(images, 200))
    assert 70 < (batch[:, 0, 0, -1] == 1).sum() < 130


def test_gradient_far_above_recent_ones_is_a_spike(script):
    recent = script.Recent()
    flags = [recent.add({"loss_g": 1.0, "grad_g": norm}) for norm in [50.0] + [1.0] * 99 + [4.9, 5.1]]
    assert flags == [{}] * 101 + [{"grad_g": 5.1}]
    assert recent.add({"loss_g": 100.0, "grad_g": 1.0}) == {}
    assert recent.means()["loss_g"] == pytest.approx(1.99)


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


def test_chosen_last_and_lowest_loss_checkpoints_are_rescored(script, trained, monkeypatch):
    lines = [
        {"step": step, "loss_g": loss, "genpr/f1": 0.5} for step, loss in ((1, 3.0), (2, 1.0), (3, 2.0))
    ] + [{"step": 4, "loss_g": 0.0}]  # not scored
    monkeypatch.setattr(script.genpr, "rank_checkpoints", lambda evaluator, images, by: list(images))
    monkeypatch.setattr(script.random, "choice", lambda steps: steps[0])
    evaluator = genpr.Evaluator(np.random.default_rng(0).normal(size=(60, 4)), control=False)
    names = script.rescore(evaluator, lines, 1, trained)
    assert names == ["step 1 (chosen, any)", "step 3 (last)", "step 2 (lowest loss)"]


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


def test_psi_0_gives_one_image_and_psi_1_many(network, trained):
    generator = genpr.load_generator(f"{SCRIPTS / 'small_gan.py'}:load", trained / "step-000002.pt")
    sampler = genpr.Sampler.of(generator, n=8, image_range=(-1, 1))
    none, all_ = (torch.cat(list(sampler.images(psi))).float() for psi in (0.0, 1.0))
    assert none.std(dim=0).max() == 0
    assert all_.std(dim=0).mean() > 1


def test_both_networks_learn(network):
    """With images of one color, forty steps move the color of the generator towards it."""
    torch.manual_seed(0)
    training = network.Training(40, torch.device("cpu"))
    real = torch.full((8, 3, 32, 32), 0.8)
    z = torch.randn(16, 64)

    def distance() -> float:
        with torch.no_grad():
            return (training.average(z) - 0.8).abs().mean().item()

    before = distance()
    for _ in range(40):
        facts = training.step(real)
    assert distance() < 0.85 * before
    assert facts["grad_g"] > 0
    assert training.rate == pytest.approx(1e-3 * 0.05)


def test_moving_average_follows_its_network_slowly(network):
    torch.manual_seed(0)
    training = network.Training(10, torch.device("cpu"))
    before = training.average.synthesis.last.bias.clone()
    training.step(torch.zeros(4, 3, 32, 32))
    moved = training.average.synthesis.last.bias - before
    latest = training._generator.synthesis.last.bias - before
    assert torch.allclose(moved, 0.005 * latest, atol=1e-9)
    assert latest.abs().max() > 0


def test_the_penalty_is_the_squared_slope(network):
    discriminator = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(12, 1))
    slope = discriminator[1].weight.square().sum()
    assert network.r1_penalty(discriminator, torch.randn(5, 3, 2, 2)).item() == pytest.approx(
        0.005 * slope.item()
    )
