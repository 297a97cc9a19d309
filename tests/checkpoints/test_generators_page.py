"""The code of docs/generators.md runs, with fewer images."""

import pickle
import re
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from genpr.checkpoints.generator import RULES, Sampler

PAGE = (Path(__file__).parents[2] / "docs" / "generators.md").read_text()
FENCED = re.findall(r'^```python(?: title="(\S+)")?\n(.*?)^```$', PAGE, re.MULTILINE | re.DOTALL)


class StyleGAN(nn.Module):
    """A network with the interface of StyleGAN, whose labels are a required argument, with random noise inputs."""

    z_dim = 16

    def forward(self, z, c, truncation_psi=1, noise_mode="random"):
        assert c is None
        noise = 0.1 * torch.randn(len(z), 3, 2, 2)
        return truncation_psi * z[:, :12].view(-1, 3, 2, 2) / 2 + noise


class Pipe:
    """A pipeline with the interface of diffusers."""

    device = torch.device("cpu")

    def __call__(self, *, class_labels, latents, guidance_scale, output_type):
        assert latents.shape[1:] == (4, 32, 32)
        assert output_type == "np"
        pixels = (latents[:, :3, :8, :8] * guidance_scale + class_labels[:, None, None, None]).sigmoid()
        return SimpleNamespace(images=pixels.permute(0, 2, 3, 1).numpy())


@pytest.fixture(scope="module")
def names(tmp_path_factory):
    """Names that are defined after all code of the page ran in order."""
    folder = tmp_path_factory.mktemp("page")
    (folder / "network.pkl").write_bytes(pickle.dumps({"G_ema": StyleGAN()}))
    names = {"pipe": Pipe()}
    found, printed = [], StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(printed):
        patch.chdir(folder)
        for file, text in FENCED:
            code = text.replace("200", "50")
            if file:
                (folder / file).write_text(code)
            else:
                exec(compile(code, "generators.md", "exec"), names)
                if not found or found[-1][0] is not names["sampler"]:
                    found.append((names["sampler"], names.get("images")))
    return {"found": found, "printed": printed.getvalue(), **names}


def test_first_example_prints_three_scores(names):
    rows = [[float(value) for value in line.split()] for line in names["printed"].splitlines()]
    assert [row[0] for row in rows] == [1.0, 0.7, 0.4]
    assert rows[0][2] > rows[2][2]


def test_stylegan_is_truncated_with_constant_noise(names):
    sampler, images = names["found"][2]
    assert isinstance(sampler, Sampler)
    at_07, at_0 = torch.cat(list(images)), torch.cat(list(sampler.images(0.0)))
    assert torch.equal(torch.cat(list(images)), at_07)
    assert at_0.float().std(0).mean() < 20 < at_07.float().std(0).mean()
    noise = at_0.float() - 127.5
    assert torch.corrcoef(torch.stack([noise.flatten(), at_07.float().flatten()]))[0, 1] > 0.15


def test_pipeline_receives_guidance_and_labels(names):
    sampler, images = names["found"][3]
    drawn = torch.cat(list(images))
    noise = sampler.latents.view(-1, 4, 32, 32)[:, :3, :8, :8]
    expected = (noise * 3 + (torch.arange(50) % 10)[:, None, None, None]).sigmoid()
    levels = (expected * 255 + 0.5).to(torch.uint8)
    assert (drawn.int() - levels.int()).abs().max() <= 1  # a sigmoid may round otherwise in other company
    assert (drawn == levels).float().mean() > 0.999


def test_page_names_every_truncation_rule():
    assert set(re.findall(r"^\| `(z-\w+)`", PAGE, re.MULTILINE)) == set(RULES)
