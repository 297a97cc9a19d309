"""The page with the images behind a score: the right pictures under the right names, in the right order, or none."""

from __future__ import annotations

import base64
import io
import re
import shutil
import zipfile
from dataclasses import replace
from types import SimpleNamespace

import html5lib
import numpy as np
import pytest
import torch
from page_results import HOSTILE, a_result
from PIL import Image

import genpr
from genpr.demo import KINDS, ShapesGenerator, draw_latents
from genpr.errors import DataError, UsageError
from genpr.evaluation.label_metrics import RecognizedLabels
from genpr.images.policy import DecodePolicy
from genpr.report.likeness import Likeness
from genpr.report.pages import evidence_page, near_copies
from genpr.report.pages.album import Album
from genpr.report.pages.evidence_page import class_figures, evidence_report
from genpr.report.pages.near_copies import copies_among, usual_pairs
from genpr.report.pages.picks import Pick, Selection
from genpr.report.pages.thumbnails import thumbnail


class Pooled:
    """Colours of 8 x 8 parts of an image: all noise is one grey to it."""

    name, dim = "pooled", 192

    def __call__(self, images):
        return torch.nn.functional.adaptive_avg_pool2d(images.float(), 8).flatten(1)


OPTIONS = {"extractor": Pooled(), "control": False, "intervals": False, "device": "cpu", "cache": False}
TITLES = [
    "Missed: real images that no fake covers",
    "Invented: fakes off the real manifold",
    "Least realistic fakes",
    "Near-copies of real images",
    "Most realistic fakes",
    "Images that vouch for many fakes",
    "Duplicates",
]
N, COPIES, REPEATED = 160, {9: 10, 19: 31, 29: 52}, {33: 3}
NOISE = list(range(0, N, 20))


def drawings(kinds, seed):
    """(n, 32, 32, 3) uint8, much alike within a kind."""
    labels = torch.tensor([KINDS.index(kind) for kind in kinds])
    images = ShapesGenerator()(draw_latents(len(kinds), seed=seed), psi=0.45, labels=labels)
    small = images.unflatten(3, (-1, 2)).unflatten(2, (-1, 2)).float().mean(dim=(3, 5)).to(torch.uint8)
    return small.permute(0, 2, 3, 1).contiguous().numpy()


@pytest.fixture(scope="module")
def sides():
    """Kinds of the reals, their pixels, and those of fakes without rings: of these one in twenty is noise, and some are copies."""
    kinds = [KINDS[row % 5] for row in range(N)]
    real = drawings(kinds, seed=1)
    fake = drawings([KINDS[row % 4] for row in range(N)], seed=2)
    fake[NOISE] = np.random.default_rng(0).integers(0, 256, fake[NOISE].shape, dtype=np.uint8)
    for row, of in COPIES.items():
        fake[row] = real[of] * 0.96  # a little darker
    for row, of in REPEATED.items():
        fake[row] = fake[of]
    return kinds, real, fake


@pytest.fixture(scope="module")
def folders(sides, tmp_path_factory):
    """The same in files, reals in a folder for each kind."""
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
    """`evidence_report` gives what it would make the page of, quickly: galleries by title, and the rest."""
    monkeypatch.setattr(near_copies, "_CANDIDATES", 10)
    monkeypatch.setattr(
        evidence_page,
        "html_report",
        lambda result, galleries, **rest: SimpleNamespace(
            result=result, galleries={each.title: each for each in galleries}, **rest
        ),
    )


def captions(gallery):
    return [picture.caption for picture in gallery.pictures]


def parsed(page):
    """The document; anything that the HTML standard calls an error is one."""
    return html5lib.HTMLParser(strict=True, namespaceHTMLElements=False).parse(page)


def text_of(element):
    return " ".join("".join(element.itertext()).split())


def pixels_of(uri):
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(uri.partition(",")[2]))), dtype=float)


def coarse(pixels):
    """Of noise, JPEG keeps but the large features."""
    return pixels.reshape(4, 8, 4, 8, 3).mean(axis=(1, 3))


def galleries_of(page):
    """By title: the sentence, whether more are said to be there, and the pictures as (group, caption, addresses)."""
    found = {}
    for section in parsed(page).iter("section"):
        if section.get("class") != "gallery":
            continue
        group, pictures, notes = "", [], []
        for each in section:
            if each.tag == "h4":
                group = text_of(each)
            notes += [text_of(each)] if each.tag == "p" else []
            pictures += [
                (
                    group,
                    text_of(figure.find("figcaption")),
                    [image.get("src") for image in figure.iter("img")],
                )
                for figure in each.iter("figure")
            ]
        found[text_of(section.find("h3"))] = (notes[0], notes[1:], pictures)
    return found


@pytest.fixture(scope="module")
def shown(page):
    return galleries_of(page)


def names_in(pictures):
    return [re.match(r"[^: ]*", caption)[0] for _, caption, _ in pictures]


def test_all_galleries_stand_in_their_order(shown, page):
    assert list(shown) == TITLES
    assert len(page) < 2_000_000
    ids = [each.get("id") for each in parsed(page).iter() if isinstance(each.tag, str) and each.get("id")]
    assert len(ids) == len(set(ids))
    assert evidence_page.MOST_BYTES == 10_000_000


def test_the_removed_kind_heads_the_missed_ones_and_is_named(shown):
    sentence, _, pictures = shown[TITLES[0]]
    assert "ring" in sentence
    assert "Missed: 1 kind" in sentence
    group = pictures[0][0]
    assert re.fullmatch(r"Kind 1: 32 of 32 reals covered by no fake, \d expected; ring 100%", group)
    assert all(name.startswith("ring/") for name in names_in(pictures)[:8])


def test_noise_is_all_that_is_invented(shown):
    sentence, _, pictures = shown[TITLES[1]]
    assert "Invented: 1 kind" in sentence
    assert sorted(names_in(pictures)) == [f"{row:03d}.png" for row in NOISE]
    assert len({group for group, *_ in pictures}) == 1
    least = names_in(shown[TITLES[2]][2])
    assert sorted(least[: len(NOISE)]) == [f"{row:03d}.png" for row in NOISE]


def test_copies_come_first_among_near_copies(shown, sides):
    sentence, notes, pictures = shown[TITLES[3]]
    assert {name: pictures[place][1] for place, name in enumerate(names_in(pictures)[:3])}.keys() == {
        f"{row:03d}.png" for row in COPIES
    }
    for name, (_, caption, _) in zip(names_in(pictures)[:3], pictures, strict=False):
        of = COPIES[int(name[:3])]
        assert re.fullmatch(
            rf"{name}: agrees by (0\.99\d|1\.000) ?beside {sides[0][of]}/{of:03d}\.png", caption
        )
    agreement = [float(re.search(r"agrees by ([\d.]+)", caption)[1]) for _, caption, _ in pictures]
    assert agreement == sorted(agreement, reverse=True)
    assert sentence.startswith("Of the 160 fakes that are nearest to a real image, ")
    alike = int(re.search(r", (\d+) are the same picture", sentence)[1])
    assert len(pictures) == min(alike, 100)
    assert notes == ([f"{alike - 100} more are not shown."] if alike > 100 else [])


def test_what_repeats_is_shown_once(shown):
    sentence, _, pictures = shown[TITLES[6]]
    assert [(group, caption) for group, caption, _ in pictures] == [("Among the fakes", "003.png: 2 times")]
    assert sentence.startswith("1 of 160 fakes repeat an earlier fake, and 0 of 160 reals")


def test_every_picture_is_of_the_image_that_its_caption_names(shown, sides):
    kinds, real, fake = sides
    pixels = {
        f"{kind}/{row:03d}.png": image for row, (kind, image) in enumerate(zip(kinds, real, strict=True))
    }
    pixels |= {f"{row:03d}.png": image for row, image in enumerate(fake)}
    count = 0
    for _, _, pictures in shown.values():
        for (_, caption, addresses), name in zip(pictures, names_in(pictures), strict=True):
            assert len(addresses) == 1 + ("beside " in caption)
            names = [name, *re.findall(r"beside ([^ ,]+)", caption)]
            for address, each in zip(addresses, names, strict=True):
                assert np.abs(pixels_of(address) - pixels[each]).mean() < 12, caption
                count += 1
    assert count > 100


def test_fakes_stand_beside_their_nearest_reals(shown, evidence):
    fake, real = evidence.fake, evidence.real
    for title in (TITLES[2], TITLES[4]):
        for _, caption, _ in shown[title][2]:
            row = fake.names.index(caption.partition(":")[0])
            assert caption.endswith(f"beside {real.names[fake.nearest_real[row]]}")
            assert f"realism {fake.realism[row]:.2f}" in caption


def test_the_map_has_the_picture_of_each_point(page, sides):
    kinds, real, fake = sides
    pixels = {
        f"{kind}/{row:03d}.png": image for row, (kind, image) in enumerate(zip(kinds, real, strict=True))
    }
    pixels |= {f"{row:03d}.png": image for row, image in enumerate(fake)}
    (sheet,) = [each for each in parsed(page).iter("img") if each.get("id") == "map-sheet"]
    columns, tiles = int(sheet.get("data-columns")), pixels_of(sheet.get("src"))
    edge = tiles.shape[1] // columns
    marks = [each for each in parsed(page).iter() if isinstance(each.tag, str) and each.get("data-tile")]
    assert len(marks) == 2 * N
    for mark in marks:
        row, column = divmod(int(mark.get("data-tile")), columns)
        tile = tiles[row * edge : (row + 1) * edge, column * edge : (column + 1) * edge]
        name = text_of(mark)
        assert (mark.tag.rsplit("}", 1)[-1] == "circle") == ("/" in name)
        assert np.abs(coarse(tile) - coarse(pixels[name])).mean() < 6, name
    assert "All 160 reals and all 160 fakes" in page


def test_histograms_are_of_the_score(page, evidence):
    assert f"{(evidence.fake.realism >= 1).mean():.1%} of the fakes have a realism of 1 or more" in page
    assert evidence.own_radii.k == 3
    medians = np.median(evidence.own_radii.real), np.median(evidence.own_radii.fake)
    assert f"the median is {medians[0]:.3g} for reals and {medians[1]:.3g} for fakes" in page


def calls(monkeypatch, owner, name):
    """What a function is called with from now on."""
    seen, function = [], getattr(owner, name)

    def spy(*args, **options):
        seen.append((args, options))
        return function(*args, **options)

    monkeypatch.setattr(owner, name, spy)
    return seen


def test_each_side_is_read_once(evidence, folders, given, monkeypatch):
    from genpr.features.inputs import Pictures

    reads, told = calls(monkeypatch, Pictures, "read"), []
    found = evidence_report(evidence, *folders, device="cpu", progress=lambda *each: told.append(each))
    assert len(reads) == 2
    assert [each for each in told if each[0] == "pictures"] == [("pictures", 0, 1), ("pictures", 1, 1)]
    assert {stage for stage, *_ in told} == {"kinds", "pictures"}
    assert found.galleries[TITLES[3]].sentence.startswith("Of the 10 fakes")


@pytest.mark.parametrize("side", ["real", "fake"])
def test_one_side_alone_is_shown(evidence, folders, given, side):
    source = folders[side == "fake"]
    found = evidence_report(evidence, **{side: source}, device="cpu").galleries
    assert list(found) == TITLES
    pictures = [picture for gallery in found.values() for picture in gallery.pictures]
    assert pictures
    assert all(picture.partner is None for picture in pictures)
    has_rings, has_noise = captions(found[TITLES[0]]), captions(found[TITLES[1]])
    assert (bool(has_rings), bool(has_noise)) == (side == "real", side == "fake")
    for title, is_seen in ((TITLES[0], side == "real"), (TITLES[1], side == "fake")):
        assert ("Not seen: Kind 1: " in found[title].sentence) == (not is_seen)
    assert "Not seen" not in found[TITLES[2]].sentence
    assert ("24 could not be read again" in found[TITLES[2]].sentence) == (side == "real")
    assert captions(found[TITLES[3]]) == []


def test_nothing_that_was_scored_is_lost_without_pictures(evidence):
    page = evidence_report(evidence, device="cpu")
    assert galleries_of(page) == {}
    assert "k-NN radii" in page
    assert "All 160 reals" in page
    assert "<img" not in page
    assert ">ring/004.png</title>" in page


def test_features_have_a_map_and_histograms_and_no_galleries(rng):
    real, fake = rng.normal(size=(2, 60, 4))
    found = genpr.Evaluator(real, control=False, intervals=False).evidence(fake)
    page = evidence_report(found, real, fake)
    assert 'id="galleries"' not in page
    assert "k-NN radii" in page
    assert "All 60 reals and all 60 fakes" in page
    assert "<title>row 17</title>" in page
    parsed(page)
    unknown = evidence_report(replace(found, own_radii=None), real, fake)
    assert "k-NN radii" not in unknown
    assert ">Realism<" in unknown


def test_every_kind_of_source_is_shown_alike(sides, folders, given):
    _, real, fake = sides
    root = folders[0].parent
    with zipfile.ZipFile(root / "fake.zip", "w") as archive:
        for path in sorted(folders[1].iterdir()):
            archive.write(path, path.name)
    np.savez_compressed(root / "fake.npz", fake)
    tensor = torch.from_numpy(fake).permute(0, 3, 1, 2)
    evaluator = genpr.Evaluator(real, **OPTIONS)
    expected = None
    for source in (
        folders[1],
        root / "fake.zip",
        str(root / "fake.npz"),
        fake,
        tensor,
        list(tensor.split(30)),
    ):
        found = evidence_report(evaluator.evidence(source), real, source, device="cpu").galleries
        pictures = {
            title: [(picture.data, picture.partner) for picture in gallery.pictures]
            for title, gallery in found.items()
        }
        assert len(pictures[TITLES[1]]) == len(NOISE)
        expected = pictures if expected is None else expected
        assert pictures == expected, source


def test_what_gives_its_images_once_has_no_pictures(sides, given):
    _, real, fake = sides
    tensor = torch.from_numpy(fake).permute(0, 3, 1, 2)
    found = genpr.Evaluator(real, **OPTIONS).evidence(iter(tensor.split(30)))
    shown = evidence_report(found, real, iter(tensor.split(30)), device="cpu").galleries
    assert captions(shown[TITLES[0]])
    assert not captions(shown[TITLES[1]])
    assert f" {len(NOISE)} could not be read again" in shown[TITLES[1]].sentence


def test_what_changed_or_went_is_left_out_and_said(sides, tmp_path, given):
    _, real, fake = sides
    folder = tmp_path / "fake"
    folder.mkdir()
    for row, pixels in enumerate(fake):
        Image.fromarray(pixels).save(folder / f"{row:03d}.png")
    found = genpr.Evaluator(real, **OPTIONS).evidence(folder)
    Image.fromarray(fake[1]).save(folder / "020.png")  # noise no more
    (folder / "040.png").unlink()
    gallery = evidence_report(found, real, folder, device="cpu").galleries[TITLES[1]]
    assert sorted(captions(gallery)) == [f"{row:03d}.png" for row in NOISE if row not in (20, 40)]
    assert gallery.sentence.endswith(
        " 2 could not be read again: there is no picture, or it has changed since it was scored."
    )
    for path in folder.iterdir():
        path.unlink()
    with pytest.raises(DataError):
        evidence_report(found, real, folder, device="cpu")
    folder.rmdir()
    with pytest.raises(UsageError, match="nothing at"):
        evidence_report(found, real, folder, device="cpu")


def test_kinds_are_named_by_their_folders_though_an_image_is_gone(evidence, folders, tmp_path, given):
    shutil.copytree(folders[0], tmp_path / "real")
    (tmp_path / "real" / "ring" / "004.png").unlink()
    gallery = evidence_report(evidence, tmp_path / "real", device="cpu").galleries[TITLES[0]]
    assert gallery.pictures[0].group.endswith("; ring 100%")
    with pytest.raises(DataError, match=r"ring/004.png was scored and is not in .* any more") as caught:
        evidence_report(evidence, tmp_path / "real", real_labels=["x"] * (N - 1), device="cpu")
    assert caught.value.code == "changed"


def test_a_source_that_breaks_on_the_way_is_told_of_without_pictures(evidence):
    class Broken:
        def read(self, rows):
            list(rows)
            raise DataError("the archive is damaged", code="x")

    class Whole:
        def read(self, rows):
            return {row: np.full((4, 4, 3), row, np.uint8) for row in rows}

    album = Album({"real": Broken(), "fake": Whole()}, {"real": ["r0", "r1"], "fake": ["f0", "f1"]})
    album.read([("real", 1), ("fake", 1), ("fake", 0), ("fake", 1)])
    assert sorted(album.pixels) == [("fake", 0), ("fake", 1)]
    assert album.names_of([("fake", 1), ("real", 0)]) == ["f1", "r0"]
    gallery = album.gallery(
        Selection("t", "S.", (Pick(("fake", 1), "c", ("real", 1), "p", "g"), Pick(("real", 0), "d")), more=4)
    )
    assert [(each.caption, each.partner, each.partner_caption, each.group) for each in gallery.pictures] == [
        ("c", None, "p", "g")
    ]
    assert gallery.pictures[0].data == thumbnail(album.pixels["fake", 1])
    assert gallery.sentence.startswith("S. 1 could not be read again")
    assert gallery.more == 4


def test_pictures_are_decoded_within_the_given_limits(evidence, folders, given):
    policy = DecodePolicy(max_pixels=100)
    found = evidence_report(evidence, *folders, policy=policy, device="cpu")
    assert not any(gallery.pictures for gallery in found.galleries.values())
    assert f" {len(NOISE)} could not be read again" in found.galleries[TITLES[1]].sentence
    assert found.set_map.sheet is None


def test_a_page_stays_below_its_limit(evidence, folders, page):
    small = evidence_report(evidence, *folders, device="cpu", most_bytes=len(page) - 100_000)
    assert len(small.encode()) <= len(page) - 100_000
    found = galleries_of(small)
    assert any("not shown" in note for _, notes, _ in found.values() for note in notes)
    assert all(pictures for title, (_, _, pictures) in found.items() if title != TITLES[5])


def test_given_labels_name_the_kinds(evidence, folders, sides, given):
    drawn = ["junk" if row in NOISE else "fine" for row in range(N)]
    # Labels are in the order of the source, here that of folders.
    labels = ["hollow" if name.startswith("ring/") else "solid" for name in evidence.real.names]
    found = evidence_report(evidence, *folders, real_labels=labels, fake_labels=drawn, device="cpu").galleries
    assert found[TITLES[0]].pictures[0].group.endswith("; hollow 100%")
    assert found[TITLES[1]].pictures[0].group.endswith("; junk 100%")
    assert "hollow (100%)" in found[TITLES[0]].sentence
    with pytest.raises(DataError):
        evidence_report(evidence, *folders, real_labels=["one"], device="cpu")


def test_labels_that_nobody_gave_and_that_do_not_fit_are_no_error(sides, folders, evidence, tmp_path, given):
    (tmp_path / "dataset.json").write_text('{"labels": [["elsewhere.png", 3]]}')
    for row, pixels in enumerate(sides[2]):
        Image.fromarray(pixels).save(tmp_path / f"{row:03d}.png")
    gallery = evidence_report(evidence, folders[0], tmp_path, device="cpu").galleries[TITLES[1]]
    assert gallery.pictures[0].group.endswith(" expected")
    assert len(gallery.pictures) == len(NOISE)


def test_what_a_score_says_beside_is_still_there(evidence, folders, page):
    earlier = evidence_report(evidence, *folders, earlier={HOSTILE[0]: a_result()}, device="cpu")
    assert "&lt;script&gt;alert(1)&lt;/script&gt;.png" in earlier
    assert f"{evidence.result['precision']:.4f}" in page
    assert class_figures(None) == ()
    assert "heat" not in page.lower()


def test_hostile_names_and_labels_do_no_harm(evidence, folders):
    fakes = tuple(f"{HOSTILE[row % len(HOSTILE)]}{row}" for row in range(N))
    hostile = replace(evidence, fake=replace(evidence.fake, names=fakes))
    labels = [HOSTILE[row % 2 * 5] for row in range(N)]
    page = evidence_report(hostile, folders[0], real_labels=labels, device="cpu")
    document = [each for each in parsed(page).iter() if isinstance(each.tag, str)]
    assert sum(each.tag == "script" for each in document) == 1
    assert not [each for each in document if any(name.startswith("on") for name in each.attrib)]
    assert not set(page) & {"\x1b", "\x07", "\u202e"}
    page.encode()


class Fixed(Album):
    def __init__(self, pixels):
        super().__init__({}, {})
        self.pixels = pixels


def test_near_copies_are_judged_by_their_pixels():
    rng = np.random.default_rng(0)
    reals, others = rng.integers(0, 256, (2, 5, 32, 32, 3), dtype=np.uint8)
    noisy = (reals[1].astype(int) + rng.integers(-40, 41, reals[1].shape)).clip(0, 255).astype(np.uint8)
    fakes = [others[0], noisy, reals[2][:, ::-1], reals[3]]
    pixels = {("fake", row): image for row, image in enumerate(fakes)}
    pixels |= {("real", row): image for row, image in enumerate(reals)}
    picks = [Pick(("fake", row), f"f{row}", ("real", row), f"r{row}") for row in range(5)]
    found = copies_among(picks, [], Fixed(pixels))  # the fifth fake is gone
    assert [pick.image for pick in found.picks] == [("fake", 2), ("fake", 3), ("fake", 1)]
    assert found.picks[0] == Pick(("fake", 2), "f2: agrees by 1.000, mirrored", ("real", 2), "r2")
    assert found.picks[1].caption == "f3: agrees by 1.000"
    assert re.fullmatch(r"f1: agrees by 0\.9\d\d", found.picks[2].caption)
    assert found.sentence.startswith("Of the 4 fakes that are nearest to a real image, 3 are the same")
    one = copies_among(picks[3:4], [], Fixed(pixels))
    assert "Of the 1 fakes that are nearest to a real image, 1 is the same" in one.sentence
    assert "none is the same" in copies_among(picks[:1], [], Fixed(pixels)).sentence
    nothing = copies_among(picks[4:], [], Fixed(pixels))
    assert (nothing.picks, "this needs the pictures of both sides" in nothing.sentence) == ((), True)


def test_where_different_pictures_agree_well_more_is_asked_for():
    rng = np.random.default_rng(2)
    base = rng.integers(60, 190, (32, 32, 3))

    def alike(share):
        return (base + (1 - share) * rng.normal(0, 50, base.shape)).clip(0, 255).astype(np.uint8)

    pixels = {("real", row): alike(0.7) for row in range(20)}
    pixels |= {("fake", 0): alike(0.7), ("fake", 1): pixels["real", 1]}
    fakes = [Pick(("fake", row), f"f{row}", ("real", row), f"r{row}") for row in range(2)]
    usual = [Pick(("real", row), f"r{row}", ("real", row + 10), f"r{row + 10}") for row in range(10)]
    assert len(copies_among(fakes, [], Fixed(pixels)).picks) == 2  # to the eye
    found = copies_among(fakes, usual, Fixed(pixels))
    assert [pick.caption for pick in found.picks] == ["f1: agrees by 1.000"]
    assert re.search(
        r"Different pictures of this set agree well: only 0\.[789]\d and more counts", found.sentence
    )


def test_what_is_usual_hangs_on_most_pairs_and_not_on_copies_within_the_set():
    usual = [Likeness(value, 1.0, is_mirrored=False) for value in (0.70, 0.72, 0.74, 0.76, 0.78, 0.80, 0.82)]
    least = near_copies._least_agreement(usual)
    z = np.arctanh([each.detail for each in usual])
    assert least == pytest.approx(np.tanh(np.median(z) + 4 * (np.quantile(z, 0.84) - np.median(z))))
    low = [Likeness(0.1 + each / 1000, 1.0, is_mirrored=False) for each in range(90)]
    copies = [Likeness(1.0, 1.0, is_mirrored=False)] * 10
    assert near_copies._least_agreement(low + copies) == 0.0  # the eye asks for more
    assert near_copies._least_agreement([]) == 0.0


def test_usual_pairs_are_reals_beside_their_nearest_other(evidence):
    found = usual_pairs(evidence)
    points = evidence.sides[0].features.double()
    rows, others = (
        [image[1] for image in each] for each in zip(*(pick.images for pick in found), strict=True)
    )
    assert sorted(rows) == list(range(N))
    assert {side for pick in found for side, _ in pick.images} == {"real"}
    sq = torch.cdist(points[rows], points, compute_mode="donot_use_mm_for_euclid_dist").square()
    sq[range(N), rows] = torch.inf
    assert torch.equal(sq[range(N), others], sq.min(dim=1).values)
    assert found[0].caption == evidence.real.names[rows[0]]


def test_at_most_a_hundred_copies_are_shown_and_how_many_more():
    image = np.random.default_rng(0).integers(0, 256, (8, 8, 3), dtype=np.uint8)
    picks = [Pick(("fake", row), f"f{row}", ("real", row), f"r{row}") for row in range(103)]
    pixels = {(side, row): image for side in ("fake", "real") for row in range(103)}
    found = copies_among(picks, [], Fixed(pixels))
    assert [pick.image[1] for pick in found.picks] == list(range(100))
    assert found.more == 3
    assert "103 are the same" in found.sentence


@pytest.mark.parametrize(
    ("shape", "size"),
    [((256, 512), (128, 64)), ((40, 30), (30, 40)), ((1, 4000), (128, 1)), ((128, 128), (128, 128))],
)
def test_thumbnails_are_small_and_true(shape, size):
    y, x = np.mgrid[: shape[0], : shape[1]]
    pixels = np.stack([255 * x / max(1, shape[1] - 1), 255 * y / max(1, shape[0] - 1), 0 * x + 90], axis=2)
    image = Image.open(io.BytesIO(thumbnail(pixels.astype(np.uint8))))
    assert (image.format, image.mode) == ("JPEG", "RGB")
    assert image.size == (size if shape != (40, 30) else (30, 40))
    small = Image.fromarray(pixels.astype(np.uint8)).resize(image.size)
    assert np.abs(np.asarray(image, dtype=float) - np.asarray(small)).mean() < 4
    assert Image.open(io.BytesIO(thumbnail(pixels.astype(np.uint8), side=16))).size[0] <= 16


def test_what_is_not_as_asked_is_shown_under_what_was_asked_and_seen(evidence, folders, given):
    """Fakes of which every fifth is taken for another class, rings more often than stars; some have no class."""
    asked = ["star" if row % 2 else "ring" for row in range(N)]
    seen = ["ring" if label == "star" and row < 8 else label for row, label in enumerate(asked)]
    seen[100:140:2] = ["disc"] * 20
    asked[0] = None
    made = replace(evidence, labels=RecognizedLabels(tuple(asked), (None, *seen[1:])))
    gallery = evidence_report(made, *folders, device="cpu").galleries["Not what was asked for"]
    groups = [(name, [picture.caption for picture in pictures]) for name, pictures in gallery.groups]
    realism = evidence.fake.realism
    best = sorted(range(100, 140, 2), key=lambda row: -realism[row])[:8]
    assert groups[0] == ("Asked for ring, seen as disc (20)", [f"{row:03d}.png" for row in best])
    assert groups[1][0] == "Asked for star, seen as ring (4)"
    assert set(groups[1][1]) == {f"{row:03d}.png" for row in (1, 3, 5, 7)}
    assert gallery.more == 12
    assert "24 of 160 fakes" in gallery.sentence
    nearest = evidence.real.names[evidence.fake.nearest_real[best[0]]]
    assert gallery.groups[0][1][0].partner_caption == nearest


def test_hostile_classes_are_headings_and_nothing_else(evidence, folders):
    labels = RecognizedLabels(tuple([HOSTILE[0]] * N), tuple([HOSTILE[-1]] * N))
    page = evidence_report(replace(evidence, labels=labels), *folders, device="cpu")
    assert len(list(parsed(page).iter("{*}script"))) + len(list(parsed(page).iter("script"))) <= 1
    assert HOSTILE[0] not in page
    assert "x" * 500 not in page


def test_where_all_is_as_asked_there_is_nothing_to_show(evidence, folders, given):
    labels = RecognizedLabels(("cat",) * N, ("cat",) * N)
    gallery = evidence_report(replace(evidence, labels=labels), *folders, device="cpu").galleries[
        "Not what was asked for"
    ]
    assert gallery.pictures == ()
    assert gallery.sentence == "Every fake is seen as what it was asked to be."
