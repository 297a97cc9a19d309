"""PSNR, SSIM, MS-SSIM and LPIPS of pairs against torchmetrics, piq and lpips, LPIPS with random weights in all of them.

piq adds 1e-8 to the mean squared error, and its SSIM leaves out what the window does not cover.
"""

import pytest
import torch
from lpips_state import lpips_state
from peers import Peer
from torch.nn.functional import pad

from genpr.features.networks.lpips import PerceptualDistance
from genpr.features.weights import Weights
from genpr.metrics.paired import MultiScaleSSIM, psnr, squared_error, ssim

functional = Peer("torchmetrics.functional.image")
image = Peer("torchmetrics.image.lpip")
lpips = Peer("lpips")
piq = Peer("piq")
pytestmark = pytest.mark.filterwarnings("ignore")
RANGE = {"data_range": 255.0, "reduction": "none"}


@pytest.fixture(scope="module")
def pairs(images):
    """Crops of odd sizes in gray and color, with errors of many sizes."""
    gray = images[0][:1, :67, :93].expand(3, -1, -1)
    real = torch.stack([images[0][:, 5:72, 9:102], images[1][:, 40:107, 61:154], gray])
    noise = torch.randint(-40, 41, real.shape, generator=torch.Generator().manual_seed(2))
    scale = torch.tensor([1.0, 0.3, 3.0]).view(3, 1, 1, 1)
    return real, (real + noise * scale).clamp(0, 255).to(torch.uint8)


def close(found, expected):
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)


def test_psnr_equals_torchmetrics_and_piq(pairs):
    error, (real, fake) = squared_error(*pairs), (each.double() for each in pairs)
    ours = psnr(error, real[0, 0].numel())
    close(ours, functional.peak_signal_noise_ratio(fake, real, dim=(1, 2, 3), **RANGE))
    mse = error.double() / (255**2 * real[0].numel())
    close(-10 * torch.log10(mse + 1e-8), piq.psnr(fake, real, **RANGE))


def test_ssim_equals_torchmetrics_and_piq_with_reflected_borders(pairs):
    ours, (real, fake) = ssim(*pairs), (each.double() for each in pairs)
    close(ours, functional.structural_similarity_index_measure(fake, real, **RANGE))
    wide = (pad(each, (5, 5, 5, 5), mode="reflect") for each in (fake, real))
    close(ours, piq.ssim(*wide, downsample=False, **RANGE))
    assert (ours - piq.ssim(fake, real, downsample=False, **RANGE)).abs().max() > 1e-4, "as documented"


@pytest.mark.parametrize("net", ["alex", "vgg"])
def test_lpips_equals_torchmetrics_and_piq(net, pairs, monkeypatch):
    from torchvision import models

    backbone, linear = lpips_state(net)
    with torch.device("meta"):
        network = models.vgg16(init_weights=False) if net == "vgg" else models.alexnet()
    tensors = {name.removeprefix("features."): value for name, value in backbone.items()}
    network.features.load_state_dict(tensors, assign=True)
    ours = PerceptualDistance(net, Weights(backbone, "a"), Weights(linear, "b"), torch.device("cpu"))
    found = ours(*pairs).float()
    assert found.min() > 1e-4
    assert found.max() > 2 * found.min()

    monkeypatch.setattr(f"torchvision.models.{'vgg16' if net == 'vgg' else 'alexnet'}", lambda **_: network)
    theirs = image.LearnedPerceptualImagePatchSimilarity(net_type=net)
    theirs.net.load_state_dict(linear, strict=False)
    values = [each / 127.5 - 1 for each in pairs]
    each = [theirs(*(value[[row]] for value in values)) for row in range(3)]
    torch.testing.assert_close(found, torch.stack(each), rtol=1e-5, atol=0)
    if net == "vgg":
        weights, layers = list(linear.values()), ["3", "8", "15", "22", "29"]
        peer = piq.ContentLoss(
            network.features, layers=layers, weights=weights, normalize_features=True, reduction="none"
        )
        torch.testing.assert_close(found, peer(*(each / 255 for each in pairs)), rtol=1e-5, atol=0)


@pytest.fixture(scope="module")
def outputs(images):
    """21 images of one group, so 210 pairs: crops of photographs at several places, in several contrasts."""
    generator, found = torch.Generator().manual_seed(3), []
    for row in range(21):
        whole = next(image for image in images[row % len(images) :] + images if min(image.shape[1:]) >= 176)
        top, left = (int(torch.randint(0, size - 175, (), generator=generator)) for size in whole.shape[1:])
        pixels = whole[:, top : top + 176, left : left + 176].float() * (0.4 + row / 35)
        noise = torch.randn(pixels.shape, generator=generator) * (row % 7) * 5
        found.append((pixels + noise).clamp(0, 255).to(torch.uint8))
    return torch.stack(found)


def of_all_pairs(measure, images):
    """Values of all pairs by a measure of activations, of which each image has its own, and both images of the pairs."""
    first, second = torch.triu_indices(len(images), len(images), 1)
    layers = list(measure.activations(images))
    values = [
        measure.compared((layer[[a]], layer[[b]]) for layer in layers)
        for a, b in zip(first.tolist(), second.tolist(), strict=True)
    ]
    return torch.cat(values), images[first], images[second]


@pytest.mark.parametrize("count", [4, pytest.param(21, marks=pytest.mark.slow)])
def test_ms_ssim_equals_torchmetrics_on_all_pairs_of_a_group(outputs, count):
    found, first, second = of_all_pairs(MultiScaleSSIM(), outputs[:count])
    assert len(found) == count * (count - 1) / 2
    peer = functional.multiscale_structural_similarity_index_measure
    parts = zip(first.split(15), second.split(15), strict=True)
    theirs = torch.cat([peer(a.double(), b.double(), **RANGE) for a, b in parts])
    close(found, theirs)
    assert found.max() - found.min() > 0.1
    # A mean of negative contrasts counts as 0.
    negative = of_all_pairs(MultiScaleSSIM(), torch.stack([outputs[0], 255 - outputs[0]]))
    assert negative[0] == peer(negative[1].double(), negative[2].double(), **RANGE) == 0


def test_smallest_side_of_ms_ssim_is_that_of_torchmetrics(outputs):
    peer = functional.multiscale_structural_similarity_index_measure
    least = MultiScaleSSIM.least
    for crop in (outputs[:2, :, : least - 1], outputs[:2, :, :, : least - 1]):
        with pytest.raises(ValueError, match="must be larger than 160"):
            peer(*crop.double().split(1), **RANGE)


@pytest.mark.parametrize("net", ["alex", "vgg"])
def test_lpips_equals_the_package_lpips_on_all_pairs_of_a_group(net, outputs):
    backbone, linear = lpips_state(net)
    measure = PerceptualDistance(net, Weights(backbone, "a"), Weights(linear, "b"), torch.device("cpu"))
    images = outputs[:, :, :40, :56] if net == "alex" else outputs[:, :, :24, :32]
    found, first, second = of_all_pairs(measure, images)
    assert len(found) >= 200
    theirs = lpips.LPIPS(net=net, pretrained=False, pnet_rand=True, verbose=False).eval()
    layers = [layer for part in theirs.net.children() for layer in part.named_children()]
    for name, layer in layers:
        tensors = {key: backbone[f"features.{name}.{key}"] for key in layer.state_dict()}
        layer.load_state_dict(tensors)
    missing, unexpected = theirs.load_state_dict(linear, strict=False)
    assert not unexpected
    assert not [name for name in missing if name.startswith("lin") and not name.startswith("lins")]
    with torch.inference_mode():
        expected = theirs(first / 127.5 - 1, second / 127.5 - 1).flatten()
    torch.testing.assert_close(found.float(), expected, rtol=0, atol=1e-5)
    assert found.min() > 1e-3
