#!/usr/bin/env bash
# torcheval 0.0.7: FrechetInceptionDistance may be negative for equal sets, and too small for others.
# Seen: 400 rectified features of 768 dimensions against themselves: -.6 in float32, in which sums, products and
# eigenvalues are computed, and the metric has no other type. A second draw has 35.5 instead of 36.4 in float64.
# Why it matters: with fewer images than features, as during training, the error may be some percent of the FID,
# and small distances become negative.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install --quiet torcheval==0.0.7 torch==2.14.1 torchvision==0.29.1 numpy==2.4.6
venv/bin/python - <<'PYTHON'
import numpy as np
import torch
from torcheval.metrics import FrechetInceptionDistance


class Identity(torch.nn.Module):
    def forward(self, images):
        return images.flatten(1)[:, :768]


def fid(real, fake):
    metric = FrechetInceptionDistance(model=Identity(), feature_dim=768)
    for rows, is_real in ((real, True), (fake, False)):
        metric.update(rows[:, None, :, None].expand(-1, 3, -1, 1), is_real)
    return float(metric.compute())


def exact(real, fake):
    real, fake = real.double(), fake.double()
    (a, b), means = [torch.cov(rows.T) for rows in (real, fake)], real.mean(0) - fake.mean(0)
    values, vectors = torch.linalg.eigh(a)
    root = vectors * values.clamp(min=0).sqrt() @ vectors.T
    cross = torch.linalg.eigvalsh(root @ b @ root).clamp(min=0).sqrt().sum()
    return float(means.square().sum() + a.trace() + b.trace() - 2 * cross)


random = torch.Generator().manual_seed(0)
mixing = torch.randn(12, 768, generator=random)


def features():
    mixed = torch.randn(400, 12, generator=random) @ mixing + torch.randn(400, 768, generator=random)
    return mixed.relu() / 4


real, fake = features(), features()
print(fid(real, real), exact(real, real), fid(real, fake), exact(real, fake))
assert abs(exact(real, real)) < 0.01
assert fid(real, real) < -0.1, "the distance of equal sets is not negative any more"
assert fid(real, fake) < exact(real, fake) - 0.1
PYTHON
