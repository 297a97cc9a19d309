"""Published numbers, for machines that can fetch weights and images: `pytest -m network tests/network`.

These tests have not run yet. GENPR_NETWORK_DATA names a folder for the downloads (2 GB for ADM); for
StyleGAN it must hold what no link gives: `ffhq` (the 1024 x 1024 images) and `stylegan-psi-1.0`, `-0.7` and `-0.3`
(50,000 samples each of the FFHQ generator of 2018).
"""

import os
from pathlib import Path
from urllib.request import urlretrieve

import pytest

import genpr

pytestmark = [pytest.mark.network, pytest.mark.timeout(0)]

_ADM = "https://openaipublic.blob.core.windows.net/diffusion/jul-2021/ref_batches/imagenet/256/"


@pytest.fixture(autouse=True)
def online(monkeypatch):
    monkeypatch.delenv("GENPR_OFFLINE")
    monkeypatch.delenv("GENPR_CACHE")


@pytest.fixture
def folder() -> Path:
    if "GENPR_NETWORK_DATA" not in os.environ:
        pytest.skip("set GENPR_NETWORK_DATA to a folder for the downloads")
    return Path(os.environ["GENPR_NETWORK_DATA"])


def test_values_of_adm_equal_published_ones(folder):
    """The example of guided-diffusion/evaluations/README.md: ADM-G + ADM-U on ImageNet 256 x 256."""
    sides = [
        folder / name
        for name in ("VIRTUAL_imagenet256_labeled.npz", "admnet_guided_upsampled_imagenet256.npz")
    ]
    for path in sides:
        if not path.exists():
            urlretrieve(_ADM + path.name, path)
    result = genpr.score(*sides, protocol="adm")
    assert result.comparable
    assert result["precision"] == pytest.approx(0.8265, abs=2e-3)  # in float16, as the 0.5309
    assert result["recall"] == pytest.approx(0.5309, abs=4e-3)
    assert result["fid"] == pytest.approx(3.9426, abs=5e-3)
    assert result["sfid"] == pytest.approx(6.1404, abs=5e-3)
    assert result["is"] == pytest.approx(215.84, abs=0.3)
    # A port without float16 found these on the same files (lavinal712/ADM-evaluation-suite-pytorch).
    assert result["precision"] == pytest.approx(0.82548, abs=5e-4)
    assert result["recall"] == pytest.approx(0.5285, abs=5e-4)


@pytest.mark.parametrize(
    ("psi", "precision", "recall"), [("1.0", 0.720, 0.393), ("0.7", 0.811, 0.223), ("0.3", 0.892, 0.015)]
)
def test_values_of_truncated_stylegan_equal_published_ones(folder, psi, precision, recall):
    """kynkaat/improved-precision-and-recall-metric, README; within what another VGG16 file and resize may move."""
    real, fake = folder / "ffhq", folder / f"stylegan-psi-{psi}"
    if not (real.is_dir() and fake.is_dir()):
        pytest.skip(f"needs {real.name} and {fake.name} in GENPR_NETWORK_DATA")
    result = genpr.score(real, fake, protocol="kynkaanniemi2019")
    assert result["precision"] == pytest.approx(precision, abs=0.02)
    assert result["recall"] == pytest.approx(recall, abs=0.02)


@pytest.mark.parametrize("name", ["inception", "vgg16", "clip-vit-b-32", "dinov2-vits14"])
def test_published_weights_load(name, rng):
    """Hashes and names of the files are right."""
    import numpy as np
    import torch

    images = torch.from_numpy(rng.integers(0, 256, (2, 3, 40, 50), dtype=np.uint8))
    extractor = genpr.load_extractor(name, device="cpu")
    assert extractor(images).isfinite().all()
