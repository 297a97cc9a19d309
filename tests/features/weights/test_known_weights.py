import re
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from genpr.features.known_weights import ALEXNET, CLIP, KNOWN_WEIGHTS, VGG16
from genpr.features.weights import hub_file


def test_every_entry_is_complete_and_its_digest_matches_the_published_name():
    for entry in KNOWN_WEIGHTS:
        assert urlsplit(entry.url).scheme == "https"
        assert re.fullmatch(r"[0-9a-f]{64}", entry.sha256)
        assert entry.size > (5_000 if entry.name.startswith("lpips_") else 10_000_000)
        assert entry.license in {"Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "MIT"}
        assert entry.used_by
        named = re.search(r"-([0-9a-f]{8})\.pth$", entry.name)
        assert (
            entry.sha256.startswith(named[1])
            if named
            else entry.hub_address or entry.name.startswith(("dinov2", "lpips"))
        )


def test_clip_has_the_addresses_of_open_clip():
    spec = find_spec("open_clip")  # read, since importing it takes seconds
    table = (Path(spec.submodule_search_locations[0]) / "pretrained.py").read_text()
    for entry in CLIP.values():
        assert "@" not in entry.name  # the sha256 identifies the revision
        repository, revision, filename = entry.hub_address
        assert f'hf_hub="{repository}/"' in table
        assert filename == "open_clip_model.safetensors"
        assert re.fullmatch(r"[0-9a-f]{40}", revision)


def test_addresses_and_lengths_equal_those_of_torchvision():
    models = pytest.importorskip("torchvision.models")
    for ours, theirs in ((VGG16, models.VGG16_Weights), (ALEXNET, models.AlexNet_Weights)):
        published = theirs.IMAGENET1K_V1
        assert published.url == ours.url
        assert round(ours.size / 2**20, 3) == published.meta["_file_size"]


@pytest.mark.parametrize(
    ("repo_id", "filename", "revision", "name"),
    [
        ("org/model", "a.bin", "main", "org--model--a.bin"),
        ("org/model", "sub/a.bin", "main", "org--model--sub--a.bin"),
        ("org/model", "a.bin", "v1.0", "org--model@v1.0--a.bin"),
        ("org/model", "a.bin", "ab" * 20, "org--model@abababab--a.bin"),
        ("gpt2", "a.bin", "refs/pr/1", "gpt2@refs--pr--1--a.bin"),
    ],
)
def test_hub_files_have_unique_names_and_parsable_addresses(repo_id, filename, revision, name):
    entry = hub_file(repo_id, filename, revision, license="MIT")
    assert entry.name == name
    assert entry.hub_address == (repo_id, revision, filename)
    assert entry.url.startswith(f"https://huggingface.co/{repo_id}/resolve/")
    assert (entry.sha256, entry.size, entry.is_pinned) == (None, None, False)
