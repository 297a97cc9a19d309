"""The command line as a function, and two small folders for it."""

import numpy as np
import pytest

from genpr.cli.main import run


@pytest.fixture
def genpr(capsys):
    def call(*args):
        code = run([str(arg) for arg in args])
        out, err = capsys.readouterr()
        return code, out, err

    return call


@pytest.fixture
def folders(write_images, rng):
    return [
        write_images(name, rng.integers(0, 256, (20, 8, 8, 3), dtype=np.uint8)) for name in ("real", "fake")
    ]
