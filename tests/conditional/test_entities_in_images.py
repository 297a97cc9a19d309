"""Entities of a vocabulary recognized in images, by toy detectors and encoders whose answers are known."""

import numpy as np
import pytest
import torch
from torch import nn

import genpr
from genpr import DataError, UsageError, Vocabulary
from genpr.conditional.classifiers import ZeroShot, found_entities, named_in, presence_scores
from genpr.errors import BadImagesError, WeightsError
from genpr.features.detectors import TorchvisionDetector, build_detector, load_detector
from genpr.features.weights.known import WeightsFile
from genpr.metrics.presence import calibrate

COLORS = {"red": (255, 0, 0), "green": (0, 255, 0), "blue": (0, 0, 255)}


def painted(*names, side=12):
    """An image (h, w, 3) with a stripe of each color."""
    image = np.zeros((side, side, 3), np.uint8)
    for place, name in enumerate(names):
        image[:, 3 * place : 3 * place + 3] = COLORS[name]
    return image


class StripeDetector:
    """Sees a color as surely as a stripe of it is wide."""

    names = ("red", "green", "blue")

    def __call__(self, images):
        pixels = [image.float().flatten(1) / 255 for image in images]
        return torch.stack([each.mean(dim=1) * 2 for each in pixels])


class MeanColor:
    """An image encoder into the space of colors."""

    name = "mean-color"
    dim = 3

    def __call__(self, images):
        return images.float().mean(dim=(2, 3)) / 255


def encode_text(texts):
    """The text encoder of the same space."""
    return torch.stack(
        [
            sum((torch.tensor(COLORS[name]) for name in COLORS if name in text), torch.zeros(3))
            for text in texts
        ]
    )


IMAGES = [("red",), ("red", "blue"), (), ("green", "blue"), ("blue",)]


def folder(write_images):
    return write_images("images", np.stack([painted(*names) for names in IMAGES]))


def test_detector_finds_entities_by_name_and_alias(write_images):
    vocabulary = Vocabulary.of({"crimson": ["red"], "blue": []})
    found = found_entities(folder(write_images), vocabulary, StripeDetector(), batch_size=2)
    wanted = [
        tuple({"red": "crimson"}.get(name, name) for name in names if name != "green") for names in IMAGES
    ]
    assert list(found.found.values()) == wanted
    assert next(iter(found.found)) == "00000.png"
    assert found.scores.shape == (5, 2)
    assert (
        found_entities(
            folder_again(found, write_images), vocabulary, StripeDetector(), thresholds=0.9
        ).present.sum()
        == 0
    )


def folder_again(found, write_images):
    return write_images("again", np.stack([painted(*names) for names in IMAGES]))


def test_found_entities_are_scored(write_images):
    vocabulary = Vocabulary.of(list(COLORS))
    found = found_entities(folder(write_images), vocabulary, StripeDetector())
    expected = dict(zip(found.found, [["red", "green"], ["red"], ["red"], ["blue"], ["blue"]], strict=True))
    result = genpr.score_entities(expected, found.found, vocabulary=vocabulary)
    assert result["entity.recall"] == pytest.approx((0.5 + 1 + 0 + 1 + 1) / 5)
    assert result["entity.precision"] == pytest.approx((1 + 0.5 + 0.5 + 1) / 4)


def test_classes_that_are_one_entity_are_joined():
    vocabulary = Vocabulary.of({"warm": ["red", "green"], "blue": []})
    _, scores = presence_scores(np.stack([painted("green"), painted("blue")]), vocabulary, StripeDetector())
    assert (scores > 0.3).tolist() == [[True, False], [False, True]]


def test_entities_without_a_class_are_refused():
    with pytest.raises(UsageError, match=r"no class for 1 of 2 entities \(unicorn\)") as caught:
        found_entities(np.zeros((1, 8, 8, 3), np.uint8), Vocabulary.of(["red", "unicorn"]), StripeDetector())
    assert caught.value.code == "unseen-entities"


def test_zero_shot_with_calibrated_thresholds(rng):
    vocabulary = Vocabulary.of(list(COLORS))
    clip = ZeroShot(MeanColor(), encode_text, ("a photo of {}.", "{}"))
    kinds = [[name for name in COLORS if rng.random() < 0.5] or ["red"] for _ in range(80)]
    images = np.stack([painted(*names) for names in kinds])
    prompts = [f"a picture that is {' and '.join(names)}" for names in kinds]
    _, scores = presence_scores(images, vocabulary, clip)
    present = named_in(prompts, vocabulary)
    assert present.tolist() == [[name in names for name in COLORS] for names in kinds]
    thresholds = calibrate(scores, present)
    assert thresholds.sensitivity.min() == 1
    fresh = np.stack([painted(*names) for names in IMAGES if names])
    found = found_entities(fresh, vocabulary, clip, thresholds=thresholds)
    assert [set(each) for each in found.found.values()] == [set(names) for names in IMAGES if names]


def test_cosines_need_a_calibration():
    clip = ZeroShot(MeanColor(), encode_text)
    with pytest.raises(UsageError, match="calibrate") as caught:
        found_entities(np.ones((1, 8, 8, 3), np.uint8), Vocabulary.of(list(COLORS)), clip)
    assert caught.value.code == "no-thresholds"
    with pytest.raises(DataError, match="zero for a name"):
        clip.texts(["purple"])


def test_unusable_images_are_told_together(write_images, tmp_path):
    path = folder(write_images)
    for name in ("x.png", "y.png"):
        (path / name).write_bytes(b"no image")
    with pytest.raises(BadImagesError) as caught:
        found_entities(path, Vocabulary.of(list(COLORS)), StripeDetector(), batch_size=1)
    assert len(caught.value.bad) == 2


def test_progress_is_told():
    told = []
    images = np.zeros((5, 8, 8, 3), np.uint8)
    presence_scores(
        images,
        Vocabulary.of(list(COLORS)),
        StripeDetector(),
        batch_size=2,
        progress=lambda *now: told.append(now[0]),
    )
    assert told == [1, 2, 3, 4, 5]


class ToyNetwork(nn.Module):
    """Gives boxes as torchvision's detectors do."""

    def forward(self, images):
        found = []
        for image in images:
            assert image.dtype == torch.float32
            assert image.max() <= 1
            bright = float(image.mean())
            found.append(
                {"labels": torch.tensor([1, 3, 1, 2]), "scores": torch.tensor([0.2, 0.9, bright, 0.8])}
            )
        return found


def test_highest_score_of_each_class_counts():
    detector = TorchvisionDetector(ToyNetwork(), ["__background__", "cat", "N/A", "dog"], torch.device("cpu"))
    assert detector.names == ("cat", "dog")
    scores = detector(
        [torch.full((3, 4, 4), 255, dtype=torch.uint8), torch.zeros(3, 6, 4, dtype=torch.uint8)]
    )
    assert scores.numpy() == pytest.approx(np.array([[1.0, 0.9], [0.2, 0.9]]))


def test_detectors_are_never_downloaded_offline():
    with pytest.raises(WeightsError) as caught:
        load_detector(offline=True)
    assert caught.value.code == "weights-missing"
    with pytest.raises(UsageError, match="no detector 'yolo'"):
        load_detector("yolo")


def test_other_weights_are_refused(tmp_path):
    path = tmp_path / "fasterrcnn_resnet50_fpn_v2_coco-dd69338a.pth"
    torch.save({"x": torch.zeros(2)}, path)
    with pytest.raises(WeightsError) as caught:
        load_detector(weights=path)
    assert caught.value.code == "weights-hash"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["fasterrcnn_resnet50_fpn_v2", "retinanet_resnet50_fpn_v2"])
def test_torchvision_detectors_load_and_run(tmp_path, name):
    from torchvision.models import get_model, get_model_weights

    from genpr.features.weights.files import load_weights

    torch.manual_seed(0)
    categories = get_model_weights(name).DEFAULT.meta["categories"]
    network = get_model(name, weights=None, weights_backbone=None, num_classes=len(categories))
    path = tmp_path / "random.pth"
    torch.save(network.state_dict(), path)
    entry = WeightsFile("random.pth", "https://example.org/random.pth", None, None, "none")
    detector = build_detector(name, load_weights(entry, path), categories, torch.device("cpu"))
    assert len(detector.names) == 80
    assert {"person", "traffic light", "toothbrush"} <= set(detector.names)
    image = torch.randint(0, 256, (3, 96, 128), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    scores = detector([image, image])
    assert scores.shape == (2, 80)
    assert torch.equal(scores[0], scores[1])
    with torch.inference_mode():
        (boxes,) = network.eval()([image.float() / 255])
    best = {
        categories[int(label)]: float(score)
        for label, score in reversed(list(zip(*map(boxes.get, ("labels", "scores")), strict=True)))
    }
    assert {detector.names[i]: float(scores[0, i]) for i in scores[0].nonzero().flatten()} == pytest.approx(
        {key: value for key, value in best.items() if key in detector.names}
    )
    images = torch.stack([image, image.flip(2)])
    result = genpr.score_entities_in_images([["cat"], ["dog"]], images, by=detector, device="cpu")
    assert result.extractor.name == name
    assert len(result.extractor.weights_sha256) == 64
    assert result.entities.vocabulary == 80


class CrowdShy(StripeDetector):
    """Sees nothing where there are several images, as padding may do to real detectors."""

    def __call__(self, images):
        return super().__call__(images) * (len(images) == 1)


def test_a_detector_sees_images_one_by_one():
    images, vocabulary = np.stack([painted(*names) for names in IMAGES]), Vocabulary.of(list(COLORS))
    alone = found_entities(images, vocabulary, StripeDetector()).scores
    assert alone.any()
    assert torch.equal(found_entities(images, vocabulary, CrowdShy(), batch_size=4).scores, alone)
