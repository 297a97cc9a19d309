import numpy as np
import pytest
import torch
from PIL import Image
from raising import raised, raising
from torch import Tensor

from genpr.demo import KINDS, DemoSet, ShapesGenerator, build_demo, draw_latents, save_sets
from genpr.errors import ResourceError, UsageError

TWO = ShapesGenerator(kinds=("disc", "square"))


@pytest.fixture(scope="module")
def draw() -> ShapesGenerator:
    return ShapesGenerator()


@pytest.fixture(scope="module")
def demo() -> tuple[DemoSet, ...]:
    return build_demo(n=40, seed=3)


def with_kind(latents: Tensor, kind: str) -> Tensor:
    """The same latents, with `kind` chosen clearly."""
    chosen = latents.clone()
    chosen[:, : len(KINDS)] = -1
    chosen[:, KINDS.index(kind)] = 1
    return chosen


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


def test_saved_sets_equal_the_images(demo, tmp_path):
    save_sets(demo, tmp_path / "demo")
    for shown in demo:
        files = sorted((tmp_path / "demo" / shown.name).iterdir())
        assert [path.name for path in files] == [f"{i:04d}.png" for i in range(40)]
        with Image.open(files[7]) as image:
            assert image.mode == "RGB"
            np.testing.assert_array_equal(np.asarray(image), shown.images[7].permute(1, 2, 0).numpy())
    with raising(UsageError, "folder-not-empty"):
        save_sets(demo, tmp_path / "demo")
    with pytest.raises(ResourceError):
        save_sets(demo, tmp_path / "demo" / "real" / "0000.png" / "demo")
