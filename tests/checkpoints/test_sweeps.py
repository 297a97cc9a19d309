"""Sweeps: values, stored points and resuming after an interruption."""

import json
import os

import numpy as np
import pytest
from blob_checkpoints import GENERATOR, real_blobs, write_checkpoint, write_generator
from raising import raising

import genpr
from genpr.checkpoints.sweep import Objective, SweepFolder, sweep
from genpr.demo import ShapesGenerator, draw_latents
from genpr.errors import DataError, ResourceError, UsageError
from genpr.report.compare_tables import sweep_table
from genpr.report.files import check_sweep, write_sweep

OPTIONS = {"control": False, "device": "cpu", "metrics": ["precision", "recall"]}
SETTINGS = (0.1, 0.5, 0.8, 1.0)


@pytest.fixture(scope="module")
def reals():
    return np.random.default_rng(1).normal(size=(150, 6)).astype(np.float32)


@pytest.fixture(scope="module")
def fakes():
    """Fakes with less variance for smaller psi, and constant noise."""
    rng = np.random.default_rng(2)
    latents, noise = rng.normal(size=(2, 150, 6))
    return {psi: (psi * latents + 0.3 * noise).astype(np.float32) for psi in SETTINGS}


@pytest.fixture(scope="module")
def evaluator(reals):
    return genpr.Evaluator(reals, **OPTIONS)


@pytest.fixture(scope="module")
def found(evaluator, fakes):
    return sweep(evaluator, fakes)


@pytest.fixture
def scored(monkeypatch):
    """The sources that are scored, in order."""
    sources, score = [], genpr.Evaluator.score
    monkeypatch.setattr(
        genpr.Evaluator, "score", lambda each, fake: sources.append(fake) or score(each, fake)
    )
    return sources


def test_truncation_trades_recall_for_precision(found):
    recalls, precisions = zip(*(point.result.tradeoff for point in found.points), strict=True)
    assert list(recalls) == sorted(recalls)
    assert precisions[0] == 1
    assert recalls[0] < 0.2
    assert "shrinkage" in {item.code for item in found.points[0].result.notices}
    assert found.best(Objective("precision", {"recall": recalls[2]})).setting == 0.8
    assert found.best(Objective("recall", {"precision": 2})) is None
    record = json.loads(found.to_json(objective=Objective("precision", {"recall": 0.3})))
    assert (record["schema"], record["axis"]) == ("genpr.sweep/1", "psi")
    assert record["goal"] == "highest precision with recall at least 0.3"
    assert record["front"] == [point.setting for point in found.front]
    assert record["points"][1]["result"]["metrics"]["recall"]["value"] == found.points[1].result["recall"]


def test_record_and_table_name_all_contenders(found):
    for objective in (Objective(), Objective("precision"), Objective("recall")):
        contenders = found.contenders(objective)
        expected = [point.setting for point in contenders]
        assert json.loads(found.to_json(objective=objective))["contenders"] == expected
        best = found.best(objective).setting
        others = [f"{setting:g}" for setting in expected if setting != best]
        table = " ".join(sweep_table(found, objective).split())
        tied = f"statistically tied with it: psi = {', '.join(others)} ("
        assert (tied in table) == bool(others)
        assert ("tied with it: no other setting" in table) == (not others)
    out_of_reach = Objective("recall", {"recall": 2.0})
    assert json.loads(found.to_json(objective=out_of_reach))["contenders"] == []
    assert "tied" not in sweep_table(found, out_of_reach)


def test_table_has_both_ends_of_intervals_of_distances_and_no_nulls_of_halves(reals, fakes):
    evaluator = genpr.Evaluator(reals, metrics=("precision", "recall", "fd"), device="cpu")
    found = sweep(evaluator, {psi: fakes[psi] for psi in (0.5, 1.0)})
    nulls = [found.points[0].result.metrics[name].null for name in ("precision", "recall")]
    assert found.points[0].result.metrics["fd"].null_source == "real halves"
    table = " ".join(sweep_table(found, Objective()).split())
    for point in found.points:
        low, high = point.result.metrics["fd"].interval
        assert f"{point.result['fd']:.4f} [{low:.4f}, {high:.4f}]" in table
        recall = point.result.metrics["recall"]
        half = (recall.interval[1] - recall.interval[0]) / 2
        assert f"{recall.value:.3f} ±{half:.3f}" in table
    assert "null: precision {:.4f}, recall {:.4f} best".format(*nulls) in table


def test_differences_between_settings_are_reported(reals, fakes, found):
    assert found.differences == ()
    assert json.loads(found.to_json())["differences"] == []
    assert "scored alike" not in sweep_table(found, Objective())
    bare = genpr.Evaluator(reals, **OPTIONS, intervals=False)
    assert json.loads(sweep(bare, fakes).to_json())["contenders"] is None
    unlike = sweep(bare, {0.1: fakes[0.1], 0.5: fakes[0.5][:90], 1.0: fakes[1.0][:80]})
    differences = [f"{n} fake images in psi = {psi}, 150 in psi = 0.1" for n, psi in ((90, 0.5), (80, 1))]
    assert list(unlike.differences) == differences
    table = " ".join(sweep_table(unlike, Objective()).split())
    assert f"{unlike.differences[0]} and 1 more" in table
    assert sweep(bare, {0.1: fakes[0.1]}).differences == ()


@pytest.fixture
def paths(fakes, tmp_path):
    (tmp_path / "fakes").mkdir()
    files = {psi: tmp_path / "fakes" / f"{psi}.npy" for psi in fakes}
    for psi, path in files.items():
        np.save(path, fakes[psi])
    return files


@pytest.fixture
def folder(tmp_path):
    return SweepFolder(tmp_path / "out")


def test_interrupted_sweep_resumes(evaluator, fakes, paths, folder, found, scored):
    """Stored points keep their replicates: values that are read equal computed ones, to the bit."""
    sweep(evaluator, {psi: paths[psi] for psi in SETTINGS[:2]}, folder=folder)
    again = sweep(evaluator, dict(reversed(paths.items())), folder=folder)
    assert sweep(evaluator, paths, folder=folder) == again
    assert scored == [*paths.values()], "each once"
    assert [point.setting for point in again.points] == list(SETTINGS)
    for point, other in zip(again.points, found.points, strict=True):
        single = evaluator.score(fakes[point.setting])
        assert point.result.metrics == other.result.metrics == single.metrics
        assert point.result.metrics["recall"].replicates is not None
    goal = Objective("precision", {"recall": 0.3})
    assert [one.setting for one in again.contenders(goal)] == [one.setting for one in found.contenders(goal)]
    scored.clear()
    for _ in range(2):
        sweep(evaluator, {0.5: fakes[0.5]}, folder=SweepFolder(folder.path.with_name("bare")))
    assert len(scored) == 2, "arrays have no identity, so their points are not reused"


def test_changed_fakes_reals_and_options_are_errors(evaluator, reals, paths, folder, fakes):
    sweep(evaluator, paths, folder=folder)
    for other in ({"k": 4}, {"seed": 5}, {"real": reals + 1}):
        changed = genpr.Evaluator(other.pop("real", reals), **OPTIONS, **other)
        with raising(UsageError, "other-sweep"):
            sweep(changed, paths, folder=folder)
    np.save(paths[0.5], fakes[0.1])
    with raising(UsageError, "other-sweep"):
        sweep(evaluator, paths, folder=folder)


def test_changed_files_of_a_pattern_are_an_error(shapes, write_images, rng, folder, tmp_path):
    images = write_images("fakes", rng.integers(0, 256, (20, 64, 64, 3), dtype=np.uint8))
    pattern = {1.0: str(images / "*.png")}
    sweep(shapes, pattern, folder=folder)
    next(images.iterdir()).unlink()
    with raising(UsageError, "other-sweep", "listing"):
        sweep(shapes, pattern, folder=folder)


@pytest.mark.parametrize("content", ['{"key"', "{}", "[]", '{"schema": "other"}', ""])
def test_damaged_point_is_an_error(evaluator, paths, folder, content):
    sweep(evaluator, {0.8: paths[0.8]}, folder=folder)
    (folder.path / "points" / "0.8.json").write_text(content)
    with raising(DataError, "not-a-point"):
        sweep(evaluator, paths, folder=folder)


def test_unwritable_and_locked_folders_are_errors(evaluator, paths, folder):
    with folder.locked(), raising(ResourceError, "locked"):
        sweep(evaluator, paths, folder=SweepFolder(folder.path))
    folder.path.with_name("file").touch()
    with raising(ResourceError, "unwritable"):
        sweep(evaluator, paths, folder=SweepFolder(folder.path.with_name("file")))


@pytest.mark.parametrize("settings", [{}, {float("nan"): 0}, {"0.5": 0}, {True: 0}])
def test_invalid_sweeps_are_errors(settings, evaluator, reals, fakes):
    with raising(UsageError, "bad-setting"):
        sweep(evaluator, settings)
    with raising(UsageError, "no-tradeoff"):
        sweep(genpr.Evaluator(reals, **OPTIONS | {"metrics": ["precision", "density"]}), fakes)
    with pytest.raises(DataError, match=r"^at psi = 0.5: "):
        sweep(evaluator, {0.5: fakes[0.5][:, :3]})


def test_temporary_files_of_a_killed_sweep_are_removed(evaluator, paths, folder, tmp_path):
    (tmp_path / "out" / "points").mkdir(parents=True)
    left = [tmp_path / "out" / "points" / ".0.5.json.abc.tmp", tmp_path / "out" / ".sweep.png.abc.tmp"]
    others = [tmp_path / "out" / ".notes.tmp", tmp_path / "out" / "points" / ".psi.tmp"]
    for path in left + others:
        path.write_text("{")
    sweep(evaluator, paths, folder=folder)
    assert [path.exists() for path in left + others] == [False, False, True, True]


def test_folder_of_points_is_not_in_a_source(evaluator, paths):
    with raising(UsageError, "output-is-input"):
        sweep(evaluator, {1.0: paths[1.0].parent}, folder=SweepFolder(paths[1.0].parent / "out"))


@pytest.mark.parametrize("name", ["sweep.json", "sweep.png"])
def test_files_of_a_sweep_replace_only_those_of_another(found, folder, name):
    folder.path.mkdir()
    (folder.path / name).write_text('{"mine": {\n "schema": "genpr.sweep/1"}}')
    with raising(UsageError, "output-exists"):
        write_sweep(found, Objective(), folder)
    assert [path.name for path in folder.path.iterdir()] == [name]
    write_sweep(found, Objective(), folder, overwrite=True)
    check_sweep(folder.path)
    assert sorted(path.name for path in folder.path.glob("*.*")) == ["sweep.json", "sweep.png"]
    (folder.path / name).unlink()
    os.mkfifo(folder.path / name)
    with raising(UsageError, "not-a-file"):
        write_sweep(found, Objective(), folder, overwrite=True)


def test_point_of_another_sweep_is_an_error_before_a_new_one_is_scored(
    evaluator, reals, paths, folder, scored
):
    sweep(evaluator, {1.0: paths[1.0]}, folder=folder)
    with raising(UsageError, "other-sweep"):
        sweep(genpr.Evaluator(reals, **OPTIONS, k=4), paths, folder=folder)
    assert len(scored) == 1


def test_path_of_the_fakes_may_be_written_differently(evaluator, paths, folder, monkeypatch, scored):
    monkeypatch.chdir(folder.path.parent)
    for path in (paths[1.0], "./fakes/../fakes/1.0.npy"):
        sweep(evaluator, {1.0: path}, folder=folder)
    assert len(scored) == 1


@pytest.fixture(scope="module")
def shapes():
    """An evaluator of drawings by the generator of the demo."""
    return genpr.Evaluator(ShapesGenerator()(draw_latents(60, seed=1)), extractor="pixels", **OPTIONS)


def test_every_psi_is_scored_on_the_same_latents(shapes):
    found = genpr.truncation_sweep(ShapesGenerator(), shapes, (1.0, 0.2), n=50, seed=3)
    assert [point.setting for point in found.points] == [0.2, 1.0]
    for point in found.points:
        single = shapes.score(ShapesGenerator()(draw_latents(50, seed=3), psi=point.setting))
        assert point.result.fake.order == single.fake.order, "the same images"
        assert point.values["recall"] == single["recall"]
    assert found.points[0].values["recall"] < found.points[1].values["recall"]


def test_sweep_resumes_with_the_same_code_at_another_path(tmp_path, scored):
    evaluator = genpr.Evaluator(real_blobs(20), extractor="pixels", **OPTIONS)
    spec, checkpoint = write_generator(tmp_path), write_checkpoint(tmp_path / "a.pt", 0.9)

    def run(spec):
        generator = genpr.load_generator(spec, checkpoint, device="cpu")
        options = {"n": 20, "image_range": (-1, 1), "out": tmp_path / "out"}
        genpr.truncation_sweep(generator, evaluator, [1.0], **options)

    run(spec)
    (tmp_path / "moved").mkdir()
    moved = (tmp_path / "gan.py").rename(tmp_path / "moved" / "generator.py")
    run(f"{moved}:load")
    assert len(scored) == 1
    for other in (f"{moved}:again", write_generator(tmp_path, GENERATOR + "# edited")):
        with raising(UsageError, "other-sweep"):
            run(other)
