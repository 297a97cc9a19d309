"""Which warnings a set of fakes raises, and that it raises no other."""

from __future__ import annotations

import json

import numpy as np
import pytest
from PIL import Image
from PIL.PngImagePlugin import PngInfo

import genpr
from genpr.evaluation.result import result_of
from genpr.metrics import neighbor_metrics

SUSPICIONS = {
    "near-copies",
    "copying",
    "shrinkage",
    "degenerate-manifold",
    "outlier-dominance",
    "missing-kinds",
    "odd-features",
    "lattice",
    "duplicates",
    "near-duplicates",
    "copied-reals",
    "same-input",
}


@pytest.fixture(scope="module")
def images():
    """Features as of ten kinds of images: 2 x 1,500 x 24."""
    rng = np.random.default_rng(3)
    centers = 2.5 * rng.normal(size=(10, 24))
    kinds = np.arange(3000) % 10
    return np.split(centers[kinds] + rng.normal(size=(3000, 24)), 2)


def codes(real, fake, **options):
    result = genpr.score(real, fake, device="cpu", control=False, intervals=False, **options)
    return {item.code for item in result.notices} & SUSPICIONS, result


def message(result, code):
    return next(item.message for item in result.notices if item.code == code)


def test_two_halves_of_one_set_raise_none(images):
    assert codes(*images)[0] == set()


def test_noise_raises_none_for_low_numbers_say_enough(images, rng):
    real, other = images
    found, result = codes(real, other + 2 * rng.normal(size=other.shape))
    assert found == set()
    assert result["precision"] < 0.2


def test_fakes_that_resemble_no_real_raise_none_however_alike_they_are(images):
    real, other = images
    found, result = codes(real, 4 + 0.3 * other)
    assert found == set()
    assert max(result["precision"], result["density"]) < 0.3


def test_shrinkage(images):
    real, other = images
    kinds = other.reshape(-1, 10, 24)
    shrunk = kinds.mean(axis=0) + 0.7 * (kinds - kinds.mean(axis=0))
    found, result = codes(real, shrunk.reshape(other.shape))
    assert found == {"shrinkage"}
    assert "0.70 times as large" in message(result, "shrinkage")


def test_missing_kinds(images):
    real, other = images
    kept = np.arange(len(other)) % 10 >= 3
    found, result = codes(real, other[kept])
    assert found == {"missing-kinds"}
    rows = [
        int(row) for row in message(result, "missing-kinds").split("as: ")[1].replace("row ", "").split(", ")
    ]
    assert {row % 10 for row in rows} <= {0, 1, 2}


def test_memorized_images(images, rng):
    real, other = images
    fake = other.copy()
    fake[:150] = real[:150] + 0.01 * rng.normal(size=(150, 24))
    found, result = codes(real, fake)
    assert found == {"near-copies"}
    assert "10.0% of the fakes" in message(result, "near-copies")


def test_collapse_onto_few_images(images):
    real, other = images
    assert codes(real, np.repeat(other[:150], 10, axis=0))[0] == {"duplicates"}
    fake = np.concatenate([other[:300], np.repeat(other[:1], 1200, axis=0)])
    assert "missing-kinds" not in codes(real, fake)[0], "of repeats, one counts"


@pytest.mark.parametrize("role", ["real", "fake"])
def test_repeats_in_files_that_differ_are_known_by_balls_that_are_points(tmp_path, rng, role):
    folders = {"real": tmp_path / "real", "fake": tmp_path / "fake"}
    for name, folder in folders.items():
        folder.mkdir()
        for index, pixels in enumerate(rng.integers(0, 256, (100, 8, 8, 3), dtype=np.uint8)):
            levels = range(6) if name == role and index < 3 else [6]
            for level in levels:  # more than 5 of one kind have balls without extent
                pixels[0, 0] = level if index == 2 else 0  # these are alike and not equal
                note = PngInfo()
                note.add_text("level", str(level))
                Image.fromarray(pixels).save(folder / f"{index}-{level}.png", pnginfo=note)
    options = {"extractor": "pixels", "device": "cpu", "control": False, "intervals": False}
    result = genpr.score(folders["real"], folders["fake"], **options)
    (told,) = [item for item in result.notices if item.code == "degenerate-manifold"]
    assert told.message.startswith(f"the balls around 10% of the {role} images are mere points")
    assert "duplicates" not in {item.code for item in result.notices}


class TestNearDuplicates:
    """Groups of almost equal images within one set, of which the other set has none."""

    def draw(self, rng, count, width=16):
        """Independent rows of ten kinds."""
        centers = 2 * np.random.default_rng(4).normal(size=(10, width))
        return centers[rng.integers(0, 10, count)] + rng.normal(size=(count, width))

    def grouped(self, rng, count, size, share=1.0):
        """Rows of which a share are groups of `size` almost equal ones."""
        heads = self.draw(rng, round(share * count / size))
        groups = np.repeat(heads, size, axis=0) + 0.01 * rng.normal(size=(len(heads) * size, heads.shape[1]))
        return rng.permutation(np.concatenate([groups, self.draw(rng, count - len(groups))]))

    def score(self, real, fake, **options):
        return genpr.score(real, fake, device="cpu", control=False, intervals=False, **options)

    def found(self, real, fake):
        return {item.code for item in self.score(real, fake).notices} & SUSPICIONS

    @pytest.mark.parametrize("size", [2, 5, 30])
    def test_groups_on_both_sides_are_the_first_notice(self, rng, size):
        result = self.score(self.grouped(rng, 600, size), self.grouped(rng, 600, size))
        assert result.metrics["precision"].relative < 0.9
        first = result.notices[0]
        assert (first.code, first.level) == ("near-duplicates", "warning")
        assert "of the real images and" in first.message
        assert "of the fake images" in first.message
        assert f"groups of about {size})" in first.message
        assert "keep one image of each group" in first.hint

    @pytest.mark.parametrize(
        ("size", "share", "expected"), [(2, 0.1, False), (2, 0.6, True), (10, 0.3, True)]
    )
    def test_groups_are_told_where_they_are_frequent_enough_to_move_metrics(self, rng, size, share, expected):
        sides = [self.grouped(rng, 600, size, share) for _ in range(2)]
        assert ("near-duplicates" in self.found(*sides)) == expected

    def test_groups_that_both_sides_share_are_no_duplicates(self, rng):
        centers = rng.normal(size=(100, 16))
        both = np.repeat(centers, 10, axis=0) + 0.001 * rng.normal(size=(1000, 16))
        real, fake = np.split(rng.permutation(both), 2)
        assert "near-duplicates" not in self.found(real, fake)
        assert "near-duplicates" not in self.found(real, fake[:150])

    @pytest.mark.parametrize(
        "law",
        [
            lambda rng, n: rng.normal(size=(n, 2)),
            lambda rng, n: rng.normal(size=(n, 8)),
            lambda rng, n: rng.normal(size=(n, 64)),
            lambda rng, n: rng.exponential(size=(n, 200)),
            lambda rng, n: rng.standard_t(2, size=(n, 16)),
            lambda rng, n: rng.normal(size=(n, 8)) * np.exp(1.5 * rng.normal(size=(n, 1))),
            lambda rng, n: np.geomspace(1e-3, 1, n)[rng.permutation(n), None] * rng.normal(size=(n, 8)),
            lambda rng, n: rng.normal(size=(n, 2)) @ np.random.default_rng(5).normal(size=(2, 50)),
            lambda rng, n: rng.integers(0, 3, size=(n, 8)),
        ],
        ids=["2 d", "8 d", "64 d", "hubs", "heavy tails", "uneven", "scales", "plane", "lattice"],
    )
    @pytest.mark.parametrize(("n", "m"), [(100, 100), (600, 150)])
    def test_independent_draws_raise_none(self, law, n, m, rng):
        assert "near-duplicates" not in self.found(law(rng, n), law(rng, m))


def test_an_outlier_among_the_reals(images, rng):
    real, other = images
    real = real.copy()
    real[5] = 40
    fake = other.copy()
    fake[:300] = 40 + rng.normal(size=(300, 24))
    found, result = codes(real, fake)
    assert found == {"outlier-dominance"}
    assert message(result, "outlier-dominance").endswith("(1), one of them for 20.4%: row 5")


def test_one_odd_feature_among_many(rng):
    real, fake = rng.normal(size=(2, 1500, 200))
    fake[:, 50] += 1.5
    found, result = codes(real, fake)
    assert found == {"odd-features"}
    assert message(result, "odd-features").endswith(": 50")


class TestNoIntervals:
    """What is said where an interval was asked for and is not there."""

    def said(self, *sides, **options):
        result = genpr.score(*sides, device="cpu", control=False, **options)
        return [
            (item.level, item.message, item.hint) for item in result.notices if item.code == "no-intervals"
        ]

    def test_sets_that_are_too_small(self, rng):
        real, fake = rng.normal(size=(30, 2)), rng.normal(size=(10, 2))
        ((level, message, hint),) = self.said(real, fake)
        assert level == "note"
        assert message == (
            "no interval for density, coverage: they are found by halves, and half of 10 images is too few"
        )
        assert "at least 12 images of each side, or choose a smaller k; --no-intervals" in hint
        assert self.said(real, fake, k=4) == []
        assert self.said(real, rng.normal(size=(12, 2))) == []

    def test_nothing_is_said_of_what_was_not_asked_for_or_never_has_one(self, rng):
        real, fake = rng.normal(size=(2, 10, 2))
        assert self.said(real, fake, intervals=False) == []
        assert self.said(real, fake, metrics=["f8", "p_recall", "rarity", "fd"]) == []

    def test_short_memory(self, rng, monkeypatch):
        monkeypatch.setattr(neighbor_metrics, "fits", lambda *_: False)
        (first, second) = self.said(rng.normal(size=(30, 2)), rng.normal(size=(11, 2)))
        assert first[1].startswith("no interval for density, coverage: they are found by halves")
        assert second[1].startswith("no interval for precision, recall: memory is too short")
        assert "--max-memory" in second[2]


def test_rounding(rng):
    real, fake = 4 * rng.normal(size=(2, 1500, 100))
    assert codes(real, fake.round())[0] == {"lattice"}


def test_held_out_reals_show_copying_that_no_fake_shows_alone(images, rng):
    real, other = images
    fake = real + 0.8 * rng.normal(size=real.shape)
    found, result = codes(real, fake, held_out=other)
    assert found == {"copying"}
    assert result["c_t"] < -3
    assert codes(real, other, held_out=images[1][::-1].copy())[1].metrics["c_t"].null == 0


def test_the_record_says_which_reals_were_held_out(images):
    real, other = images
    first, second = (
        genpr.score(real, other, held_out=other[:n], metrics=["c_t", "precision"]) for n in (500, 600)
    )
    assert first.held_out.n == 500
    assert result_of(json.loads(first.to_json())) == first
    with pytest.raises(genpr.DataError, match="held-out reals of b are not those of a"):
        genpr.compare({"a": first, "b": second})
    assert genpr.score(real, other, metrics=["precision"]).held_out is None
