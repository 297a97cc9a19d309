"""The self-test finds what it is for: exchanged directions, one wrong count, a codec that lies, features that move."""

from __future__ import annotations

from itertools import count

import pytest
import torch

from genpr.doctor import Check, checks


def only(findings):
    (found,) = findings
    return found


WRONG = {
    "exchanged": lambda call, found: {"precision": found["recall"], "recall": found["precision"]},
    "blind to noise": lambda call, found: found if call != 1 else {**found, "precision": 0.9},
    "blind to lost kinds": lambda call, found: found if call != 0 else {**found, "recall": 0.9},
    "blind to them either way": lambda call, found: {**found, ["recall", "recall", "precision"][call]: 0.9},
    "not symmetric": lambda call, found: (
        found if call != 2 else {**found, "recall": found["recall"] - 1 / 300}
    ),
    "not symmetric either": lambda call, found: found if call != 2 else {**found, "precision": 0.0},
}


@pytest.mark.parametrize("wrong", WRONG)
def test_wrong_directions_are_found(monkeypatch, wrong):
    import genpr.evaluation.evaluator

    right, calls = genpr.evaluation.evaluator.score, count()

    def score(real, fake, **options):
        found = right(real, fake, **options)
        return WRONG[wrong](next(calls), {name: found[name] for name in ("precision", "recall")})

    monkeypatch.setattr(genpr.evaluation.evaluator, "score", score)
    found = only(checks.check_directions())
    assert found.state == "broken"
    assert "report" in found.remedy


@pytest.mark.parametrize("wrong", ["one count", "open balls"])
def test_a_wrong_count_is_found(monkeypatch, wrong):
    from genpr.metrics.knn_manifold import KNNManifold

    right, fit = KNNManifold.count, KNNManifold.fit
    if wrong == "one count":

        def off_by_one(self, queries):
            counts = right(self, queries)
            counts[17] += 1
            return counts

        monkeypatch.setattr(KNNManifold, "count", off_by_one)
    else:
        monkeypatch.setattr(
            KNNManifold, "fit", lambda rows, ties, **options: fit(rows, ties="strict", **options)
        )
    found = only(checks.check_exactness())
    assert found.state == "broken"
    assert found.facts["wrong"][0] == "ties"


def test_float32_distances_would_be_found(monkeypatch):
    """The usual shortcut, |x|² + |y|² - 2xy in float32, loses what features far from the origin differ in."""
    from genpr.metrics.knn_manifold import KNNManifold

    def careless(self, queries):
        x, y = self.features, torch.from_numpy(queries)
        between = (y.square().sum(1)[:, None] + x.square().sum(1) - 2 * y @ x.T).double()
        return (between <= self.sq_radii if self.ties == "closed" else between < self.sq_radii).sum(1)

    monkeypatch.setattr(KNNManifold, "count", careless)
    assert only(checks.check_exactness()).facts["wrong"] == ["off-centre"]


def test_a_codec_that_exchanges_channels_is_found(monkeypatch):
    import genpr.images.decode

    decode = genpr.images.decode.decode

    def exchanged(data, *, name, policy):
        found = decode(data, name=name, policy=policy)
        if name == "made.avif":
            found.pixels[:] = found.pixels[..., ::-1].copy()
        return found

    monkeypatch.setattr(genpr.images.decode, "decode", exchanged)
    found = only(checks.check_codecs())
    assert found.state == "broken"
    assert found.facts["wrong"] == ["AVIF"]


def test_a_pillow_without_a_codec_is_a_remark(monkeypatch):
    from PIL import features

    check = features.check
    monkeypatch.setattr(features, "check", lambda name: name != "avif" and check(name))
    found = only(checks.check_codecs())
    assert (found.state, found.facts["absent"]) == ("warn", ["AVIF"])
    assert "AVIF" not in found.facts["read"]
    assert {"PNG", "JPEG", "WEBP", "GIF", "BMP", "PPM", "TIFF"} <= set(found.facts["read"])


def test_features_that_move_are_found(monkeypatch):
    import genpr.features.embed

    embed = genpr.features.embed.embed

    def trembling(images, extractor, *, batch_size):
        rows = embed(images, extractor, batch_size=batch_size)
        rows[3, 5] += 1e-6 * (batch_size == 1)
        return rows

    monkeypatch.setattr(genpr.features.embed, "embed", trembling)
    assert only(checks.check_features()).state == "broken"


def test_all_is_well_here():
    looks = (
        checks.check_directions,
        checks.check_exactness,
        checks.check_codecs,
        checks.check_features,
    )
    assert [only(look()).state for look in looks] == ["ok"] * 4


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_gpus_count_as_integers_do():
    found = list(checks.check_exactness_on_gpus())
    assert len(found) == torch.cuda.device_count()
    assert {each.state for each in found} == {"ok"}


def test_a_check_that_fails_itself_is_a_finding():
    def look():
        raise RecursionError("x" * 500)

    found = only(Check("mine", look).run())
    assert (found.name, found.state) == ("mine", "broken")
    assert len(found.text) < 300
    assert only(Check("mine", look, needs=("torch",)).run(["torch"])).state == "warn"
