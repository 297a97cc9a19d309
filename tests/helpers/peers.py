"""Packages that a few tests need, imported when a test uses them: every worker imports all files of tests."""

import pytest


class Peer:
    """A module; a test that uses one that is not installed is skipped."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> object:
        if attribute.startswith("_"):  # pytest asks each name of a file whether it is a fixture
            raise AttributeError(attribute)
        return getattr(pytest.importorskip(self._name), attribute)
