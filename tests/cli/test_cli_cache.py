"""`genpr cache list | prune`."""

import json
import os
import time
from pathlib import Path

import pytest


@pytest.fixture
def cached(genpr, folders, tmp_path):
    """The cache after two folders were embedded one after the other, the first 40 days ago, the second an hour ago."""
    days = {0: 40 * 86400, 1: 3600}
    seen = set()
    for number, side in enumerate(folders):
        assert genpr("features", side, tmp_path / f"{number}.safetensors", "--extractor", "gabor")[0] == 0
        for shard in set(root().rglob("*.safetensors")) - seen:
            used = time.time() - days[number]
            os.utime(shard, (used, used))
            seen.add(shard)
    return root()


def root():
    return Path(os.environ["GENPR_CACHE"])


def shards():
    return sorted(root().rglob("*.safetensors"))


def test_empty_cache_is_listed(genpr):
    assert genpr("cache", "list") == (0, f"no features are cached in {root()}\n", "")
    assert json.loads(genpr("cache", "list", "--json")[1])["folders"] == []
    assert "removed 0 files" in genpr("cache", "prune", "--max-size", "1GB")[1]


def test_json_of_cache_list_has_all_fields(genpr, cached):
    record = json.loads(genpr("cache", "list", "--json")[1])
    (folder,) = record["folders"]
    assert (folder["extractor"], folder["files"], folder["images"]) == ("gabor", 2, 40)
    assert record["size"] == folder["size"] == sum(path.stat().st_size for path in shards())
    assert folder["last_used"]
    assert folder["key"]["extractor"] == "gabor"


@pytest.mark.parametrize(
    ("options", "left"),
    [
        (["--older-than", "30d"], 1),
        (["--older-than", "41d"], 2),
        (["--older-than", "7w", "--max-size", "1GB"], 2),
        (["--max-size", "0"], 0),
    ],
    ids=str,
)
def test_pruning_removes_the_oldest_files_by_age_and_size(genpr, cached, options, left):
    newest = max(shards(), key=lambda path: path.stat().st_mtime)
    dry = json.loads(genpr("cache", "prune", *options, "--dry-run", "--json")[1])
    assert len(shards()) == 2
    code, out, _ = genpr("cache", "prune", *options, "--json")
    done = json.loads(out)
    assert code == 0
    assert done == {**dry, "dry_run": False}
    assert len(done["removed"]) == 2 - left
    assert shards() == [newest][:left] if left < 2 else len(shards()) == 2
    assert done["left_size"] == sum(path.stat().st_size for path in shards())
