import hashlib

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from raising import raised, raising
from random_weights import random_state

from genpr.errors import UsageError, WeightsError
from genpr.features.custom import extractor_info
from genpr.features.known_weights import DINOV2
from genpr.features.networks import timm_models
from genpr.features.networks.timm_models import feature_dim, published_weights
from genpr.features.registry import BUILT_IN, ExtractorName, load_extractor
from genpr.features.weights import hub_file, load_any_weights, weights_folder

MODEL = "test_vit.r160_in1k"
DEPTHS, HEADS = {"s": 12, "b": 12, "l": 24, "g": 40}, {"s": 6, "b": 12, "l": 16, "g": 24}


def save(state, path):
    from safetensors.torch import save_file

    save_file(state, path)
    return path


def state_of(model: str) -> dict[str, torch.Tensor]:
    """Random weights of a model with its classifier."""
    import timm

    with torch.device("meta"):
        shapes = timm.create_model(model).state_dict()
    return random_state(shapes)


@pytest.fixture(scope="module", params=[MODEL, "test_resnet.r160_in1k", "test_convnext.r160_in1k"])
def model(request) -> str:
    return request.param


@pytest.fixture(scope="module")
def state(model):
    return state_of(model)


@pytest.fixture
def weights(state, tmp_path):
    return save(state, tmp_path / "mine.safetensors")


def test_features_equal_timm_without_a_classifier_for_any_default_type(
    model, state, weights, images, request
):
    import timm
    from PIL import Image

    network = timm.create_model(model, num_classes=0).eval()
    network.load_state_dict({key: state[key] for key in network.state_dict()})
    transform = timm.data.create_transform(**timm.data.resolve_model_data_config(network), is_training=False)
    batch = torch.stack([transform(Image.fromarray(image.permute(1, 2, 0).numpy())) for image in images])
    with torch.inference_mode():
        expected = network(batch)
    extractor = load_extractor(f"timm:{model}", weights=weights, device="cpu")
    features = extractor(images)
    request.addfinalizer(lambda: torch.set_default_dtype(torch.float32))
    torch.set_default_dtype(torch.bfloat16)
    loaded = load_extractor(f"timm:{model}", weights=weights, device="cpu")
    assert torch.equal(loaded(images), features)
    assert torch.equal(extractor(images), features)
    torch.set_default_dtype(torch.float32)
    assert torch.equal(loaded(images), features)
    assert expected.std() > 0
    assert (expected[0] - expected[1]).abs().max() > 0.01 * expected.abs().max()
    torch.testing.assert_close(features, expected, rtol=0, atol=1e-5 * float(expected.max() - expected.min()))
    info = extractor_info(extractor)
    assert (info.name, info.dim) == (f"timm:{model}", features.shape[1])
    assert info.resize in {"timm-bicubic-0.95-160", "timm-bilinear-0.95-160"}
    assert info.weights_sha256 == hashlib.sha256(weights.read_bytes()).hexdigest()
    assert not info.comparable, "weights of a user's file are not verified"


def described(features: torch.Tensor, network, pooling: str) -> torch.Tensor:
    if features.ndim == 4:
        return features.mean((1, 2) if network.default_cfg["architecture"] == "test_mambaout" else (2, 3))
    pooled = {"cls": features[:, 0], "mean": features[:, network.num_prefix_tokens :].mean(1)}
    return network.attn_pool(features) if pooling == "map" else pooled[pooling]


@pytest.mark.parametrize(
    ("model", "poolings", "side"),
    [
        ("test_vit", "cls mean", None),
        ("test_vit", "cls mean", 100),
        ("test_vit3", "mean map", 160),
        ("test_vit3", "mean map", 100),
        ("test_vit_relpos", "mean", None),  # no prefix token
        ("test_convnext", "mean", None),
        ("test_resnet", "mean", 100),
        ("test_mambaout", "mean", 160),  # channels last
    ],
)
def test_size_and_pooling_equal_those_of_fd_loss(model, poolings, side, tmp_path, rng, monkeypatch):
    import timm

    if not timm.is_model(model):
        pytest.skip(f"this release of timm has no {model}")
    monkeypatch.setattr(timm_models, "published_weights", lambda _: FILES)
    state = state_of(model)
    weights = save(state, tmp_path / "mine.safetensors")
    any_side = {} if poolings == "mean" else {"dynamic_img_size": True, "dynamic_img_pad": True}
    network = timm.create_model(model, num_classes=0, **any_side).eval()
    network.load_state_dict({key: state[key] for key in network.state_dict()})
    images = torch.from_numpy(rng.integers(0, 256, (3, 3, 100, 100), dtype=np.uint8))
    shown, config = images / 255, timm.data.resolve_model_data_config(network)
    if side != 100:
        shown = F.interpolate(shown, (side or 160,) * 2, mode="bicubic", antialias=True)
    mean, std = (torch.tensor(config[each]).view(3, 1, 1) for each in ("mean", "std"))
    keys = set()
    for pooling in poolings.split():
        with torch.inference_mode():
            expected = described(network.forward_features((shown - mean) / std), network, pooling)
        variants = [f"timm:{model}", *([str(side)] if side else []), pooling, "torch-bicubic-antialias"]
        extractor = load_extractor("@".join(variants), weights=weights, device="cpu")
        spread = float(expected.max() - expected.min())
        torch.testing.assert_close(extractor(images), expected, rtol=0, atol=1e-5 * spread)
        assert (extractor.info.name, extractor.dim) == ("@".join(variants), expected.shape[1])
        keys.add(extractor.info.cache_key)
    assert len(keys) == len(poolings.split())


@pytest.mark.parametrize(
    ("model", "variant", "has"),
    [
        ("test_vit", "map", "has cls and mean"),
        ("test_resnet", "cls", "has mean"),
        ("pvt_v2_b0", "cls", "has mean"),
        ("test_vit3", "cls", "has mean and map"),  # its prefix token is a register
        ("pit_ti_224", "mean", "has none"),
        ("convit_tiny", "160", "160 x 160 pixels"),
    ],
)
def test_unsupported_pooling_and_size_are_errors(model, variant, has, tmp_path):
    weights = save(state_of(model), tmp_path / "w.safetensors")
    with raising(UsageError, "unsupported-model", has):
        load_extractor(f"timm:{model}@{variant}", weights=weights, device="cpu")


def test_weights_without_a_published_hash_are_reported(tmp_path, sides):
    import genpr

    (entry, *_) = published_weights(MODEL)
    weights_folder().mkdir(mode=0o700)
    path = save(state_of(MODEL), weights_folder() / entry.name)
    options = {"device": "cpu", "intervals": False, "control": False, "k": 1}
    result = genpr.score(*sides, extractor=f"timm:{MODEL}", **options)
    (unpinned,) = (item for item in result.notices if item.code == "weights-unpinned")
    assert hashlib.sha256(path.read_bytes()).hexdigest() in unpinned.message
    found = {}
    for variants in ("@cls@torch-bicubic-antialias", "@torch-bicubic-antialias", "@cls@clip"):
        found[variants] = load_extractor(f"timm:{MODEL}{variants}", device="cpu").info.comparable
    assert [*found.values()] == [True, False, False], "FD-loss names the first only"
    own = genpr.score(
        *sides, extractor=f"timm:{MODEL}", weights=path.rename(tmp_path / "x.safetensors"), **options
    )
    assert own.extractor.weights_sha256 == result.extractor.weights_sha256
    plain = genpr.score(*sides, extractor="pixels", **options)
    assert not {item.code for item in (*own.notices, *plain.notices)} & {"weights-unpinned"}


@pytest.mark.parametrize("change", ["missing", "other"])
def test_mismatched_weights_are_an_error(change, tmp_path):
    state = state_of(MODEL if change == "missing" else "test_vit2.r160_in1k")
    state.pop("norm.bias" if change == "missing" else "head.bias")
    with raising(WeightsError, "weights-mismatch", r"not match timm:test_vit\.r160_in1k"):
        load_extractor(f"timm:{MODEL}", weights=save(state, tmp_path / "w.safetensors"), device="cpu")


def test_models_need_square_rgb_input_and_vector_output():
    import timm

    network = timm.create_model("test_vit", num_classes=0)
    network.pretrained_cfg["input_size"] = (3, 160, 128)
    with pytest.raises(UsageError, match="supported are squares"):
        timm_models.input_rule(ExtractorName("timm:test_vit"), network)
    network = timm.create_model("test_vit", num_classes=0, global_pool="")
    with pytest.raises(UsageError, match="one vector per image"):
        feature_dim(network, 160, "test_vit")


FILES = tuple(hub_file("org/x", file, license="MIT") for file in ("model.safetensors", "pytorch_model.bin"))


def test_first_available_file_is_used():
    weights_folder().mkdir(mode=0o700)
    for file in reversed(FILES):
        path = weights_folder() / file.name
        (save if path.suffix == ".safetensors" else torch.save)({path.suffix: torch.zeros(1)}, path)
        tensors, _, is_published, _ = load_any_weights(FILES)
        assert (list(tensors), is_published) == ([path.suffix], True)


def test_file_with_a_wrong_hash_is_not_replaced_by_another(tmp_path):
    weights_folder().mkdir(mode=0o700)
    (weights_folder() / FILES[0].name).write_bytes(b"a page")
    torch.save({"x": torch.zeros(2)}, weights_folder() / FILES[1].name)
    assert raised(WeightsError, load_any_weights, FILES).code == "weights-format"


@pytest.mark.parametrize("letter", DINOV2)
def test_networks_of_dinov2_equal_the_catalog(letter):
    import timm

    name = f"dinov2-vit{letter}14"
    known = BUILT_IN[name]
    with torch.device("meta"):
        network = timm.create_model(timm_models._DINOV2[name], num_classes=0, img_size=known.side).eval()
    assert known.weights == DINOV2[letter]
    assert feature_dim(network, known.side, name) == known.dim
    assert (network.global_pool, network.patch_embed.grid_size) == ("token", (16, 16))
    assert (len(network.blocks), network.blocks[0].attn.num_heads) == (DEPTHS[letter], HEADS[letter])
    assert (network.norm.eps, network.blocks[0].norm1.eps) == (1e-6, 1e-6)
