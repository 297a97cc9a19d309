"""An evaluator of the small drawings."""

import pytest
from training_images import OPTIONS, images

import genpr


@pytest.fixture(scope="session")
def evaluator() -> genpr.Evaluator:
    return genpr.Evaluator(images()[0], **OPTIONS, control=False, intervals=False)
