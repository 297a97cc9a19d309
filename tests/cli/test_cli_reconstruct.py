"""`genpr reconstruct` from the command line: text, JSON, table, page and gates."""

import csv
import re

import numpy as np
import pytest
from PIL import Image

METRICS = ["--metrics=psnr,ssim,rfid,dino_i", "--inception=gabor", "--dino=pixels", "--device=cpu"]


@pytest.fixture
def pairs(tmp_path, rng):
    """12 images and their reconstructions, the later the worse; the last has a hostile name."""
    for row in range(12):
        name = f"{row:02d}" if row < 11 else "=cmd|<b>x"
        pixels = rng.integers(50, 200, (24, 24, 3), dtype=np.uint8)
        for side, shown, suffix in (("real", pixels, "png"), ("recon", pixels + np.uint8(row + 1), "webp")):
            (tmp_path / side).mkdir(exist_ok=True)
            Image.fromarray(shown).save(tmp_path / side / f"{name}.{suffix}", lossless=True)
    return tmp_path / "real", tmp_path / "recon"


def test_reconstruct_writes_text_table_and_page(genpr, tmp_path, pairs):
    table, page = tmp_path / "pairs.csv", tmp_path / "page.html"
    code, out, _ = genpr("reconstruct", *pairs, *METRICS, "--csv", table, "--html", page)
    assert code == 0
    assert all(len(line) <= 80 for line in out.splitlines() if "/" not in line)
    expected = 20 * np.log10(255 / np.arange(1, 13))
    assert re.search(rf"reconstruction.psnr +{expected.mean():.2f} +\d\d\.\d\d - \d\d\.\d\d\n", out)
    assert "reconstruction.rfid: on gabor features" in out
    assert "12 reconstructions of" in out
    assert "not comparable" in out
    rows = list(csv.DictReader(table.read_text().splitlines()))
    assert list(rows[0]) == ["row", "original", "reconstruction", "psnr", "ssim", "dino_i"]
    np.testing.assert_allclose([float(row["psnr"]) for row in rows], expected)
    assert (rows[-1]["original"], rows[-1]["reconstruction"]) == ("'=cmd|<b>x.png", "'=cmd|<b>x.webp")
    html = page.read_text()
    pictures = re.findall('data:image/jpeg[^"]+', html)
    assert (len(pictures), len(set(pictures))) == (3 * 24, 24), "both images of each pair for each metric"
    worst = html[html.index("Worst pairs by psnr") :]
    assert worst.index("&lt;b&gt;x.png: psnr 26.55") < worst.index("10.png: psnr 27.30")
    assert "<b>x" not in html
