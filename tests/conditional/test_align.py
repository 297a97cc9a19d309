"""Alignment with a toy model that embeds drawings and prompts exactly."""

import warnings
import zipfile

import numpy as np
import pytest
import torch
from image_files import encode
from raising import raising
from toy_pair import ToyPair, chosen, drawings, words

import genpr
from genpr.conditional.align import align_with
from genpr.conditional.options import AlignOptions
from genpr.conditional.prompt_ranking import PromptAssignment, worst_first
from genpr.errors import DataError, FeatureError, UsageError
from genpr.evaluation.result import result_of
from genpr.metrics.ranking import unit_pools

N = 200
I2T = [f"retrieval.{name}" for name in ("r_precision", "hit_1", "hit_5", "hit_10", "mrr", "ndcg", "map")]
T2I = [name.replace(".", ".t2i_") for name in I2T]
SCENES = chosen(N)
IMAGES = drawings(SCENES)
PROMPTS = [words(scene) for scene in SCENES]


def shuffled_prompts(seed):
    return [PROMPTS[row] for row in np.random.default_rng(seed).permutation(N)]


def align(images, prompts, **options):
    return genpr.align(images, prompts, **{"extractor": ToyPair(), "device": "cpu", **options})


def ranks_of(prompts, **options):
    return align_with(IMAGES, prompts, AlignOptions(extractor=ToyPair(), device="cpu", **options)).ranks


@pytest.fixture(scope="module")
def matched():
    return align(IMAGES, PROMPTS)


def test_matched_prompts_have_perfect_scores_and_known_chance_levels(matched):
    assert list(matched.metrics) == [*I2T, *T2I, "alignment.clip_score"]
    assert all(matched[name] == 1 for name in I2T + T2I)
    assert matched["alignment.clip_score"] == 2.5
    assert (matched.alignment.failures, matched.alignment.n_failures) == ((), 0)
    mrr, ndcg = sum(1 / np.arange(1, 101)) / 100, np.mean(1 / np.log2(np.arange(2, 102)))
    for names in (I2T, T2I):
        chances = [matched.metrics[name].chance for name in names]
        assert chances == pytest.approx([0.01, 0.01, 0.05, 0.1, mrr, ndcg, mrr])
    assert {matched.metrics[name].pool for name in I2T + T2I} == {100}
    score = matched.metrics["alignment.clip_score"]
    assert (score.chance, score.pool, score.n_counted) == (None, None, N)


def test_shuffled_prompts_score_chance_and_failures_are_worst_first(matched):
    shuffled = align(IMAGES, shuffled_prompts(1))
    for name in I2T + T2I:
        metric = shuffled.metrics[name]
        assert metric.interval[0] <= metric.chance <= metric.interval[1], name
        assert metric.value < 2 * metric.chance + 0.05
    failures = shuffled.alignment.failures
    ranks = [failure.rank for failure in failures]
    assert ranks == sorted(ranks, reverse=True)
    assert ranks[0] > 90
    assert all(failure.winner_score >= failure.score for failure in failures)
    assert shuffled.alignment.n_failures == len(failures) > 0.9 * N
    for result in (matched, shuffled):
        assert result_of(result.to_dict()) == result


def test_two_exchanged_prompts_are_the_failures():
    swapped = [PROMPTS[1], PROMPTS[0], *PROMPTS[2:]]
    ranks = ranks_of(swapped, distractors=N - 1)
    by_name = {each.image: each for each in worst_first(ranks)}
    assert by_name.keys() == {"[0]", "[1]"}
    assert (by_name["[0]"].prompt, by_name["[0]"].winner) == (PROMPTS[1], PROMPTS[0])
    assert by_name["[0]"].winner_score == pytest.approx(1)
    assert [each.row for each in ranks] == list(range(N))
    result = align(IMAGES, swapped, distractors=N - 1)
    assert result["retrieval.r_precision"] == result["retrieval.t2i_r_precision"] == (N - 2) / N


def test_ranks_equal_their_definition():
    """Definition: cosines with every prompt; those above count 1, equal ones 1/2."""
    pair, prompts = ToyPair(), shuffled_prompts(3)
    pixels = pair(torch.from_numpy(IMAGES).permute(0, 3, 1, 2)).double().numpy()
    texts = pair.encode_text(prompts).double().numpy()
    cosine = pixels @ texts.T / np.linalg.norm(pixels, axis=1)[:, None] / np.linalg.norm(texts, axis=1)
    for row, each in enumerate(ranks_of(prompts, distractors=N - 1)):
        others = np.delete(cosine[row], row)
        above = (others > cosine[row, row] + 1e-9).sum()
        equal = (np.abs(others - cosine[row, row]) <= 1e-9).sum()
        assert each.rank == above + 1 + equal / 2
        assert (each.score, each.winner_score) == pytest.approx((cosine[row, row], others.max()))
        assert each.prompt == prompts[row]
    result = align(IMAGES, prompts, distractors=N - 1)
    assert result["alignment.clip_score"] == pytest.approx(2.5 * np.maximum(np.diag(cosine), 0).mean())
    ranks, result = ranks_of(prompts), align(IMAGES, prompts)
    assert {each.pool for each in ranks} == {100}
    assert abs(np.mean([each.rank <= 10 for each in ranks]) - result["retrieval.hit_10"]) < 0.03


def test_negative_cosines_score_zero():
    pair = ToyPair()
    pair.encode_text = lambda texts: -ToyPair.encode_text(pair, texts)
    result = align(IMAGES, PROMPTS, extractor=pair)
    assert result["alignment.clip_score"] == result["retrieval.r_precision"] == 0


def test_images_of_one_prompt_do_not_compete_and_are_one_unit():
    result = align(drawings(SCENES[:20] * 5), PROMPTS[:20] * 5)
    assert all(result[name] == 1 for name in I2T + T2I)
    assert result.metrics["retrieval.r_precision"].pool == 20
    assert result.metrics["retrieval.t2i_r_precision"].pool == 96
    assert result.alignment.n_units == 20
    assert (result.alignment.pool, result.alignment.image_pool) == (20, 96)
    assert [item.code for item in result.notices].count("small-pool") == 2
    low, _ = result.metrics["retrieval.r_precision"].interval
    assert low < 0.025 ** (1 / 20) + 0.01, "20 prompts, not 100 images"
    prompts, name = PROMPTS[10:20] * 2, "alignment.clip_score"
    once, often = (align(drawings(SCENES[:20] * n), prompts * n).metrics[name] for n in (1, 4))
    assert often.replicates == pytest.approx(once.replicates)
    assert often.interval == pytest.approx(once.interval)


def test_several_prompts_of_one_image_are_all_relevant():
    """R-precision counts the R prompts of an image; its score is the mean over its prompts."""
    result = align(IMAGES, [[words(scene), words(scene[::-1])] for scene in SCENES])
    assert result["retrieval.r_precision"] == result["retrieval.map"] == 1
    assert result.metrics["retrieval.r_precision"].pool == 101
    assert result.metrics["retrieval.r_precision"].chance == pytest.approx(2 / 101)
    summary = result.alignment
    assert (summary.captions, summary.n_prompts, summary.n_units) == (2, 2 * N, N)
    others = [words(scene) for scene in chosen(2 * N)[N:]]
    lower = align(IMAGES, [list(each) for each in zip(others, PROMPTS, strict=True)])
    assert 0.45 < lower["retrieval.r_precision"] < 0.6
    assert lower["retrieval.hit_1"] > 0.95
    assert lower.alignment.n_failures == round((1 - lower["retrieval.hit_1"]) * N), "the better one counts"
    prompts = [[PROMPTS[row]] if row % 2 else [others[row], others[-row - 1]] for row in range(40)]
    score = align(IMAGES[:40], prompts)["alignment.clip_score"]
    first, last = (
        align(IMAGES[:40], [each[at] for each in prompts])["alignment.clip_score"] for at in (0, -1)
    )
    assert score == pytest.approx((first + last) / 2)


def test_prompts_that_the_encoder_merges_or_truncates_are_reported():
    """The encoder ignores case, so two such prompts tie."""
    prompts = [*PROMPTS[:10], *(text.upper() for text in PROMPTS[:10])]
    result = align(drawings(SCENES[:10] * 2), prompts)
    assert result["retrieval.hit_1"] == 0.5
    assert "duplicate-prompts" in {item.code for item in result.notices}
    assert {failure.rank for failure in result.alignment.failures} == {1.5}
    longer = align(IMAGES, ["a very large and important remark, " * 3 + PROMPTS[0], *PROMPTS[1:]])
    assert longer.alignment.n_truncated == 1
    assert "prompts-truncated" in {item.code for item in longer.notices}


@pytest.mark.parametrize(
    ("given", "prefix"),
    [
        ({}, "A photo depicts "),
        ({"prefix": ""}, ""),
        ({"prefix": "On a sheet of paper, far away: "}, "On a sheet of paper, far away: "),
    ],
    ids=["default", "none", "own"],
)
def test_prefix_is_encoded_counted_and_recorded(matched, given, prefix):
    """The default prefix is that of Hessel et al. 2021, including its space."""
    pair, encoded = ToyPair(), []
    pair.encode_text = lambda texts: encoded.extend(texts) or ToyPair.encode_text(pair, texts)
    result = align(IMAGES, PROMPTS, extractor=pair, **given)
    assert sorted(encoded) == sorted(f"{prefix}{text}" for text in PROMPTS)
    assert result.alignment.prefix == prefix
    assert (result.alignment.n_truncated > 0) == (len(prefix) > 16)
    variants = {metric.variant for metric in result.metrics.values()}
    assert variants == {f"prompts begin with {prefix!r}" if prefix else None}
    assert (result.fingerprint == matched.fingerprint) == (not given)
    if given:
        with raising(DataError, "not-alike", "A photo depicts"):
            genpr.compare({"other": result, "default": matched})


def test_same_prompts_in_another_order_are_paired(matched):
    order = np.random.default_rng(5).permutation(N)
    worse = IMAGES.copy()
    worse[:40] = 255
    back = align(worse[order], [PROMPTS[row] for row in order])
    found = genpr.compare({"one": matched, "other": back}).contrast("other", "retrieval.r_precision")
    assert (found.pairing, found.verdict) == ("paired", "distinguishable")
    assert found.value == pytest.approx(-0.2, abs=0.01)
    same = align(worse, PROMPTS)
    assert same.metrics["retrieval.mrr"].replicates == back.metrics["retrieval.mrr"].replicates
    assert len(set(same.metrics["retrieval.mrr"].replicates)) > 10
    assert same.real.content == matched.real.content == back.real.content


@pytest.mark.parametrize("named", [False, True])
def test_images_keep_their_prompts_in_subsets_and_with_skipped_images(write_images, named):
    part = align(IMAGES, PROMPTS, max_images=50)
    assert (part["retrieval.r_precision"], part.fake.n, part.real.n) == (1, 50, 50)
    folder = write_images("images", IMAGES[:40])
    (folder / "00003.png").write_bytes(b"no image")
    given = {f"{row:05d}.png": text for row, text in enumerate(PROMPTS[:40])} if named else PROMPTS[:40]
    result = align(folder, given, on_bad="skip", max_bad=0.1)
    assert (result["retrieval.r_precision"], result.fake.n) == (1, 39)
    assert "skipped" in {item.code for item in result.notices}


def test_prompts_in_order_of_unpadded_names_are_a_warning(write_images, tmp_path):
    folder = write_images("images", IMAGES[:12], "{}.png")
    (tmp_path / "p.txt").write_text("\n".join(PROMPTS[:12]))
    by_name = {f"{row}.png": text for row, text in enumerate(PROMPTS[:12])}
    for given, expected in ((tmp_path / "p.txt", 1), (PROMPTS[:12], 1), (by_name, 0)):
        found = [item.code for item in align(folder, given).notices]
        assert found.count("name-order") == expected
        assert "name-order" not in {item.code for item in align(IMAGES[:12], PROMPTS[:12]).notices}


def test_different_images_of_one_name_cannot_have_prompts_by_name(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive, warnings.catch_warnings(action="ignore"):
        for row, image in enumerate(IMAGES[:20]):
            archive.writestr(f"{row % 10}.png", encode(image))
    prompts = {f"{row}.png": text for row, text in enumerate(PROMPTS[:10])}
    with raising(DataError, "repeated-name"):
        align(tmp_path / "a.zip", prompts)


class Never(ToyPair):
    def __call__(self, images):
        raise AssertionError("nothing is to be embedded")

    encode_text = __call__


def test_mismatched_prompts_are_an_error_before_anything_is_embedded(write_images):
    folder = write_images("images", IMAGES[:4])
    for images, given, code in (
        (folder, {f"{row:05d}.png": "x" for row in range(5)}, "prompts-unused"),
        (IMAGES, ["a cat", " a  cat"] * 100, "one-prompt"),
        (IMAGES, PROMPTS[1:], "prompt-count"),
    ):
        with raising(DataError, code):
            align(images, given, extractor=Never())


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"extractor": "inception"}, "no-text-encoder"),
        ({"extractor": "clip-vit-b32"}, "unknown-extractor"),
        *(({name: wrong}, "bad-option") for name, wrong in (("distractors", 0), ("seed", -1), ("prefix", 3))),
    ],
    ids=str,
)
def test_invalid_options_of_align_are_errors(options, code):
    with raising(UsageError, code):
        align(IMAGES, PROMPTS, **options)


def test_zero_embedding_is_an_error_that_names_the_image():
    black = IMAGES.copy()
    black[7] = 0
    with pytest.raises(FeatureError, match=r"1 of 200 embeddings are zero vectors.*'\[7\]'"):
        align(black, PROMPTS)


def test_few_prompts_have_no_interval():
    result = align(IMAGES[:9], PROMPTS[:9])
    assert all(metric.interval is None for metric in result.metrics.values())
    assert result.undefined == ("retrieval.hit_10", "retrieval.t2i_hit_10")
    assert {item.code for item in result.notices} == {"custom-encoder", "small-pool", "few-prompts"}
    ten = align(IMAGES[:10], PROMPTS[:10])
    assert "retrieval.hit_10" in ten.undefined, "of 10 candidates all are among the first 10"
    assert ten.metrics["retrieval.hit_5"].interval is not None


def assignment(*captions) -> PromptAssignment:
    return PromptAssignment.from_captions([tuple(each) for each in captions])


def test_spaces_and_unicode_forms_are_normalized():
    found = assignment(["a  cat"], [" a\n cat\t"], ["cafe\u0301"], ["caf\u00e9"], ["A cat"])
    assert found.texts == ("A cat", "a cat", "caf\u00e9")
    assert found.of_image == ((1,), (1,), (2,), (2,), (0,))


def test_images_that_share_a_prompt_and_prompts_that_share_an_image_are_a_unit():
    rows = [["d"], ["a", "b"], ["b", "c"], ["d"], ["e"]]
    found, back = assignment(*rows), assignment(*rows[::-1])
    assert found.texts == back.texts == tuple("abcde")
    assert found.unit_of_text.tolist() == [0, 0, 0, 1, 2]
    assert found.unit_of_image.tolist() == back.unit_of_image.tolist()[::-1] == [1, 0, 0, 1, 2]
    pairs = [(0, 3), (1, 0), (1, 1), (2, 1), (2, 2), (3, 3), (4, 4)]
    assert list(zip(*(each.tolist() for each in found.pairs), strict=True)) == pairs
    assert found.content == back.content != assignment(*rows, ["e"]).content


UNITS = np.array([3, 0, 0, 1, 3, 3, 2, 0])


@pytest.mark.parametrize("distractors", [1, 3, 5])
def test_pool_contains_the_relevant_text_and_distinct_texts_of_other_units(distractors):
    query_unit = np.repeat([0, 1, 2, 3], 500)
    relevant = [[int(np.flatnonzero(unit == UNITS)[0])] for unit in query_unit]
    pools, count = unit_pools(relevant, query_unit, UNITS, distractors=distractors, seed=4)
    assert count == distractors
    assert (pools[:, 0] == [row[0] for row in relevant]).all()
    assert (UNITS[pools[:, 1:]] != query_unit[:, None]).all()
    assert all(len(set(pool)) == 1 + distractors for pool in pools.tolist())
    for unit in range(4):
        drawn = np.bincount(pools[query_unit == unit, 1:].ravel(), minlength=8)[unit != UNITS]
        expected = 500 * distractors / len(drawn)
        error = np.sqrt(expected * (1 - distractors / len(drawn)))
        assert (np.abs(drawn - expected) <= 4.5 * error + 1e-9).all(), "each as likely as any other"


def test_pools_depend_only_on_the_seed():
    relevant, own = [[1, 2, 7], [3]], np.array([0, 1])
    pools = [unit_pools(relevant, own, UNITS, distractors=2, seed=seed)[0] for seed in (0, 0, 1)]
    assert pools[0][:, :3].tolist() == [[1, 2, 7], [3, -1, -1]]
    assert (pools[0][:, 3:] >= 0).all()
    assert (pools[0] == pools[1]).all()
    assert (pools[0] != pools[2]).any()
    fewer, count = unit_pools([[1], [4]], np.array([0, 3]), UNITS, distractors=99, seed=0)
    assert (fewer.shape, count) == ((2, 6), 5)
    # A pool is part of a score's recipe: the same on every machine and with every version.
    pinned = [[5, 48, 95, 7, 24], [2, 31, 14, 16, 79]]
    drawn, _ = unit_pools([[5], [2]], np.array([5, 2]), np.arange(100), distractors=4, seed=7)
    assert drawn.tolist() == pinned
