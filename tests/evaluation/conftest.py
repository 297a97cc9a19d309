"""A fixture that changes protocols."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from genpr.evaluation import protocols
from genpr.evaluation.protocols import find_protocol


@pytest.fixture
def change_protocol(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Change fields of a protocol."""

    def change(name: str, **fields: object) -> None:
        changed = {**protocols.PROTOCOLS, name: replace(find_protocol(name), **fields)}
        monkeypatch.setattr(protocols, "PROTOCOLS", changed)

    return change
