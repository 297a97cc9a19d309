#!/usr/bin/env bash
# Pillow 13.0.0: a TIFF of signed 8-bit samples opens as mode L with the bytes taken as unsigned.
# Seen: -128, -1, 0, 127 become 128, 255, 0, 127, without a warning; tifffile 2026.3.3 and imageio 2.38.1 return
# int8.
# Why it matters: generators and preprocessing that keep images in -1..1 are exported as int8 by some tools; the
# order of gray levels is broken, and features are those of noise.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install --quiet pillow==13.0.0 tifffile==2026.3.3 imageio==2.38.1 numpy==2.4.6
venv/bin/python - <<'PYTHON'
import imageio.v3
import numpy as np
import tifffile
from PIL import Image

values = np.array([[-128, -1], [0, 127]], np.int8)
tifffile.imwrite("signed.tif", values)
image = Image.open("signed.tif")
print(image.mode, np.asarray(image).tolist(), imageio.v3.imread("signed.tif").dtype)
assert (imageio.v3.imread("signed.tif") == values).all()
assert image.mode == "L" and np.asarray(image).tolist() == [[128, 255], [0, 127]], "signed samples are handled now"
PYTHON
