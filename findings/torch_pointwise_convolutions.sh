#!/usr/bin/env bash
# torch 2.14.1: a convolution of 1 x 1 pixels of fewer than 16 images uses another implementation with one thread
# than with two, or than for 16 images.
# Seen: it uses oneDNN for 16 images with one thread and for 8 images with two threads, but not for 8 images with
# one thread. Most values differ in their last bits.
# Why it matters: features depend on the number of threads per process, which loaders and launchers set to one, and
# on whether the last batch has 16 images.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install --quiet torch==2.14.1 numpy==2.4.6
venv/bin/python - <<'PYTHON'
import torch
from torch.profiler import profile

torch.manual_seed(0)
pointwise = torch.nn.Conv2d(256, 64, 1).eval()
images = torch.randn(16, 256, 28, 28)


def convolved(batch, threads):
    torch.set_num_threads(threads)
    with torch.inference_mode(), profile() as profiled:
        features = pointwise(batch)
    return "aten::mkldnn_convolution" in {event.key for event in profiled.key_averages()}, features


(of_16, whole), (of_8, some), (threaded, both) = convolved(images, 1), convolved(images[:8], 1), convolved(images[:8], 2)
different = [int((features[:8] != some).sum()) for features in (whole, both)]
print("oneDNN: 16 images", of_16, "- 8 images", of_8, "- 8 images with two threads", threaded)
print(different[0], "and", different[1], "of", some.numel(), "values differ from those of 8 images with one thread")
assert (of_16, of_8, threaded) == (True, False, True), "the implementations are chosen in another way"
assert torch.allclose(both, some, atol=1e-5), "the values differ by more than rounding"
PYTHON
