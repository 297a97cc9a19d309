"""Feature files contain their provenance, and arrays of other programs can be loaded."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from raising import raising
from safetensors.torch import save_file

import genpr
from genpr.errors import DataError, FeatureError, ImageError
from genpr.features.extractor import ExtractorInfo
from genpr.features.feature_set import FeatureSet, ImageFacts, load_features, save_features

INFO = ExtractorInfo(
    name="gabor", dim=3, resize="r", weights_sha256="ab" * 32, comparable=False, cache_key="cd" * 32
)


@pytest.mark.parametrize("as_path", [str, Path])
def test_feature_set_round_trips(tmp_path, as_path):
    original = FeatureSet(
        features=torch.randn(2, 3),
        source="reals/",
        extractor=INFO,
        names=("a b.png", "line\nbreak \udcff.png"),
        identities=torch.arange(64, dtype=torch.uint8).view(2, 32),
        flags={"multi-frame": 1},
        skipped=(ImageError("cut short", code="image-corrupt", path="c.png"),),
        decoder={"pillow": "1"},
        passed_over={".json": 3},
    )
    path = as_path(tmp_path / "f.safetensors")
    save_features(path, original)
    loaded = load_features(path)
    assert torch.equal(loaded.features, original.features)
    assert torch.equal(loaded.identities, original.identities)
    for name in ("extractor", "names", "flags", "decoder", "passed_over"):
        assert getattr(loaded, name) == getattr(original, name)
    assert [(bad.path, bad.code, str(bad)) for bad in loaded.skipped] == [
        ("c.png", "image-corrupt", "cut short")
    ]
    assert (loaded.n_embedded, loaded.n_cached) == (0, 0)


def test_sizes_are_listed_by_count_and_equally_frequent_ones_by_width():
    counts = Counter({(9, 1): 1, (640, 480): 2, (10, 1): 2, (2, 99): 1})
    facts = ImageFacts.from_counts(Counter(), counts)
    assert list(facts.sizes.items()) == [("10 x 1", 2), ("640 x 480", 2), ("2 x 99", 1), ("9 x 1", 1)]


def test_select_keeps_rows_names_and_identities_together():
    full = FeatureSet(
        torch.arange(6.0).view(3, 2), "s", names=("a", "b", "c"), identities=torch.eye(3, 32).byte()
    )
    part = full.select(torch.tensor([0, 2]))
    assert part.features.tolist() == [[0, 1], [4, 5]]
    assert part.names == ("a", "c")
    assert part.identities[1, 2] == 1


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int64", "int32", "uint8"])
def test_files_load_as_float32(tmp_path, dtype):
    rows = np.arange(6).reshape(3, 2).astype(dtype)
    np.save(tmp_path / "a.npy", rows)
    np.savez(tmp_path / "a.npz", rows)
    save_file({"x": torch.from_numpy(rows)}, tmp_path / "a.safetensors")
    for path in tmp_path.iterdir():
        loaded = load_features(path)
        assert (loaded.features.dtype, loaded.extractor) == (torch.float32, None)
        assert loaded.features.tolist() == rows.tolist()


def test_safetensors_of_other_programs_can_be_loaded(tmp_path):
    save_file(
        {"features": torch.ones(2, 3, dtype=torch.float16), "more": torch.ones(4, 4)},
        tmp_path / "a.safetensors",
    )
    save_file(
        {"x": torch.ones(2, 3), "labels": torch.ones(2, 1, dtype=torch.int64)}, tmp_path / "b.safetensors"
    )
    save_file({"x": torch.ones(2, 3), "y": torch.ones(2, 3)}, tmp_path / "c.safetensors")
    assert load_features(tmp_path / "a.safetensors").features.shape == (2, 3)
    assert load_features(tmp_path / "b.safetensors").features.shape == (2, 3)
    with pytest.raises(FeatureError, match="exactly one 2-D tensor of floats"):
        load_features(tmp_path / "c.safetensors")
    save_file({"images": torch.zeros(2, 3, 8, 8, dtype=torch.uint8)}, tmp_path / "d.safetensors")
    with pytest.raises(FeatureError, match=r"images belong in a \.npy or \.npz file"):
        load_features(tmp_path / "d.safetensors")


def test_integers_in_files_that_float32_cannot_hold_are_an_error(tmp_path):
    rows = np.array([[2**24 + 1, 0]])
    np.save(tmp_path / "a.npy", rows)
    save_file({"features": torch.from_numpy(rows)}, tmp_path / "a.safetensors")
    for path in tmp_path.iterdir():
        with raising(FeatureError, "inexact-integers"):
            load_features(path)


def test_damaged_and_unsuitable_files_are_errors(tmp_path):
    for name, array in (("bools.npy", np.ones((3, 2), bool)), ("flat.npy", np.ones(3))):
        np.save(tmp_path / name, array)
        with raising(FeatureError, "feature-shape"):
            load_features(tmp_path / name)
    save_file({"flat": torch.ones(3), "flags": torch.ones(2, 2) > 0}, tmp_path / "flat.safetensors")
    with raising(FeatureError, "feature-shape", r"flags \(torch.bool \(2, 2\)\)"):
        load_features(tmp_path / "flat.safetensors")
    np.save(tmp_path / "cut.npy", np.ones((300, 20)))
    (tmp_path / "cut.npy").write_bytes((tmp_path / "cut.npy").read_bytes()[:1000])
    np.savez(tmp_path / "cut.npz", np.ones((300, 20)))
    (tmp_path / "cut.npz").write_bytes((tmp_path / "cut.npz").read_bytes()[:1000])
    (tmp_path / "empty.npy").write_bytes(b"")
    np.save(tmp_path / "pickle.npy", np.array([object()]), allow_pickle=True)
    for name in ("cut.npy", "cut.npz", "empty.npy", "pickle.npy"):
        with pytest.raises(DataError):
            load_features(tmp_path / name)


FLOAT64 = {
    "array": lambda _, rows: rows,
    "big-endian": lambda _, rows: rows.astype(">f8"),
    "longdouble": lambda _, rows: rows.astype(np.longdouble),
    "tensor": lambda _, rows: torch.from_numpy(rows),
    "npy": np.save,
    "npz": np.savez,
    "safetensors": lambda path, rows: save_file({"features": torch.from_numpy(rows)}, path),
}


@pytest.mark.parametrize("form", FLOAT64)
@pytest.mark.parametrize("dim", [1, 40])
def test_float64_rows_that_become_equal_are_a_warning(tmp_path, rng, form, dim):
    path, other = tmp_path / f"x.{form}", rng.normal(size=(30, dim))
    rows = rng.normal(size=(30, dim))
    rows[5:9] = rows[0] * np.linspace(1, 1 + 1e-12, 4)[:, None]  # 1 of these 4 equals row 0
    rows[9], rows[11] = rows[20], rows[10] * (1 + 1e-12)
    rows[12], rows[13] = 1e-50, -1e-50  # 0.0 and -0.0 in float32
    for given, count in ((rows, 5), (rows.astype(np.float32).astype(np.float64), 0)):
        made = FLOAT64[form](path, given)
        result = genpr.score(path if made is None else made, other, control=False, intervals=False)
        found = [item.message for item in result.notices if item.code == "float32-ties"]
        assert len(found) == bool(count)
        assert all(message.startswith(f"{count} of 30 ") for message in found)


def test_npy_file_of_two_arrays_is_an_error(tmp_path):
    with (tmp_path / "x.npy").open("wb") as file:
        np.save(file, np.ones((9, 2)))
        np.save(file, np.ones((9, 2)))
    with raising(FeatureError, "file-damaged"):
        load_features(tmp_path / "x.npy")
