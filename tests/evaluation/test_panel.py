"""Panels: several extractors in one run give the values of separate runs, and decode each image once."""

import json

import numpy as np
import pytest
import torch
from raising import raising

import genpr
from genpr.errors import ResourceError, UsageError
from genpr.evaluation.compare import load_results

METRICS = ["calibrated_precision", "calibrated_recall", "precision", "recall", "density", "coverage", "fd"]


class RandomNetwork:
    """A random projection of 3 x 3 pixels that runs out of memory in its first batches."""

    name, dim, cache_key = "random", 5, "1"

    def __init__(self, failures=0):
        self.failures = failures
        self.weights = torch.randn(27, 5, generator=torch.Generator().manual_seed(0))

    def __call__(self, images):
        if self.failures:
            self.failures -= 1
            raise torch.OutOfMemoryError("CUDA out of memory (planted)")
        return images[:, :, 2:5, 2:5].float().flatten(1) @ self.weights


@pytest.fixture
def sides(write_images, rng):
    """40 reals, 36 fakes and as many held-out reals."""
    levels = {"real": (40, 256), "fake": (36, 200), "held-out": (36, 256)}
    return [
        write_images(name, rng.integers(0, most, (n, 8, 9, 3), dtype=np.uint8))
        for name, (n, most) in levels.items()
    ]


def record(result):
    """The result as a dictionary without times."""
    found = result.to_dict()
    for part in (found, *filter(None, map(found.get, ("real", "fake", "held_out")))):
        del part["seconds"]
    return found


@pytest.mark.parametrize("is_held_out", [False, True])
def test_each_result_equals_a_score_with_one_extractor(sides, decode, is_held_out, tmp_path):
    real, fake, kept = sides
    extractors = ["pixels", RandomNetwork()]
    options = {"device": "cpu", "cache": False, "intervals": not is_held_out}
    options |= {"held_out": kept if is_held_out else None}
    panel = genpr.score_panel(real, fake, extractors=extractors, **options)
    assert decode.call_count == 76 + 36 * is_held_out
    assert list(panel) == ["pixels", "random"]
    assert list(panel.held_out) == list(panel) * is_held_out
    for extractor, (name, result) in zip(extractors, panel.items(), strict=True):
        assert list(result.metrics) == [*METRICS[:-1], *["c_t"] * is_held_out, "fd"]
        alone = genpr.score(real, fake, extractor=extractor, metrics=METRICS, **options)
        assert record(result) == record(alone)
        base = result.control.values["fd"]
        if is_held_out:
            apart = genpr.score(
                real, kept, extractor=extractor, **options | {"metrics": METRICS, "held_out": None}
            )
            assert record(panel.held_out[name])["metrics"] == record(apart)["metrics"]
            base = apart["fd"]
        assert panel.ratios[name] == result["fd"] / base
    path = tmp_path / "panel.json"
    path.write_text(panel.to_json())
    assert load_results(path) == dict(panel)
    assert json.loads(path.read_text())["ratios"] == panel.ratios


def test_held_out_reals_are_reduced_to_the_number_of_fakes(sides):
    real, kept, fake = sides[0], sides[1], sides[2]
    few = {"metrics": ["fd"], "control": False, "device": "cpu"}
    (fake / "00007.png").unlink()
    panel = genpr.score_panel(real, fake, extractors=["pixels"], held_out=kept, **few)
    assert [each.fake.n for each in (panel["pixels"], panel.held_out["pixels"])] == [35, 35]
    assert genpr.score_panel(real, fake, extractors=["pixels"], **few).ratios == {"pixels": None}
    same = genpr.score_panel(real, fake, extractors=["pixels"], held_out=real, **few)
    assert same.held_out["pixels"].n_shared == 35
    same = genpr.score_panel(fake, kept, extractors=["pixels", RandomNetwork()], held_out=fake, **few)
    assert same.ratios == {"pixels": None, "random": None}


def test_metrics_with_fixed_extractors_are_computed_once(sides, change_protocol):
    real, fake, kept = sides
    change_protocol("genpr", extractors={"fd": "gabor"})
    options = {"control": False, "intervals": False, "device": "cpu"}
    chosen = {"extractors": ["pixels", RandomNetwork()], "metrics": ["recall", "fd"], "k": 2}
    panel = genpr.score_panel(real, fake, held_out=kept, **chosen, **options)
    assert [list(each.metrics) for each in panel.every.values()] == [["recall", "c_t"]] * 2 + [["fd"]]
    assert [each.metrics["recall"].k for each in panel.values()] == [2, 2]
    assert panel.others.held_out is None
    for found, fakes in ((panel.others, fake), (panel.others_held_out, kept)):
        assert found["fd"] == genpr.score(real, fakes, metrics=["fd"], **options)["fd"]


def test_networks_that_do_not_fit_in_memory_together_run_in_turn(sides, decode):
    real, fake, _ = sides
    options = {"metrics": ["precision"], "device": "cpu", "cache": False, "batch_size": 4}
    plain = genpr.score_panel(real, fake, extractors=["gabor", RandomNetwork()], **options)
    decode.reset_mock()
    crowded = {"gabor": "gabor", "own": RandomNetwork(failures=3)}  # batches of 4, 2 and 1 images
    panel = genpr.score_panel(real, fake, extractors=crowded, **options)
    assert decode.call_count > 76 + 40
    assert [each["precision"] for each in panel.values()] == [each["precision"] for each in plain.values()]
    once = (torch.zeros(8, 3, 8, 8, dtype=torch.uint8) for _ in range(3))
    with raising(ResourceError, "oom"):
        genpr.score_panel(once, fake, extractors=["gabor", RandomNetwork(failures=3)], **options)
    with raising(ResourceError, "oom"):
        crowded = ["gabor", RandomNetwork(failures=6)]
        genpr.score_panel(real, fake, extractors=crowded, **options)


@pytest.mark.parametrize(
    ("extractors", "options", "code"),
    [
        (["gabor", "pixels", "gabor"], {}, "extractor-twice"),
        (["inception", "inception@tf1-bilinear"], {}, "extractor-twice"),
        ([RandomNetwork(), RandomNetwork()], {}, "extractor-twice"),
        ({"one": "gabor", "other": "gabor"}, {}, "extractor-twice"),
        ([], {}, "bad-option"),
        (["gabor", "pixels"], {"extractor": "gabor"}, "bad-option"),
        (["gabor", "pixels"], {"labels": genpr.LabelOptions()}, "bad-option"),
        (["gabor", "pixels"], {"protocol": "kynkaanniemi2019"}, "protocol-pinned"),
        (["gabor", "unheard-of"], {}, "unknown-extractor"),
    ],
)
def test_invalid_panels_are_errors_before_sources_are_opened(extractors, options, code):
    with raising(UsageError, code):
        genpr.score_panel("no such folder", "neither", extractors=extractors, **options)


def test_features_cannot_be_scored_by_several_extractors(rng):
    features = rng.normal(size=(2, 20, 736))
    for extractors in (["gabor", "pixels"], [RandomNetwork(), "gabor"]):
        with raising(UsageError, "already-features"):
            genpr.score_panel(*features, extractors=extractors)
    assert list(genpr.score_panel(*features, extractors="gabor")) == ["gabor"]
