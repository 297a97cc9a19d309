"""Alignment where the truth is known: a toy model that embeds drawings and prompts exactly."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from toy_pair import ToyPair, chosen, drawings, words

import genpr
from genpr.conditional.align import align_with
from genpr.conditional.options import AlignOptions
from genpr.conditional.prompt_ranking import worst_first
from genpr.errors import DataError, FeatureError, UsageError
from genpr.evaluation.result import result_of

N = 200
I2T = [f"retrieval.{name}" for name in ("r_precision", "hit_1", "hit_5", "hit_10", "mrr", "ndcg", "map")]
T2I = [name.replace(".", ".t2i_") for name in I2T]


@pytest.fixture(scope="module")
def scenes():
    return chosen(N)


@pytest.fixture(scope="module")
def images(scenes):
    return drawings(scenes)


@pytest.fixture(scope="module")
def prompts(scenes):
    return [words(scene) for scene in scenes]


def align(images, prompts, **options):
    return genpr.align(images, prompts, **{"extractor": ToyPair(), "device": "cpu", **options})


def ranks_of(images, prompts, **options):
    return align_with(images, prompts, AlignOptions(extractor=ToyPair(), device="cpu", **options)).ranks


@pytest.fixture(scope="module")
def matched(images, prompts):
    return align(images, prompts)


@pytest.fixture(scope="module")
def shuffled(images, prompts):
    order = np.random.default_rng(1).permutation(N)
    return align(images, [prompts[row] for row in order])


class TestMatched:
    def test_everything_is_found(self, matched):
        assert list(matched.metrics) == [*I2T, *T2I, "alignment.clip_score"]
        assert all(matched[name] == 1 for name in I2T + T2I)
        assert matched["alignment.clip_score"] == 2.5
        assert (matched.alignment.failures, matched.alignment.n_failures) == ((), 0)

    def test_chance_and_pool_stand_beside_each_ranked_value(self, matched):
        chances = [
            0.01,
            0.01,
            0.05,
            0.1,
            sum(1 / np.arange(1, 101)) / 100,
            np.mean(1 / np.log2(np.arange(2, 102))),
        ]
        found = [matched.metrics[name].chance for name in I2T]
        assert found == pytest.approx([*chances, chances[4]])
        assert found == [matched.metrics[name].chance for name in T2I]
        assert {matched.metrics[name].pool for name in I2T + T2I} == {100}
        score = matched.metrics["alignment.clip_score"]
        assert (score.chance, score.pool, score.n_counted) == (None, None, N)

    def test_it_comes_back_from_json(self, matched, shuffled):
        for result in (matched, shuffled):
            assert result_of(json.loads(result.to_json())) == result


class TestShuffled:
    def test_the_intervals_hold_chance(self, shuffled):
        for name in I2T + T2I:
            metric = shuffled.metrics[name]
            assert metric.interval[0] <= metric.chance <= metric.interval[1], name
            assert metric.value < 2 * metric.chance + 0.05

    def test_failures_are_the_worst_ones_worst_first(self, shuffled, images, prompts):
        failures = shuffled.alignment.failures
        ranks = [failure.rank for failure in failures]
        assert ranks == sorted(ranks, reverse=True)
        assert ranks[0] > 90
        assert all(failure.winner_score >= failure.score for failure in failures)
        assert shuffled.alignment.n_failures == len(failures) > 0.9 * N


def test_one_exchange_is_found_and_told(images, prompts):
    swapped = [prompts[1], prompts[0], *prompts[2:]]
    ranks = ranks_of(images, swapped, distractors=N - 1)
    failed = worst_first(ranks)
    assert {each.image for each in failed} == {"[0]", "[1]"}
    by_name = {each.image: each for each in failed}
    assert (by_name["[0]"].prompt, by_name["[0]"].winner) == (prompts[1], prompts[0])
    assert by_name["[0]"].winner_score == pytest.approx(1)
    assert by_name["[0]"].rank > 1
    assert [each.row for each in ranks] == list(range(N))
    result = align(images, swapped, distractors=N - 1)
    assert result["retrieval.r_precision"] == result["retrieval.t2i_r_precision"] == (N - 2) / N


def test_the_ranks_are_those_that_the_metrics_are_means_of(images, prompts):
    order = np.random.default_rng(2).permutation(N)
    told = [prompts[row] for row in order]
    ranks, result = ranks_of(images, told), align(images, told)
    assert {each.pool for each in ranks} == {100}
    untied = [1 / each.rank for each in ranks if each.rank % 1 == 0]
    assert len(untied) > N / 20
    share = np.mean([each.rank <= 10 for each in ranks])
    assert abs(share - result["retrieval.hit_10"]) < 0.03


def test_a_rank_is_counted_by_hand(images, prompts):
    """The definition: cosines with every prompt, those above and half of those beside."""
    pair, order = ToyPair(), np.random.default_rng(3).permutation(N)
    told = [prompts[row] for row in order]
    pixels = pair(torch.from_numpy(images).permute(0, 3, 1, 2)).double().numpy()
    texts = pair.encode_text(told).double().numpy()
    cosine = (pixels / np.linalg.norm(pixels, axis=1)[:, None]) @ (
        texts / np.linalg.norm(texts, axis=1)[:, None]
    ).T
    for row, each in enumerate(ranks_of(images, told, distractors=N - 1)):
        others = np.delete(cosine[row], row)
        above = (others > cosine[row, row] + 1e-9).sum()
        beside = (np.abs(others - cosine[row, row]) <= 1e-9).sum()
        assert each.rank == above + 1 + beside / 2
        assert each.score == pytest.approx(cosine[row, row])
        assert each.winner_score == pytest.approx(others.max())
        assert each.prompt == told[row]
    result = align(images, told, distractors=N - 1)
    assert result["alignment.clip_score"] == pytest.approx(2.5 * np.maximum(np.diag(cosine), 0).mean())


class Opposite(ToyPair):
    """Embeds every prompt as the opposite of its image."""

    def encode_text(self, texts):
        return -super().encode_text(texts)


def test_a_cosine_below_zero_is_worth_nothing(images, prompts):
    result = align(images, prompts, extractor=Opposite())
    assert result["alignment.clip_score"] == 0
    assert result["retrieval.r_precision"] == 0


def test_text_to_image_ranks_images_and_not_texts(images, prompts):
    """Every second image is blurred to one gray: its prompt finds it no more, while most images find their prompts."""
    one_sided = images.copy()
    one_sided[::2] = images[0]
    result = align(one_sided, prompts)
    assert result["retrieval.t2i_r_precision"] < 0.6
    there = align(one_sided, prompts, text_to_image=False)
    assert list(there.metrics) == [*I2T, "alignment.clip_score"]
    assert there["retrieval.hit_10"] == result["retrieval.hit_10"]
    assert there.alignment.image_pool is None


class Listening(ToyPair):
    """Remembers what it was told."""

    def __init__(self):
        self.texts = []

    def encode_text(self, texts):
        self.texts += texts
        return super().encode_text(texts)


class TestSharedPrompts:
    def test_images_of_one_prompt_never_compete_and_are_one_unit(self, scenes):
        few = scenes[:20] * 5
        result = align(drawings(few), [words(scene) for scene in few])
        assert all(result[name] == 1 for name in I2T + T2I)
        assert result.metrics["retrieval.r_precision"].pool == 20
        assert result.metrics["retrieval.t2i_r_precision"].pool == 96
        assert result.alignment.n_units == 20
        small = [item for item in result.notices if item.code == "small-pool"]
        assert [item.message.split(":")[0] for item in small] == [
            "20 candidates instead of 100",
            "96 candidates instead of 100",
        ]
        low, _ = result.metrics["retrieval.r_precision"].interval
        assert low < 0.025 ** (1 / 20) + 0.01, "20 prompts, not 100 images"

    def test_several_prompts_of_one_image(self, scenes, images):
        """R of R: all of its own must be in front."""
        captions = [[words(scene), words(scene[::-1])] for scene in scenes]
        result = align(images, captions)
        assert result["retrieval.r_precision"] == result["retrieval.map"] == 1
        assert result.metrics["retrieval.r_precision"].pool == 101
        assert result.metrics["retrieval.r_precision"].chance == pytest.approx(2 / 101)
        assert (result.alignment.captions, result.alignment.n_prompts, result.alignment.n_units) == (
            2,
            2 * N,
            N,
        )
        half_wrong = [
            [words(other), words(scene)] for scene, other in zip(scenes, chosen(2 * N)[N:], strict=True)
        ]
        lower = align(images, half_wrong)
        assert 0.45 < lower["retrieval.r_precision"] < 0.6
        assert lower["retrieval.hit_1"] > 0.95
        assert lower["alignment.clip_score"] < 2
        assert lower.alignment.n_failures == round((1 - lower["retrieval.hit_1"]) * N), (
            "the better one counts"
        )

    def test_a_score_is_averaged_over_the_prompts_of_an_image_first(self, scenes):
        others = chosen(2 * N)[N:]
        told = [
            [words(scene)] if row % 2 else [words(others[row]), words(others[-row - 1])]
            for row, scene in enumerate(scenes[:40])
        ]
        found = align(drawings(scenes[:40]), told)["alignment.clip_score"]
        single = [
            align(drawings(scenes[:40]), [each[place % len(each)] for each in told])["alignment.clip_score"]
            for place in (0, 1)
        ]
        assert found == pytest.approx(np.mean(single))

    def test_intervals_are_over_prompts_and_not_over_their_images(self, scenes):
        told = [words(scene) for scene in [*scenes[10:20], *scenes[10:20]]]
        once = align(drawings(scenes[:20]), told)
        often = align(drawings(scenes[:20] * 4), told * 4)
        name = "alignment.clip_score"
        assert often.metrics[name].replicates == pytest.approx(once.metrics[name].replicates)
        assert often.metrics[name].interval == pytest.approx(once.metrics[name].interval)

    def test_grades_move_ndcg_alone(self, tmp_path, scenes, write_images):
        folder, other = write_images("images", drawings(scenes[:40])), chosen(80)[40:]
        lines = ["file,prompt,relevance"]
        for row, (scene, wrong) in enumerate(zip(scenes[:40], other, strict=True)):
            lines += [f"{row:05d}.png,{words(scene)},GOOD", f"{row:05d}.png,{words(wrong)},1"]
        found = []
        for grade in ("1", "9"):
            path = tmp_path / f"{grade}.csv"
            path.write_text("\n".join(lines).replace("GOOD", grade))
            found.append(align(folder, path))
        plain, graded = found
        assert graded["retrieval.ndcg"] > plain["retrieval.ndcg"] + 0.05
        assert graded["retrieval.map"] == plain["retrieval.map"]


class TestTextsAlike:
    def test_what_the_encoder_cannot_tell_apart_ties_and_is_said(self, scenes):
        """Upper case is read as lower case: of two such prompts, the order is open."""
        pictures = drawings(scenes[:10] * 2)
        told = [words(scene) for scene in scenes[:10]] + [words(scene).upper() for scene in scenes[:10]]
        result = align(pictures, told)
        assert result["retrieval.hit_1"] == 0.5
        alike = next(item for item in result.notices if item.code == "prompts-alike")
        assert alike.message.startswith("10 of 20 prompts read the same")
        assert {failure.rank for failure in result.alignment.failures} == {1.5}

    def test_truncation_is_counted_and_said(self, images, prompts):
        longer = ["a very large and important remark, " * 3 + prompts[0], *prompts[1:]]
        result = align(images, longer)
        assert result.alignment.n_truncated == 1
        told = next(item for item in result.notices if item.code == "prompts-truncated")
        assert told.message.startswith("1 of 200 prompts have more than the 75 tokens that ToyPair reads")

    def test_a_prefix_is_read_counted_and_said(self, images, prompts):
        result = align(images, prompts, prefix="A photo depicts ")
        assert result.alignment.prefix == "A photo depicts "
        assert result.alignment.n_truncated > 0
        assert result.metrics["retrieval.mrr"].variant == "prompts begin with 'A photo depicts '"
        heard = Listening()
        align(images, prompts, prefix="A photo depicts ", extractor=heard)
        assert sorted(heard.texts) == sorted(f"A photo depicts {text}" for text in prompts)
        with pytest.raises(DataError, match="A photo depicts"):
            genpr.compare({"with": result, "without": align(images, prompts)})


class TestPairing:
    def test_the_same_prompts_in_another_order_are_paired(self, images, prompts):
        order = np.random.default_rng(5).permutation(N)
        worse = images.copy()
        worse[:40] = 255
        there = align(images, prompts)
        back = align(worse[order], [prompts[row] for row in order])
        found = genpr.compare({"one": there, "other": back}).contrast("other", "retrieval.r_precision")
        assert (found.pairing, found.verdict) == ("paired", "distinguishable")
        assert found.value == pytest.approx(-0.2, abs=0.01)
        same = align(worse, prompts)
        assert same.metrics["retrieval.mrr"].replicates == back.metrics["retrieval.mrr"].replicates
        assert len(set(same.metrics["retrieval.mrr"].replicates)) > 10
        assert same.real.content == there.real.content == back.real.content


class TestPlaces:
    """That an image keeps its own prompt where a part of the images is used or some cannot be."""

    def test_a_random_part(self, images, prompts):
        result = align(images, prompts, max_images=50)
        assert result["retrieval.r_precision"] == 1
        assert result.fake.n == result.real.n == 50

    @pytest.mark.parametrize("named", [False, True])
    def test_left_out_images(self, tmp_path, scenes, write_images, named):
        folder, told = write_images("images", drawings(scenes[:40])), [words(scene) for scene in scenes[:40]]
        (folder / "00003.png").write_bytes(b"no image")
        given = {f"{row:05d}.png": text for row, text in enumerate(told)} if named else told
        result = align(folder, given, on_bad="skip", max_bad=0.1)
        assert (result["retrieval.r_precision"], result.fake.n) == (1, 39)
        assert "skipped" in {item.code for item in result.notices}

    def test_names_are_checked_before_anything_is_embedded(self, scenes, write_images):
        folder = write_images("images", drawings(scenes[:4]))
        given = {f"{row:05d}.png": "x" for row in range(5)}
        with pytest.raises(DataError, match="1 images that are not in the source"):
            align(folder, given, extractor=Never())


class Never(ToyPair):
    def __call__(self, images):
        raise AssertionError("nothing is to be embedded")

    encode_text = __call__


class TestRefusals:
    @pytest.mark.parametrize(
        ("options", "code"),
        [
            ({"extractor": "inception"}, "no-text-encoder"),
            ({"extractor": "clip-vit-b32"}, "unknown-extractor"),
            ({"distractors": 0}, "bad-option"),
            ({"distractors": 2.5}, "bad-option"),
            ({"seed": -1}, "bad-option"),
            ({"prefix": 3}, "bad-option"),
            ({"max_images": 0}, "bad-option"),
        ],
        ids=str,
    )
    def test_options(self, images, prompts, options, code):
        with pytest.raises(UsageError) as caught:
            align(images, prompts, **options)
        assert caught.value.code == code

    def test_one_prompt_for_all(self, images):
        with pytest.raises(DataError, match=r"all 200 images have one prompt.*'a cat'") as caught:
            align(images, ["a cat", " a  cat"] * 100, extractor=Never())
        assert caught.value.code == "one-prompt"

    def test_counts(self, images, prompts):
        with pytest.raises(DataError, match="holds 199 prompts, but there are 200 images"):
            align(images, prompts[1:])

    def test_an_embedding_without_direction(self, images, prompts):
        black = images.copy()
        black[7] = 0
        with pytest.raises(FeatureError, match=r"1 of 200 embeddings are all zeros.*'\[7\]'"):
            align(black, prompts)


def test_few_prompts_have_no_interval(scenes):
    few = scenes[:9]
    result = align(drawings(few), [words(scene) for scene in few])
    assert all(metric.interval is None for metric in result.metrics.values())
    assert result.undefined == ("retrieval.hit_10", "retrieval.t2i_hit_10")
    assert {item.code for item in result.notices} == {"own-encoder", "small-pool", "few-prompts"}
    ten = align(drawings(scenes[:10]), [words(scene) for scene in scenes[:10]])
    assert "retrieval.hit_10" in ten.undefined, "of 10 candidates all are among the first 10"
    assert ten.metrics["retrieval.hit_5"].interval is not None
