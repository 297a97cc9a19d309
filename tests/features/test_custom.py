import copy
import os
import sys
import textwrap

import pytest
import torch
from raising import raising
from torch import nn

import genpr
from genpr.errors import ResourceError, UsageError
from genpr.features.custom import evaluation_mode, extractor_device, extractor_info, wrap_extractor
from genpr.features.extractor import PreparingExtractor
from genpr.features.registry import load_extractor
from genpr.features.user_code import running_file

NET = """
import torch
from torch import nn

class Net(nn.Module):
    dim = 3
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(2.0))
    def forward(self, images):
        return images.float().mean((2, 3)) * self.scale

def load():
    return Net()
"""


@pytest.fixture
def write(tmp_path):
    def write(name: str, source: str):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(source))
        return path

    return write


def load(path, factory="load"):
    return load_extractor(f"{path}:{factory}", device="cpu")


IMAGES = torch.arange(2 * 3 * 4 * 4).view(2, 3, 4, 4).to(torch.uint8)


# Loading


def test_factory_in_a_file_or_package_gives_an_extractor(write, tmp_path, monkeypatch):
    extractor = load(write("net.py", NET))
    assert torch.equal(extractor(IMAGES), IMAGES.float().mean((2, 3)) * 2)
    assert extractor.dim == 3
    assert extractor.name.endswith("net.py:load")
    info = extractor_info(extractor)
    assert (info.dim, info.resize, info.comparable) == (3, "unknown", False)
    assert not isinstance(extractor, PreparingExtractor)
    assert extractor_device(wrap_extractor(extractor.wrapped.to("meta"))) == torch.device("meta")
    own = load(write("own.py", NET.replace("dim = 3", "dim = 3; name = 'mine'; resize = 'bicubic-8'")))
    assert (own.info.name, own.info.resize) == ("mine", "bicubic-8")
    placed = load(write("placed.py", NET.replace("def load():", "def load(*, device):") + "\n"))
    assert placed.dim == 3
    for missing in (f"{write('net.py', NET).parent}/nowhere.py:load", "no_such_pkg.nets:load"):
        with raising(UsageError, "custom-extractor", r"no file|No module named"):
            load_extractor(missing, device="cpu")
    write("some_pkg/nets.py", NET)
    monkeypatch.syspath_prepend(tmp_path)
    assert load_extractor("some_pkg.nets:load", device="cpu").name == "some_pkg.nets:load"


def test_object_with_prepare_is_a_preparing_extractor(write):
    source = """
        import torch
        class Embed:
            dim = 3
            def prepare(self, image):
                return image[:, :2, :2].float()
            def forward(self, batch):
                return batch.mean((2, 3))
            def __call__(self, images):
                return self.forward(torch.stack([self.prepare(image) for image in images]))
    """
    extractor = load(write("net.py", source), "Embed")
    assert isinstance(extractor, PreparingExtractor)
    assert torch.equal(extractor.prepare(IMAGES[0]), IMAGES[0, :, :2, :2].float())
    assert torch.equal(extractor(IMAGES), IMAGES[:, :, :2, :2].float().mean((2, 3)))


# Modules next to the file


def test_modules_next_to_the_file_can_be_imported_without_side_effects(write):
    write("helper.py", "FACTOR = 5")
    write("parts/__init__.py", "from .inner import BIAS")
    write("parts/inner.py", "from helper import FACTOR\nBIAS = FACTOR + 2")
    write("loose/bit.py", "ONE = 1")
    source = NET.replace("import torch\n", "import torch, loose.bit\nfrom parts import BIAS\n", 1)
    write("torch/__init__.py", "raise RuntimeError('the wrong torch')")
    before, paths, finders = set(sys.modules), list(sys.path), list(sys.meta_path)
    extractor = load(write("net.py", source.replace("2.0", "float(BIAS + loose.bit.ONE)")))
    assert extractor(IMAGES)[0, 0] == IMAGES[0, 0].float().mean() * 8
    assert (sys.path, sys.meta_path) == (paths, finders)
    assert set(sys.modules) - before == set()


def test_recorded_sources_are_the_executed_ones(write):
    write("helper.py", "VALUE = 1")
    path = write("main.py", "import helper\ndef load():\n    return helper.VALUE\n")
    with running_file(path) as (module, sources):
        path.write_text("# edited while it was loading")
        assert module.load() == 1
    assert sources["helper"] == b"VALUE = 1"
    assert b"return helper.VALUE" in sources["_genpr_custom_main"]


# Errors: one line each


@pytest.mark.parametrize(
    ("source", "factory", "message"),
    [
        (NET, "laod", "no 'laod'; it has Net, load"),
        (NET + "\ncount = 3", "count", "'count' is a int, but a factory must be callable"),
        (NET + "\ndef bad(): raise ValueError('one\\ntwo')", "bad", "ValueError: one two"),
        ("def load(:", "load", "SyntaxError"),
        ("raise SystemExit('usage: train.py DATA')", "load", "SystemExit: usage: train.py DATA"),
        ("def load(): return 3", "load", "must be a callable from images to features, found int"),
        (NET.replace("dim = 3", ""), "load", "needs an integer attribute `dim`.* none"),
        (NET.replace("dim = 3", "dim = True"), "load", "found True"),
        (NET.replace("dim = 3", "dim = 0"), "load", "found 0"),
    ],
)
def test_invalid_custom_extractors_are_errors_of_one_line(source, factory, message, write):
    path = write("net.py", source)
    with pytest.raises(UsageError, match=message) as caught:
        load(path, factory)
    assert caught.value.code == "custom-extractor"
    assert "net.py" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("error", [SystemExit(0), StopIteration(), GeneratorExit(), KeyError()], ids=repr)
def test_whatever_a_user_s_object_raises_is_a_usage_error(error):
    def fail(*_):
        raise error

    attributes = {"dim": 3, "__call__": fail}
    for name in ("dim", "cache_key", "device"):
        failing = type("Failing", (), {**attributes, name: property(fail)})()
        with raising(UsageError, "custom-extractor"):
            extractor_device(failing)
            wrap_extractor(failing).info  # noqa: B018 - a property


def test_factory_without_memory_is_no_usage_error(write):
    path = write("net.py", "def load():\n    raise MemoryError")
    with raising(ResourceError, "oom"):
        load(path)


@pytest.mark.parametrize(
    ("device", "kind", "code"),
    [
        ("foo", UsageError, "unknown-device"),
        ("cuda", ResourceError, "no-cuda"),
        (torch.device("cuda", 1), ResourceError, "no-cuda"),
    ],
)
def test_device_of_an_extractor_must_exist(device, kind, code):
    extractor = wrap_extractor(Holder())
    extractor.wrapped.device = device
    with raising(kind, code):
        genpr.embed(IMAGES, extractor)


def test_network_on_meta_is_an_error():
    networks = Normed().to("meta"), Holder(), Normed()
    networks[1].net.to("meta")
    networks[2].register_buffer("late", torch.zeros(2, device="meta"))
    for extractor in networks:
        with raising(UsageError, "meta-device"):
            genpr.embed(IMAGES, extractor)
        assert getattr(extractor, "net", extractor).training


# The key of the cache


class Declared(nn.Module):
    dim, cache_key = 3, "first version"

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 3, 1)
        self.norm = nn.BatchNorm2d(3)
        self.register_buffer("mean", torch.zeros(3), persistent=False)

    def forward(self, images):
        return self.norm(self.conv(images.float())).mean((2, 3)) - self.mean


def test_without_a_declared_key_nothing_is_cached_but_weights_are_hashed():
    network = Declared()
    network.cache_key = None
    info = extractor_info(network)
    assert info.cache_key is None
    assert "cache_key" in info.uncached_reason
    assert info.weights_sha256 == extractor_info(network).weights_sha256 is not None


CHANGES = {
    "text": lambda network: setattr(network, "cache_key", "second version"),
    "weight": lambda network: network.conv.weight.data[1, 2].add_(1e-7),
    "buffer": lambda network: network.norm.running_var[2].fill_(1.5),
    "unsaved buffer": lambda network: network.mean[0].fill_(-1.0),
    "shape": lambda network: setattr(network, "mean", network.mean[None]),
}


@pytest.mark.parametrize("change", CHANGES)
def test_cache_key_changes_with_source_and_weights(change):
    network = Declared()
    first = extractor_info(network)
    CHANGES[change](network)
    second = extractor_info(network)
    assert None is not second.cache_key != first.cache_key
    assert (second.weights_sha256 == first.weights_sha256) is (change == "text")


def test_weights_that_cannot_be_hashed_have_no_key():
    network = nn.LazyLinear(4)
    network.dim, network.cache_key = 4, "lazy"
    info = extractor_info(network)
    assert (info.cache_key, info.weights_sha256) == (None, None)


def test_networks_in_lists_are_part_of_the_cache_key():
    class Holding(Declared):
        def __init__(self, seed):
            super().__init__()
            self.others = [{"a": nn.Conv2d(3, 3, 1)}]
            self.others.append(self.others)  # a cycle
            with torch.random.fork_rng():
                torch.manual_seed(seed)
                nn.init.normal_(self.others[0]["a"].weight)

    first = Holding(0)
    second = copy.deepcopy(first)
    assert extractor_info(first).cache_key == extractor_info(second).cache_key
    second.others[0]["a"].weight.data[0, 0] += 1
    assert extractor_info(first).cache_key != extractor_info(second).cache_key


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")
def test_network_with_packed_weights_is_not_cached():
    network = Declared()
    zeros = torch.quantize_per_tensor(torch.zeros(2, 2), 0.1, 0, torch.qint8)
    network.packed = torch.ops.quantized.linear_prepack(zeros, None)
    assert extractor_info(network).cache_key is None


class Averaging(Declared):
    """A network whose forward changes a buffer."""

    def forward(self, images):
        self.mean += images.float().mean((0, 2, 3))
        return images.float().mean((2, 3)) - self.mean


def test_features_of_a_network_that_changes_its_buffers_are_not_cached(sides, tmp_path):
    for _ in range(2):
        with raising(UsageError, "custom-extractor"):
            genpr.score(*sides, extractor=Averaging(), cache_dir=tmp_path / "cache")
    assert not [*tmp_path.rglob("*.safetensors")]


@pytest.mark.filterwarnings("ignore:.torch.jit", "ignore::DeprecationWarning")
def test_weights_of_torchscript_are_part_of_the_cache_key():
    keys = set[str | None]()
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        network = torch.jit.script(nn.Conv2d(3, 3, 1))
        network.dim, network.cache_key = 3, "scripted"
        keys.add(extractor_info(network).cache_key)
    assert len(keys - {None}) == 2


# Evaluation mode


class Normed(nn.Module):
    dim = 3

    def __init__(self):
        super().__init__()
        self.norm = nn.Sequential(nn.BatchNorm2d(3), nn.Dropout(0.5))
        self.frozen = nn.BatchNorm2d(3).eval()
        self.modes = []

    def forward(self, images):
        self.modes.append((self.training, torch.is_inference_mode_enabled()))
        return self.frozen(self.norm(images.float())).mean((2, 3))


class Holder:
    dim = 3

    def __init__(self):
        self.net = Normed()

    def __call__(self, images):
        return self.net(images)


class Listed(nn.Module):
    dim = 3

    def __init__(self):
        super().__init__()
        self.all = [Normed()]

    def forward(self, images):
        return self.all[0](images)


@pytest.mark.parametrize("wrap", [lambda extractor: extractor, wrap_extractor], ids=["raw", "adopted"])
@pytest.mark.parametrize("kind", [Normed, Holder, Listed])
def test_networks_run_in_evaluation_mode_and_are_restored(kind, wrap):
    extractor = kind()
    network = getattr(extractor, "net", extractor.all[0] if kind is Listed else extractor)
    wrapped = wrap(extractor)
    flags = [module.training for module in network.modules()]
    assert flags.count(False) == 1
    state = {name: value.clone() for name, value in network.state_dict().items()}
    with evaluation_mode(wrapped):
        whole = wrapped(IMAGES)
        single = wrapped(IMAGES[:1])
    assert network.modes == [(False, True), (False, True)]
    torch.testing.assert_close(whole[:1], single)
    assert [module.training for module in network.modules()] == flags
    assert not torch.is_inference_mode_enabled()
    assert all(torch.equal(value, state[name]) for name, value in network.state_dict().items())


@pytest.mark.filterwarnings("ignore:.torch.jit", "ignore::DeprecationWarning")
@pytest.mark.parametrize("kind", ["frozen", "exported"])
def test_networks_without_a_training_mode_are_extractors(kind):
    plain = Declared().eval()
    if kind == "frozen":
        network = torch.jit.freeze(torch.jit.trace(plain, IMAGES))
    else:
        network = torch.export.export(plain, (IMAGES,), dynamic_shapes=[{0: torch.export.Dim.AUTO}]).module()
    network.dim, network.cache_key = 3, "plain"
    torch.testing.assert_close(genpr.embed(IMAGES, network), plain(IMAGES).detach())
    assert (extractor_info(network).cache_key is None) == (kind == "frozen")


@pytest.mark.parametrize("where", ["factory", "forward"])
def test_working_folder_is_restored(write, where, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    place = "return Net()" if where == "factory" else "return images"
    path = write("net.py", NET.replace(place, f"import os; os.chdir('/'); {place}"))
    genpr.embed(IMAGES, load(path))
    assert os.getcwd() == str(tmp_path)  # noqa: PTH109
