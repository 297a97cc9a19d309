"""Diversity within groups: values, pairs, groups, errors, and situations from public threads."""

import itertools
import json
import math
import zipfile

import numpy as np
import pyarrow
import pytest
import torch
from image_files import encode
from lpips_state import lpips_state, replaced_lpips
from pyarrow import parquet
from raising import raising

import genpr
from genpr.errors import BadImagesError, DataError, UsageError, WeightsError
from genpr.evaluation.compare import compare
from genpr.evaluation.diversity import diversity_with
from genpr.evaluation.options import DiversityOptions
from genpr.evaluation.result import result_of
from genpr.features.networks.lpips import PerceptualDistance
from genpr.features.weights import Weights
from genpr.metrics.paired import MultiScaleSSIM

PIXELS = {"metrics": ["cosine_distance"], "extractor": "pixels", "device": "cpu"}


def cosine_distances(images):
    """All pairs of images (n, h, w, 3), with features of `pixels` of 32 x 32."""
    flat = images.reshape(len(images), -1).astype(float)
    unit = flat / np.linalg.norm(flat, axis=1, keepdims=True)
    return [1 - unit[a] @ unit[b] for a, b in itertools.combinations(range(len(images)), 2)]


def images_like(random, spreads, count=5, size=32):
    """Groups of images: a pattern of its own, and noise of a group's spread."""
    patterns = random.uniform(60, 190, (len(spreads), 1, size, size, 3))
    noise = random.normal(size=(len(spreads), count, size, size, 3)) * np.reshape(spreads, (-1, 1, 1, 1, 1))
    return np.clip(patterns + noise, 0, 255).astype(np.uint8)


@pytest.fixture
def groups(rng):
    """12 groups of 5 images, the later the more diverse."""
    return images_like(rng, np.linspace(2, 60, 12))


@pytest.fixture
def alex(tmp_path, monkeypatch):
    """Options of LPIPS with random weights."""
    folder = tmp_path / "weights"
    folder.mkdir()
    replaced_lpips(folder, monkeypatch)
    return {"metrics": ["lpips"], "weights": folder, "device": "cpu"}


def lpips_of(first, second):
    """LPIPS of pairs of images (n, h, w, 3), each through the network for itself."""
    distance = PerceptualDistance(
        "alex", *(Weights(each, "") for each in lpips_state("alex")), torch.device("cpu")
    )
    return distance(*(torch.from_numpy(each).permute(0, 3, 1, 2) for each in (first, second))).numpy()


def all_pairs(images):
    return map(np.stack, zip(*itertools.combinations(images, 2), strict=True))


def labels_of(groups):
    return np.repeat(np.arange(len(groups)), groups.shape[1])


def flat(groups):
    return groups.reshape(-1, *groups.shape[2:])


def write(write_images, name, groups, form="{:02d}/{}.png"):
    for row, images in enumerate(groups):
        write_images(name, {form.format(row, at): image for at, image in enumerate(images)}, "{}")
    return write_images(name, {}, "")


def test_values_are_means_over_pairs_then_groups(groups):
    fakes = [*groups[:11], groups[11][:2]]  # of unequal numbers, so that pairs and groups weigh differently
    labels = [str(row) for row, images in enumerate(fakes) for _ in images]
    result = genpr.diversity(np.concatenate(fakes), groups=labels, **PIXELS)
    expected = np.array([np.mean(cosine_distances(images)) for images in fakes])
    metric = result.metrics["diversity.cosine_distance"]
    assert metric.value == pytest.approx(expected.mean(), rel=1e-6)
    half = 2.05 * expected.std(ddof=1) / math.sqrt(12)  # Student's interval, which halves estimate
    assert np.subtract(metric.interval, metric.value) == pytest.approx([-half, half], rel=0.25)
    assert metric.extractor == "pixels"
    rows = result.diversity.groups
    assert list(rows) == [str(row) for row in np.argsort(expected)], "the least diverse first"
    for row, images in enumerate(fakes):
        n = len(images)
        found = rows[str(row)]
        assert (found["images"], found["pairs"]) == (n, n * (n - 1) / 2)
        assert found["cosine_distance"] == pytest.approx(expected[row], rel=1e-6)
    few = genpr.diversity(np.concatenate(fakes[:9]), groups=labels[:45], **PIXELS)
    assert few.metrics["diversity.cosine_distance"].interval is None
    assert [item.code for item in few.notices] == ["few-groups"]


def test_lpips_equals_that_of_each_pair_and_each_image_passes_the_network_once(groups, alex, monkeypatch):
    passed, original = [], PerceptualDistance.activations

    def counted(self, images):
        passed.append(len(images))
        yield from original(self, images)

    monkeypatch.setattr(PerceptualDistance, "activations", counted)
    result = genpr.diversity(flat(groups), groups=labels_of(groups), batch_size=3, **alex)
    assert (sum(passed), max(passed)) == (60, 3)
    monkeypatch.undo()
    expected = [lpips_of(*all_pairs(images)).mean() for images in groups]
    found = [result.diversity.groups[str(row)]["lpips"] for row in range(12)]
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert min(expected) > 1e-3


def test_null_is_that_of_the_reals_of_the_same_groups(groups, rng):
    reals = images_like(rng, np.full(12, 50.0), count=4)
    options = {"groups": labels_of(groups), "real": flat(reals), "groups_of_real": labels_of(reals)}
    result = genpr.diversity(flat(groups), **options, **PIXELS)
    fake, real = (np.array([np.mean(cosine_distances(each)) for each in side]) for side in (groups, reals))
    (metric,) = result.metrics.values()
    assert (metric.value, metric.null) == (
        pytest.approx(fake.mean(), rel=1e-6),
        pytest.approx(real.mean(), rel=1e-6),
    )
    assert metric.relative == pytest.approx(fake.mean() / real.mean(), rel=1e-6)
    assert metric.interval is not None
    for row in range(12):
        found = result.diversity.groups[str(row)]
        assert (found["real_images"], found["real_pairs"]) == (4, 6)
        assert found["real_cosine_distance"] == pytest.approx(real[row], rel=1e-6)
    assert (result.roles, result.real.n, result.fake.n) == (("reals", "fakes"), 48, 60)


def test_with_reals_means_are_over_groups_that_both_have(groups, rng):
    reals = images_like(rng, np.full(4, 50.0))
    groups_of_real = np.where(
        np.arange(20) < 1, 9, labels_of(reals)
    )  # group 9 has one, and group 0 the other four
    options = {"groups": labels_of(groups), "real": flat(reals), "groups_of_real": groups_of_real}
    result = genpr.diversity(flat(groups), **options, **PIXELS)
    fake = np.mean([np.mean(cosine_distances(images)) for images in groups[:4]])
    real = np.mean([np.mean(cosine_distances(each)) for each in (reals[0][1:], *reals[1:])])
    metric = result.metrics["diversity.cosine_distance"]
    assert (metric.value, metric.null) == (pytest.approx(fake, rel=1e-6), pytest.approx(real, rel=1e-6))
    assert metric.interval is None
    (found,) = (item for item in result.notices if item.code == "groups-without-pairs")
    assert found.message.startswith("8 of 12 ")
    assert len(result.diversity.groups) == 12
    assert "real_cosine_distance" not in result.diversity.groups["9"]
    same = np.repeat(reals[:1, :1], 5, axis=1)
    still = genpr.diversity(flat(groups[:1]), groups="all", real=flat(same), **PIXELS)
    metric = still.metrics["diversity.cosine_distance"]
    assert (metric.null, metric.relative) == (pytest.approx(0, abs=1e-7), None), "reals that do not differ"
    # A group of one fake, of which there are several reals.
    options = {"groups": [0] * 5 + [1] * 5 + [2], "real": flat(reals), "groups_of_real": labels_of(reals)}
    alone = genpr.diversity(flat(groups)[:11], **options, **PIXELS).metrics["diversity.cosine_distance"]
    expected = np.mean([np.mean(cosine_distances(each)) for each in reals[:2]])
    assert alone.null == pytest.approx(expected, rel=1e-6)
    # One set has two images of one group, the other set of the other.
    options = {"groups": ["a", "a", "b"], "real": flat(reals)[:3], "groups_of_real": ["a", "b", "b"]}
    with raising(DataError, "single-images"):
        genpr.diversity(flat(groups)[:3], **options, **PIXELS)


def test_chosen_images_are_equally_likely(rng):
    """Over seeds, the mean of all pairs of three of five images is that of all pairs."""
    images = images_like(rng, [0.0])[0] + np.arange(0, 50, 10, dtype=np.uint8)[
        :, None, None, None
    ] % np.uint8(41)
    images[:, :16] //= np.array([1, 2, 3, 5, 9], np.uint8)[:, None, None, None]
    options = PIXELS | {"groups": "all", "images_per_group": 3}
    found = [genpr.diversity(images, seed=seed, **options).diversity.groups["all"] for seed in range(120)]
    assert {(each["images"], each["pairs"]) for each in found} == {(3, 3)}
    values = [each["cosine_distance"] for each in found]
    every = [np.mean(cosine_distances(images[list(rows)])) for rows in itertools.combinations(range(5), 3)]
    np.testing.assert_allclose(np.unique(np.round(values, 6)), np.unique(np.round(every, 6)), atol=2e-6)
    error = np.std(values) / math.sqrt(len(values))
    assert np.mean(values) == pytest.approx(np.mean(cosine_distances(images)), abs=4 * error)
    assert error < 0.15 * np.mean(values)


def test_pairs_depend_on_names_and_seed_only(groups, write_images, tmp_path):
    folder = write(write_images, "fake", groups[:3])
    names = sorted(str(path.relative_to(folder)) for path in folder.rglob("*.png"))
    with zipfile.ZipFile(tmp_path / "fake.zip", "w") as file:
        for name in reversed(names):
            file.write(folder / name, name)
    (folder / "list.txt").write_text("\n".join(reversed(names)))
    sources = (folder, tmp_path / "fake.zip", folder / "list.txt")
    options = PIXELS | {"images_per_group": 3}
    found = [genpr.diversity(each, **options).diversity.groups for each in sources]
    assert found[0] == found[1] == found[2]
    assert genpr.diversity(folder, seed=1, **options).diversity.groups != found[0]
    more = write(write_images, "fake", groups[:4])
    again = genpr.diversity(more, **options).diversity.groups
    assert {name: again[name] for name in found[0]} == found[0]


def test_groups_from_folders_names_files_and_lists_are_equal(groups, write_images, tmp_path):
    folder = write(write_images, "folders", groups[:3])
    plain = write(write_images, "names", groups[:3], "{:02d}_{}.png")
    rows = [f"{row:02d}_{at}.png,{row:02d}" for row in range(3) for at in range(5)]
    (tmp_path / "groups.csv").write_text("\n".join(["name,label", *rows]))
    np.save(tmp_path / "groups.npy", np.repeat(["00", "01", "02"], 5))
    found = [
        genpr.diversity(source, groups=given, **PIXELS).diversity.groups
        for source, given in (
            (folder, None),
            (folder, "folders"),
            (plain, r"pattern:^(\d+)_\d\.png$"),
            (plain, str(tmp_path / "groups.csv")),
            (flat(groups[:3]), np.repeat(["00", "01", "02"], 5)),
            (flat(groups[:3]), tmp_path / "groups.npy"),
        )
    ]
    for each in found[1:]:
        assert list(each) == list(found[0])
        for name, row in found[0].items():
            assert each[name] == pytest.approx(row, rel=1e-6)
    both = genpr.diversity(plain, real=plain, groups=r"pattern:^(\d+)_", **PIXELS)
    assert both.metrics["diversity.cosine_distance"].relative == 1, "a pattern is of both sets"


def test_images_of_a_group_have_one_size_and_are_large_enough(groups, write_images, alex):
    images = list(groups[0]) + [image[:, :31] for image in groups[1]] + [image[:30] for image in groups[2]]
    folder = write_images(
        "fake", {f"{row // 5}/{row % 5}.png": each for row, each in enumerate(images)}, "{}"
    )
    with pytest.raises(BadImagesError) as small:
        genpr.diversity(folder, **alex)
    bad = {(each.path, each.code) for each in small.value.bad}
    assert bad == {(f"2/{row}.png", "image-too-small") for row in range(5)}
    assert genpr.diversity(folder, **PIXELS).diversity.groups.keys() == {"0", "1", "2"}
    write_images("fake", {"2/0.png": groups[2][0][:, :31]}, "{}")
    write_images("fake", {f"2/{row}.png": groups[2][row] for row in range(1, 5)}, "{}")
    (folder / "1/4.png").write_bytes(b"no image")
    with pytest.raises(BadImagesError) as different:
        genpr.diversity(folder, **alex)
    codes = {each.path: each.code for each in different.value.bad}
    assert codes.pop("1/4.png") not in ("sizes-differ", "image-too-small")
    assert {*codes.values()} == {"sizes-differ"}
    assert {name.partition("/")[0] for name in codes} == {"2"}
    options = {"on_bad": "skip", "max_bad": 0.4}
    prepared = genpr.diversity(folder, prepare="resize:32", **options, **alex)
    assert {name: row["pairs"] for name, row in prepared.diversity.groups.items()} == {
        "0": 10,
        "1": 6,
        "2": 10,
    }
    of_any_size = genpr.diversity(folder, **options, **PIXELS)
    assert of_any_size.diversity.groups["2"]["pairs"] == 10, "extractors resize each image"


def test_values_without_unusable_images_are_those_of_the_others(groups, write_images, alex):
    folder = write(write_images, "fake", groups[:2])
    (folder / "00/2.png").write_bytes(b"")
    result = genpr.diversity(folder, on_bad="skip", max_bad=0.1, **alex)
    kept = [np.delete(groups[0], 2, axis=0), groups[1]]
    found = [result.diversity.groups[name]["lpips"] for name in ("00", "01")]
    np.testing.assert_allclose(found, [lpips_of(*all_pairs(each)).mean() for each in kept], rtol=1e-5)
    assert [result.diversity.groups[name]["pairs"] for name in ("00", "01")] == [6, 10]


def test_sets_that_have_no_groups_are_errors(groups, write_images):
    plain = write(write_images, "plain", groups[:2], "{}_{}.png")
    images, labels = flat(groups[:2]), [0] * 5 + [1] * 5
    cases = [
        (DataError, "no-labels", plain, {}),
        (DataError, "no-labels", images, {}),
        (DataError, "labels-match-nothing", plain, {"groups": "pattern:cat"}),
        (UsageError, "bad-pattern", plain, {"groups": "pattern:("}),
        (UsageError, "path-not-found", plain, {"groups": "groups.csv"}),
        (DataError, "unlabeled", plain, {"groups": "pattern:^(0)_"}),
        (DataError, "label-count", images, {"groups": labels[1:]}),
        (DataError, "single-images", images, {"groups": range(10)}),
        (DataError, "single-images", images[:1], {"groups": "all"}),
        (
            DataError,
            "single-images",
            images,
            {"groups": labels, "real": images[:2], "groups_of_real": [0, 1]},
        ),
        (
            DataError,
            "labels-disagree",
            images,
            {"groups": labels, "real": images, "groups_of_real": ["x"] * 10},
        ),
        (UsageError, "needs-images", np.ones((4, 3)), {"groups": "all"}),
        (UsageError, "source-kind", [images, images], {"groups": "all"}),
        (UsageError, "unknown-metric", images, {"metrics": ["lpips", "fid"]}),
        *((UsageError, "bad-option", images, {"images_per_group": count}) for count in (1, 1001)),
        (UsageError, "bad-option", images, {"lpips_net": "squeeze"}),
        (UsageError, "unknown-extractor", images, {"extractor": "clap"}),
        (UsageError, "weights-unused", images, {"groups": labels, "weights": __file__}),
    ]
    for kind, code, source, options in cases:
        with raising(kind, code):
            genpr.diversity(source, **PIXELS | options)
    single = genpr.diversity(images, groups=[*labels[:9], 2], **PIXELS)
    (found,) = (item for item in single.notices if item.code == "groups-without-pairs")
    assert found.message.startswith("1 of 3 ")
    with raising(WeightsError, "weights-missing"):
        genpr.diversity(images, groups=labels)


def test_sources_without_random_access(groups, tmp_path):
    """Rows of a parquet file and of compressed arrays are read in order, and the same random images are chosen."""
    images, labels = flat(groups[:3]), [f"{row % 3}" for row in range(15)]
    of_array = genpr.diversity(images, groups=labels, images_per_group=3, **PIXELS)
    np.savez_compressed(tmp_path / "fake.npz", images)
    of_npz = genpr.diversity(tmp_path / "fake.npz", groups=labels, images_per_group=3, **PIXELS)
    table = {"image": [{"bytes": encode(each), "path": None} for each in images], "label": labels}
    parquet.write_table(pyarrow.table(table), tmp_path / "fake.parquet", row_group_size=4)
    of_parquet = genpr.diversity(tmp_path / "fake.parquet", images_per_group=3, **PIXELS)
    assert of_npz.diversity.groups == of_parquet.diversity.groups == of_array.diversity.groups


def test_name_of_one_metric(groups):
    found = genpr.diversity(flat(groups[:1]), groups="all", **PIXELS | {"metrics": "cosine_distance"})
    assert list(found.metrics) == ["diversity.cosine_distance"]


def test_labels_by_order_of_unpadded_names_are_a_warning(groups, write_images):
    folder = write_images("fake", list(flat(groups[:3]))[:12], "{}.png")
    result = genpr.diversity(folder, groups=[0] * 6 + [1] * 6, **PIXELS)
    assert "name-order" in {item.code for item in result.notices}


def test_subset_of_images_is_that_of_other_commands(groups):
    result = genpr.diversity(flat(groups), groups=labels_of(groups), max_images=24, **PIXELS)
    rows = genpr.images.source.choose_rows(60, 24, 0)
    expected = [
        np.mean(cosine_distances(flat(groups)[rows[rows // 5 == row]]))
        for row in range(12)
        if (rows // 5 == row).sum() > 1
    ]
    assert result["diversity.cosine_distance"] == pytest.approx(np.mean(expected), rel=1e-6)


def test_results_are_records_and_compare_over_the_same_groups(groups, rng):
    # Groups differ much, models little: only the differences within groups can tell.
    other = images_like(rng, np.linspace(3, 61, 12))
    results = [genpr.diversity(flat(each), groups=labels_of(groups), **PIXELS) for each in (groups, other)]
    assert result_of(json.loads(results[0].to_json())) == results[0]
    name = "diversity.cosine_distance"
    contrast = compare(dict(zip("ab", results, strict=True))).contrast("b", name)
    assert contrast.pairing == "paired"
    options = {"groups": labels_of(groups), "real": flat(other)}
    of_groups = genpr.diversity(flat(groups), **options, **PIXELS)
    for changed in ({"groups": "all"}, {"images_per_group": 4}):
        unlike = genpr.diversity(flat(groups), **options | changed, **PIXELS)
        with raising(DataError, "not-alike"):
            compare({"a": of_groups, "b": unlike})
    for images, labels in ((other[1:], labels_of(groups)[5:]), (other, labels_of(groups) + 100)):
        unlike = genpr.diversity(flat(images), groups=labels, **PIXELS)
        assert compare({"a": results[0], "b": unlike}, force=True).contrast("b", name).pairing == "unpaired"
    assert "diversity" not in genpr.score(rng.normal(size=(40, 3)), rng.normal(size=(40, 3))).to_dict()


def test_all_metrics_in_one_pass(rng, alex):
    images = images_like(rng, [10.0, 40.0], count=3, size=176)
    options = alex | {"metrics": ["lpips", "ms_ssim", "cosine_distance"], "extractor": "pixels"}
    result = genpr.diversity(flat(images), groups=labels_of(images), **options)
    for metric in options["metrics"]:
        alone = genpr.diversity(
            flat(images),
            groups=labels_of(images),
            **options | {"metrics": [metric]} | ({} if metric == "lpips" else {"weights": None}),
        )
        for group, row in alone.diversity.groups.items():
            assert result.diversity.groups[group] | row == result.diversity.groups[group]
    assert result["diversity.ms_ssim"] == pytest.approx(ms_ssim_of(images[0]) / 2 + ms_ssim_of(images[1]) / 2)
    assert set(result.extractors) == {"lpips-alex", "pixels"}
    similar = genpr.diversity(
        flat(images), groups=labels_of(images), **options | {"metrics": ["ms_ssim"], "weights": None}
    )
    assert list(similar.diversity.groups) == list(result.diversity.groups) == ["0", "1"], (
        "the least diverse first"
    )
    with raising(BadImagesError, "bad-images"):
        genpr.diversity(flat(images[:, :, :, 1:]), groups="all", metrics=["ms_ssim"], device="cpu")


def ms_ssim_of(images):
    """The mean over all pairs."""
    metric = MultiScaleSSIM()
    sides = [metric.activations(torch.from_numpy(each).permute(0, 3, 1, 2)) for each in all_pairs(images)]
    return float(metric.compared(zip(*sides, strict=True)).mean())


# Situations of public threads.


@pytest.fixture
def translated(rng):
    """20 outputs of each of 4 inputs; a second model gives nearly the same output for one input whatever the noise."""
    return images_like(rng, [40.0] * 4, count=20), images_like(rng, [2.0] * 4, count=20)


def test_higher_lpips_between_fakes_is_more_diverse(translated, alex):
    """IIGROUP/TediGAN#38, ExplainableML/ReNO#17, DaShenZi721/HRA#3: is higher better? Here, of fakes with each other, yes."""
    varied, same = (genpr.diversity(flat(each), groups=labels_of(each), **alex) for each in translated)
    expected = [np.mean([lpips_of(*all_pairs(images)).mean() for images in each]) for each in translated]
    assert [varied["diversity.lpips"], same["diversity.lpips"]] == pytest.approx(expected, rel=1e-5)
    assert varied["diversity.lpips"] > 2 * same["diversity.lpips"]
    assert genpr.metrics.registry.ALL_METRICS["diversity.lpips"].better == "higher"


def test_pairs_are_of_outputs_of_one_input(translated, alex):
    """Xiaoming-Yu/DMIT#8, junyanz/BicycleGAN#26 and #76: not with the input or the real, and all 190 pairs of 20 outputs."""
    varied, _ = translated
    found = genpr.diversity(flat(varied), groups=labels_of(varied), **alex)
    assert {row["pairs"] for row in found.diversity.groups.values()} == {190}
    against_first = np.mean([lpips_of(np.repeat(each[:1], 19, 0), each[1:]).mean() for each in varied])
    assert found["diversity.lpips"] != pytest.approx(against_first, rel=1e-3)
    # Reals that differ much from the fakes change nothing.
    reals = 255 - varied[:, :5]
    again = genpr.diversity(
        flat(varied), groups=labels_of(varied), real=flat(reals), groups_of_real=labels_of(reals), **alex
    )
    assert again["diversity.lpips"] == found["diversity.lpips"]


@pytest.mark.parametrize(("outputs", "pairs", "is_fresh"), [(38, 19, True), (50, 50, False), (100, 15, True)])
def test_random_pairs_per_input(rng, outputs, pairs, is_fresh):
    """NVlabs/MUNIT#25 (19 pairs of fresh outputs), HelenMao/MSGAN#12 (50 of 50 outputs) and acht7111020/DSMAP#5 (15 of 100).

    The mean over all pairs is the expected value of that over random pairs.
    """
    images = images_like(rng, [30.0], count=outputs)[0]
    options = {"groups": "all", "images_per_group": outputs}
    found = genpr.diversity(images, **options, **PIXELS).diversity.groups["all"]
    assert (found["images"], found["pairs"]) == (outputs, outputs * (outputs - 1) / 2)
    draws, table = [], np.zeros((outputs, outputs))
    table[np.triu_indices(outputs, 1)] = cosine_distances(images)
    for _ in range(200):
        order = rng.permutation(outputs)
        drawn = (
            order[: 2 * pairs].reshape(-1, 2)
            if is_fresh
            else [rng.choice(outputs, 2, replace=False) for _ in range(pairs)]
        )
        draws.append(np.mean([table[min(pair), max(pair)] for pair in drawn]))
    assert found["cosine_distance"] == pytest.approx(np.mean(draws), abs=4 * np.std(draws) / math.sqrt(200))


def test_pairs_over_the_whole_set(translated, alex):
    """HsinYingLee/DRIT#24 and #41: outputs of different inputs are compared, or only those of one."""
    _, same = translated
    whole = genpr.diversity(flat(same), groups="all", images_per_group=80, **alex)
    assert whole.diversity.groups["all"]["pairs"] == 80 * 79 / 2
    assert whole["diversity.lpips"] == pytest.approx(lpips_of(*all_pairs(flat(same))).mean(), rel=1e-5)
    within = genpr.diversity(flat(same), groups=labels_of(same), **alex)
    assert whole["diversity.lpips"] > 3 * within["diversity.lpips"], "inputs differ, not outputs of one"


def test_random_pairs_of_reals_are_the_reference(translated, alex, rng):
    """Xiaoming-Yu/DMIT#1: what is the LPIPS of real data? That of pairs of reals, over all, or of the same group."""
    varied, _ = translated
    reals = images_like(rng, [50.0] * 4, count=6)
    options = {"real": flat(reals), "images_per_group": 24}
    found = genpr.diversity(flat(varied[:, :6]), groups="all", **options, **alex)
    assert found.diversity.groups["all"]["real_pairs"] == 276
    every = lpips_of(*all_pairs(flat(reals)))
    assert found.metrics["diversity.lpips"].null == pytest.approx(every.mean(), rel=1e-5)
    random = every[rng.choice(276, 60, replace=False)]
    assert random.mean() == pytest.approx(every.mean(), abs=4 * every.std() / math.sqrt(60)), "as published"


def test_low_ms_ssim_between_fakes_is_diverse_and_that_of_reals_is_the_aim(rng):
    """pfriedri/wdm-3d#9 (low is diverse) and #6 (the number of images), Project-MONAI/GenerativeModels#227 (fakes with fakes)."""
    real, collapsed = images_like(rng, [60.0], 8, 176)[0], images_like(rng, [3.0], 8, 176)[0]
    options = {"metrics": ["ms_ssim"], "groups": "all", "real": real, "device": "cpu"}
    found = genpr.diversity(collapsed, **options)
    assert found["diversity.ms_ssim"] == pytest.approx(ms_ssim_of(collapsed), rel=1e-10)
    null = found.metrics["diversity.ms_ssim"].null
    assert null == pytest.approx(ms_ssim_of(real), rel=1e-10)
    assert found["diversity.ms_ssim"] > 0.95 > null + 0.2
    # Unlike a Fréchet distance, a mean over pairs does not depend on the number of images, but on the draw.
    few = [
        genpr.diversity(real, **options | {"max_images": 4, "seed": seed})["diversity.ms_ssim"]
        for seed in range(9)
    ]
    assert np.mean(few) == pytest.approx(null, abs=4 * np.std(few) / 3)


def test_values_do_not_depend_on_how_pixels_are_stored(groups, write_images, alex):
    """HelenMao/MSGAN#12: values from 0 to 1 instead of -1 to 1 give another LPIPS; genpr takes 8-bit images and scales them."""
    folder = write(write_images, "fake", groups[:2])
    of_files = genpr.diversity(folder, **alex)
    tensor = torch.from_numpy(flat(groups[:2])).permute(0, 3, 1, 2)
    of_tensor = genpr.diversity(tensor, groups=labels_of(groups[:2]), **alex)
    assert of_tensor["diversity.lpips"] == pytest.approx(of_files["diversity.lpips"], rel=1e-6)
    with pytest.raises(genpr.GenprError):
        genpr.diversity(tensor / 255, groups=labels_of(groups[:2]), **alex)


def test_images_of_the_page_are_those_of_groups(groups, write_images):
    folder = write(write_images, "fake", groups[:3])
    found = diversity_with(folder, DiversityOptions(**PIXELS))
    names = [found.images["fake"].name_of(row) for row in range(15)]
    assert [name[:2] for name in names] == list(found.group_of["fake"])
    digests = {
        name: bytes(each) for name, each in zip(names, found.images["fake"].identities.numpy(), strict=True)
    }
    assert len(set(digests.values())) == 15
    assert encode(groups[0][0]) != encode(groups[0][1])
