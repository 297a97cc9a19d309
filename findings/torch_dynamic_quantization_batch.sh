#!/usr/bin/env bash
# torch 2.14.1: features of a network after torch.ao.quantization.quantize_dynamic depend on the other images of
# the batch.
# Seen: activations are quantized by the range of the whole batch, so most of 200 rows differ between one batch
# of 200 and batches of 1. Nor are its weights in parameters() or buffers(), so a hash of those is that of an
# empty network.
# Why it matters: the score depends on the batch size and on the order of the images, and caches that are keyed
# by a hash of the weights confuse two such networks.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install --quiet torch==2.14.1 numpy==2.4.6
venv/bin/python - <<'PYTHON'
import warnings

import torch

warnings.simplefilter("ignore")
torch.manual_seed(0)
plain = torch.nn.Sequential(torch.nn.Linear(48, 64), torch.nn.ReLU(), torch.nn.Linear(64, 16)).eval()
quantized = torch.ao.quantization.quantize_dynamic(plain, {torch.nn.Linear})
images = torch.randn(200, 48)
with torch.inference_mode():
    whole, single = quantized(images), torch.cat([quantized(image[None]) for image in images])
    same = torch.allclose(plain(images), torch.cat([plain(image[None]) for image in images]), atol=1e-5)
different = int((whole != single).any(dim=1).sum())
tensors = [*quantized.parameters(), *quantized.buffers()]
print(different, "of 200 rows differ, by at most", (whole - single).abs().max().item(), "and", len(tensors), "tensors")
assert same and different > 150 and not tensors, "features no longer depend on the batch"
PYTHON
