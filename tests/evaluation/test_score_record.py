import json
from dataclasses import replace

import numpy as np
import pytest

import genpr
from genpr.checkpoints.sweep import Sweep, SweepPoint
from genpr.evaluation.result import result_of
from genpr.images.source import choose_rows
from genpr.metrics.fakes_only import inception_score, vendi_score
from genpr.metrics.frechet import frechet_distance, frechet_infinity
from genpr.metrics.kernel import cmmd, kernel_distance
from genpr.metrics.mind import monge_inception_distance
from genpr.metrics.registry import METRICS
from genpr.notices import Notice, notice

EXPECTED = {
    "fid": frechet_distance,
    "sfid": frechet_distance,
    "kid": lambda real, fake: kernel_distance(real, fake).mean,
    "fd_dinov2": frechet_distance,
    "cmmd": cmmd,
    "fd": frechet_distance,
    "fd_infinity": frechet_infinity,
    "kd": lambda real, fake: kernel_distance(real, fake).mean,
    "mind": monge_inception_distance,
    "is": lambda _, fake: inception_score(fake).mean,
    "vendi": lambda _, fake: vendi_score(fake),
}


def test_a_misspelled_metric_of_a_result_is_refused_with_similar_names(rng):
    result = genpr.score(*rng.normal(size=(2, 20, 4)).astype(np.float32), intervals=False, control=False)
    with pytest.raises(KeyError, match="similar: precision"):
        result["presicion"]
    with pytest.raises(KeyError, match=r"found .*coverage"):
        result["fid"]


def test_every_metric_without_neighbors_has_an_expected_value():
    kinds = {"distance", "fakes-only"}
    assert set(EXPECTED) == {name for name, info in METRICS.items() if info.kind in kinds}


@pytest.mark.parametrize("metric", EXPECTED)
def test_each_metric_of_a_score_equals_its_function(rng, metric, monkeypatch):
    monkeypatch.setattr("genpr.features.source_features.dim_of", lambda _name: None)  # five columns will do
    real, fake = (rng.dirichlet([spread] * 5, n).astype(np.float32) for n, spread in ((40, 0.4), (45, 1.0)))
    result = genpr.score(real, fake, metrics=[metric], extractor=METRICS[metric].extractor, device="cpu")
    assert result[metric] == pytest.approx(EXPECTED[metric](real, fake), rel=1e-9)


def test_seed_selects_the_subset_of_images_and_of_features(write_images, rng):
    images = write_images("real", rng.integers(0, 256, (30, 8, 8, 3), dtype=np.uint8))
    features = rng.normal(size=(30, 3)).astype(np.float32)
    for source, options in ((images, {"extractor": "pixels", "device": "cpu"}), (features, {})):
        first, again, other = (
            genpr.score(source, source, max_images=20, seed=seed, metrics=["precision"], **options)
            for seed in (0, 0, 5)
        )
        assert first.real.content == again.real.content != other.real.content
        assert (first.max_images, other.seed) == (20, 5)
    chosen = features[choose_rows(30, 20, 5)]
    assert other.real.content == genpr.score(chosen, chosen, metrics=["precision"]).real.content
    turned = genpr.score(chosen, chosen[::-1].copy(), metrics=["precision"])
    assert turned.fake.content == turned.real.content
    assert turned.fake.order != turned.real.order


CHOSEN = [{"k": 4}, {"ties": "strict"}, {"metrics": ["recall", "kd"]}, {"protocol": "prdc"}]


@pytest.mark.parametrize(
    "options", [*CHOSEN, {"max_images": 20}, {"max_images": 20, "seed": 3}, {"extractor": "gabor"}], ids=str
)
def test_evaluator_accepts_every_option_of_score(options, rng, monkeypatch):
    monkeypatch.setattr("genpr.features.source_features.dim_of", lambda _name: None)
    real, fake = (rng.integers(0, n, (10 * n, 3)).astype(np.float32) for n in (4, 5))
    result = genpr.Evaluator(real, **options).score(fake)
    expected = genpr.score(real, fake, **options)
    assert result.to_flat_dict() == expected.to_flat_dict()
    assert result.real.content == expected.real.content
    assert result.fingerprint == expected.fingerprint
    assert (result.seed, result.max_images) == (expected.seed, expected.max_images)


def test_str_of_a_result_has_a_line_per_metric():
    rng = np.random.default_rng(0)
    real, fake = rng.normal(size=(2, 60, 4))
    result = genpr.score(real, fake, metrics=["precision", "vendi"], control=False)
    result = replace(result, notices=(*result.notices, notice("unlabeled-features", source="a\nb\x1b[0m")))
    first, second, *notices = str(result).splitlines()
    low, high = result.metrics["precision"].interval
    value, null = result["precision"], result.metrics["precision"].null
    assert " ".join(first.split()) == f"precision {value:.4f} [{low:.4f}, {high:.4f}] null {null:.4f}"
    assert second.split() == ["vendi", f"{result['vendi']:.4f}"]
    assert notices == [str(item) for item in result.notices], "one line each, with any name"
    assert "replicates" not in repr(result)


def test_str_of_every_kind_of_result_has_the_notices(rng):
    real, options = rng.normal(size=(60, 4)), {"control": False, "intervals": False}
    evaluator, labels = genpr.Evaluator(real, **options), [0, 1] * 30
    copied, new = evaluator.score(real[:50]), evaluator.score(real + 0.01)
    pixels = rng.integers(0, 256, (20, 8, 8, 3), dtype=np.uint8)
    for result in (
        copied,
        genpr.rank_results({"a": copied, "b": new}, force=True),
        genpr.compare({"a": copied, "b": new}, force=True),
        genpr.score_panel(pixels, pixels[:15], extractors=["pixels", "gabor"], k=3, **options),
        evaluator.score_classes(real[:50], real_labels=labels, fake_labels=labels[:50], min_per_class=10),
        evaluator.evidence(real[:50]),
        Sweep("psi", (SweepPoint(0.5, copied),)),
    ):
        assert "\nwarning [copied-reals]: " in str(result)
    modes = genpr.find_modes(real.astype(np.float32), real + 2**40)
    assert "\nwarning [float32-ties]: " in str(modes)


@pytest.mark.parametrize("letter", ["n", "\u00e9", "\u20ac", "\U0001f600"])
def test_a_shortened_notice_is_read_as_it_was_written(letter, rng):
    result = genpr.score(*rng.normal(size=(2, 20, 4)).astype(np.float32), metrics=["fd"])
    long = Notice("skipped", "note", letter * 2000 + "end", letter * 500)
    written = replace(result, notices=(long,))
    assert result_of(json.loads(written.to_json())).notices == (long,)
    assert len(long.message.encode()) <= 1200
    assert long.message.endswith(letter + "end")
