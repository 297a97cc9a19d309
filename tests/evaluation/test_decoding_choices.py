"""Decoding options apply to every kind of source, separate cached features, and are recorded in results."""

import json

import numpy as np
import pytest
from PIL import Image
from raising import raising

import genpr
from genpr.cli.main import run
from genpr.errors import UsageError
from genpr.evaluation.result import recipe_of
from genpr.report.score_tables import score_table

OPTIONS = {"extractor": "gabor", "device": "cpu", "control": False, "intervals": False, "k": 1}
CHOSEN = {"prepare": "center-crop:8"}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Images with transparent halves and an EXIF orientation."""
    root, rng = tmp_path_factory.mktemp("see-through"), np.random.default_rng(0)
    for side in ("real", "fake"):
        (root / side).mkdir()
        for index in range(6):
            pixels = rng.integers(0, 256, (12, 8, 4), dtype=np.uint8)
            pixels[..., 3] = 255 * (np.arange(8) < 4)
            turned = Image.Exif()
            turned[274] = 6
            Image.fromarray(pixels).save(root / side / f"{index}.png", exif=turned)
    return root / "real", root / "fake"


@pytest.fixture(scope="module")
def results(folders, tmp_path_factory):
    """Results with default and with chosen decoding options, twice each with one cache."""
    cache = tmp_path_factory.mktemp("cache")

    def both():
        choices = {}, CHOSEN
        return [genpr.score(*folders, **OPTIONS, **each, cache_dir=cache) for each in choices]

    return both(), both()


def test_decoding_options_do_not_share_cached_features(results):
    first, second = results
    assert [result.fake.n_embedded for result in first] == [6, 6]
    assert [result.fake.n_cached for result in second] == [6, 6]
    assert [result.to_flat_dict() for result in first] == [result.to_flat_dict() for result in second]


def test_results_record_decoding_options_and_notices_report_defaults(results):
    (plain, chosen), _ = results
    expected = {"alpha-dropped", "exif-orientation"}
    assert expected <= {notice.code for notice in plain.notices}
    assert not CHOSEN.keys() & plain.real.decoder.keys()
    assert "real, prepare center-crop:8\n" in score_table(chosen)
    for side in (chosen.real, chosen.fake):
        assert CHOSEN.items() <= side.decoder.items()


def test_results_of_different_decoding_options_are_not_compared(results):
    (plain, chosen), _ = results
    assert "decoding" not in recipe_of(plain)["recall"]
    assert recipe_of(chosen)["recall"]["decoding"] == {"real": CHOSEN, "fake": CHOSEN}


def test_feature_files_record_decoding_options_and_differences_are_reported(
    folders, tmp_path, capsys, results
):
    embed = ("features", str(folders[0]), str(tmp_path / "real.safetensors"), "--extractor", "gabor", "-q")
    assert run([*embed, "--prepare", "center-crop:8"]) == 0
    assert run(["features", str(folders[1]), str(tmp_path / "fake.safetensors"), *embed[3:]]) == 0
    capsys.readouterr()
    sides = [str(tmp_path / f"{side}.safetensors") for side in ("real", "fake")]
    assert run(["score", *sides, "--k", "1", "--no-control", "--no-intervals", "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert CHOSEN.items() <= record["real"]["decoder"].items()
    (item,) = [notice for notice in record["notices"] if notice["code"] == "decoded-differently"]
    assert item["message"].endswith("reals with prepare center-crop:8, fakes with the defaults")
    (_, alike), _ = results
    assert "decoded-differently" not in {notice.code for notice in alike.notices}
    sames = [sides[0], sides[0]]
    assert genpr.score(*sames, prepare="center-crop:8", k=1).real.decoder["prepare"] == "center-crop:8"
    for files, rule in ((sames, "none"), (sames, "resize:8"), (sides, "center-crop:8")):
        with raising(UsageError, "features-prepared"):
            genpr.score(*files, prepare=rule, k=1)


def test_reference_statistics_of_other_decoding_options_are_reported(folders, tmp_path):
    facts = {"format": "genpr.statistics/1", "source": "x", "count": 9, "extractors": {"mu": None}}
    decoder = {"pillow": "1", "prepare": "resize:8"}
    record = json.dumps(facts | {"images_sha256": None, "decoder": decoder})
    np.savez(tmp_path / "x.npz", mu=np.zeros(736), sigma=np.eye(736), genpr=np.array(record))
    options = OPTIONS | {"k": None, "metrics": ["fd"], "reference_statistics": tmp_path / "x.npz"}
    for rule, is_told in (("none", True), ("resize:8", False), ("resize:9", True)):
        found = genpr.score(*folders, **options, prepare=rule)
        codes = {notice.code for notice in found.notices}
        assert (codes & {"decoded-differently", "statistics-unprepared"}) == (
            {"decoded-differently"} if is_told else set()
        )
