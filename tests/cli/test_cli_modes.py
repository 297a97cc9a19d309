"""`genpr modes` and `genpr.find_modes`: tables, JSON, names and exit codes."""

import numpy as np
import pytest
import torch

from genpr.features.feature_set import FeatureSet, save_features

HOSTILE = ("<script>alert(1)</script>", "=cmd()", "a\x1b[31mred", "n" * 4000, "\udcff")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Features of four classes, of which the fakes lack one whose file names are hostile."""
    folder, rng = tmp_path_factory.mktemp("modes"), np.random.default_rng(0)
    kinds = np.arange(200) % 4
    centers = 6 * rng.normal(size=(4, 8))
    names = tuple(
        f"all/class {kind}/{HOSTILE[row // 4 % 5] if kind == 1 else 'image'} {row}.png"
        for row, kind in enumerate(kinds)
    )
    real = torch.from_numpy((centers[kinds] + rng.normal(size=(200, 8))).astype(np.float32))
    theirs = np.array([0, 2, 3])[np.arange(180) % 3]
    fake = torch.from_numpy((centers[theirs] + rng.normal(size=(180, 8))).astype(np.float32))
    paths = folder / "real.safetensors", folder / "fake.safetensors"
    for path, features, own in zip(paths, (real, fake), (names, ()), strict=True):
        save_features(path, FeatureSet(features, source=str(path), names=own))
    return paths


def test_tables_have_missing_modes_and_clusters_in_80_columns(genpr, files):
    code, out, err = genpr("modes", *files, "--clusters", 4, "--device", "cpu")
    assert code == 0
    lines = out.splitlines()
    assert all(len(line) <= 80 for line in lines)
    assert lines[0].split() == ["missing", "reals", "fakes", "example"]
    at = next(at for at, line in enumerate(lines) if line.startswith("uncovered: "))
    summary = " ".join(lines[at : at + 2])
    assert summary.startswith("uncovered: 1 cluster with 50 reals, of which 50 are not covered by any fake (")
    assert summary.endswith("expected): class 1 100%")
    assert "outside: no cluster;" in out
    row = next(line for line in lines[at:] if line.startswith(("     1  ", "1  ")))
    assert "0.002" in row
    assert "class 1" in row
    assert "\x1b" not in out
    assert "does not record its extractor" in err
