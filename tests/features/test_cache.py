"""The feature cache is correct or unused, also with concurrent use, other owners and removed files."""

import os
import random
import shutil
import tracemalloc
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from raising import raised, raising
from torch.nn.attention import SDPBackend, sdpa_kernel

import genpr
from genpr.errors import BadImagesError, UsageError
from genpr.features import cache as cache_module
from genpr.features.cache import CachedImage, FeatureCache, JoinedCache
from genpr.features.cache_files import choose_files, find_folders, remove_files
from genpr.features.custom import extractor_info
from genpr.features.embed import embed_source
from genpr.features.extractor import ExtractorInfo
from genpr.images.policy import DecodePolicy
from genpr.images.source import open_source

NOW = 1_000_000.0
INFO = ExtractorInfo("toy", 3, "none", None, comparable=False, cache_key="a" * 64)
OPTIONS = {"extractor": "pixels", "device": "cpu", "control": False, "intervals": False, "k": 1}


def rows(*numbers):
    """The sha256 and features of some images."""
    images = [CachedImage(torch.full((3,), float(number))) for number in numbers]
    return [number.to_bytes(32, "big") for number in numbers], images


def opened(root):
    return FeatureCache(root, INFO, "cpu")


def numbered(numbers):
    return rows(*numbers)[0], numbers


def fill(root, identities, values, *, info=INFO, used=None) -> Path:
    """Write one shard with the given identities, values and time of last use; returns its path."""
    cache = FeatureCache(root, info, "cpu")
    before = set(cache.folder.glob("*.safetensors"))
    cache.add(identities, rows(*values)[1])
    cache.flush()
    (shard,) = set(cache.folder.glob("*.safetensors")) - before
    if used is not None:
        os.utime(shard, (used, used))
    return shard


def values_of(cache, identities):
    found = [cache.get(identity) for identity in identities]
    return [None if each is None else each.features.tolist()[0] for each in found]


def known(root, numbers):
    cache = opened(root)
    found = values_of(cache, rows(*numbers)[0])
    assert cache.notices == []
    assert all(value in {None, number} for value, number in zip(found, numbers, strict=True))
    return [value for value in found if value is not None]


# The index


@pytest.mark.parametrize("damage", [lambda path: path.write_bytes(b"x"), lambda path: path.unlink()])
def test_every_image_is_found_except_in_damaged_shards(rng, tmp_path, damage, monkeypatch):
    monkeypatch.setattr(cache_module, "_OPEN_SHARDS", 2)
    identities = [each.tobytes() for each in rng.integers(0, 256, (60, 32), dtype=np.uint8)]
    shards = [
        fill(tmp_path, identities[start : start + 10], range(start, start + 10)) for start in range(0, 60, 10)
    ]
    cache, order = opened(tmp_path), random.Random(0).sample(range(60), 60)
    os.utime(shards[5], (1, 1))
    assert values_of(cache, [identities[row] for row in order]) == order
    assert shards[5].stat().st_mtime > 1, "it was used"
    fill(tmp_path, identities[25:26], [25])
    cache = opened(tmp_path)
    damage(shards[2])
    expected = [None if 20 <= row < 30 and row != 25 else row for row in range(60)]
    assert values_of(cache, identities) == expected
    assert cache.get(b"\xff" * 32) is None


def test_images_whose_hashes_share_a_suffix_are_distinguished(tmp_path):
    alike = [bytes([number]) * 24 + b"12345678" for number in range(4)]
    for number in (0, 1, 2):
        others = [bytes([9, number, row, *[0] * 29]) for row in range(number)]
        fill(tmp_path, [*others, alike[number]], [*range(10, 10 + number), number])
    cache = opened(tmp_path)
    assert values_of(cache, alike) == [0, 1, 2, None]
    assert all(identity in cache for identity in alike[:3])


def test_an_image_takes_20_bytes(rng, tmp_path, monkeypatch):
    monkeypatch.setattr(cache_module, "SHARD_ROWS", 2**15)
    identities = [each.tobytes() for each in rng.integers(0, 256, (2**17, 32), dtype=np.uint8)]
    opened(tmp_path).add(identities, [CachedImage(torch.zeros(3))] * 2**17)
    tracemalloc.start()
    cache = opened(tmp_path)
    assert all(identity in cache for identity in identities[::1000])
    held, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 20 * 2**17
    assert peak < 100 * 2**17


# Several layers


def joined(root, *dims):
    parts = [replace(INFO, dim=dim, cache_key=letter * 64) for dim, letter in zip(dims, "ab", strict=True)]
    return JoinedCache([FeatureCache(root, part, "cpu") for part in parts])


def test_image_is_cached_if_all_layers_are(tmp_path):
    identities, flags = rows(*range(6))[0], [("alpha-dropped",), ("multi-frame",)] * 3
    images = [CachedImage(torch.tensor([n, n, -n]).float(), flags[n], (n + 1, 9)) for n in range(6)]
    only_first = joined(tmp_path, 2, 1).layers[0]
    only_first.add(identities[:2], [image._replace(features=image.features[:2]) for image in images[:2]])
    only_first.flush()
    cache = joined(tmp_path, 2, 1)
    assert cache.get(identities[0]) is None, "one of two layers is not enough"
    cache.add(identities, images)
    cache.flush()
    cache = joined(tmp_path, 2, 1)
    for identity, image in zip(identities, images, strict=True):
        found = cache.get(identity)
        assert torch.equal(found.features, image.features)
        assert found[1:] == image[1:]
    assert sum(folder.count_rows() for folder in find_folders(tmp_path)) == 12, "none is stored twice"


@pytest.mark.parametrize("is_open", [False, True])
def test_damaged_file_of_any_layer_is_replaced(tmp_path, is_open):
    def add(cache):
        cache.add([bytes(32)], [CachedImage(torch.ones(2))])
        cache.flush()

    add(joined(tmp_path, 1, 1))
    cache = joined(tmp_path, 1, 1)
    (shard,) = cache.layers[1].folder.glob("*.safetensors")
    data = bytearray(shard.read_bytes())
    data[-20] ^= 1
    shard.write_bytes(data if is_open else b"garbage")
    cache = cache if is_open else joined(tmp_path, 1, 1)
    assert cache.get(bytes(32)) is None
    assert [item.code for item in cache.notices] == ["cache-discarded"]
    add(cache)
    assert joined(tmp_path, 1, 1).get(bytes(32)).features.tolist() == [1, 1]


# Runs that use it


@pytest.fixture
def folder(sides):
    return sides[0]


@pytest.fixture
def small():
    return genpr.load_extractor("pixels", device="cpu")


def embed_cached(folder, extractor, root):
    cache = FeatureCache(root, extractor_info(extractor), "cpu")
    return embed_source(open_source(folder), [(extractor, cache)])[0], cache


def test_only_new_and_changed_images_are_embedded_at_any_path(folder, small, tmp_path):
    first, cache = embed_cached(folder, small, tmp_path / "cache")
    written = (cache.folder / "key.json").stat()
    second, _ = embed_cached(folder, small, tmp_path / "cache")
    assert (cache.folder / "key.json").stat().st_mtime_ns == written.st_mtime_ns, "writing is slow"
    assert (first.n_embedded, first.n_cached, second.n_embedded, second.n_cached) == (30, 0, 0, 30)
    assert torch.equal(first.features, second.features)
    assert (first.names, first.identities.tolist()) == (second.names, second.identities.tolist())
    moved = tmp_path / "elsewhere" / "deep"
    shutil.copytree(folder, moved)
    (moved / "00003.png").rename(moved / "zzz.png")
    Image.new("RGB", (8, 8)).save(moved / "00005.png")
    result, _ = embed_cached(moved, small, tmp_path / "cache")
    assert (result.n_embedded, result.n_cached) == (1, 29)
    assert torch.equal(result.features, embed_source(open_source(moved), [(small, None)])[0].features)


def test_libraries_that_are_switched_off_have_another_folder(tmp_path, monkeypatch):
    usual = opened(tmp_path).folder
    with sdpa_kernel(SDPBackend.MATH):
        folders = {usual, opened(tmp_path).folder}
    for library in (torch.backends.mkldnn, torch.backends.cudnn):
        with monkeypatch.context() as patch:
            patch.setattr(library, "enabled", False)
            folders.add(opened(tmp_path).folder)
    with torch.device("cpu"):
        folders.add(opened(tmp_path).folder)
    assert len(folders) == 5
    assert opened(tmp_path).folder == usual


def test_decoding_flags_are_cached(tmp_path, small):
    folder = tmp_path / "a"
    folder.mkdir()
    Image.new("RGBA", (8, 8), (1, 2, 3, 4)).save(folder / "x.png")
    Image.new("CMYK", (8, 8)).save(folder / "y.jpg")
    for n_cached in (0, 2):
        found, _ = embed_cached(folder, small, tmp_path / "cache")
        assert (found.flags, found.n_cached) == ({"alpha-dropped": 1, "cmyk-converted": 1}, n_cached)


@pytest.mark.parametrize("how", ["flip", "cut", "garbage"])
def test_damaged_cache_file_is_reported_and_replaced(folder, small, tmp_path, how):
    first, cache = embed_cached(folder, small, tmp_path / "cache")
    (shard,) = cache.folder.glob("*.safetensors")
    whole = bytearray(shard.read_bytes())
    whole[-1] ^= 1
    shard.write_bytes({"flip": whole, "cut": whole[:-9], "garbage": b"x" * 5000}[how])
    second, cache = embed_cached(folder, small, tmp_path / "cache")
    assert torch.equal(first.features, second.features)
    assert second.n_embedded == 30
    assert [item.code for item in cache.notices] == ["cache-discarded"]
    assert embed_cached(folder, small, tmp_path / "cache")[0].n_cached == 30


def test_another_extractor_or_device_never_shares_features(tmp_path):
    changes = [{"cache_key": "0" * 64}, {"weights_sha256": "1" * 64}, {"resize": "other"}, {"dim": 4}, {}]
    folders = {FeatureCache(tmp_path, replace(INFO, **change), "cpu").folder for change in changes}
    folders.add(FeatureCache(tmp_path, INFO, "cuda").folder)
    folders.add(FeatureCache(tmp_path, INFO, "cpu", policy=DecodePolicy(max_pixels=9)).folder)
    assert len(folders) == 7


def test_usable_images_stay_cached_when_others_are_bad(folder, small, tmp_path):
    good = (folder / "00002.png").read_bytes()
    (folder / "00002.png").write_bytes(good[:60])
    with pytest.raises(BadImagesError):
        embed_cached(folder, small, tmp_path / "cache")
    (folder / "00002.png").write_bytes(good)
    result, _ = embed_cached(folder, small, tmp_path / "cache")
    assert (result.n_embedded, result.n_cached) == (1, 29)


# Concurrent use


def test_concurrent_writers_do_not_conflict(tmp_path):
    one, other = opened(tmp_path), opened(tmp_path)
    one.add(*rows(1, 2, 3))
    other.add(*rows(3, 4))
    one.flush()
    other.flush()
    again = opened(tmp_path)
    again.add(*rows(1, 2, 3))  # the same shard once more
    again.flush()
    assert known(tmp_path, range(6)) == [1, 2, 3, 4]
    assert len(list(one.folder.glob("*.safetensors"))) == 2
    assert not list(one.folder.glob(".*"))


only_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can change the owner of a file")


@pytest.mark.parametrize("kind", ["file", "world-writable", pytest.param("of another user", marks=only_root)])
def test_unusable_folder_loses_the_cache_but_not_the_score(sides, tmp_path, kind):
    folder = tmp_path / "cache"
    if kind == "file":
        folder.write_text("a file")
    else:
        folder.mkdir()
        folder.chmod(0o777) if kind == "world-writable" else os.chown(folder, 12345, 12345)
    result = genpr.score(*sides, **OPTIONS, cache_dir=folder)
    (unusable,) = {item for item in result.notices if item.code == "cache-unusable"}
    assert unusable.level == "warning"
    assert result.to_flat_dict() == genpr.score(*sides, **OPTIONS, cache=False).to_flat_dict()
    assert not folder.is_dir() or not list(folder.iterdir())


@only_root
@pytest.mark.parametrize("planted", ["file", "link"])
def test_shard_of_another_user_is_not_used(tmp_path, planted):
    shard = fill(tmp_path, *(rows(1, 2, 3)[0], (1, 2, 3)))
    if planted == "link":
        shard.rename(tmp_path / "elsewhere")
        shard.symlink_to(tmp_path / "elsewhere")
    os.chown(shard, 12345, 12345, follow_symlinks=False)
    again = opened(tmp_path)
    assert values_of(again, rows(1, 2, 3)[0]) == [None] * 3
    assert [each.code for each in again.notices] == ["cache-discarded"]
    again.add(*rows(1, 2, 3))  # the same name, and a file of one's own in its place
    again.flush()
    assert known(tmp_path, [1, 2, 3]) == [1, 2, 3]


def test_pipes_in_the_cache_are_not_read(tmp_path):
    shard = fill(tmp_path, rows(1)[0], [1])
    for path in (shard, shard.parent / "key.json"):
        path.unlink()
        os.mkfifo(path)
    again = opened(tmp_path)
    assert again.get(rows(1)[0][0]) is None
    assert [each.code for each in again.notices] == ["cache-unreadable"]
    assert raised(UsageError, find_folders, tmp_path).code == "not-a-cache"  # neither is of genpr


# Pruning


@pytest.fixture
def shards(tmp_path):
    """Three shards of 10, 20 and 30 images, used 300, 200 and 100 seconds ago."""
    sizes = {10: 300, 20: 200, 30: 100}
    return [fill(tmp_path, *numbered(range(100 * n, 101 * n)), used=NOW - ago) for n, ago in sizes.items()]


def test_folders_have_extractor_files_rows_and_bytes(tmp_path, shards):
    other = fill(tmp_path, *numbered([1]), info=replace(INFO, name="another:one"))
    (other.parent / "key.json").write_text("{")  # as a full disk left it once
    FeatureCache(tmp_path, replace(INFO, name="another:one"), "cpu")
    first, second = find_folders(tmp_path)
    assert (first.extractor, second.extractor) == ("another:one", "toy")
    assert first.files[0].path == other
    assert [file.path for file in second.files] == sorted(shards)
    assert second.count_rows() == 60
    assert second.size == sum(path.stat().st_size for path in shards)
    assert second.used == NOW - 100
    assert second.key["device"] == "cpu"


def test_least_recently_used_files_are_removed_first(tmp_path, shards):
    folders = find_folders(tmp_path)
    sizes = [path.stat().st_size for path in shards]

    def chosen(**limits):
        return [file.path for file in choose_files(folders, **limits)]

    assert chosen(max_size=sum(sizes)) == []
    assert chosen(max_size=sum(sizes) - 1) == shards[:1]
    assert chosen(max_size=sum(sizes[1:])) == shards[:1]
    assert chosen(max_size=sizes[2]) == shards[:2]
    assert chosen(max_size=0) == shards
    assert chosen(used_before=NOW - 300) == []
    assert chosen(used_before=NOW - 299) == shards[:1]
    assert chosen(used_before=NOW - 150, max_size=sum(sizes)) == shards[:2]
    assert chosen(used_before=0, max_size=sizes[2]) == shards[:2]


def test_files_used_after_they_were_listed_are_kept(tmp_path, shards):
    files = choose_files(find_folders(tmp_path), max_size=0)
    os.utime(shards[1], (NOW, NOW))
    shards[2].unlink()  # another prune was faster
    assert [file.path for file in remove_files(files)] == [shards[0]]
    assert shards[1].exists()


@pytest.mark.parametrize("is_indexed", [False, True], ids=["while it starts", "while it runs"])
def test_removed_shard_is_a_miss(tmp_path, shards, is_indexed, monkeypatch):
    def prune():
        remove_files(choose_files(find_folders(tmp_path), max_size=0))

    if is_indexed:
        cache = FeatureCache(tmp_path, INFO, "cpu")
        assert rows(1005)[0][0] in cache
        assert shards[0].stat().st_mtime == NOW - 300, "listing is no use"
        prune()
    else:
        read = FeatureCache._read_identities
        monkeypatch.setattr(FeatureCache, "_read_identities", lambda *given: prune() or read(*given))
        cache = FeatureCache(tmp_path, INFO, "cpu")
    assert all(cache.get(identity) is None for identity in rows(1005, 2005, 3005)[0])
    monkeypatch.undo()
    assert cache.notices == []
    cache.add(rows(1005)[0], [CachedImage(torch.zeros(3))])
    cache.flush()
    assert FeatureCache(tmp_path, INFO, "cpu").get(rows(1005)[0][0]).features.tolist() == [0.0] * 3


def test_score_is_correct_if_files_are_pruned_at_every_read(sides, monkeypatch, tmp_path):
    monkeypatch.setattr(cache_module, "SHARD_ROWS", 7)
    options = OPTIONS | {"cache_dir": tmp_path / "cache"}
    expected = genpr.score(*sides, **options)
    load = cache_module.load_tensors

    def pruned(path):
        remove_files(choose_files(find_folders(tmp_path / "cache"), max_size=0))
        return load(path)

    monkeypatch.setattr(cache_module, "load_tensors", pruned)
    result = genpr.score(*sides, **options)
    assert result.to_flat_dict() == expected.to_flat_dict()
    assert (result.real.n_embedded, result.fake.n_embedded) == (30, 30)
    assert not [item for item in result.notices if item.code.startswith("cache")]


def test_only_files_of_genpr_are_listed(tmp_path, shards):
    inside = shards[0].parent
    elsewhere = tmp_path / "elsewhere.safetensors"
    elsewhere.write_bytes(shards[0].read_bytes())
    (inside / "notes.txt").write_text("mine")
    (inside / "model.safetensors").write_bytes(b"mine")
    (inside / f"{'b' * 32}.safetensors").symlink_to(elsewhere)
    (inside / f"{'c' * 32}.safetensors").mkdir()
    left = inside / f".{'e' * 32}.safetensors.abc123.tmp"  # of a process that was killed
    left.write_bytes(b"half")
    stranger = tmp_path / "features" / f"weights-{'0' * 16}"
    stranger.mkdir()
    (stranger / "key.json").write_text("[]")
    (stranger / f"{'d' * 32}.safetensors").write_bytes(b"no shard")
    (tmp_path / "features" / "plain").mkdir()
    (tmp_path / "features" / f"link-{'1' * 16}").symlink_to(inside)
    (folder,) = find_folders(tmp_path)
    remove_files(choose_files([folder], max_size=0))
    assert not any(path.exists() for path in (*shards, left))
    kept = {"key.json", "notes.txt", "model.safetensors", *(f"{each * 32}.safetensors" for each in "bc")}
    assert {path.name for path in inside.iterdir()} == kept
    assert (stranger / f"{'d' * 32}.safetensors").exists()
    assert elsewhere.exists()


def test_folder_that_is_not_a_cache_is_an_error(tmp_path):
    assert find_folders(tmp_path / "missing") == []
    assert find_folders(tmp_path) == []  # to be one
    (tmp_path / "weights").mkdir()
    assert find_folders(tmp_path) == []
    project = tmp_path / "project"
    (project / "features").mkdir(parents=True)
    (project / "features" / "model.py").touch()
    for folder in (project, project / "features"):
        with raising(UsageError, "not-a-cache", "not a cache"):
            find_folders(folder)


def test_score_may_exclude_its_fakes_from_the_cache(sides, tmp_path):
    def rows():
        return sum(folder.count_rows() for folder in find_folders(tmp_path / "cache"))

    evaluator = genpr.Evaluator(sides[0], **OPTIONS, cache_dir=tmp_path / "cache")
    assert rows() == 30
    left_out = evaluator.score(sides[1], cache=False)
    assert rows() == 30
    kept = evaluator.score(sides[1])
    assert rows() == 60
    assert evaluator.score(sides[1], cache=False).fake.n_embedded == 30
    assert evaluator.score(sides[1], cache=True).fake.n_cached == 30
    assert left_out.to_flat_dict() == kept.to_flat_dict()
