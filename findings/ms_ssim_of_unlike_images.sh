#!/usr/bin/env bash
# torchmetrics 1.9.0 and pytorch-msssim 1.0.0: MS-SSIM of the same two photographs, with the same window, weights and range, differs
# by up to .12, although both agree to .002 on images with noise.
# Seen: crops of 176 x 176 with noise of standard deviation 20 have .8076 by torchmetrics and .8073 by pytorch-msssim and by
# piq 0.8.0, which are equal to .001. Pairs of unlike crops have means of .255 and .239, and single ones differ by .12.
# torchmetrics averages the contrasts of the three channels before it multiplies the scales, and at the coarsest scale
# takes the mean over the mirrored border, too: there, 11 x 11 pixels have a single window that lies inside.
# Why it matters: mean MS-SSIM among generated images measures diversity, where images are unlike. A value by one package is no
# baseline for a value by the other, and comparing the packages on slightly distorted images does not show it.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install --quiet torchmetrics==1.9.0 pytorch-msssim==1.0.0 piq==0.8.0 torch==2.14.1 torchvision==0.29.1 \
  scikit-learn==1.9.1 pillow==13.0.0 numpy==2.4.6
venv/bin/python - <<'PYTHON'
import numpy as np
import torch
from piq import multi_scale_ssim
from pytorch_msssim import ms_ssim
from sklearn.datasets import load_sample_images
from torchmetrics.functional.image import multiscale_structural_similarity_index_measure

SIDE, PAIRS = 176, 12
random = np.random.default_rng(0)
photographs = [torch.tensor(image).permute(2, 0, 1).float() for image in load_sample_images().images]
crops = []
for number in range(2 * PAIRS):
    image = photographs[number % 2]
    top, left = (int(random.integers(size - SIDE)) for size in image.shape[1:])
    crops.append(image[:, top : top + SIDE, left : left + SIDE])
crops = torch.stack(crops)
noise = torch.from_numpy(random.normal(0, 20, crops.shape)).float()
distorted = (crops + noise).clamp(0, 255).round()


def means(first, second):
    by_torchmetrics = multiscale_structural_similarity_index_measure(first, second, data_range=255.0, reduction="none")
    by_pytorch_msssim = ms_ssim(first, second, data_range=255, size_average=False)
    by_piq = multi_scale_ssim(first, second, data_range=255.0, reduction="none")
    assert (by_pytorch_msssim - by_piq).abs().max() < 0.001
    difference = float((by_torchmetrics - by_pytorch_msssim).abs().max())
    return difference, [float(each.mean()) for each in (by_torchmetrics, by_pytorch_msssim, by_piq)]


alike, unlike = means(crops[::2], distorted[::2]), means(crops[::2], crops[1::2])
print(alike, unlike)
assert alike[0] < 0.005
assert unlike[0] > 0.05, "both agree on unlike images now"
assert abs(unlike[1][0] - unlike[1][1]) > 0.005
PYTHON
