from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from genpr.demo import (
    KINDS,
    LATENTS,
    Demo,
    ShapesGenerator,
    build_demo,
    contact_sheet,
    draw_latents,
    save_sets,
)
from genpr.errors import ResourceError, UsageError
from genpr.features.networks.gabor import GaborExtractor
from genpr.metrics.manifold import manifold_metrics, precision_recall


@pytest.fixture(scope="module")
def draw() -> ShapesGenerator:
    return ShapesGenerator()


@pytest.fixture(scope="module")
def demo() -> Demo:
    return build_demo(n=40, seed=3)


def fake(demo: Demo, name: str) -> Tensor:
    return next(shown.images for shown in demo.fakes if shown.name == name)


def with_kind(latents: Tensor, kind: str) -> Tensor:
    """The same latents, with `kind` chosen clearly."""
    chosen = latents.clone()
    chosen[:, : len(KINDS)] = -1
    chosen[:, KINDS.index(kind)] = 1
    return chosen


def sharpness(images: Tensor) -> Tensor:
    """Mean step in brightness from one pixel to the next, (n,)."""
    return images.double().mean(1).diff(dim=2).abs().mean((1, 2))


def spread(images: Tensor) -> float:
    """Standard deviation over images, averaged over pixels."""
    return images.double().std(0).mean().item()


def test_no_latents_no_pictures(draw):
    assert draw(torch.zeros(0, 24)).shape == (0, 3, 64, 64)


def test_pictures(draw):
    pictures = draw(draw_latents(5, seed=0))
    assert pictures.shape == (5, 3, 64, 64)
    assert pictures.dtype == torch.uint8
    assert spread(pictures) > 20


def test_same_latents_same_pictures(draw):
    state = torch.get_rng_state()
    assert torch.equal(draw_latents(6, seed=1), draw_latents(6, seed=1))
    assert not torch.equal(draw_latents(6, seed=1), draw_latents(6, seed=2))
    assert torch.equal(draw(draw_latents(6, seed=1)), draw(draw_latents(6, seed=1)))
    assert torch.equal(torch.get_rng_state(), state)


def test_latents_are_standard_normal():
    latents = draw_latents(4000, seed=0)
    assert latents.shape == (4000, len(LATENTS))
    assert latents.mean(0).abs().max() < 0.1
    assert (latents.std(0) - 1).abs().max() < 0.1


def test_pictures_do_not_depend_on_their_company(draw):
    latents = draw_latents(70, seed=0)
    together = draw(latents)
    assert torch.equal(draw(latents.flip(0)).flip(0), together)
    assert torch.equal(torch.cat([draw(part) for part in latents.split(9)]), together)


def test_psi_scales_latents(draw):
    latents = draw_latents(8, seed=0).double()
    assert torch.equal(draw(latents, psi=0.4), draw(latents * 0.4))
    assert torch.equal(draw(latents, psi=1.0), draw(latents))


def test_psi_zero_is_one_picture_a_disc(draw):
    pictures = draw(draw_latents(8, seed=0), psi=0)
    assert torch.equal(pictures, pictures[:1].expand_as(pictures))
    only_discs = ShapesGenerator(kinds=("disc",))(torch.zeros(1, len(LATENTS)))
    assert (pictures[:1].int() - only_discs.int()).abs().max() <= 2


def test_variety_shrinks_with_psi(draw):
    latents = draw_latents(100, seed=0)
    spreads = [spread(draw(latents, psi=psi)) for psi in (1.0, 0.8, 0.6, 0.4, 0.2, 0.0)]
    assert spreads == sorted(spreads, reverse=True)
    assert spreads[-1] == 0
    assert spreads[-2] < 0.5 * spreads[0]


def test_pictures_are_continuous_in_their_latents(draw):
    latents = draw_latents(60, seed=0).double()
    direction = draw_latents(60, seed=1).double()
    before = draw(latents).double()
    small = (draw(latents + 1e-3 * direction).double() - before).abs().mean((1, 2, 3))
    large = (draw(latents + direction).double() - before).abs().mean((1, 2, 3))
    assert small.max() < 1
    assert large.min() > 5


@pytest.mark.parametrize("kind", KINDS[1:])
def test_one_kind_turns_smoothly_into_another(draw, kind):
    average = torch.zeros(1, len(LATENTS), dtype=torch.float64)
    steps = torch.linspace(0.4, 0.7, 241, dtype=torch.float64)[:, None]
    start, end = with_kind(average, "disc"), with_kind(average, kind)
    pictures = draw(start + steps * (end - start)).double()
    assert (pictures[0] - pictures[-1]).abs().mean() > 5
    assert pictures.diff(dim=0).abs().mean((1, 2, 3)).max() < 1.5


@pytest.mark.parametrize("name", LATENTS)
def test_every_latent_changes_every_picture(draw, name):
    latents = draw_latents(10, seed=0)
    if name in KINDS:
        latents = with_kind(latents, "ring" if name != "ring" else "star")
    low, high = latents.clone(), latents.clone()
    low[:, LATENTS.index(name)] = -2
    high[:, LATENTS.index(name)] = 2
    changed = (draw(low).int() - draw(high).int()).abs()
    assert (changed.float().mean((1, 2, 3)) > 0.3).all()
    assert (changed.amax((1, 2, 3)) >= 4).all()


def test_position_moves_the_shape_and_not_the_paper(draw):
    latents = torch.zeros(3, len(LATENTS))
    latents[:, LATENTS.index("x")] = torch.tensor([-2.0, 0.0, 2.0])
    pictures = draw(latents).double()
    shape = pictures[:, 2] > pictures[:, 0] + 60
    columns = torch.arange(64.0, dtype=torch.float64)
    centers = (shape.double().sum(1) * columns).sum(1) / shape.double().sum((1, 2))
    assert centers.diff().tolist() == pytest.approx([6, 6], abs=0.5)
    assert (pictures[0, :, 0] - pictures[2, :, 0]).abs().max() <= 1


@pytest.mark.parametrize("first", range(len(KINDS)))
def test_kinds_look_different(draw, first):
    latents = torch.zeros(1, len(LATENTS))
    pictures = torch.cat([draw(with_kind(latents, kind)) for kind in KINDS]).double()
    others = [index for index in range(len(KINDS)) if index != first]
    assert (pictures[others] - pictures[first]).abs().mean((1, 2, 3)).min() > 5


def test_most_pictures_show_one_clear_kind_and_all_kinds_occur(draw):
    shares = draw.kind_shares(draw_latents(2000, seed=0))
    torch.testing.assert_close(shares.sum(1), torch.ones(2000, dtype=torch.float64))
    assert (shares.amax(1) > 0.95).double().mean() > 0.8
    assert shares.mean(0).min() > 0.1
    assert shares.mean(0).argmax() == KINDS.index("disc")


@pytest.mark.parametrize("kind", KINDS)
def test_dropped_kinds_are_never_drawn(kind):
    kept = tuple(other for other in KINDS if other != kind)
    latents = draw_latents(50, seed=0)
    assert (ShapesGenerator(kinds=kept).kind_shares(latents)[:, KINDS.index(kind)] == 0).all()
    alone = ShapesGenerator(kinds=(kind,))
    assert torch.equal(alone(latents), ShapesGenerator()(with_kind(latents, kind)))


def test_desaturation_keeps_brightness(draw):
    latents = draw_latents(10, seed=0)
    pale, full = ShapesGenerator(desaturation=0.5)(latents).double(), draw(latents).double()
    assert (pale.mean(1) - full.mean(1)).abs().max() < 1
    assert (pale.std(1) / full.std(1)).median() == pytest.approx(0.5, abs=0.02)


@pytest.mark.parametrize("shape", [(24,), (3, 23), (3, 25), (3, 24, 1)])
def test_latents_of_another_shape_are_refused(draw, shape):
    with pytest.raises(UsageError, match=r"latents must have shape \(n, 24\), but got") as caught:
        draw(torch.zeros(shape))
    assert caught.value.code == "latent-shape"


@pytest.mark.parametrize("kinds", [(), ("disc", "blob")])
def test_unknown_kinds_are_refused(kinds):
    with pytest.raises(UsageError, match="kinds must be some of disc, square"):
        ShapesGenerator(kinds=kinds)


def test_demo_is_fixed_by_its_seed():
    state = torch.get_rng_state()
    first, again, other = build_demo(n=6, seed=1), build_demo(n=6, seed=1), build_demo(n=6, seed=2)
    assert [shown.name for shown in first.sets] == [
        "real",
        "faithful",
        "mode-dropped",
        "half-junk",
        "blurred",
    ]
    for a, b, c in zip(first.sets, again.sets, other.sets, strict=True):
        assert a.images.shape == (6, 3, 64, 64)
        assert torch.equal(a.images, b.images)
        assert not torch.equal(a.images, c.images)
    assert torch.equal(torch.get_rng_state(), state)


def test_no_picture_is_both_real_and_fake(demo):
    real = {image.numpy().tobytes() for image in demo.real.images}
    assert len(real) == 40
    for shown in demo.fakes:
        assert real.isdisjoint(image.numpy().tobytes() for image in shown.images)


def test_faithful_is_a_little_pale(demo):
    fake_latents = draw_latents(80, seed=3)[40:]
    true = ShapesGenerator()(fake_latents).double()
    faithful = fake(demo, "faithful").double()
    assert (faithful - true).abs().mean() < 5
    assert (faithful.std(1) / true.std(1)).median() == pytest.approx(0.9, abs=0.01)


def test_mode_dropped_has_only_the_kept_kinds(demo):
    shares = ShapesGenerator().kind_shares(draw_latents(80, seed=3)[40:])
    kept = shares[:, [KINDS.index("disc"), KINDS.index("square")]].sum(1)
    changed = fake(demo, "mode-dropped").double() - fake(demo, "faithful").double()
    changed = changed.abs().mean((1, 2, 3))
    assert changed[kept > 0.999].max() < 0.5
    assert changed[kept < 0.5].min() > 3
    assert 0.3 < (kept > 0.999).double().mean() < 0.7


def test_half_junk_is_half_shuffled_tiles(demo):
    faithful, junk = fake(demo, "faithful"), fake(demo, "half-junk")
    assert torch.equal(junk[::2], faithful[::2])
    assert not (junk[1::2] == faithful[1::2]).all((1, 2, 3)).any()
    for image, source in zip(junk[1::2], faithful[1::2], strict=True):
        assert sorted(tiles(image)) == sorted(tiles(source))


def tiles(image: Tensor) -> list[bytes]:
    return [
        image[:, top : top + 16, left : left + 16].contiguous().numpy().tobytes()
        for top in range(0, 64, 16)
        for left in range(0, 64, 16)
    ]


def test_blurred_loses_detail_and_keeps_brightness(demo):
    faithful, out_of_focus = fake(demo, "faithful"), fake(demo, "blurred")
    assert (sharpness(out_of_focus) < 0.5 * sharpness(faithful)).all()
    brightness = faithful.double().mean((1, 2, 3)), out_of_focus.double().mean((1, 2, 3))
    torch.testing.assert_close(*brightness, rtol=0, atol=2)
    assert (out_of_focus[:, :, 8:-8, 8:-8].double() - faithful[:, :, 8:-8, 8:-8].double()).abs().mean() < 15


def test_scores_tell_the_four_stories():
    demo = build_demo(n=300, seed=7)
    extractor = GaborExtractor("cpu")
    real = extractor(demo.real.images)
    scores = {}
    for shown in demo.fakes:
        features = extractor(shown.images)
        _, _, density, coverage = manifold_metrics(real, features, k=5)
        scores[shown.name] = (*precision_recall(real, features, k=3), density, coverage)

    precision, recall, density, coverage = scores["faithful"]
    assert precision > 0.8
    assert recall > 0.75
    assert density == pytest.approx(1, abs=0.15)
    assert coverage > 0.9
    precision, recall, density, coverage = scores["mode-dropped"]
    assert precision > 0.8
    assert recall < 0.5
    assert density > 0.85
    assert coverage < 0.65
    precision, recall, density, coverage = scores["half-junk"]
    assert precision == pytest.approx(0.45, abs=0.08)
    assert recall > 0.7
    assert density == pytest.approx(0.5, abs=0.1)
    assert coverage > 0.75
    assert max(scores["blurred"]) < 0.1


def test_contact_sheet_has_a_row_of_pictures_per_set(demo):
    sheet = np.asarray(contact_sheet(demo.sets, columns=5))
    for row, shown in enumerate(demo.sets):
        for column in range(5):
            top, left = 12 + 68 * row, sheet.shape[1] - 12 - 68 * (5 - column)
            expected = shown.images[column].permute(1, 2, 0).numpy()
            np.testing.assert_array_equal(sheet[top : top + 64, left : left + 64], expected)
        label = sheet[12 + 68 * row : 76 + 68 * row, 12:262]
        assert (label < 100).any()
        assert (label[:, -4:] == 255).all(), f"the label of {shown.name} runs into the pictures"


def test_contact_sheet_of_small_sets():
    assert contact_sheet(build_demo(n=2, seed=0).sets, columns=12).mode == "RGB"


def test_saved_sets_are_the_pictures(demo, tmp_path):
    save_sets(demo.sets, tmp_path / "demo")
    save_sets(demo.sets, tmp_path / "demo")
    for shown in demo.sets:
        files = sorted((tmp_path / "demo" / shown.name).iterdir())
        assert [path.name for path in files] == [f"{i:04d}.png" for i in range(40)]
        with Image.open(files[7]) as image:
            assert image.mode == "RGB"
            np.testing.assert_array_equal(np.asarray(image), shown.images[7].permute(1, 2, 0).numpy())


def test_save_refuses_folders_with_other_files(demo, tmp_path):
    (tmp_path / "blurred").mkdir()
    (tmp_path / "blurred" / "holiday.png").touch()
    with pytest.raises(UsageError, match=r"blurred holds files .* such as holiday\.png") as caught:
        save_sets(demo.sets, tmp_path)
    assert caught.value.code == "folder-not-empty"
    assert not (tmp_path / "real").exists()


def test_save_names_a_folder_that_cannot_be_written(demo, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ResourceError, match="cannot write the demo images") as caught:
        save_sets(demo.sets, tmp_path / "file" / "demo")
    assert caught.value.code == "not-writable"
