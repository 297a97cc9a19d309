"""Entity metrics of images, with toy classifiers of colored stripes."""

import numpy as np
import pytest
import toy_colors
from raising import raising
from toy_colors import COLORS, Detector, Misshapen, Network, Pair, painted, write_expected

import genpr
from genpr import DataError, UsageError
from genpr.errors import BadImagesError
from genpr.evaluation.result import result_of

EXPECTED = [[name for name in COLORS if (row + 1) >> COLORS[name] & 1] or ["red"] for row in range(64)]
DRAWN = [[name for name in names if name != "blue" or row % 4] for row, names in enumerate(EXPECTED)]
"""Each fourth image lacks its blue."""
IMAGES = np.stack([painted(*names) for names in DRAWN])
LABELED = np.stack([painted(*names) for names in EXPECTED])
BLUE = sum("blue" in names for names in EXPECTED)
FOUND_BLUE = sum("blue" in names for names in DRAWN)
COLD = {"device": "cpu", "cache": False}
CALIBRATED = {"calibrate_on": LABELED, "calibrate_expected": EXPECTED}


def in_images(expected=EXPECTED, images=IMAGES, **options):
    return genpr.score_entities_in_images(expected, images, **{"classifier": Detector(), **COLD, **options})


def share_of_blue(result):
    (row,) = [row for row in result.entities.rows if row.entity == "blue"]
    return row.n_found, row.n_expected


def test_detected_entities_score_as_the_same_answers():
    result = in_images()
    answers = genpr.score_entities(EXPECTED, DRAWN, vocabulary=list(COLORS))
    assert share_of_blue(result) == (FOUND_BLUE, BLUE)
    for name in ("recall", "micro_recall", "macro_recall", "all_found", "precision"):
        mine, answered = (each.metrics[f"entity.{name}"] for each in (result, answers))
        assert (mine.value, mine.interval) == (answered.value, answered.interval), "the same halves"
    assert "entity.failure_rate" not in result.metrics, "a detector's answers can all be read"
    assert (result.extractor.name, result.fake.what, result.real.what) == ("Detector", "images", "prompts")
    seen = result.entities.classifier
    assert (seen.kind, seen.chosen, seen.entities[0].thresholds) == ("detector", "fixed", (0.3,))
    assert not result.comparable
    assert result_of(result.to_dict()).entities == result.entities


@pytest.mark.parametrize(("strength", "is_seen"), [(76, False), (77, True)], ids=["76", "77"])
def test_detections_count_from_a_score_of_three_tenths(strength, is_seen):
    images = np.stack([painted("red", strength=strength), painted("green")])
    assert in_images([["red"], ["green"]], images)["entity.recall"] == (1 if is_seen else 0.5)


def test_thresholds_are_chosen_on_labeled_images():
    result = in_images(classifier=Pair(), vocabulary=list(COLORS), seed=3, **CALIBRATED)
    assert share_of_blue(result) == (FOUND_BLUE, BLUE)
    assert result["entity.precision"] == 1
    seen = result.entities.classifier
    assert (seen.kind, seen.chosen) == ("zero-shot", "labeled")
    assert [(each.sensitivity, each.false_positive_rate) for each in seen.entities] == [(1, 0)] * 3
    assert all(each.is_own and len(each.thresholds) == 1 for each in seen.entities)
    assert "poorly-recognized" not in {item.code for item in result.notices}
    result = in_images(classifier=Detector(("blue",)), vocabulary=list(COLORS), **CALIBRATED)
    (item,) = [item for item in result.notices if item.code == "poorly-recognized"]
    assert "1 of 3 entities" in item.message


@pytest.mark.parametrize("form", ["in/{}.png", "./in/{}.png", "{}.png", "in/{}", "{}"])
def test_ids_are_paths_or_unique_names(write_images, tmp_path, form):
    """The order of images does not change intervals, because halves are drawn from expectations."""
    folder = write_images("images/in", IMAGES[::-1]).parent
    names = [form.format(f"{63 - row:05d}") for row in range(64)]
    result, plain = in_images(write_expected(tmp_path / "e.csv", EXPECTED, names), folder), in_images()
    assert share_of_blue(result) == (FOUND_BLUE, BLUE)
    assert result.metrics["entity.recall"].interval == plain.metrics["entity.recall"].interval


def test_expectations_in_order_of_unpadded_names_are_a_warning(write_images):
    folder = write_images("images", LABELED, "{}.png")
    labeled = {"calibrate_on": folder, "calibrate_expected": EXPECTED}
    for images, given, expected in ((folder, CALIBRATED, 1), (IMAGES, labeled, 1), (IMAGES, CALIBRATED, 0)):
        result = in_images(images=images, **given)
        assert [item.code for item in result.notices].count("name-order") == expected


def test_expectations_of_unused_images_are_left_out(write_images, tmp_path):
    folder = write_images("images", IMAGES)
    (folder / "00001.png").write_bytes(b"no image")
    path = write_expected(tmp_path / "e.csv", EXPECTED)
    result = in_images(path, folder, on_bad="skip", max_bad=0.1, max_images=40, seed=1)
    kept = in_images(path, folder, on_bad="skip", max_bad=0.1, seed=1)
    assert (kept.real.n, kept.fake.n, kept.fake.skipped[0][0]) == (63, 63, "00001.png")
    assert result.real.n == result.fake.n <= 40
    assert result["entity.precision"] == kept["entity.precision"] == 1, "each image kept its own expectation"
    with pytest.raises(BadImagesError):
        in_images(path, folder)


@pytest.mark.parametrize(("at", "n", "code"), [("", 63, "missing"), ("", 65, "unused"), ("x/", 64, "unused")])
def test_ids_that_do_not_match_are_errors(write_images, tmp_path, at, n, code):
    names = [f"{at}{row:05d}.png" for row in range(n)]
    path = write_expected(tmp_path / "e.csv", (EXPECTED * 2)[:n], names)
    with raising(DataError, f"expectations-{code}"):
        in_images(path, write_images("images", IMAGES))


def test_entities_of_prompts_are_found_by_name_and_alias(tmp_path):
    prompts = [f"a {' and a '.join(names)} stripe".replace("blue", "azure") for names in EXPECTED]
    result = in_images(prompts, classifier=Detector(), vocabulary={"red": [], "green": [], "blue": ["azure"]})
    assert share_of_blue(result) == (FOUND_BLUE, BLUE)
    groups = {tuple(names) for names in EXPECTED}
    assert result.metrics["entity.recall"].n_counted == len(groups), "images of one prompt are one draw"


def test_features_of_networks_are_cached_and_weights_hashed(write_images, tmp_path):
    folder = write_images("images", IMAGES)
    path = write_expected(tmp_path / "e.csv", EXPECTED)
    options = {"classifier": Network(), "cache": True, "cache_dir": tmp_path / "cache"}
    first = in_images(path, folder, **options)
    assert first.extractor.weights_sha256
    again = in_images(path, folder, **options)
    assert (first.fake.n_embedded, again.fake.n_embedded) == (64, 0)
    assert again["entity.recall"] == first["entity.recall"] == in_images()["entity.recall"]
    options["classifier"].scale.data *= 0.2
    assert in_images(path, folder, **options)["entity.recall"] == 0, "other weights, other scores"


def test_comparisons_need_the_same_classifier_and_vocabulary():
    one, same = in_images(), in_images(images=LABELED)
    found = genpr.compare({"one": one, "same": same})
    assert found.contrast("same", "entity.recall").value > 0
    named = Detector()
    named.name = "another"
    for other, words in (
        (in_images(classifier=named), "extractor of entity.recall"),
        (in_images(vocabulary={"red": [], "green": [], "blue": ["azure"]}), "set of prompts"),
        (in_images(**CALIBRATED), "variant of entity.recall"),
        (genpr.score_entities(EXPECTED, DRAWN, vocabulary=list(COLORS)), "extractor of entity.recall"),
    ):
        with pytest.raises(DataError, match=words):
            genpr.compare({"one": one, "other": other})


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"classifier": Pair()}, "no-vocabulary"),
        ({"vocabulary": ["red", "green", "blue", "unicorn"]}, "unseen-entities"),
        ({"expected": [["unicorn"]] * 64}, "bad-expectation"),
        ({"exclude": ["unicorn"]}, "unseen-entities"),
        ({"calibrate_on": LABELED}, "bad-option"),
        ({"classifier": "inception"}, "no-text-encoder"),
        ({"classifier": "yolo"}, "unknown-extractor"),
        ({"classifier": object()}, "custom-detector"),
        ({"classifier": Misshapen()}, "feature-shape"),
        ({"classifier": "clip", "vocabulary": list(COLORS), "offline": True, **CALIBRATED}, "weights-missing"),
        ({"classifier": f"{toy_colors.__file__}:pair", "weights": "w.pth"}, "weights-unused"),
        ({"classifier": Pair(), "vocabulary": list(COLORS)}, "no-thresholds"),
        ({"expected": EXPECTED[:-1]}, "expectation-count"),
        ({"calibrate_on": LABELED, "calibrate_expected": [["sofa"]] * 64}, "no-thresholds"),
        ({"calibrate_on": LABELED, "calibrate_expected": [list(COLORS)] * 64}, "no-thresholds"),
    ],
    ids=range(15),
)  # fmt: skip
def test_invalid_options_are_errors(options, code):
    with raising(genpr.GenprError, code):
        in_images(**options)


def test_images_without_a_classifier_are_an_error(tmp_path):
    for found in (tmp_path, tmp_path / "samples.zip", tmp_path / "samples.npz", IMAGES):
        with raising(UsageError, "records-kind"):
            genpr.score_entities(EXPECTED, found)


def test_classes_of_one_entity_are_joined():
    warm = [["warm"], ["blue"]]
    vocabulary = {"warm": ["red", "green"], "blue": []}
    result = in_images(warm, np.stack([painted("green"), painted("blue")]), vocabulary=vocabulary)
    assert (result["entity.recall"], result["entity.precision"]) == (1, 1)
