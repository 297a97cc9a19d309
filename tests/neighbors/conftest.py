"""Fixtures that record calls and change sizes of pieces of work."""

from collections.abc import Callable
from dataclasses import replace
from pkgutil import resolve_name

import pytest


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[int]]:
    """Record the length of one argument of functions of genpr.neighbors for each call."""

    def note(argument: int, *names: str) -> list[int]:
        seen: list[int] = []
        for name in (f"genpr.neighbors.{name}" for name in names):
            call = resolve_name(name)
            monkeypatch.setattr(
                name, lambda *args, call=call: (seen.append(len(args[argument])), call(*args))[1]
            )
        return seen

    return note


@pytest.fixture
def set_sizes(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Change sizes of the device profile of CPUs."""
    target = "genpr.neighbors.engine.CPU"
    return lambda **sizes: monkeypatch.setattr(target, replace(resolve_name(target), **sizes))


@pytest.fixture
def verified(recorded) -> list[int]:
    """Number of pairs computed by the definition, for each call."""
    return recorded(0, *(f"{module}.sq_distances" for module in ("bounds", "counts", "nearest")))
