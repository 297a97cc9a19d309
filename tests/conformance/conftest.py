"""Natural and random images of odd sizes."""

import pytest
import torch


@pytest.fixture(scope="module", autouse=True)
def _offline():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_HUB_OFFLINE", "1")
        yield


@pytest.fixture(scope="session")
def photos() -> list[torch.Tensor]:
    from sklearn.datasets import load_sample_images

    return [torch.from_numpy(photo.copy()).permute(2, 0, 1) for photo in load_sample_images().images]


@pytest.fixture(scope="session")
def images(photos) -> list[torch.Tensor]:
    china, flower = photos
    noise = torch.randint(0, 256, (3, 41, 57), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    return [china, flower[:, 31:244, 100:377], noise]
