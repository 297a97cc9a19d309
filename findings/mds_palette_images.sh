#!/usr/bin/env bash
# mosaicml-streaming 0.13.0: the encoding "pil" of MDS shards stores palette images without their palette.
# Seen: an image of mode P comes back in mode P with the same indices and without colors: (200, 40, 40)
# is (0, 0, 0) after convert("RGB"). There is no warning; RGB images and the encoding "png" keep colors.
# Why it matters: GIF files and PNG files of few colors (drawings, pixel art, sprites) open in mode P. The shards
# decode without an error to black images, and a generator that was trained on the originals scores badly.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install --quiet mosaicml-streaming==0.13.0 pillow==13.0.0
venv/bin/python - <<'PYTHON'
from PIL import Image
from streaming import MDSWriter, StreamingDataset

palette = Image.new("P", (32, 32), 3)
palette.putpalette([0, 0, 0] * 3 + [200, 40, 40])
assert palette.convert("RGB").getpixel((9, 9)) == (200, 40, 40)
found = {}
for encoding in ("pil", "png"):
    with MDSWriter(out=encoding, columns={"image": encoding}) as writer:
        writer.write({"image": palette})
    image = StreamingDataset(local=encoding, batch_size=1, shuffle=False)[0]["image"]
    found[encoding] = image.mode, image.convert("RGB").getpixel((9, 9))
print(found)
assert found["png"] == ("P", (200, 40, 40))
assert found["pil"] == ("P", (0, 0, 0)), "palettes are kept now"
PYTHON
