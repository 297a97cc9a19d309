"""Pages of sets that nobody planned for: links and devices to write to, reals that are all one, a handful of images."""

from __future__ import annotations

import os
import stat

import numpy as np
import pytest
from PIL import Image

import genpr
from genpr.errors import UsageError
from genpr.images.policy import DecodePolicy
from genpr.report.album import Album
from genpr.report.page_file import write_page
from genpr.storage import check_place


def test_a_device_is_no_place_for_a_file(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(UsageError, match="device or a pipe") as caught:
        check_place(pipe)
    assert caught.value.code == "not-a-file"


def test_what_a_link_points_to_is_replaced_and_the_link_stays(tmp_path):
    (tmp_path / "there").mkdir()
    target, link = tmp_path / "there" / "page.html", tmp_path / "latest.html"
    target.write_text("old")
    link.symlink_to(target)
    check_place(link)
    write_page(link, "new")
    assert link.is_symlink()
    assert target.read_text() == "new"
    assert stat.S_IMODE(target.stat().st_mode) & 0o444
    assert [path.name for path in (tmp_path / "there").iterdir()] == ["page.html"]


def test_a_link_into_a_missing_folder_is_refused(tmp_path):
    link = tmp_path / "latest.html"
    link.symlink_to(tmp_path / "gone" / "page.html")
    with pytest.raises(UsageError, match="does not exist"):
        check_place(link)


def test_large_pictures_do_not_stay_in_memory(tmp_path):
    rng = np.random.default_rng(0)
    for row in range(8):
        Image.fromarray(rng.integers(0, 256, (300, 600, 3), dtype=np.uint8)).save(tmp_path / f"{row}.png")
    evidence = genpr.Evaluator(tmp_path, extractor="gabor", control=False).evidence(tmp_path)
    album = Album.of(evidence, {"real": tmp_path, "fake": None}, DecodePolicy())
    album.read([("real", row) for row in range(8)])
    assert {pixels.shape for pixels in album.pixels.values()} == {(64, 128, 3)}
