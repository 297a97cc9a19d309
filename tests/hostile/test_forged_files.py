"""Files with a correct checksum and invalid content, which is validated regardless."""

import functools
import json
import math
import operator
from itertools import count

import numpy as np
import pytest
import torch
from feature_files import save
from raising import raised, raising

import genpr
from genpr.checkpoints.score_log import ScoreLog, scored_record
from genpr.cli.main import run
from genpr.errors import DataError, FeatureError, GenprError
from genpr.evaluation.compare import load_results
from genpr.evaluation.evaluator import Evaluator
from genpr.features.cache import CachedImage, FeatureCache
from genpr.features.extractor import ExtractorInfo
from genpr.features.feature_set import load_features
from genpr.metrics.manifold import KNNManifold
from genpr.storage import load_tensors, save_tensors

INFO = ExtractorInfo("mine", 8, "none", None, comparable=False, cache_key="0" * 64)
EXTRACTOR = {"name": "x", "dim": 8, "resize": "", "weights_sha256": None, "comparable": False}
IDENTITIES = [bytes([number]) * 32 for number in range(3)]


def features(n=20, seed=0):
    return torch.randn(n, 8, generator=torch.Generator().manual_seed(seed))


def one_at_a_time(changes):
    return [{name: value} for name, values in changes.items() for value in values]


def changed(path, **others):
    """The file at `path` with changed tensors (None removes one) or metadata, and a correct checksum."""
    tensors, facts = load_tensors(path)
    for name, value in others.items():
        held = tensors if name in tensors or isinstance(value, torch.Tensor) else facts
        if value is None:
            del held[name]
        else:
            held[name] = value
    save_tensors(path, tensors, facts)
    return path


FEATURE_FILES = {
    "features": (None, torch.zeros(())),
    "names": (torch.zeros(3),),
    "identities": (torch.zeros(20, 31, dtype=torch.uint8),),
    "extractor": (
        None,
        '{"name": 1}',
        "[" * 100_000,
        *(json.dumps(EXTRACTOR | {each: 9}) for each in ("dim", "name")),
    ),
    "flags": ('{"no-such-flag": 1}', '{"alpha-dropped": 1e999}'),
    "skipped": ('[["a", "b"]]',),
    "decoder": ('{"pillow": 1}',),
    "facts": ('{"n_sizes": ' + "9" * 30 + "}", '"abc"', "[]"),
}


@pytest.mark.parametrize("others", one_at_a_time(FEATURE_FILES), ids=lambda others: "-".join(others)[:20])
def test_feature_files_of_invalid_form_are_errors(tmp_path, others):
    path = changed(save(tmp_path / "x.safetensors", features()), **others)
    assert raised(FeatureError, load_features, path).code == "file-damaged"


SHARDS = {
    "features": (None, torch.zeros(3, 9), torch.zeros(3, 8, dtype=torch.float64)),
    "flags": (None, torch.zeros(2, dtype=torch.int32)),
    "sizes": (torch.zeros(3, 3, dtype=torch.int32),),
    "identities": (torch.zeros(3, 31, dtype=torch.uint8), torch.zeros(3, 32, dtype=torch.bfloat16)),
    "other": (torch.zeros(3),),
}


@pytest.mark.parametrize("others", one_at_a_time(SHARDS), ids=count())
def test_cache_shards_of_invalid_form_are_discarded(tmp_path, others):
    cached = FeatureCache(tmp_path, INFO, "cpu")
    cached.add(IDENTITIES, list(map(CachedImage, features(3))))
    cached.flush()
    (shard,) = cached.folder.glob("*.safetensors")
    changed(shard, **others)
    again = FeatureCache(tmp_path, INFO, "cpu")
    assert [again.get(identity) for identity in IDENTITIES] == [None] * 3
    assert [each.code for each in again.notices] == ["cache-discarded"]
    assert not shard.exists()


MANIFOLDS = {
    "features": (None, torch.full((20, 8), math.nan)),
    "sq_radii": (torch.zeros(3, dtype=torch.float64), torch.full((20,), -1.0, dtype=torch.float64)),
    "k": ('"x"', "0"),
    "ties": ('"loose"', "[" * 100_000),
}


@pytest.mark.parametrize("others", one_at_a_time(MANIFOLDS), ids=count())
def test_manifolds_of_invalid_form_are_errors(tmp_path, others):
    path = tmp_path / "x.safetensors"
    KNNManifold.fit(features(), k=3).save(path)
    changed(path, **others)
    with pytest.raises(DataError):
        KNNManifold.load(path, device="cpu")


@pytest.fixture(scope="module")
def result():
    return genpr.score(features(40).numpy(), features(40, 1).numpy(), k=3)


@pytest.fixture(scope="module")
def record(result):
    return result.to_dict()


@pytest.mark.parametrize(
    "change",
    [
        {"metrics": {"precision": 1e308, "recall": 1e308, "f1": 1e308}},
        {"metrics": {"precision": 0.5, "recall": -0.5}},
        {"metrics": {"precision": "0.5"}},
        {"n_fake": -1},
    ],
    ids=str,
)
def test_impossible_numbers_in_a_log_are_errors(tmp_path, result, change):
    path = tmp_path / "genpr.jsonl"
    line = scored_record("a", "0" * 64, result, recipe={}, seconds=1.0, timestamp=1.0)
    path.write_text(json.dumps(line | change) + "\n")
    assert raised(DataError, ScoreLog, path).code == "file-damaged"


IMPOSSIBLE = {
    "metrics.recall.value": (-0.5, 1.5, math.nan, "0.5"),  # precision .5 and recall -.5 have no harmonic mean
    "metrics.density.value": (1e308,),
    "metrics.precision.n_counted": (0, -5),
    "metrics.precision.k": (0, 10**30),
    "metrics.precision.null": (-1.0,),
    "metrics.precision.interval": ([0.9, 0.1], [0.1], ["a", None]),
    "metrics.precision.replicates": ([0.5], [1e308, -1e308], [math.inf] * 50),
    "metrics.precision.spread": (-1.0,),
    "metrics.precision.pool": (0,),
    "metrics.<script>": ({"value": 1.0, "k": None},),
    "real.n": (0, 1e400),
    "real.skipped": ([["a"]],),
    "fake.n": (-1,),
    "n_shared": (-1,),
    "real.flags": ({"alpha-dropped": -1},),
    "control": ({"n_real": 9, "n_fake": 9, "values": {"precision": -1.0}, "nulls": {}},),
    "notices": ([{"code": "x", "level": "error", "message": "m"}],),
    "versions": ({"genpr": {}},),
    "extractor": ("inception",),
    "schema": ("a\nb", 5),
}


@pytest.mark.parametrize("others", one_at_a_time(IMPOSSIBLE), ids=count())
def test_impossible_results_are_errors(tmp_path, record, others):
    """For all formats of results."""
    bad = json.loads(json.dumps(record))
    bad["metrics"]["precision"]["value"] = 0.5
    ((place, value),) = others.items()
    *keys, last = place.split(".")
    functools.reduce(operator.getitem, keys, bad)[last] = value
    sweep = {"axis": "psi", "points": [{"setting": 0.5, "result": bad}]}
    for form in (bad, {"results": [bad]}, {"results": {"a": bad}}, sweep):
        (tmp_path / "x.json").write_text(json.dumps(form))
        with raising(DataError, "not-a-result"):
            load_results(tmp_path / "x.json")


def test_record_of_a_failed_run_is_no_result(tmp_path):
    record = {"error": {"code": "weights-missing", "message": "the weights are missing"}}
    (tmp_path / "x.json").write_text(json.dumps(record))
    assert "weights-missing" in str(raised(DataError, load_results, tmp_path / "x.json"))


@pytest.mark.parametrize("points", [[0.5, 0.5], [math.nan], ["0.5"], [True]], ids=str)
def test_settings_of_a_sweep_must_be_distinct_finite_numbers(tmp_path, record, points):
    content = {"axis": "psi", "points": [{"setting": each, "result": record} for each in points]}
    (tmp_path / "x.json").write_text(json.dumps(content))
    assert raised(DataError, load_results, tmp_path / "x.json").code == "not-a-result"


def test_feature_file_cannot_name_code_to_run(tmp_path, write_images, rng):
    """Its extractor may be named as a file with a factory; this is only a name, and the file is never read."""
    marker = tmp_path / "ran"
    (tmp_path / "evil.py").write_text(f"open({str(marker)!r}, 'w')\n\ndef make():\n    return None\n")
    images = write_images("fakes", rng.integers(0, 256, (20, 8, 8, 3), dtype=np.uint8))
    for comparable in (False, True):
        name = f"{tmp_path}/evil.py:make"
        reals = save(tmp_path / "real.safetensors", features(), name=name, comparable=comparable)
        fakes = save(tmp_path / "fake.safetensors", features(seed=1), name=name, comparable=comparable)
        for other in (fakes, images):
            for command in ("score", "modes", "rank"):
                assert run([command, str(reals), str(other), "-q"]) in {0, 2, 3}
        with pytest.raises(GenprError):
            Evaluator(reals).score(images)
        with pytest.raises(GenprError):
            genpr.score(reals, fakes, held_out=images)
    assert not marker.exists()
