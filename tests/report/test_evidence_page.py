"""The page with images of a score: correct images with correct names and order."""

import base64
import io
import re
import shutil

import numpy as np
import pytest
import torch
from page_results import elements, section, text_of
from PIL import Image

import genpr
from genpr.demo import KINDS, ShapesGenerator, draw_latents
from genpr.errors import DataError, UsageError
from genpr.report import score_page
from genpr.report.score_page import evidence_report


class Pooled:
    """Mean colors of 8 x 8 parts of an image, which are gray for all noise."""

    name, dim = "pooled", 192

    def __call__(self, images):
        return torch.nn.functional.adaptive_avg_pool2d(images.float(), 8).flatten(1)


OPTIONS = {"extractor": Pooled(), "control": False, "intervals": False, "device": "cpu", "cache": False}
TITLES = [
    "Uncovered clusters: real images that no fake covers",
    "Outside clusters: fakes outside the real manifold",
    "Least realistic fakes",
    "Fakes nearest to real images",
    "Most realistic fakes",
]
N, COPIES = 160, {9: 10, 19: 31, 29: 52}
NOISE = list(range(0, N, 20))


def drawings(kinds, seed):
    """Images (n, 32, 32, 3) uint8, similar within a kind."""
    latents = draw_latents(len(kinds), seed=seed)
    latents[:, : len(KINDS)] = torch.tensor(
        [[9.0 if kind == each else -9.0 for each in KINDS] for kind in kinds]
    )
    images = ShapesGenerator()(latents, psi=0.45)
    small = images.unflatten(3, (-1, 2)).unflatten(2, (-1, 2)).float().mean(dim=(3, 5)).to(torch.uint8)
    return small.permute(0, 2, 3, 1).contiguous().numpy()


@pytest.fixture(scope="module")
def sides():
    """Kinds and pixels of the reals, and pixels of fakes without rings, with 5 % noise and some copies."""
    kinds = [KINDS[row % 5] for row in range(N)]
    real = drawings(kinds, seed=1)
    fake = drawings([KINDS[row % 4] for row in range(N)], seed=2)
    fake[NOISE] = np.random.default_rng(0).integers(0, 256, fake[NOISE].shape, dtype=np.uint8)
    for row, of in COPIES.items():
        fake[row] = real[of] * 0.96  # a little darker
    return kinds, real, fake


@pytest.fixture(scope="module")
def folders(sides, tmp_path_factory):
    """The same images in files, with a folder for each kind of reals."""
    kinds, real, fake = sides
    root = tmp_path_factory.mktemp("page")
    for row, (kind, pixels) in enumerate(zip(kinds, real, strict=True)):
        (root / "real" / kind).mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(root / "real" / kind / f"{row:03d}.png")
    (root / "fake").mkdir()
    for row, pixels in enumerate(fake):
        Image.fromarray(pixels).save(root / "fake" / f"{row:03d}.png")
    return root / "real", root / "fake"


@pytest.fixture(scope="module")
def evidence(folders):
    return genpr.Evaluator(folders[0], **OPTIONS).evidence(folders[1])


@pytest.fixture(scope="module")
def page(evidence, folders):
    return evidence_report(evidence, *folders, device="cpu")


@pytest.fixture
def given(monkeypatch):
    """Make `evidence_report` return its galleries by title, without a page."""
    monkeypatch.setattr(
        score_page, "html_report", lambda _, galleries, **rest: {each.title: each for each in galleries}
    )


def pixels_of(uri):
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(uri.partition(",")[2]))), dtype=float)


def galleries_of(page):
    """By title: the sentence, whether further images are counted, and the images as (group, caption, addresses)."""
    found = {}
    for gallery in [each for each in elements(page, "section") if each.get("class") == "gallery"]:
        group, pictures, notes = "", [], []
        for each in gallery:
            group = text_of(each) if each.tag == "h4" else group
            notes += [text_of(each)] if each.tag == "p" else []
            for figure in each.iter("figure"):
                addresses = [image.get("src") for image in figure.iter("img")]
                pictures.append((group, text_of(figure.find("figcaption")), addresses))
        found[text_of(gallery.find("h3"))] = (notes[0], notes[1:], pictures)
    return found


@pytest.fixture(scope="module")
def shown(page):
    return galleries_of(page)


def names_in(pictures):
    return [re.match(r"[^: ]*", caption)[0] for _, caption, _ in pictures]


def test_galleries_show_the_images_that_their_titles_name(shown, page, sides):
    assert list(shown) == TITLES
    assert len(page) < 2_000_000
    sentence, _, pictures = shown[TITLES[0]]
    assert "ring" in sentence
    assert "32 of 32 reals" in pictures[0][0]
    assert pictures[0][0].endswith("; ring 100%")
    assert all(name.startswith("ring/") for name in names_in(pictures)[:8])
    _, _, pictures = shown[TITLES[1]]
    noise = [f"{row:03d}.png" for row in NOISE]
    assert sorted(names_in(pictures)) == sorted(names_in(shown[TITLES[2]][2])[: len(NOISE)]) == noise
    captions = {int(caption[:3]): caption for _, caption, _ in shown[TITLES[3]][2]}
    for row, of in COPIES.items():
        assert captions[row].endswith(f"right: {sides[0][of]}/{of:03d}.png")


def test_without_images_there_are_no_galleries(evidence, rng):
    page = evidence_report(evidence, device="cpu")
    assert galleries_of(page) == {}
    assert "<img" not in page
    real, fake = rng.normal(size=(2, 60, 4))
    found = genpr.Evaluator(real, control=False, intervals=False).evidence(fake)
    assert section(evidence_report(found, real, fake), "galleries") is None


def test_every_image_is_the_one_that_its_caption_names(shown, sides):
    kinds, real, fake = sides
    pixels = {f"{kind}/{row:03d}.png": real[row] for row, kind in enumerate(kinds)}
    pixels |= {f"{row:03d}.png": image for row, image in enumerate(fake)}
    count = 0
    for _, _, pictures in shown.values():
        for (_, caption, addresses), name in zip(pictures, names_in(pictures), strict=True):
            names = [name, *re.findall(r"right: ([^ ,]+)", caption)]
            for address, each in zip(addresses, names, strict=True):
                assert np.abs(pixels_of(address) - pixels[each]).mean() < 12, caption
                count += 1
    assert count > 100


@pytest.mark.parametrize("role", ["real", "fake"])
def test_galleries_of_one_set_are_shown_without_the_other(evidence, folders, given, role):
    found = evidence_report(evidence, **{role: folders[role == "fake"]}, device="cpu")
    assert list(found) == TITLES
    pictures = [picture for gallery in found.values() for picture in gallery.pictures]
    assert {picture.partner for picture in pictures} == {None}
    assert [bool(found[title].pictures) for title in TITLES[:2]] == [role == "real", role == "fake"]


def test_changed_and_missing_images_are_left_out_and_counted(sides, tmp_path, given, capsys):
    _, real, fake = sides
    folder = tmp_path / "fake"
    folder.mkdir()
    for row, image in enumerate(fake):
        Image.fromarray(image).save(folder / f"{row:03d}.png")
    found = genpr.Evaluator(real, **OPTIONS).evidence(folder)
    Image.fromarray(fake[1]).save(folder / "020.png")  # no longer noise
    (folder / "040.png").unlink()
    gallery = evidence_report(found, real, folder, device="cpu")[TITLES[1]]
    assert sorted(each.caption for each in gallery.pictures) == [
        f"{row:03d}.png" for row in NOISE if row not in (20, 40)
    ]
    assert " 2 could not be read again" in gallery.sentence
    shutil.rmtree(folder)
    with pytest.raises(UsageError):
        evidence_report(found, real, folder, device="cpu")
    folder.mkdir()
    with pytest.raises(DataError):
        evidence_report(found, real, folder, device="cpu")


def test_modes_are_named_by_given_labels(evidence, folders, given):
    made = ["junk" if row in NOISE else "fine" for row in range(N)]
    # Labels are in the order of the source, here that of folders.
    labels = ["hollow" if name.startswith("ring/") else "solid" for name in evidence.real.names]
    found = evidence_report(evidence, *folders, real_labels=labels, fake_labels=made, device="cpu")
    assert found[TITLES[0]].pictures[0].group.endswith("; hollow 100%")
    assert found[TITLES[1]].pictures[0].group.endswith("; junk 100%")
    with pytest.raises(DataError):
        evidence_report(evidence, *folders, real_labels=["one"], device="cpu")
