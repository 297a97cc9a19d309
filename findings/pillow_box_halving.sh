#!/usr/bin/env bash
# Pillow 13.0.0: halving an image with resize(..., BOX) makes it brighter by half a gray level.
# Seen: uniform noise of 512 x 512 pixels becomes .50 levels brighter than the averages of its 2 x 2 blocks, and a
# second, third and fourth halving add as much: 2.0 levels after four. Both passes, along x and along y, round halves up.
# reduce(2), which rounds once, adds .12.
# Why it matters: the center crop of ADM, DiT, MAR and others halves photographs by BOX until they are near the target
# size, so that large reference images are up to 2 levels brighter than small ones, and than those of other crops.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install --quiet pillow==13.0.0 numpy==2.4.6
venv/bin/python - <<'PYTHON'
import numpy as np
from PIL import Image

noise = np.random.default_rng(0).integers(0, 256, (512, 512), dtype=np.uint8)
image, shifts = Image.fromarray(noise), []
for step in (1, 2, 3, 4):
    image = image.resize((image.width // 2, image.height // 2), Image.Resampling.BOX)
    block = 2**step
    exact = noise.reshape(image.height, block, image.width, block).mean(axis=(1, 3))
    shifts.append(float((np.asarray(image) - exact).mean()))
exact = noise.reshape(256, 2, 256, 2).mean(axis=(1, 3))
reduced = float((np.asarray(Image.fromarray(noise).reduce(2)) - exact).mean())
print([round(shift, 3) for shift in shifts], round(reduced, 3))
assert all(abs(shift - 0.5 * step) < 0.05 for step, shift in enumerate(shifts, 1)), "BOX rounds otherwise now"
assert reduced < 0.2
PYTHON
