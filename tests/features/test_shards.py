"""Features of shards that are computed separately and joined equal those of one run, with all metadata."""

import json
import shutil
import subprocess
import sys

import numpy as np
import pytest
import torch
from feature_files import save
from PIL import Image
from raising import raised, raising

from genpr.cli.main import run
from genpr.errors import BadImagesError, FeatureError, UsageError
from genpr.features.feature_set import FeatureSet, load_features, save_features
from genpr.features.source_features import open_input
from genpr.images.shards import Shard, ShardInfo, names_sha256
from genpr.storage import load_tensors, save_tensors

CUTS = [1, 2, 3, 11]  # of six blocks; so many that some are empty, too
OPTIONS = ["--extractor", "pixels", "--device", "cpu", "--quiet"]


@pytest.fixture(scope="module", autouse=True)
def small_blocks():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("genpr.images.shards.BLOCK", 8)
        yield


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    """46 images in two folders and of several sizes: one twice, one animated, one not an image."""
    rng, root = np.random.default_rng(0), tmp_path_factory.mktemp("images")
    for number in range(46):
        folder = root / ("a" if number < 30 else "b")
        folder.mkdir(exist_ok=True)
        pixels = rng.integers(0, 256, (8 + number % 7, 9, 3), dtype=np.uint8)
        image, more = Image.fromarray(pixels), [Image.fromarray(pixels[::-1])] * (number == 33)
        image.save(folder / f"{number:03d}.png", save_all=bool(more), append_images=more)
    shutil.copy(root / "a" / "003.png", root / "b" / "040.png")
    (root / "b" / "038.png").write_text("<html>")
    return root


def features(*arguments, cache, code=0):
    assert run(["features", *map(str, arguments), *OPTIONS, "--cache-dir", str(cache)]) == code


@pytest.fixture(scope="module")
def files(images, tmp_path_factory):
    """Features of one run, and of shards for each of `CUTS`."""
    root = tmp_path_factory.mktemp("files")
    skip = ["--on-bad", "skip", "--max-bad", "4%"]
    features(images, root / "whole.safetensors", *skip, cache=root / "cache")
    for count in CUTS:
        (root / f"of-{count}").mkdir()
        for index in range(1, count + 1):
            out = root / f"of-{count}" / f"part_{index}.safetensors"  # part_10 comes before part_2 by name
            features(images, out, *skip, "--shard", f"{index}/{count}", cache=root / "none", code=0)
            shutil.rmtree(root / "none")
    return root


def pattern(files, count):
    return str(files / f"of-{count}" / "part_*.safetensors")


@pytest.mark.parametrize("count", CUTS)
def test_joined_shards_equal_the_file_of_one_run(files, tmp_path, count):
    for _ in range(2):  # the second run replaces features of the same images
        features(pattern(files, count), tmp_path / "joined.safetensors", cache=tmp_path)
    assert (tmp_path / "joined.safetensors").read_bytes() == (files / "whole.safetensors").read_bytes()
    whole, joined = load_features(files / "whole.safetensors"), open_input(pattern(files, count), "real")
    assert torch.equal(joined.features, whole.features)
    assert torch.equal(joined.identities, whole.identities)
    same = ("extractor", "names", "flags", "decoder", "facts", "notices", "origin", "n_decoded", "shard")
    for name in same:
        assert getattr(joined, name) == getattr(whole, name), name
    assert [str(bad) for bad in joined.skipped] == [str(bad) for bad in whole.skipped]
    assert joined.flags == {"multi-frame": 1}
    assert joined.facts.n_sizes == 7


def test_scores_of_shards_equal_those_of_whole_files(files, tmp_path, capsys):
    def score(real, fake):
        arguments = ["--k", "3", "--json", "--quiet", "--csv", tmp_path / "rows.csv"]
        assert run(["score", real, fake, *map(str, arguments)]) == 0
        text = capsys.readouterr().out.replace(real, "REAL").replace(fake, "FAKE")
        return json.loads(text) | {"seconds": None}, (tmp_path / "rows.csv").read_text()

    part = "part_{1..11}.safetensors"
    whole = score(str(files / "whole.safetensors"), str(files / "of-1" / "part_1.safetensors"))
    assert score(pattern(files, 3), str(files / "of-11" / part)) == whole


def test_shard_reads_only_its_images_and_uses_the_cache(images, files, tmp_path, capsys):
    mine = tmp_path / "images"
    shutil.copytree(images, mine)
    for path in sorted(mine.rglob("*.png"))[8:]:
        path.write_bytes(b"")  # all that belong to others
    for cache, n_cached in ((tmp_path / "cache", 0), (files / "cache", 8)):
        out = tmp_path / "part_1.safetensors"
        arguments = ["--shard", "1/6", "--json", *OPTIONS, "--cache-dir", str(cache)]
        assert run(["features", str(mine), str(out), *arguments]) == 0
        record = json.loads(capsys.readouterr().out)
        assert (record["n"], record["n_cached"], record["n_embedded"]) == (8, n_cached, 8 - n_cached)
        assert {name: record["shard"][name] for name in ("index", "count", "start", "end", "total")} == {
            "index": 1, "count": 6, "start": 0, "end": 8, "total": 46,
        }  # fmt: skip


def test_missing_shards_are_an_error(files, tmp_path):
    shutil.copytree(files / "of-11", tmp_path / "parts")
    for index in (1, 7, 11):
        (tmp_path / "parts" / f"part_{index}.safetensors").unlink()
    with pytest.raises(FeatureError, match=r"is shard 2/11 of 46 images"):
        load_features(tmp_path / "parts" / "part_2.safetensors")
    with raising(FeatureError, "shards-missing", r"found 8; missing: 1, 7, 11;"):
        open_input(str(tmp_path / "parts" / "*.safetensors"), "real")


def test_declared_number_of_shards_takes_no_memory(tmp_path):
    count = 10**9
    mine = Shard(1, count).rows(8 * count)
    place = ShardInfo(1, count, mine.start, mine.stop, 8 * count, "x", 0.0)
    save_features(tmp_path / "1.safetensors", FeatureSet(torch.ones(len(mine), 2), "s", shard=place))
    with pytest.raises(FeatureError, match=r"expected 1000000000 shards .* missing: 2, 3, .*, 11, \.\.\.;"):
        open_input(str(tmp_path / "?.safetensors"), "real")


def test_shards_of_different_runs_are_errors(images, files, tmp_path):
    def refused(code, *paths):
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        folder.mkdir()
        for number, path in enumerate(paths):
            shutil.copy(path, folder / f"{number}.safetensors")
        assert raised(FeatureError, open_input, str(folder / "*.safetensors"), "real").code == code

    def second_of(source=images, *, extractor="pixels", more=[]):  # noqa: B006 - not changed
        options = f"--shard 2/2 --extractor {extractor} --on-bad skip --max-bad 1 --overwrite".split() + more
        out = tmp_path / "part.safetensors"
        assert run(["features", str(source), str(out), *options, "--no-cache", "--quiet"]) == 0
        return out

    first, second = (files / "of-2" / f"part_{index}.safetensors" for index in (1, 2))
    other = tmp_path / "images"
    shutil.copytree(images, other)
    (other / "b" / "045.png").rename(other / "b" / "046.png")
    refused("shards-twice", first, first, second)
    refused("features-differ", first, second, files / "whole.safetensors")
    refused("features-differ", first, files / "of-3" / "part_2.safetensors")
    refused("features-differ", first, second_of(more=["--max-images", "20"]))
    refused("features-differ", first, second_of(more=["--prepare", "resize:9"]))
    refused("features-differ", first, second_of(other))
    refused("other-extractor", first, second_of(extractor="gabor"))


def test_limit_of_bad_images_applies_to_all_images(images, tmp_path):
    """1 of 46 is unusable; in one of 6 shards it is 1 of 8."""
    for number, (policy, code) in enumerate([("0.02", 3), ("0.022", 0), (None, 3)]):
        out = tmp_path / f"{number}.safetensors"
        skip = ["--on-bad", "skip", "--max-bad", policy] if policy else []
        features(images, out, "--shard", "5/6", *skip, cache=tmp_path / "cache", code=code)
        assert out.exists() == (code == 0)


def test_joined_shards_may_exceed_the_limit_of_bad_images(images, tmp_path):
    source = tmp_path / "images"
    shutil.copytree(images, source)
    (source / "a" / "001.png").write_bytes(b"")
    for index in (1, 2):
        out = tmp_path / f"part_{index}.safetensors"
        features(
            source, out, "--shard", f"{index}/2", "--on-bad", "skip", "--max-bad", "0.03", cache=tmp_path
        )
    with pytest.raises(BadImagesError, match=r"2 of 46 images") as caught:
        open_input(str(tmp_path / "part_*.safetensors"), "real")
    assert [bad.path for bad in caught.value.bad] == ["a/001.png", "b/038.png"]


def test_features_cannot_be_divided_and_one_file_cannot_be_joined(images, files, tmp_path):
    out = str(tmp_path / "x.safetensors")
    for text in ("0/16", "17/16", "-1/4"):
        assert run(["features", str(images), out, "--shard", text, *OPTIONS]) == 2
    assert run(["features", pattern(files, 3), out, "--shard", "1/2", *OPTIONS]) == 2
    assert run(["features", str(files / "whole.safetensors"), out, *OPTIONS]) == 2
    assert run(["features", pattern(files, 3), out, "--extractor", "gabor", "--quiet"]) == 3


@pytest.mark.parametrize(
    "edited",
    [
        {"shard": "{"},
        {"shard": '{"index": 1}'},
        *({name: value} for name, value in [("index", 0), ("index", "1"), ("count", 10**9), ("end", 10**6), ("max_bad", None)]),
        {"extractor": "[1]"},
        {"decoder": "nothing"},
        {"end": 15},  # of other blocks
        {},  # with missing rows
    ],
    ids=str,
)  # fmt: skip
def test_metadata_of_a_shard_is_validated(files, tmp_path, edited):
    tensors, metadata = load_tensors(files / "of-3" / "part_1.safetensors")
    place = json.loads(metadata["shard"])
    assert (place["start"], place["end"]) == (0, 16)
    known = {name: value for name, value in edited.items() if name in place}
    metadata |= {"shard": json.dumps(place | known)} | {
        name: text for name, text in edited.items() if name not in place
    }
    if not edited:
        tensors = {name: tensors[name][:-1] for name in ("features", "identities")}
    save_tensors(tmp_path / "part_1.safetensors", tensors, metadata)
    for index in (2, 3):
        shutil.copy(files / "of-3" / f"part_{index}.safetensors", tmp_path)
    differs = edited in ({"count": 10**9}, {"end": 15}, {})
    with raising(FeatureError, "features-differ" if differs else "file-damaged"):
        open_input(str(tmp_path / "part_*.safetensors"), "real")


def test_joining_holds_features_once_in_memory(tmp_path, small_blocks):
    """Memory is measured in a separate process, without mapped files."""
    rows = torch.randn(4096, 2048)  # 32 MiB
    names = tuple(f"{row}" for row in range(len(rows)))
    for index in (1, 2):
        mine = Shard(index, 2).rows(len(rows))
        place = ShardInfo(index, 2, mine.start, mine.stop, len(rows), names_sha256(names), 0.0)
        part = FeatureSet(rows[mine.start : mine.stop], "s", names=names[mine.start : mine.stop], shard=place)
        save_features(tmp_path / f"{index}.safetensors", part)
    code = (
        "import sys, torch\n"
        "import genpr.images.shards; genpr.images.shards.BLOCK = 8\n"
        "from genpr.features.source_features import open_input\n"
        "anonymous = lambda: int(next(l for l in open('/proc/self/status') if l.startswith('RssAnon')).split()[1])\n"
        "most = [anonymous()] * 2\n"
        "def watch(*_): most[1] = max(most[1], anonymous())\n"
        "sys.setprofile(watch)\n"
        "side = open_input(sys.argv[1], 'real')\n"
        "sys.setprofile(None)\n"
        "print(most[1] - most[0])\n"
    )
    pattern = str(tmp_path / "*.safetensors")
    done = subprocess.run([sys.executable, "-c", code, pattern], capture_output=True, text=True, check=True)
    assert 32_000 < int(done.stdout) < 42_000, "KiB"


def test_other_feature_files_are_not_joined(tmp_path):
    for name in "ab":
        save(tmp_path / f"{name}.safetensors", torch.randn(5, 4))
        np.save(tmp_path / f"{name}.npy", np.zeros((5, 4), np.float32))
    np.save(tmp_path / "images.npy", np.zeros((2, 4, 4, 3), np.uint8))
    for wrong in ("*.safetensors", "[ab].npy"):
        with raising(FeatureError, "features-differ", "is not a shard"):
            open_input(str(tmp_path / wrong), "real")
    with pytest.raises(UsageError, match=r"feature files and others, such as .*images.npy"):
        open_input(str(tmp_path / "*.npy"), "real")
    alone = open_input(str(tmp_path / "b.n[p]y"), "real")
    assert [item.code for item in alone.notices] == ["unlabeled-features"]
