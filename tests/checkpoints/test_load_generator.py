import hashlib
import textwrap

import pytest
import torch
from raising import raising
from torch import nn

import genpr
from genpr.checkpoints.generator import load_generator
from genpr.errors import GenprError, UsageError

NET = """
from pathlib import Path
import torch
from torch import nn

class Net(nn.Module):
    z_dim = 12
    def __init__(self, scale=1.0):
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(scale))
    def forward(self, latents, psi):
        return (latents * psi * self.scale).view(-1, 3, 2, 2)

def load(checkpoint=None):
    return Net() if checkpoint is None else Net(float(Path(checkpoint).read_text()))

def must(checkpoint):
    return load(checkpoint)

def never():
    return Net()

def placed(checkpoint=None, *, device):
    net = load(checkpoint)
    net.given = str(device)
    return net
"""


@pytest.fixture
def write(tmp_path):
    def write(name, source):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(source))
        return path

    return write


def test_factory_receives_the_checkpoint(write):
    checkpoint = write("a.txt", "2.5")
    loaded = load_generator(f"{write('net.py', NET)}:load", checkpoint)
    assert loaded.generator.scale == 2.5
    assert loaded.checkpoint == checkpoint
    assert loaded.checkpoint_sha256 == hashlib.sha256(b"2.5").hexdigest()
    without = load_generator(f"{write('net.py', NET)}:load")
    assert without.generator.scale == 1
    assert (without.checkpoint, without.checkpoint_sha256) == (None, None)
    assert without.code_sha256 == loaded.code_sha256
    assert len(loaded.code_sha256) == 64


def test_factory_may_be_in_a_package_or_be_a_class(write, tmp_path, monkeypatch):
    write("own_generators/__init__.py", "")
    write("own_generators/nets.py", NET)
    monkeypatch.syspath_prepend(tmp_path)
    assert isinstance(load_generator("own_generators.nets:Net").generator, nn.Module)
    assert load_generator("own_generators.nets:load", write("a.txt", "2.5")).generator.scale == 2.5
    assert load_generator("own_generators.nets:load").code_sha256 is None


def test_sampler_identity_contains_code_checkpoint_and_weights(write):
    path = write("net.py", NET)
    spec = f"{path}:load"

    def identity(scale):
        loaded = genpr.load_generator(spec, write("a.txt", scale))
        return genpr.Sampler.of(loaded, n=6, image_range=(-3, 3)).identity

    one = identity("2.5")
    assert one == identity("2.5")
    assert (one["name"], one["latent_dim"]) == (spec, 12)
    assert one["checkpoint"] == hashlib.sha256(b"2.5").hexdigest()
    same_weights = identity("2.50")
    assert same_weights["weights"] == one["weights"]
    assert same_weights["checkpoint"] != one["checkpoint"]
    path.write_text(path.read_text().replace("latents * psi", "latents / psi"))
    edited = identity("2.5")
    assert edited["code"] != one["code"]
    images = genpr.Sampler.of(load_generator(spec), n=6, image_range=(-3, 3), name="mine").images(0.5)
    assert torch.cat(list(images)).shape == (6, 3, 2, 2)
    assert images.name == "mine at psi=0.5"


def test_folder_is_hashed_by_names_and_contents(tmp_path, write):
    spec = f"{write('net.py', 'def load(folder): return print')}:load"
    digests = []
    for name, text in (("config", "2"), ("config", "3"), ("config", "2"), ("settings", "2")):
        for each in tmp_path.glob("model/*.json"):
            each.unlink()
        write("model/unet/weights", "1")
        write(f"model/{name}.json", text)
        digests.append(load_generator(spec, tmp_path / "model").checkpoint_sha256)
    assert digests[0] == digests[2]
    assert len({*digests}) == 3


@pytest.mark.parametrize(
    ("source", "factory", "checkpoint", "code"),
    [
        (NET, "laod", None, "custom-generator"),
        (NET, "must", None, "custom-generator"),
        (NET, "never", "2.5", "custom-generator"),
        ("def load(): return 3", "load", None, "custom-generator"),
        ("count = 3", "count", None, "custom-generator"),
        ("import no_such_library", "load", None, "custom-generator"),
        ("raise SystemExit('usage: train.py')", "load", None, "custom-generator"),
        (NET, "load", "many", "checkpoint-failed"),
        ("def load():\n    import genpr\n    raise genpr.DataError('', code='own')", "load", None, "own"),
    ],
)
def test_invalid_generators_are_errors_of_one_line(source, factory, checkpoint, code, write):
    spec = f"{write('net.py', source)}:{factory}"
    with pytest.raises(GenprError) as caught:
        load_generator(spec, checkpoint and write("a.txt", checkpoint))
    assert caught.value.code == code
    assert code == "own" or str(caught.value).startswith(f"generator {spec!r}")


def test_missing_checkpoint_is_an_error_and_factory_receives_the_device(write, tmp_path):
    path = write("net.py", NET)
    with raising(UsageError, "no-checkpoint"):
        load_generator(f"{path}:load", tmp_path / "nowhere.pt")
    assert load_generator(f"{path}:placed", device="cpu").generator.given == "cpu"
