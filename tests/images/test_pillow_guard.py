"""Global settings of Pillow: strict and silent inside the guard and unchanged outside, for any number of threads."""

import warnings

import pytest
from image_files import SAMPLES, decoded
from PIL import ImageFile

from genpr.errors import ImageError
from genpr.images.decode import PillowGuard


def test_truncated_files_are_errors_although_the_process_tolerates_them(monkeypatch):
    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", True)
    for name in ("png", "jpeg", "bmp", "gif", "tiff", "ppm"):
        data = SAMPLES[name]
        with pytest.raises(ImageError, match="cut short"):
            decoded(data[: len(data) * 2 // 3])
    assert ImageFile.LOAD_TRUNCATED_IMAGES is True


def test_setting_changed_while_decoding_is_reset_and_restored(monkeypatch):
    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", False)
    guard = PillowGuard()
    with guard:
        ImageFile.LOAD_TRUNCATED_IMAGES = True
        with guard:
            assert ImageFile.LOAD_TRUNCATED_IMAGES is False
        assert ImageFile.LOAD_TRUNCATED_IMAGES is False
    assert ImageFile.LOAD_TRUNCATED_IMAGES is True


def warn_like_pillow() -> None:
    exec("import warnings; warnings.warn('from Pillow')", {"__name__": "PIL.TiffImagePlugin"})


def test_warnings_of_pillow_are_silent_and_others_are_not():
    guard = PillowGuard()
    with guard, warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")  # goes before the guard's filter
        with guard:
            warn_like_pillow()
            warnings.warn("from elsewhere", stacklevel=1)
    assert [str(warning.message) for warning in heard] == ["from elsewhere"]


def test_no_warning_filter_remains_after_interleaved_contexts():
    guard = PillowGuard()
    before = list(warnings.filters)
    outer = warnings.catch_warnings()
    guard.__enter__()
    outer.__enter__()  # copies the list with our filter
    guard.__enter__()
    outer.__exit__(None, None, None)  # the old list is back
    guard.__exit__()
    guard.__exit__()
    assert warnings.filters == before

    guard.__enter__()
    outer = warnings.catch_warnings()
    outer.__enter__()
    guard.__exit__()
    assert warnings.filters == before
    outer.__exit__(None, None, None)
    assert warnings.filters == before
