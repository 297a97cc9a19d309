from dataclasses import replace

import numpy as np
import oracle
import pytest
from protocol_cases import score_protocols
from raising import raising

import genpr
from genpr.errors import UsageError
from genpr.evaluation.protocols import find_protocol
from genpr.images.source import choose_rows
from genpr.metrics.registry import DEFAULT_METRICS, METRICS


@pytest.fixture
def pixels(rng):
    return [rng.integers(0, most, (n, 8, 8, 3), dtype=np.uint8) for n, most in ((24, 256), (30, 200))]


NONE, CLOSED_3, STRICT_5, BOTH = (set(), "closed"), ({3}, "closed"), ({5}, "strict"), ({3, 5}, "closed")
FREE, LARGE = (None, None), (50_000, 50_000)
PR, COUNTS = "precision recall", "precision recall density coverage"
CALIBRATED = "calibrated_precision calibrated_recall"


@pytest.mark.parametrize(
    ("name", "metrics", "counted", "extractor", "needed", "most", "rows", "free"),  # counted: k, ties
    [
        ("genpr", f"{CALIBRATED} {COUNTS}", BOTH, "inception", FREE, FREE, None, "extractor metrics k ties"),
        ("kynkaanniemi2019", "precision recall", CLOSED_3, "vgg16", (50_000, 50_000), FREE, None, ""),
        ("adm", "precision recall fid sfid is", CLOSED_3, "inception", (10_000, 50_000), FREE, None, ""),
        ("mar", "precision recall fid is", CLOSED_3, "inception", (10_000, 50_000), FREE, None, ""),
        ("jit", "fid is", NONE, "inception", (None, 50_000), FREE, None, ""),
        ("edm2", "fid fd_dinov2", NONE, "inception", (None, 50_000), FREE, None, ""),
        ("guidance-interval", f"{PR} fid fd_dinov2", CLOSED_3, "dinov2-vitl14", LARGE, FREE, None, ""),
        ("stylegan3", "precision recall", CLOSED_3, "vgg16", (None, 50_000), (200_000, None), None, ""),
        ("torch-fidelity", "precision recall fid kid is", CLOSED_3, "vgg16", FREE, FREE, None, ""),
        ("prdc", COUNTS, STRICT_5, "vgg16", FREE, FREE, None, "extractor k"),
        ("fdr6", "fd", NONE, "inception", (None, 50_000), FREE, None, ""),
        ("mind6", "mind", NONE, "inception", LARGE, FREE, None, ""),
        ("dgm-eval", f"{COUNTS} fd fd_infinity kd vendi", STRICT_5, "dinov2-vitl14", FREE, LARGE, 10_000, ""),
        ("coco30k", "fid", NONE, "inception@pil-bicubic-float", (40_504, 30_000), FREE, None, ""),
    ],
)
def test_protocols_pin_the_published_settings(name, metrics, counted, extractor, needed, most, rows, free):
    protocol = find_protocol(name)
    ks = {protocol.k[metric] for metric in protocol.metrics if METRICS[metric].kind == "neighbors"}
    assert (ks, protocol.ties) == counted
    assert protocol.extractor == extractor
    assert protocol.metrics == tuple(metrics.split())
    assert (protocol.n_real, protocol.n_fake) == needed
    assert (protocol.max_real, protocol.max_fake, protocol.max_rows) == (*most, rows)
    assert protocol.free == set(free.split())
    published = dict.fromkeys(("mar", "jit", "edm2", "guidance-interval", "fdr6"), "published")
    assert protocol.reference_statistics == {"adm": "with images", **published}.get(name)
    prepared = {"coco30k": ("square-crop:256", "clip-vit-b-32")}
    prepared |= dict.fromkeys(("fdr6", "mind6"), ("center-crop:256", None))
    assert (protocol.prepare, protocol.clip) == prepared.get(name, (None, None))
    assert protocol.inception_score_split_size == (5_000 if name == "adm" else None)


@pytest.mark.parametrize(
    ("metric", "space", "better"),
    [
        *((name, None, "higher") for name in (*DEFAULT_METRICS, "vendi")),
        *((name, "inception", "lower") for name in ("fid", "kid")),
        ("sfid", "inception-spatial", "lower"),
        ("fd_dinov2", "dinov2-vitl14", "lower"),
        ("cmmd", "clip-vit-l-14-336", "lower"),
        *((name, None, "lower") for name in ("fd", "fd_infinity", "kd", "mind")),
        ("is", "inception-softmax", "higher"),
        *((name, None, "at null") for name in ("nn_accuracy", "rarity", "authenticity", "c_t")),
    ],
)
def test_metrics_use_the_features_of_their_definition(metric, space, better):
    assert (METRICS[metric].extractor, METRICS[metric].better) == (space, better)
    counts_neighbors = metric in (*DEFAULT_METRICS, "nn_accuracy", "rarity", "authenticity")
    assert (METRICS[metric].kind == "neighbors") == counts_neighbors


def test_seed_selects_the_rows_that_a_protocol_uses(change_protocol, rng):
    change_protocol("dgm-eval", max_rows=30, max_real=50)
    real, fake = rng.normal(size=(60, 6)).astype(np.float32), rng.normal(size=(40, 6)).astype(np.float32)
    result = genpr.score(real, fake, protocol="dgm-eval", metrics=COUNTS.split(), seed=3)
    reals, fakes = real[choose_rows(60, 50, 3)][choose_rows(50, 30, 3)], fake[choose_rows(40, 30, 3)]
    expected = oracle.manifold_metrics(reals, fakes, k=5, ties="strict")
    assert tuple(result[name] for name in COUNTS.split()) == expected
    assert result.metrics["recall"].variant == "30 images of each side, drawn with seed 3"


def test_rows_of_parts_of_sets_are_in_no_notice(change_protocol, rng):
    change_protocol("dgm-eval", max_rows=60)
    real = rng.normal(size=(100, 6)).astype(np.float32)
    for protocol, is_reported in (("genpr", True), ("dgm-eval", False)):
        result = genpr.score(real, real[:80] + np.float32(1e-6), protocol=protocol, metrics=COUNTS.split())
        assert ("near-copies" in {item.code for item in result.notices}) == is_reported


def test_seed_selects_rows_of_features_that_protocols_share(change_protocol, rng):
    change_protocol("kynkaanniemi2019", n_real=40, n_fake=30)
    real, fake = rng.normal(size=(2, 70, 6)).astype(np.float32)
    options = {"protocols": ["genpr", "kynkaanniemi2019"], "metrics": ["precision"], "seed": 3}
    found = score_protocols(real, fake, **options)["kynkaanniemi2019"]
    expected = oracle.manifold_metrics(real[choose_rows(70, 40, 3)], fake[choose_rows(70, 30, 3)], k=3)
    assert found["precision"] == expected[0]


def test_pinned_preparation_is_used(change_protocol, pixels):
    change_protocol("prdc", prepare="resize:6")
    options = {"extractor": "pixels", "device": "cpu", "control": False}
    free, pinned = (genpr.score(*pixels, protocol=name, **options) for name in ("genpr", "prdc"))
    assert "prepare" not in free.real.decoder
    assert [side.decoder["prepare"] for side in (pinned.real, pinned.fake)] == ["resize:6"] * 2
    assert genpr.score(*pixels, protocol="prdc", prepare="resize:6", **options)["recall"] == pinned["recall"]
    both = score_protocols(*pixels, protocols=["genpr", "prdc"], prepare="resize:6", **options)
    assert both["prdc"]["recall"] == pinned["recall"]
    for refused in ({"prepare": "none"}, {"prepare": "resize:7"}):
        with raising(UsageError, "protocol-pinned"):
            genpr.Evaluator(pixels[0], protocol="prdc", **refused, **options)
    with raising(UsageError, "protocol-pinned"):
        score_protocols(*pixels, protocols=["genpr", "prdc"], **options)


@pytest.fixture
def kid_of_pixels(monkeypatch):
    """KID on weight-free features, so that one score needs two extractors."""
    from genpr.evaluation import plan

    kid = replace(METRICS["kid"], extractor="pixels")
    monkeypatch.setattr(plan, "METRICS", {**METRICS, "kid": kid})


def test_extractor_of_a_score_does_not_depend_on_the_order_of_metrics(kid_of_pixels, pixels):
    result = genpr.score(*pixels, extractor="gabor", metrics=["kid", "kd"], device="cpu")
    assert list(result.metrics) == ["kid", "kd"]
    assert [metric.extractor for metric in result.metrics.values()] == ["pixels", "gabor"]
    assert result.extractor.name == "gabor"
    with raising(UsageError, "extractor-unused"):
        genpr.score(*pixels, extractor="gabor", metrics=["kid"], device="cpu")
    assert genpr.score(*pixels, metrics=["kid"], device="cpu").extractor.name == "pixels"
