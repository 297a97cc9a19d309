#!/usr/bin/env bash
# torchmetrics 1.9.0: MemorizationInformedFrechetInceptionDistance finds no memorization in 100 copies of 1,000 reals.
# Seen: it averages over the reals the cosine distance to the nearest fake (.18 here, above its limit of .1, so that MiFID is
# FID, .90). Bai et al. 2021 (arXiv:2106.03062) average over the fakes the distance to the nearest real, which is 0 for
# copies; with the two sets exchanged, torchmetrics computes this, and MiFID is above 1e13.
# Why it matters: evaluations during training use fewer fakes than reals, and there the penalty depends on how many
# fakes were drawn, not on whether they are copies.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install --quiet torchmetrics==1.9.0 torch==2.14.1 torch-fidelity==0.4.0 scipy==1.17.1 numpy==2.4.6
venv/bin/python - <<'PYTHON'
import torch
from torchmetrics.image.mifid import MemorizationInformedFrechetInceptionDistance


class Identity(torch.nn.Module):
    num_features = 16

    def forward(self, images):
        return images


def mifid(real, fake):
    metric = MemorizationInformedFrechetInceptionDistance(feature=Identity()).set_dtype(torch.float64)
    metric.update(real, real=True)
    metric.update(fake, real=False)
    return float(metric.compute())


real = 1 + torch.randn(1000, 16, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
copies = real[:100]
print(mifid(real, copies), mifid(copies, real))
assert mifid(copies, real) > 1e10
assert mifid(real, copies) < 10, "copies are found now"
PYTHON
