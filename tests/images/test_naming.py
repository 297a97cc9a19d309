"""Under which names files know images."""

import pytest

from genpr.images.item import file_of, known_as, plain_path, stem_of

PATHS = ["cats/a.png", "dogs/b.png"]


@pytest.mark.parametrize(
    ("known", "found"),
    [
        (PATHS, PATHS),
        (["a.png", "b.png"], ["a.png", "b.png"]),
        (["cats/a.png"], PATHS),
        (["elsewhere/x.png", "b.png"], PATHS),
        ([], ["a.png", "b.png"]),
    ],
    ids=["paths", "files", "one path", "folders of others", "nothing"],
)
def test_images_are_known_by_path_or_else_by_file(known, found):
    assert known_as(PATHS, set(known)) == found


def test_equal_files_of_two_folders_are_not_confused():
    assert known_as(["cats/a.png", "dogs/a.png"], {"a.png"}) == ["cats/a.png", "dogs/a.png"]


def test_windows_and_dots_are_one_way_of_writing():
    assert known_as([r".\cats\a.png", "./dogs/b.png"], set(PATHS))[1] == "dogs/b.png"
    assert plain_path(r"cats\a.png") == "cats/a.png"
    assert file_of(r"cats\a.png") == "a.png"
    assert stem_of("v1.2/a.b.png") == "v1.2/a.b"
    assert stem_of("v1.2/a") == "v1.2/a"
