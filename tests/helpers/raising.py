"""Errors by their class and code."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from genpr.errors import GenprError


@contextmanager
def raising(kind: type[GenprError], code: str, match: str | None = None) -> Iterator[None]:
    """The block raises an error of a class, with a code, in one line that matches."""
    with pytest.raises(kind, match=match) as caught:
        yield
    assert caught.value.code == code
    assert "\n" not in str(caught.value)


def raised(kind: type[Exception], call: Callable, *arguments, **options):
    """The error of a call."""
    with pytest.raises(kind) as caught:
        call(*arguments, **options)
    return caught.value
