#!/usr/bin/env bash
# Pillow 13.0.0 and tifffile 2026.3.3: a WhiteIsZero TIFF of 8 bits is inverted to black-is-zero on opening, one
# of 16 bits is not.
# Seen: the same image, 8 bits: darkest stored value 0 is shown as 255. 16 bits: the mode is I;16 and 0 stays 0,
# so the image is its own negative.
# Why it matters: scans and X-ray images are stored as WhiteIsZero. A set of reals of 16 bits against fakes of 8
# bits is scored as negatives against positives, and nothing in the mode or in `info` tells.
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

levels = np.array([[0, 100], [200, 255]])
for bits, factor in ((8, 1), (16, 257)):
    tifffile.imwrite(f"{bits}.tif", (levels * factor).astype(f"uint{bits}"), photometric="miniswhite")
eight, sixteen = (np.asarray(Image.open(f"{bits}.tif")).astype(int) for bits in (8, 16))
print(eight.tolist(), sixteen.tolist(), Image.open("16.tif").mode)
assert (eight == 255 - levels).all()
assert (sixteen == 257 * levels).all(), "16 bits are inverted, too, now"
PYTHON
