"""Images of checkpoint files: samples of a generator that is loaded only while it draws."""

import gc
import json
import sys

import pytest
import torch
from blob_checkpoints import GENERATOR, real_blobs, write_checkpoint, write_generator
from raising import raising

import genpr
from genpr.checkpoints.generator import CheckpointImages, check_factory, checkpoints_at
from genpr.errors import DataError, UsageError

OPTIONS = {"image_range": (-1, 1), "device": "cpu"}


@pytest.fixture
def spec(tmp_path):
    return write_generator(tmp_path)


@pytest.fixture
def checkpoint(tmp_path):
    return write_checkpoint(tmp_path / "step-1.pt", 0.8)


@pytest.fixture(scope="module")
def evaluator():
    return genpr.Evaluator(real_blobs(40), extractor="pixels", control=False, intervals=False)


def drawn(images):
    return torch.cat(list(images))


@pytest.mark.parametrize(("setting", "rule", "psi"), [(None, None, 1.0), (0.5, "z-clip", 0.5)])
def test_images_equal_those_of_a_sampler(spec, checkpoint, setting, rule, psi):
    options = {"n": 20, "rule": rule, "seed": 3, "batch_size": 8, **OPTIONS}
    images = CheckpointImages(spec, checkpoint, setting=setting, **options)
    assert images.drawn_by is None
    loaded = genpr.load_generator(spec, checkpoint, device="cpu")
    sampler = genpr.Sampler.of(loaded, **options)
    assert [len(batch) for batch in images] == [8, 8, 4]
    assert torch.equal(drawn(images), drawn(sampler.images(psi)))
    assert len(images) == 20
    known = images.drawn_by
    assert json.loads(json.dumps(known)) == known
    if setting is not None:
        assert known == {**sampler.identity, "setting": setting}
    assert known["checkpoint"] == loaded.checkpoint_sha256
    assert (known["seed"], known["n"], known["setting"]) == (3, 20, psi)


def test_one_generator_at_a_time_is_in_memory(tmp_path, monkeypatch, evaluator):
    counts = "ALIVE.add(self)\n        MOST.append(len(ALIVE))\n        self.itself ="
    counted = "from weakref import WeakSet\nALIVE, MOST = WeakSet(), []\n"
    counted += GENERATOR.replace("self.itself =", counts)
    write_generator(tmp_path, counted, "counted_gan.py")
    monkeypatch.syspath_prepend(tmp_path)
    paths = [write_checkpoint(tmp_path / f"{number}.pt", 0.5 + number / 10) for number in range(3)]
    images = {path.name: CheckpointImages("counted_gan:load", path, n=40, **OPTIONS) for path in paths}
    gc.disable()  # by chance it may come in time
    try:
        ranking = genpr.rank_checkpoints(evaluator, images)
    finally:
        gc.enable()
    assert len(ranking.entries) == 3
    assert sys.modules["counted_gan"].MOST == [1, 1, 1]


def test_checkpoint_that_changes_between_two_readings_is_an_error(spec, checkpoint, tmp_path):
    images = CheckpointImages(spec, checkpoint, n=20, **OPTIONS)
    drawn(images)
    write_checkpoint(checkpoint, 0.5)
    with raising(DataError, "checkpoint-changed"):
        drawn(images)
    lucky = GENERATOR.replace('torch.load(path)["spread"]', "torch.randn(())")
    spec = write_generator(tmp_path, lucky, "luck.py")
    images = CheckpointImages(spec, checkpoint, n=20, **OPTIONS)
    drawn(images)
    with raising(DataError, "checkpoint-changed"):
        drawn(images)


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"n": 0}, "bad-option"),
        ({"rule": "z-scale"}, "bad-setting"),
        ({"axis": "guidance"}, "bad-setting"),
        ({"rule": "z-scale", "setting": -1.0}, "bad-psi"),
    ],
    ids=str,
)
def test_invalid_options_are_errors(options, code):
    with raising(UsageError, code):
        CheckpointImages("gan.py:load", "a.pt", **{"n": 20, **options})


@pytest.mark.parametrize(
    ("before", "after", "kind", "code"),
    [
        ("    return Blobs(", "    raise SystemExit(1)\n    return Blobs(", DataError, "checkpoint-failed"),
        ("return (2.0", "raise ValueError('shape')\n        return (2.0", DataError, "generator-failed"),
        ("z_dim = 3", "width = 3", UsageError, "latent-dim"),
    ],
)
def test_failing_generators_are_data_or_usage_errors(tmp_path, checkpoint, before, after, kind, code):
    assert before in GENERATOR
    spec = write_generator(tmp_path, GENERATOR.replace(before, after))
    with raising(kind, code):
        drawn(CheckpointImages(spec, checkpoint, n=20, **OPTIONS))


def test_checkpoints_are_found_by_suffix_or_pattern(tmp_path):
    names = ["a.pt", "b.PTH", "c.ckpt", "d.pkl", "e.safetensors", "f.bin", "g.txt", "h.pt.tmp", "ema.zip"]
    for name in names:
        (tmp_path / name).write_text("")
    (tmp_path / "folder.pt").mkdir()

    def found(pattern=None):
        source_of = checkpoints_at(lambda path: CheckpointImages("gan.py:load", path, n=2), pattern=pattern)
        return sorted(path.name for path in tmp_path.iterdir() if source_of(path) is not None)

    assert found() == ["a.pt", "b.PTH", "c.ckpt", "d.pkl", "e.safetensors", "f.bin"]
    assert (found("ema*"), found("*.pt")) == (["ema.zip"], ["a.pt"])


def test_factory_is_checked_without_a_checkpoint(spec, tmp_path):
    check_factory(spec)
    for wrong in (spec.replace(":load", ":laod"), write_generator(tmp_path, "def load(): ...", "none.py")):
        with raising(UsageError, "custom-generator"):
            check_factory(wrong)
