#!/usr/bin/env bash
# pyvips 3.2.0 with libvips 8.18.7: resize() shifts an image by half an output pixel to the right and down when it enlarges
# it, and not when it shrinks it.
# Seen: a step between columns 3 and 4 of 8 is between columns 7 and 9 of 16 with every kernel, while Pillow's
# bilinear filter keeps it between 7 and 8. Of a ramp, the values are half a step too low. Halving gives Pillow's values.
# Why it matters: reconstructions and small images (CIFAR, ImageNet 64) that are enlarged for a network with libvips and
# with another library are compared at shifted positions; PSNR and SSIM drop without any difference of the images.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install --quiet pyvips==3.2.0 pyvips-binary==8.18.7 pillow==13.0.0 numpy==2.4.6
venv/bin/python - <<'PYTHON'
import numpy as np
import pyvips
from PIL import Image

step = np.zeros((8, 8), np.uint8)
step[:, 4:] = 200
by_pillow = np.asarray(Image.fromarray(step).resize((16, 16), Image.Resampling.BILINEAR))[8].tolist()
assert by_pillow == [0] * 7 + [50, 150] + [200] * 7
for kernel in ("linear", "cubic", "lanczos3"):
    row = pyvips.Image.new_from_array(step).resize(2, kernel=kernel).numpy()[8].tolist()
    print(kernel, row)
    assert row[7:10] == [0, 100, 200], "the step stays in the middle now"
ramp = np.tile(np.arange(0, 256, 8, dtype=np.uint8), (32, 1))
for factor, shift in ((2, -2), (0.5, 0)):
    side = int(32 * factor)
    by_vips = pyvips.Image.new_from_array(ramp).resize(factor, kernel="linear").numpy()[side // 2]
    by_pillow = np.asarray(Image.fromarray(ramp).resize((side, side), Image.Resampling.BILINEAR))[side // 2]
    found = (by_vips.astype(float) - by_pillow)[4:-4].mean()
    print("ramp", factor, found)
    assert abs(found - shift) < 0.1, "enlarging is aligned with Pillow now"
PYTHON
