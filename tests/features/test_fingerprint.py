from __future__ import annotations

import importlib
import sys
import textwrap

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from genpr.features.custom import extractor_info, wrap_extractor
from genpr.features.registry import load_extractor

NET = """
import torch
from torch import nn
from helper import act

class Net(nn.Module):
    dim = 3
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 3, 1)
        self.norm = nn.BatchNorm2d(3)
        self.register_buffer("mean", torch.zeros(3), persistent=False)
        self.gain = 0.5
        self.sizes = [(1, 2), {"a": 3.0}]
    def forward(self, images):
        return act(self.norm(self.conv(images.float()))).mean((2, 3)) * self.gain

def load():
    torch.manual_seed(0)
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


@pytest.fixture
def load(write):
    write("helper.py", "from deeper import OFFSET\ndef act(x):\n    return x.relu() + OFFSET\n")
    write("deeper.py", "OFFSET = 1.0")
    path = write("net.py", NET)

    def load(**files):
        for name, source in files.items():
            write(f"{name}.py", source)
        with torch.random.fork_rng():
            return load_extractor(f"{path}:load", device="cpu")

    return load


def key(extractor) -> str | None:
    return extractor_info(extractor).cache_key


def test_the_key_is_the_same_for_the_same_code_and_weights(load):
    first = key(load())
    assert len(first) == 64
    assert key(load()) == first


def test_the_key_does_not_depend_on_the_training_flag_or_on_having_run(load):
    extractor = load()
    first = key(extractor)
    extractor.wrapped.train()
    assert key(extractor) == first
    extractor.wrapped.eval()
    extractor(torch.zeros(1, 3, 4, 4, dtype=torch.uint8))
    assert key(extractor) == first


def change_weight(net):
    net.conv.weight.data[1, 2] += 1e-7


def change_buffer(net):
    net.norm.running_var[2] = 1.5


def change_unsaved_buffer(net):
    net.mean[0] = -1.0


def change_float(net):
    net.gain = 0.25


def change_nested_value(net):
    net.sizes[1]["a"] = 4.0


def change_float_of_a_part(net):
    net.norm.eps = 1e-3


def change_shape(net):
    net.mean = net.mean[None]


def change_type(net):
    net.sizes = tuple(net.sizes)


def add_unregistered_tensor(net):
    net.table = torch.eye(3)
    first = key(wrap_extractor(net))
    net.table[0, 1] = 1
    assert key(wrap_extractor(net)) != first


def exchange_a_part(net):
    net.norm.__class__ = type("Other", (nn.BatchNorm2d,), {"__module__": "torch.nn"})


@pytest.mark.parametrize(
    "change",
    [
        change_weight,
        change_buffer,
        change_unsaved_buffer,
        change_float,
        change_nested_value,
        change_float_of_a_part,
        change_shape,
        change_type,
        add_unregistered_tensor,
        exchange_a_part,
    ],
)
def test_a_change_of_state_changes_the_key(change, load):
    extractor = load()
    first = key(extractor)
    change(extractor.wrapped)
    assert None is not key(extractor) != first


@pytest.mark.parametrize(
    "files",
    [
        {"net": NET.replace("mean((2, 3))", "amax((2, 3))")},
        {"net": NET + "# a comment"},
        {"helper": "from deeper import OFFSET\ndef act(x):\n    return x.sigmoid() + OFFSET\n"},
        {"deeper": "OFFSET = 2.0"},
    ],
    ids=["file", "comment", "helper", "helper of the helper"],
)
def test_a_change_of_source_changes_the_key(files, load):
    first = key(load())
    assert None is not key(load(**files)) != first


def test_a_module_imported_by_a_computed_name_is_part_of_the_key(load):
    source = NET.replace(
        "from helper import act", "import importlib\nact = importlib.import_module('hel' + 'per').act"
    )
    first = key(load(net=source))
    changed = load(net=source, helper="def act(x):\n    return x.sigmoid()\n")
    assert None is not key(changed) != first


def test_a_value_read_from_a_file_at_import_is_part_of_the_key(load, write, tmp_path):
    data = write("gain.txt", "2.0")
    source = NET.replace("from helper", f"GAIN = float(open({str(data)!r}).read())\nfrom helper")
    source = source.replace("open(", "__import__('pathlib').Path(").replace(".read()", ".read_text()")
    first = key(load(net=source))
    write("gain.txt", "3.0")
    assert None is not key(load(net=source)) != first


def test_a_value_captured_by_a_method_is_part_of_the_key(load):
    source = """
        import os
        from torch import nn
        def load():
            gain = float(os.environ.get("NO_SUCH_VARIABLE", "1")) {more}
            class Net(nn.Module):
                dim = 3
                def forward(self, images):
                    return images.float().mean((2, 3)) * gain
            net = Net()
            net.same = 1
            return net
    """
    source = textwrap.dedent(source)
    first = load(net=source.format(more=""))
    again = load(net=source.format(more=""))
    assert key(first) == key(again)
    again.wrapped.forward.__func__.__closure__[0].cell_contents = 2.0
    assert None is not key(again) != key(first)


# Not cached, and why


class Opaque:
    pass


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (lambda x: x, "<lambda>, which cannot be found by its name"),
        (Opaque(), "extra is a Opaque, whose content cannot be hashed"),
        ([1, [Opaque()]], "extra is a Opaque"),
        (iter([1]), "extra is a list_iterator"),
        ([nn.Linear(1, 1)], "extra holds a network that is not a submodule"),
        (torch.Generator(), "extra is a Generator"),
    ],
)
def test_an_attribute_that_cannot_be_hashed_means_no_key(value, reason, load):
    extractor = load()
    extractor.wrapped.extra = value
    info = extractor_info(extractor)
    assert info.cache_key is None
    assert info.weights_sha256 is not None
    assert reason in info.uncached_reason


def test_a_hook_that_cannot_be_hashed_means_no_key(load):
    extractor = load()
    extractor.wrapped.conv.register_forward_hook(lambda *_: None)
    assert key(extractor) is None


def test_an_exchanged_forward_means_no_key(load):
    extractor = load()
    extractor.wrapped.forward = lambda images: images.float().mean((2, 3))
    assert key(extractor) is None


def test_a_patched_class_means_no_key(load):
    extractor = load()
    type(extractor.wrapped).forward = lambda self, images: images.float().mean((2, 3))
    assert key(extractor) is None


def test_a_network_among_the_globals_means_no_key(load):
    source = NET.replace("class Net", "TEACHER = nn.Linear(3, 3)\nclass Net")
    info = extractor_info(load(net=source))
    assert info.cache_key is None
    assert "TEACHER holds a network that is not a submodule" in info.uncached_reason


def test_a_lazy_parameter_means_no_key():
    network = nn.LazyLinear(4)
    network.dim = 4
    info = extractor_info(network)
    assert (info.cache_key, info.weights_sha256) == (None, None)


def test_functions_of_libraries_are_known_by_name(load):
    extractor = load()
    keys = {key(extractor)}
    for function in (F.relu, F.gelu, torch.relu, torch.tanh, nn.BatchNorm2d):
        extractor.wrapped.act = function
        keys.add(key(extractor))
    assert len(keys) == 6
    assert None not in keys


# Objects passed from Python


@pytest.fixture
def imported(write, tmp_path, monkeypatch):
    """A network of an ordinarily imported package, whose modules stay in sys.modules."""
    names = ("direct_pkg", "direct_pkg.nets", "direct_pkg.parts", "direct_pkg.later")
    write("direct_pkg/__init__.py", "")
    write("direct_pkg/parts.py", "def act(x):\n    from .later import act\n    return act(x)\n")
    write("direct_pkg/later.py", "def act(x):\n    return x.relu()\n")
    write("direct_pkg/nets.py", NET.replace("from helper", "from .parts"))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def imported():
        for name in names:
            sys.modules.pop(name, None)
        importlib.invalidate_caches()
        with torch.random.fork_rng():
            return importlib.import_module("direct_pkg.nets").load()

    yield imported
    for name in names:
        sys.modules.pop(name, None)


def test_the_key_of_an_object_covers_its_source_and_all_that_imports(imported, write):
    keys = [key(imported())]
    assert key(imported()) == keys[0]
    write("direct_pkg/later.py", "def act(x):\n    return x.sigmoid()\n")
    keys.append(key(imported()))
    write("direct_pkg/__init__.py", "import torch")
    keys.append(key(imported()))
    write("direct_pkg/nets.py", NET.replace("from helper", "from .parts").replace("amean", "amax") + "#")
    keys.append(key(imported()))
    assert None not in keys
    assert len(set(keys)) == 4


def test_the_key_stays_when_a_late_import_happens(imported):
    network = imported()
    first = key(network)
    network.eval()(torch.zeros(1, 3, 4, 4, dtype=torch.uint8))
    assert "direct_pkg.later" in sys.modules
    assert key(network) == first


def test_a_source_edited_after_the_import_means_no_key(imported, write):
    network = imported()
    write(
        "direct_pkg/nets.py",
        NET.replace("from helper", "from .parts").replace("mean((2, 3))", "amax((2, 3))"),
    )
    info = extractor_info(network)
    assert info.cache_key is None
    assert "was it edited or replaced after the import" in info.uncached_reason


def test_a_network_of_torch_alone_is_known_by_version_and_state():
    networks = [nn.Sequential(nn.Flatten(), nn.Linear(12, 2)) for _ in range(2)]
    for network in networks:
        network.dim = 2
    assert key(networks[0]) != key(networks[1])
    networks[1].load_state_dict(networks[0].state_dict())
    assert None is not key(networks[0]) == key(networks[1])
