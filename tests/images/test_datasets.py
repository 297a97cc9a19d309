"""Datasets, lists, loaders and generators: images one by one or in batches."""

import io
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from image_files import encode, noise, raised, stack
from PIL import Image
from raising import raising
from special_tensors import SPECIAL, special

from genpr.errors import DataError, ImageError, UsageError
from genpr.images.source import open_source, subset

IMAGES = np.random.default_rng(0).integers(0, 256, (11, 5, 6, 3), dtype=np.uint8)
TENSOR = torch.from_numpy(IMAGES).permute(0, 3, 1, 2)


class Listed:
    """A map-style dataset that records requested indices."""

    def __init__(self, elements) -> None:
        self.elements = elements
        self.requested = []

    def __len__(self) -> int:
        return len(self.elements)

    def __getitem__(self, index):
        self.requested.append(index)
        return self.elements[index]


# Datasets ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "elements",
    [
        list(IMAGES),
        list(TENSOR),
        [Image.fromarray(image) for image in IMAGES],
        [(Image.fromarray(image), 3) for image in IMAGES],
        [[image, 3] for image in TENSOR],
        [(image, "label", {}) for image in IMAGES],
    ],
)
@pytest.mark.parametrize("kind", [Listed, list])
def test_datasets_may_have_any_kind_of_image_element(elements, kind):
    source = open_source(kind(elements))
    assert source.name == "<dataset>"
    assert len(source) == 11
    for _ in range(2):
        np.testing.assert_array_equal(stack(source), IMAGES)


def test_images_are_read_only_on_request():
    dataset = Listed(list(IMAGES))
    source = subset(open_source(dataset), 3, seed=0)
    items = list(source)
    assert dataset.requested == [0]  # the first element is checked at opening
    assert len(items) == 3
    chosen = [int(item.name[1:-1]) for item in items]
    np.testing.assert_array_equal(np.stack([item.read() for item in items]), IMAGES[chosen])
    assert dataset.requested == [0, *chosen]


@pytest.mark.parametrize(
    ("element", "code", "cause"),
    [
        (torch.rand(3, 4, 4), "array-dtype", "(x * 255).round().to(torch.uint8)"),
        (np.zeros((4, 4, 3)), "array-dtype", "(x * 255).round().astype(np.uint8)"),
        (torch.zeros(4, 5, 3, dtype=torch.uint8), "array-shape", "NHWC"),
        (np.zeros((4, 4)), "array-dtype", "--value-range"),
        (np.zeros((2, 2, 2, 4, 4), np.uint8), "array-type", "ndarray of uint8 (2, 2, 2, 4, 4)"),
        ({"image": IMAGES[0]}, "array-type", "dict"),
        (None, "array-type", "NoneType"),
        (1.5, "array-type", "pass features as one array"),
        (torch.ones(3), "array-type", "pass features as one array"),
    ],
)
def test_first_element_that_is_not_an_image_is_an_error_at_opening(element, code, cause):
    for elements in ([element], [(element, 1)]):
        error = raised(DataError, open_source, elements)
        assert error.code == code
        assert cause in str(error)
        assert "<dataset>[0]" in str(error)


def test_later_element_that_is_not_an_image_is_one_bad_image():
    class Failing(Listed):
        def __getitem__(self, index):
            element = super().__getitem__(index)
            return Image.open(element) if isinstance(element, str | io.BytesIO) else element

    half = io.BytesIO(encode(noise(30, 30))[:900])
    good, *bad = open_source(Failing([IMAGES[0], IMAGES[1] / 255, {"image": 1}, half, "missing.png"]))
    good.read()
    for item, code in zip(bad, ("array-dtype", "array-type", "image-corrupt", "unreadable"), strict=True):
        error = raised(ImageError, item.read)
        assert (error.code, error.path) == (code, item.name)


def test_several_images_in_an_item_of_a_dataset_are_an_error():
    for several in (tuple(IMAGES[:2]), list(TENSOR[:2])):
        error = raised(ImageError, list(open_source(Listed([IMAGES[0], several])))[1].read)
        assert error.code == "array-type"
        assert raised(DataError, open_source, Listed([several])).code == "array-type"


BUFFER = IMAGES.copy()
CHANNELS_LAST = torch.from_numpy(BUFFER).permute(0, 3, 1, 2)


@pytest.mark.parametrize("element", [BUFFER[:1], BUFFER[:4], BUFFER[0], CHANNELS_LAST[:4], CHANNELS_LAST[0]])
def test_memory_may_be_reused_for_the_next_element(element):
    n = len(element) if element.ndim == 4 else 1

    def elements():
        for start in range(0, 8, n):
            BUFFER[:n] = IMAGES[start : start + n]
            yield element

    np.testing.assert_array_equal(stack(list(open_source(elements()))), IMAGES[:8])


@pytest.mark.parametrize("element", [BUFFER[0], CHANNELS_LAST[0], Image.frombuffer("L", (6, 5), BUFFER)])
def test_memory_may_be_reused_for_the_next_item(element):
    class Reusing(Listed):
        def __getitem__(self, index):
            BUFFER[:] = index
            return element

    images = [item.read() for item in open_source(Reusing(range(4)))]
    assert [np.unique(np.asarray(image)).tolist() for image in images] == [[0], [1], [2], [3]]


FAILURES = [SystemExit(0), SystemExit(3), StopIteration(), GeneratorExit(), KeyError("k")]


@pytest.mark.parametrize("error", FAILURES, ids=repr)
def test_whatever_a_dataset_raises_is_one_error(error):
    class Failing(Listed):
        calls = 0

        def __getitem__(self, index):
            self.calls += 1
            if self.calls > 2:
                raise error
            return super().__getitem__(index)

    source = open_source(Failing(IMAGES))
    with raising(UsageError, "dataset-failed"):
        [item.read() for item in source]
    for method in ("__len__", "__getitem__"):

        class Broken(Listed):
            pass

        setattr(Broken, method, Mock(side_effect=error))
        with raising(UsageError, "dataset-failed"):
            open_source(Broken(IMAGES))


@pytest.mark.parametrize("error", FAILURES, ids=repr)
def test_whatever_an_iterable_raises_is_one_error(error):
    def batches():
        yield IMAGES[0]
        raise error

    class Failing:
        def __iter__(self):
            raise error

    for iterable in (batches(), Failing()):
        with raising(UsageError, "dataset-failed"):
            list(open_source(iterable))


@pytest.mark.parametrize("kind", SPECIAL)
def test_tensors_without_plain_numbers_are_errors(kind):
    batch = torch.zeros(2, 3, 4, 4, dtype=torch.uint8)
    for source in (special(kind, batch), [special(kind, batch[0])], iter([special(kind, batch)])):
        error = raised(DataError, lambda source=source: list(open_source(source)))
        assert error.code in {"array-type", "array-dtype"}


def test_negative_bit_of_images_is_resolved():
    batch = torch.arange(96, dtype=torch.uint8).view(2, 4, 4, 3)
    negated = torch._neg_view(-batch).permute(0, 3, 1, 2)
    np.testing.assert_array_equal([item.read() for item in open_source(negated)], batch)


# Iterables --------------------------------------------------------------------------------------------------


class Again:
    """An iterable that restarts at each iteration."""

    def __init__(self, batches) -> None:
        self.batches = batches

    def __iter__(self):
        return iter(self.batches)


@pytest.mark.parametrize(
    "batches",
    [
        [IMAGES[:4], IMAGES[4:9], IMAGES[9:]],
        [TENSOR[:4], TENSOR[4:9], TENSOR[9:]],
        [(TENSOR[:10], torch.arange(10)), [TENSOR[10:], torch.arange(1)]],
        [IMAGES[:10], Image.fromarray(IMAGES[10])],
        list(TENSOR),
        list(IMAGES),
        [list(IMAGES[:10]), list(IMAGES[10:])],
        [[Image.fromarray(image) for image in IMAGES]],
        [(list(TENSOR[:10]), list(range(10))), [[TENSOR[10], 3]]],
        [[(image, 3) for image in TENSOR]],
    ],
)
@pytest.mark.parametrize("kind", [Again, list])
def test_iterables_yield_the_images_of_their_batches(batches, kind):
    source = open_source(kind(batches))
    np.testing.assert_array_equal(stack(source), IMAGES)
    np.testing.assert_array_equal(stack(source), IMAGES)


def test_generator_is_read_once_and_only_as_far_as_needed():
    made = []

    def batches():
        for start in range(0, 11, 2):
            made.append(start)
            yield IMAGES[start : start + 2]

    source = subset(open_source(batches()), 4, seed=7)
    np.testing.assert_array_equal(stack(source), IMAGES[:4])
    assert made == [0, 2]
    assert raised(UsageError, list, source).code == "one-shot"


@pytest.mark.parametrize(
    ("batch", "code", "cause"),
    [
        (IMAGES / 255, "array-dtype", "(x * 255)"),
        (torch.from_numpy(IMAGES), "array-shape", "NHWC"),
        (3, "array-type", "int"),
        ((IMAGES[0], IMAGES[1]), "array-type", "several images"),
        ((Image.fromarray(IMAGES[0]), 3, Image.fromarray(IMAGES[1])), "array-type", "several images"),
        ([TENSOR, TENSOR], "array-type", "several images"),
        ((list(IMAGES), list(IMAGES)), "array-type", "several images"),
        ((tuple(IMAGES), tuple(range(11))), "array-type", "several images"),
        ([tuple(IMAGES[:2])], "array-type", "several images"),
    ],
)
def test_batches_that_are_not_images_are_an_error(batch, code, cause):
    items = iter(open_source(Again([IMAGES[:2], batch])))
    assert [next(items).name, next(items).name] == ["[0]", "[1]"]
    error = raised(DataError, next, items)
    assert error.code == code
    assert cause in str(error)
    assert "batch 1" in str(error)
