import numpy as np
import pytest
import torch
from PIL import Image
from raising import raised, raising
from torch import Tensor

from genpr.demo import KINDS, DemoSet, ShapesGenerator, build_demo, contact_sheet, draw_latents, save_sets
from genpr.errors import ResourceError, UsageError

TWO = ShapesGenerator(kinds=("disc", "square"))


@pytest.fixture(scope="module")
def draw() -> ShapesGenerator:
    return ShapesGenerator()


@pytest.fixture(scope="module")
def demo() -> tuple[DemoSet, ...]:
    return build_demo(n=40, seed=3)


def fake(demo: tuple[DemoSet, ...], name: str) -> Tensor:
    return next(shown.images for shown in demo if shown.name == name)


def with_kind(latents: Tensor, kind: str) -> Tensor:
    """The same latents, with `kind` chosen clearly."""
    chosen = latents.clone()
    chosen[:, : len(KINDS)] = -1
    chosen[:, KINDS.index(kind)] = 1
    return chosen


def sharpness(images: Tensor) -> Tensor:
    """Mean step in brightness from one pixel to the next, (n,)."""
    return images.double().mean(1).diff(dim=2).abs().mean((1, 2))


def test_same_latents_give_same_images(draw):
    state = torch.get_rng_state()
    latents = draw_latents(6, seed=1)
    assert torch.equal(latents, draw_latents(6, seed=1))
    assert not torch.equal(latents, draw_latents(6, seed=2))
    pictures = draw(latents)
    assert (pictures.shape, pictures.dtype) == ((6, 3, 64, 64), torch.uint8)
    assert torch.equal(pictures, draw(latents))
    assert torch.equal(draw(latents.double(), psi=0.4), draw(latents.double() * 0.4))
    assert torch.equal(torch.get_rng_state(), state)


def test_images_do_not_depend_on_the_batch(draw):
    latents = draw_latents(70, seed=0)
    together = draw(latents)
    assert torch.equal(draw(latents.flip(0)).flip(0), together)
    assert torch.equal(torch.cat([draw(part) for part in latents.split(9)]), together)


@pytest.mark.parametrize("kind", KINDS)
def test_dropped_kinds_are_never_drawn(kind):
    kept = tuple(other for other in KINDS if other != kind)
    latents = draw_latents(50, seed=0)
    assert (ShapesGenerator(kinds=kept).kind_shares(latents)[:, KINDS.index(kind)] == 0).all()
    alone = ShapesGenerator(kinds=(kind,))
    assert torch.equal(alone(latents), ShapesGenerator()(with_kind(latents, kind)))


@pytest.mark.parametrize(
    ("call", "code"),
    [
        (lambda: ShapesGenerator()(torch.zeros(24)), "latent-shape"),
        (lambda: ShapesGenerator()(torch.zeros(3, 23)), "latent-shape"),
        (lambda: ShapesGenerator(kinds=()), "unknown-kind"),
        (lambda: ShapesGenerator(kinds=("disc", "blob")), "unknown-kind"),
    ],
)
def test_invalid_kinds_and_latents_are_errors(call, code):
    assert raised(UsageError, call).code == code


def test_demo_depends_only_on_its_seed():
    first, again, other = (build_demo(n=6, seed=seed) for seed in (1, 1, 2))
    names = ["real", "faithful", "mode-dropped", "half-junk", "blurred"]
    assert [shown.name for shown in first] == names
    for a, b, c in zip(first, again, other, strict=True):
        assert torch.equal(a.images, b.images)
        assert not torch.equal(a.images, c.images)


def test_no_image_is_both_real_and_fake(demo):
    real = {image.numpy().tobytes() for image in demo[0].images}
    assert len(real) == 40
    for shown in demo[1:]:
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


def test_contact_sheet_has_a_row_per_set(demo):
    sheet = np.asarray(contact_sheet(demo, columns=5))
    for row, shown in enumerate(demo):
        for column in range(5):
            top, left = 4 + 68 * row, 4 + 68 * column
            expected = shown.images[column].permute(1, 2, 0).numpy()
            np.testing.assert_array_equal(sheet[top : top + 64, left : left + 64], expected)


def test_saved_sets_equal_the_images(demo, tmp_path):
    save_sets(demo, tmp_path / "demo")
    save_sets(demo, tmp_path / "demo")
    for shown in demo:
        files = sorted((tmp_path / "demo" / shown.name).iterdir())
        assert [path.name for path in files] == [f"{i:04d}.png" for i in range(40)]
        with Image.open(files[7]) as image:
            assert image.mode == "RGB"
            np.testing.assert_array_equal(np.asarray(image), shown.images[7].permute(1, 2, 0).numpy())


def test_images_of_others_are_not_replaced(demo, tmp_path):
    (tmp_path / "real").mkdir()
    Image.new("RGB", (9, 9)).save(tmp_path / "photo.png")
    for name, code in (("real/0000.png", "output-exists"), ("overview.png", "output-exists")):
        before = (tmp_path / "photo.png").rename(tmp_path / name).read_bytes()
        with raising(UsageError, code):
            save_sets(demo, tmp_path)
        assert (tmp_path / name).read_bytes() == before
        (tmp_path / name).rename(tmp_path / "photo.png")
    (tmp_path / "real" / "0001.png").symlink_to(tmp_path / "photo.png")
    with raising(UsageError, "output-is-link"):
        save_sets(demo, tmp_path, overwrite=True)


def test_folders_with_other_files_and_unwritable_folders_are_errors(demo, tmp_path):
    (tmp_path / "blurred").mkdir()
    (tmp_path / "blurred" / "holiday.png").touch()
    with pytest.raises(UsageError, match=r"such as holiday\.png"):
        save_sets(demo, tmp_path)
    with pytest.raises(ResourceError):
        save_sets(demo, tmp_path / "blurred" / "holiday.png" / "demo")
