import numpy as np
import pytest
import torch
from raising import raising

import genpr
from genpr import KNNManifold
from genpr.errors import DataError, UsageError
from genpr.neighbors import index
from genpr.storage import save_tensors


def _learned(rng, n):
    """Features whose search keeps directions and cells."""
    spread = rng.normal(size=(12, 160)) * np.linspace(3, 1, 12)[:, None]
    return (rng.normal(size=(n, 12)) @ spread + 0.05 * rng.normal(size=(n, 160))).astype(np.float32)


@pytest.mark.parametrize("with_directions", [False, True])
def test_what_is_loaded_answers_as_what_was_saved(with_directions, tmp_path, rng, monkeypatch):
    monkeypatch.setattr(index, "_MIN_ROWS", 500)
    real, fake = (_learned(rng, n) if with_directions else rng.normal(size=(n, 40)) for n in (900, 700))
    saved = KNNManifold.fit(real, k=3, ties="strict")
    saved.save(tmp_path / "real.safetensors")
    loaded = KNNManifold.load(tmp_path / "real.safetensors")
    assert (saved.side.points.frame.basis is not None) == with_directions
    assert (loaded.side.points.cells is not None) == with_directions
    assert (loaded.k, loaded.ties, len(loaded)) == (3, "strict", 900)
    assert torch.equal(loaded.features, saved.features)
    assert torch.equal(loaded.sq_radii, saved.sq_radii)
    assert torch.equal(loaded.count(fake), saved.count(fake))
    expected = genpr.manifold_metrics(real, fake, k=3, ties="strict")
    assert genpr.manifold_metrics(loaded, fake, k=3, ties="strict") == expected
    assert genpr.precision_recall(loaded, fake, k=3, ties="strict") == expected[:2]


@pytest.mark.parametrize(("k", "ties"), [(4, "closed"), (5, "strict")])
def test_another_recipe_than_the_fitted_one_is_refused(k, ties, rng):
    manifold = KNNManifold.fit(rng.normal(size=(30, 5)), k=5)
    with raising(UsageError, "k-not-fitted", r"fitted with k = 5 and ties = 'closed'"):
        genpr.manifold_metrics(manifold, rng.normal(size=(30, 5)), k=k, ties=ties)


def test_a_flipped_bit_is_noticed(tmp_path, rng):
    path = tmp_path / "m"
    KNNManifold.fit(rng.normal(size=(30, 5))).save(path)
    data = bytearray(path.read_bytes())
    data[-7] ^= 1
    path.write_bytes(data)
    with raising(DataError, "file-damaged", "does not match its own checksum"):
        KNNManifold.load(path)


def test_other_files_are_refused(tmp_path):
    save_tensors(tmp_path / "features.safetensors", {"features": torch.ones(3, 2)}, {"format": "other"})
    (tmp_path / "text").write_text("no tensors here")
    with raising(DataError, "not-a-manifold", r"not a manifold .* plain features\?"):
        KNNManifold.load(tmp_path / "features.safetensors")
    with pytest.raises(DataError, match="not a readable safetensors file"):
        KNNManifold.load(tmp_path / "text")
    with pytest.raises(DataError, match="not a readable safetensors file"):
        KNNManifold.load(tmp_path / "missing")
