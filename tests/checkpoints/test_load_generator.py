from __future__ import annotations

import hashlib
import textwrap

import pytest
import torch
from raising import raising
from torch import nn

import genpr
from genpr.checkpoints.generator import checkpoint_sha256, load_generator
from genpr.errors import DataError, GenprError, UsageError

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


def test_a_factory_is_given_the_checkpoint(write):
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


def test_a_factory_in_a_package_and_a_class_are_factories_too(write, tmp_path, monkeypatch):
    write("own_generators/__init__.py", "")
    write("own_generators/nets.py", NET)
    monkeypatch.syspath_prepend(tmp_path)
    assert isinstance(load_generator("own_generators.nets:Net").generator, nn.Module)
    assert load_generator("own_generators.nets:load", write("a.txt", "2.5")).generator.scale == 2.5
    assert load_generator("own_generators.nets:load").code_sha256 is None


def test_a_factory_that_wants_the_device_gets_it(write):
    assert load_generator(f"{write('net.py', NET)}:placed", device="cpu").generator.given == "cpu"


def test_a_sampler_takes_what_was_loaded_and_knows_where_it_came_from(write):
    path = write("net.py", NET)
    spec = f"{path}:load"

    def identity(scale):
        return genpr.Sampler.of(
            genpr.load_generator(spec, write("a.txt", scale)), n=6, image_range=(-3, 3)
        ).identity

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


def test_a_folder_is_hashed_by_names_and_contents(tmp_path):
    folder = tmp_path / "model"
    (folder / "unet").mkdir(parents=True)
    (folder / "unet" / "weights").write_bytes(b"1")
    (folder / "config").write_bytes(b"2")
    before = checkpoint_sha256(folder)
    assert checkpoint_sha256(folder) == before
    (folder / "config").write_bytes(b"3")
    assert checkpoint_sha256(folder) != before
    (folder / "config").write_bytes(b"2")
    assert checkpoint_sha256(folder) == before
    (folder / "config").rename(folder / "settings")
    assert checkpoint_sha256(folder) != before


@pytest.mark.parametrize(
    ("source", "factory", "checkpoint", "said"),
    [
        (NET, "laod", None, "no 'laod' in it; it defines Net, load, must, never, placed"),
        (
            NET,
            "must",
            None,
            r"given no checkpoint, which does not fit .*\(missing a required argument: 'checkp",
        ),
        (NET, "never", "2.5", "given the path of a checkpoint, which does not fit .*too many positional"),
        ("def load(): return 3", "load", None, "must be callable, latents in and images out, or have"),
        ("def load(): return", "load", None, "but is a NoneType"),
        ("count = 3", "count", None, "'count' is a int, but a factory must be callable"),
        ("import no_such_library", "load", None, "ModuleNotFoundError"),
        ("raise SystemExit('usage: train.py')", "load", None, "SystemExit: usage: train.py"),
    ],
)
def test_what_is_wrong_with_a_generator_is_said_in_one_line(source, factory, checkpoint, said, write):
    path = write("net.py", source)
    with pytest.raises(UsageError, match=said) as caught:
        load_generator(f"{path}:{factory}", checkpoint and write("a.txt", checkpoint))
    assert caught.value.code == "custom-generator"
    assert str(caught.value).startswith(f"generator '{path}:{factory}'")
    assert "\n" not in str(caught.value)


def test_a_checkpoint_that_the_factory_cannot_read_is_bad_data(write):
    path = write("net.py", NET)
    with pytest.raises(DataError, match=r"could not be loaded from .*a\.txt: ValueError: .*'many'") as caught:
        load_generator(f"{path}:load", write("a.txt", "many"))
    assert caught.value.code == "checkpoint-failed"
    assert str(caught.value).startswith(f"generator '{path}:load'")


@pytest.mark.parametrize("spec", ["net.py", "net.py:", ":load", "", "some.package"])
def test_a_spec_names_a_place_and_a_factory(spec):
    with pytest.raises(UsageError, match=r"expected path/to/file\.py:factory or package\.module:factory"):
        load_generator(spec)


def test_missing_files_and_packages_are_named(tmp_path, write):
    with pytest.raises(UsageError, match=r"generator .* there is no file .*nowhere\.py"):
        load_generator(f"{tmp_path / 'nowhere.py'}:load")
    with pytest.raises(UsageError, match="No module named 'no_such_pkg'"):
        load_generator("no_such_pkg:load")
    with raising(UsageError, "no-checkpoint"):
        load_generator(f"{write('net.py', NET)}:load", tmp_path / "nowhere.pt")


def test_errors_of_genpr_inside_a_factory_keep_their_code(write):
    source = """
        from genpr.errors import WeightsError
        def load():
            raise WeightsError("no weights", code="weights-missing")
    """
    with pytest.raises(GenprError) as caught:
        load_generator(f"{write('net.py', source)}:load")
    assert (caught.value.code, caught.value.exit_code) == ("weights-missing", 4)


def test_an_object_with_mapping_and_synthesis_is_a_generator(write):
    source = """
        class Style:
            z_dim = 12
            def mapping(self, z):
                return z
            def synthesis(self, w):
                return w.view(-1, 3, 2, 2)
    """
    loaded = load_generator(f"{write('net.py', source)}:Style")
    assert genpr.Sampler.of(loaded, n=4, image_range=(-3, 3)).rule == "w-interpolate"
