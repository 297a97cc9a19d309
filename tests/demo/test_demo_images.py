from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

import genpr
from genpr.demo import (
    KINDS,
    Demo,
    ShapesGenerator,
    build_demo,
    contact_sheet,
    draw_latents,
    save_sets,
)
from genpr.errors import ResourceError, UsageError


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


def test_pictures_do_not_depend_on_their_company(draw):
    latents = draw_latents(70, seed=0)
    together = draw(latents)
    assert torch.equal(draw(latents.flip(0)).flip(0), together)
    assert torch.equal(torch.cat([draw(part) for part in latents.split(9)]), together)


def test_psi_scales_latents(draw):
    latents = draw_latents(8, seed=0).double()
    assert torch.equal(draw(latents, psi=0.4), draw(latents * 0.4))
    assert torch.equal(draw(latents, psi=1.0), draw(latents))


@pytest.mark.parametrize("kind", KINDS)
def test_dropped_kinds_are_never_drawn(kind):
    kept = tuple(other for other in KINDS if other != kind)
    latents = draw_latents(50, seed=0)
    assert (ShapesGenerator(kinds=kept).kind_shares(latents)[:, KINDS.index(kind)] == 0).all()
    alone = ShapesGenerator(kinds=(kind,))
    assert torch.equal(alone(latents), ShapesGenerator()(with_kind(latents, kind)))


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


def test_labels_choose_the_kind():
    latents = draw_latents(len(KINDS), seed=0)
    labels = torch.arange(len(KINDS))
    drawn = ShapesGenerator()(latents, labels=labels)
    for index, kind in enumerate(KINDS):
        alone = ShapesGenerator(kinds=(kind,))(latents[index : index + 1])
        assert torch.equal(drawn[index : index + 1], alone)
    sampled = genpr.Sampler.of(ShapesGenerator(), n=5, labels=labels, batch_size=2).images(0.5)
    own = genpr.Sampler.of(ShapesGenerator(), n=5).latents.z
    assert torch.equal(torch.cat(list(sampled)), ShapesGenerator()(own, psi=0.5, labels=labels))


@pytest.mark.parametrize(
    "labels",
    [
        torch.tensor([0, 1]),
        torch.tensor([0, 1, 5]),
        torch.tensor([0, -1, 1]),
        torch.tensor([0.0, 1.0, 1.0]),
        torch.tensor([True, False, True]),
        torch.eye(3).long(),
        torch.tensor([0, 1, 2]),  # a kind that this generator does not draw
    ],
    ids=str,
)
def test_labels_must_be_kinds_that_it_draws(labels):
    with pytest.raises(
        UsageError, match="labels must be 3 integers, one per latent, out of 0, 1, but"
    ) as caught:
        ShapesGenerator(kinds=("disc", "square"))(draw_latents(3, seed=0), labels=labels)
    assert caught.value.code == "unknown-kind"
