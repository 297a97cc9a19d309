#!/usr/bin/env bash
# torchcodec 0.17.0 with torch 2.14.1: decode_avif and decode_image return other colors in mode "RGB", the default, than in
# mode "RGB_ALPHA" for the same half-transparent pixels.
# Seen: (200, 100, 40) with alpha 128 is (100, 51, 20) in RGB mode, the color multiplied by alpha, and (199, 100, 40, 128) in
# RGB_ALPHA mode. From PNG and WebP, RGB mode drops alpha and gives (200, 100, 40), as Pillow does for all three.
# Why it matters: the same images with transparent borders or objects in AVIF and in PNG have other features: they
# look as if composed on black.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install --quiet torchcodec==0.17.0 torch==2.14.1 numpy==2.4.6 pillow==13.0.0
venv/bin/python - <<'PYTHON'
import io

from PIL import Image
from torchcodec.decoders import decode_image

color = Image.new("RGBA", (64, 64), (200, 100, 40, 128))
found = {}
for name, options in (("PNG", {}), ("WEBP", {"lossless": True}), ("AVIF", {"quality": 100})):
    file = io.BytesIO()
    color.save(file, name, **options)
    modes = [decode_image(file.getvalue(), mode=mode)[:, 9, 9].tolist() for mode in ("RGB", "RGB_ALPHA")]
    found[name] = modes
    print(name, modes, Image.open(file).convert("RGB").getpixel((9, 9)))
assert found["PNG"] == found["WEBP"] == [[200, 100, 40], [200, 100, 40, 128]]
rgb, rgba = found["AVIF"]
assert abs(rgba[0] - 200) <= 2
assert abs(rgb[0] - 100) <= 2, "AVIF keeps its colors in RGB mode now"
PYTHON
