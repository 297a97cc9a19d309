#!/usr/bin/env bash
# torchvision 0.29.1: `transforms.ToTensor` turns 16-bit gray images into int16, so that the brighter half becomes negative.
# Seen: levels 0, 32767, 32768, 65535 of a 16-bit PNG become 0, 32767, -32768, -1, without a warning, and are not scaled to
# 0..1 as those of 8 bits are. `v2.PILToTensor` gives uint16 with the right values, and `v2.ToDtype(scale=True)` 0..1.
# Why it matters: radiographs and microscopy images are 16-bit PNGs. Bright tissue becomes darker than the background in every
# pipeline with `ToTensor`, as in the data loaders of many repositories and evaluators.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install --quiet torch==2.14.1 torchvision==0.29.1 pillow==13.0.0 numpy==2.4.6
venv/bin/python -W error - <<'PYTHON'
import numpy as np
import torch
from PIL import Image
from torchvision import transforms
from torchvision.transforms import v2

levels = np.array([[0, 32767, 32768, 65535]], np.uint16)
Image.fromarray(levels).save("x.png")
image = Image.open("x.png")
old, new = transforms.ToTensor()(image), v2.PILToTensor()(image)
print(image.mode, old.dtype, old.tolist(), new.dtype, new.tolist())
assert new.dtype == torch.uint16
assert (new.numpy()[0] == levels).all()
assert old.dtype == torch.int16, "16 bits are read correctly now"
assert old.flatten().tolist() == [0, 32767, -32768, -1]
PYTHON
