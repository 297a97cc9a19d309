#!/usr/bin/env bash
# pyvips 3.2.0 with libvips 8.18.7 against Pillow 13.0.0: the same AVIF file of 4:2:0 has other pixels.
# Seen: libvips repeats each chroma sample for 2 x 2 pixels, Pillow's decoder interpolates them. At an edge from red
# (220, 30, 30) to blue (30, 30, 220), two columns differ by up to 57 levels, and a flat image by at most one.
# Why it matters: AVIF is decoded by libvips in image servers and by Pillow in evaluators. Scores of the same files
# differ, and only at colored edges, where the features of textures come from.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install --quiet pyvips==3.2.0 pyvips-binary==8.18.7 pillow==13.0.0 numpy==2.4.6
venv/bin/python - <<'PYTHON'
import io

import numpy as np
import pyvips
from PIL import Image


def by_both(pixels):
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "AVIF", quality=90, subsampling="4:2:0")
    by_pillow = np.asarray(Image.open(file).convert("RGB"))
    by_vips = pyvips.Image.new_from_buffer(file.getvalue(), "").numpy()
    return by_pillow.astype(int), by_vips[..., :3].astype(int)


flat = np.full((16, 16, 3), (220, 30, 30), np.uint8)
edge = flat.copy()
edge[:, 8:] = (30, 30, 220)
by_pillow, by_vips = by_both(edge)
print(by_pillow[8, 6:10].tolist(), by_vips[8, 6:10].tolist())
found = np.abs(by_pillow - by_vips)
assert np.abs(np.subtract(*by_both(flat))).max() <= 1
assert found[:, 7:9].max() > 30 and found[:, :6].max() <= 2, "both upsample chroma in the same way now"
PYTHON
