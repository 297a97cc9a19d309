"""The map of a page: marks where their images lie, pictures on one sheet, names that do no harm, a page that stays small."""

from __future__ import annotations

import io
import re
from dataclasses import replace

import html5lib
import numpy as np
import pytest
from page_results import HOSTILE, MAP_COLORS, a_map, a_result
from PIL import Image

from genpr.errors import UsageError
from genpr.metrics.projection import project
from genpr.report.score_page import html_report
from genpr.report.set_map import set_map

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def page():
    return html_report(a_result(), set_map=a_map())


@pytest.fixture
def points(rng):
    return project(rng.normal(size=(60, 5)), rng.normal(size=(40, 5)), most=50)


def names(points):
    return [f"{row}.png" for row in points.rows]


def parsed(page):
    return html5lib.HTMLParser(strict=True).parse(page)


def with_id(document, wanted):
    return next((each for each in document.iter() if each.get("id") == wanted), None)


def marks(page):
    return list(with_id(parsed(page), "map-marks"))


def tiles(drawn):
    """The tiles of the sheet as arrays, row by row."""
    sheet = np.asarray(Image.open(io.BytesIO(drawn.sheet)))
    rows, columns = len(sheet) // drawn.tile, sheet.shape[1] // drawn.tile
    assert columns == drawn.columns
    cut = sheet.reshape(rows, drawn.tile, columns, drawn.tile, 3).swapaxes(1, 2)
    return cut.reshape(-1, drawn.tile, drawn.tile, 3)


def test_every_point_is_a_mark_of_its_side_with_its_name(page):
    drawn = a_map()
    found = marks(page)
    assert len(found) == len(drawn.points) == 16
    for mark, point in zip(found, drawn.points, strict=True):
        assert mark.tag == SVG + ("circle" if point.is_real else "path")
        assert mark.get("transform") == f"translate({point.x} {point.y})"
        assert [title.text for title in mark] == [point.caption]
        assert mark.get("data-tile") == (None if point.tile is None else str(point.tile))
    assert sum(mark.tag == SVG + "circle" for mark in found) == 8


def test_distances_are_to_scale_and_up_is_up(points):
    drawn = set_map(points, names(points))
    by_caption = {(point.is_real, point.caption): point for point in drawn.points}
    x, y = (
        np.array(
            [
                getattr(by_caption[bool(real), f"{row}.png"], axis)
                for real, row in zip(points.is_real, points.rows, strict=True)
            ]
        )
        for axis in "xy"
    )
    scale = np.ptp(x) / np.ptp(points.places[:, 0])
    assert x - x[0] == pytest.approx((points.places[:, 0] - points.places[0, 0]) * scale, abs=0.3)
    assert y[0] - y == pytest.approx((points.places[:, 1] - points.places[0, 1]) * scale, abs=0.3)
    assert x.min() >= 10
    assert x.max() <= drawn.width - 10
    assert y.min() >= 10
    assert y.max() <= drawn.height - 10


@pytest.mark.parametrize(
    ("spans", "height"),
    [((1, 0), 260), ((1, 1), 640), ((0, 1), 640), ((0, 0), 260), ((0, 1e-300), 640), ((1, 0.5), 414)],
)
def test_any_extent_is_drawn_within(points, spans, height):
    places = np.linspace(-1, 1, 50)[:, None] * np.array(spans)
    drawn = set_map(replace(points, places=places), names(points))
    assert drawn.height == height
    x, y = np.array([(point.x, point.y) for point in drawn.points]).T
    assert 10 <= x.min() <= drawn.width / 2 <= x.max() <= drawn.width - 10
    assert 10 <= y.min() <= height / 2 <= y.max() <= height - 10
    assert max(np.ptp(x) / (drawn.width - 28), np.ptp(y) / (height - 28)) == pytest.approx(
        float(any(spans)), abs=0.01
    )


def test_neither_side_is_drawn_over_the_other(rng):
    points = project(rng.normal(size=(90, 3)), rng.normal(size=(30, 3)))
    sides = [point.is_real for point in set_map(points, names(points)).points]
    for start in range(0, 120, 20):
        assert 14 <= sum(sides[start : start + 20]) <= 16


def test_every_tile_holds_the_picture_of_its_point():
    drawn = a_map()
    cut = tiles(drawn)
    for point in drawn.points:
        number = int(re.search(r"\d+$", point.caption).group())
        if number == 15:
            assert point.tile is None
        else:
            assert np.abs(cut[point.tile][8:24, 1:31].astype(int) - MAP_COLORS[number]).max() < 12
            assert np.abs(cut[point.tile][[1, 30], 1:31].astype(int) - 128).max() < 12  # 20 of 32 pixels high


@pytest.mark.parametrize(
    ("shape", "edge"),
    [((28, 28), 32), ((32, 32), 32), ((256, 200), 48), ((1, 1), 16), ((1, 900), 48), ((33, 5), 48)],
)
def test_tiles_are_as_large_as_the_pictures_up_to_48_pixels(points, shape, edge):
    drawn = set_map(points, names(points), {4: np.full((*shape, 3), 255, np.uint8)})
    assert drawn.tile == edge
    (tile,) = tiles(drawn)
    assert tile[edge // 2 - 1 : edge // 2 + 1, edge // 2 - 1 : edge // 2 + 1].max() > 200


def test_thumbnails_are_by_point_in_any_order_and_may_be_missing(points):
    pixels = {number: np.full((16, 16, 3), 5 * number, np.uint8) for number in (40, 3, 17)}
    drawn = set_map(points, [str(number) for number in range(50)], pixels)
    cut = tiles(drawn)
    found = {
        int(point.caption): int(cut[point.tile].mean().round())
        for point in drawn.points
        if point.tile is not None
    }
    assert found == {3: 15, 17: 85, 40: 200}


@pytest.mark.parametrize("has_pictures", [True, False])
def test_the_size_is_what_it_takes(rng, has_pictures):
    points = project(rng.normal(size=(900, 4)), rng.normal(size=(900, 4)))
    pixels = {number: rng.integers(0, 256, (48, 48, 3), dtype=np.uint8) for number in range(0, 1800, 9)}
    drawn = set_map(points, [HOSTILE[row % 8] for row in points.rows], pixels if has_pictures else {})
    taken = len(html_report(a_result(), set_map=drawn).encode()) - len(html_report(a_result()).encode())
    assert taken <= drawn.size <= 1.2 * taken


@pytest.mark.parametrize(
    "thumbnail",
    [
        np.zeros((4, 4, 3)),
        np.zeros((4, 4), np.uint8),
        np.zeros((3, 4, 4), np.uint8),
        np.zeros((0, 4, 3), np.uint8),
        b"x",
    ],
    ids=["float", "gray", "channels-first", "empty", "file"],
)
def test_wrong_thumbnails_and_names_are_refused(points, thumbnail):
    right = np.zeros((4, 4, 3), np.uint8)
    for given, called in (
        ({0: thumbnail}, names(points)),
        ({50: right}, names(points)),
        ({-1: right}, names(points)),
        ({}, names(points)[1:]),
    ):
        with pytest.raises(UsageError) as caught:
            set_map(points, called, given)
        assert caught.value.code == "bad-option"
