#!/usr/bin/env bash
# tifffile 2026.3.3 and Pillow 13.0.0: a boolean array that tifffile writes is read inverted by Pillow.
# Seen: tifffile stores booleans as bilevel pixels with PhotometricInterpretation 0 (WhiteIsZero) and returns
# the stored bits unchanged; Pillow follows the tag, so True becomes black and False white.
# Why it matters: segmentation masks and line drawings that one script writes with tifffile and another with
# Pillow as PNG are negatives of each other in one evaluation.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install --quiet pillow==13.0.0 tifffile==2026.3.3 numpy==2.4.6
venv/bin/python - <<'PYTHON'
import numpy as np
import tifffile
from PIL import Image

mask = np.arange(256).reshape(16, 16) > 100
tifffile.imwrite("mask.tif", mask)
Image.fromarray(mask).save("mask.png")
by_tifffile, by_pillow = tifffile.imread("mask.tif"), np.asarray(Image.open("mask.tif"))
png = np.asarray(Image.open("mask.png"))
print(mask.sum(), by_tifffile.sum(), by_pillow.sum(), png.sum())
assert (png == mask).all() and (by_tifffile == mask).all()
assert (by_pillow == ~mask).all(), "both agree now"
PYTHON
