"""Results side by side: only what was made alike, unless forced, and then saying what was not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from raising import raising

import genpr
from genpr.cli.main import run
from genpr.errors import DataError
from genpr.evaluation.compare import compare


@pytest.fixture
def real(rng):
    return rng.normal(size=(60, 6)).astype(np.float32)


@pytest.fixture
def scores(real, rng):
    return {
        name: genpr.score(real, scale * rng.normal(size=(60, 6)).astype(np.float32))
        for name, scale in (("wide", 1.5), ("narrow", 0.5))
    }


def test_results_of_the_same_reals_are_compared(scores):
    comparison = compare(scores)
    assert comparison.differences == ()
    assert comparison.metrics == ("precision", "recall", "density", "coverage")
    assert scores["wide"].fingerprint == scores["narrow"].fingerprint


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"k": 4}, "k of precision is 4 in other and 3 in wide"),
        ({"ties": "strict"}, "ties of precision is strict in other and closed in wide"),
        (
            {"protocol": "adm", "metrics": ["precision"]},
            "distances of precision is adm-float16 in other",
        ),
    ],
)
def test_another_recipe_is_refused_and_named(scores, real, options, what):
    other = genpr.score(real, real[::-1] * 0.9, **options)
    assert other.fingerprint != scores["wide"].fingerprint
    with pytest.raises(DataError, match=what) as caught:
        compare({"wide": scores["wide"], "other": other})
    assert caught.value.code == "not-alike"
    forced = compare({"wide": scores["wide"], "other": other}, force=True)
    assert any(what in difference for difference in forced.differences)


def test_other_reals_and_other_numbers_are_refused_and_named(scores, real):
    other = genpr.score(real[:50], real[:40])
    with pytest.raises(DataError) as caught:
        compare({"wide": scores["wide"], "other": other})
    message = str(caught.value)
    assert "the real set of other" in message
    assert "50 real images in other, 60 in wide" in message
    assert "40 fake images in other, 60 in wide" in message


@pytest.mark.parametrize("field", ["weights_sha256", "resize", "cache_key"])
def test_every_part_of_an_extractor_is_in_the_fingerprint(field):
    images = np.random.default_rng(0).integers(0, 256, (8, 8, 8, 3), dtype=np.uint8)
    result = genpr.score(images, images, extractor="gabor", device="cpu")
    changed = replace(result.extractors["gabor"], **{field: "other"})
    other = replace(result, extractors={"gabor": changed})
    assert other.fingerprint != result.fingerprint
    with pytest.raises(DataError, match="other in second"):
        compare({"first": result, "second": other})


def test_metrics_are_compared_where_both_have_them(scores, real):
    part = genpr.score(real, real * 0.8, metrics=["recall", "coverage"])
    assert compare({"wide": scores["wide"], "part": part}).metrics == ("recall", "coverage")
    with raising(DataError, "no-common-metric"):
        compare({"part": part, "other": genpr.score(real, real, metrics=["density"])})


# The command -------------------------------------------------------------------------------------------------


@pytest.fixture
def files(scores, tmp_path):
    paths = [tmp_path / f"{name}.json" for name in scores]
    for path, result in zip(paths, scores.values(), strict=True):
        path.write_text(result.to_json())
    return paths


def test_compare_refuses_with_exit_3_unless_forced(files, real, tmp_path, capsys):
    (tmp_path / "other.json").write_text(genpr.score(real, real, k=4).to_json())
    arguments = ["compare", str(files[0]), str(tmp_path / "other.json")]
    assert run(arguments) == 3
    assert "k of precision is 4 in other.json and 3 in wide.json" in capsys.readouterr().err
    assert run([*arguments, "--force"]) == 0
    assert "not made alike: k of precision" in capsys.readouterr().out
