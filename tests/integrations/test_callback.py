"""The callback for any training loop."""

# ruff: noqa: NPY002 - the global state of users' code is what is tested
import json
import random
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from raising import raising
from torch import nn
from training_images import N_FAKE, OPTIONS, images

from genpr.checkpoints.generator import to_uint8
from genpr.errors import DataError, UsageError
from genpr.integrations.callback import GenprCallback
from genpr.integrations.common import as_uint8


class Fader(nn.Module):
    """A generator that darkens the fakes."""

    def __init__(self, darkness=0.0):
        super().__init__()
        self.darkness = nn.Parameter(torch.tensor(darkness))
        self.dropout = nn.Dropout()
        self.frozen = nn.Dropout().eval()

    def forward(self, pixels):
        return (self.dropout(self.frozen(pixels / 255)) * (1 - self.darkness) * 255).to(torch.uint8)


def generate(model):
    for part in images()[1].split(20):
        yield model(part) if isinstance(model, nn.Module) else part


def test_callback_scores_and_logs_every_n_steps(evaluator):
    logged = []
    callback = GenprCallback(evaluator, generate, every=3, n=25, log=lambda *scores: logged.append(scores))
    given = {step: callback(step, None) for step in range(7)}
    assert [step for step, scores in given.items() if scores] == [0, 3, 6]
    assert logged == [(given[step], step) for step in (0, 3, 6)]
    assert [record.step for record in callback.history.records] == [0, 3, 6]
    assert callback.result.fake.n == 25


@pytest.mark.parametrize("error", [SystemExit(0), StopIteration(), GeneratorExit(), KeyError("k")], ids=repr)
def test_whatever_generate_raises_is_one_error(evaluator, error):
    def later(_model):
        yield images()[1][:20]
        raise error

    for failing in (Mock(side_effect=error), later):
        with raising(UsageError, "generator-failed"):
            GenprCallback(evaluator, failing)(0, None)


def test_only_the_first_n_images_are_generated(evaluator):
    drawn = []

    def counted(_):
        for part in images()[1].split(20):
            drawn.append(len(part))
            yield part

    scores = GenprCallback(evaluator, counted, n=30)(0, None)
    assert drawn == [20, 20]
    assert scores == evaluator.score(images()[1][:30]).to_flat_dict()
    callback = GenprCallback(evaluator, generate, n=N_FAKE + 1)
    with pytest.raises(DataError, match=f" {N_FAKE} images, but n = {N_FAKE + 1}"):
        callback(0, None)
    assert not callback.history.records


def test_modes_gradients_and_random_states_are_restored(evaluator):
    model, states = Fader().train(), []
    model.frozen.eval()
    seen = []

    def noisy(model):
        drawn = torch.rand(1).item(), random.random(), np.random.rand()
        seen.append((model.training, torch.is_grad_enabled(), *drawn))
        for part in generate(model):
            assert not torch.is_grad_enabled()
            assert not torch.is_inference_mode_enabled()
            yield part

    def state():
        return torch.get_rng_state().tolist(), random.getstate(), np.random.get_state()[1].tolist()

    callback = GenprCallback(evaluator, noisy)
    for step in range(2):
        torch.manual_seed(step)
        random.seed(step)
        np.random.seed(step)
        before = state()
        callback(step, model)
        assert state() == before
        states.append(callback.history.records[-1].scores)
        assert [module.training for module in model.modules()] == [True, True, False]
    assert seen[0] == seen[1]
    assert seen[0][:2] == (False, False)
    assert states[0] == states[1] == GenprCallback(evaluator, generate)(0, None)
    assert torch.is_grad_enabled()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"every": 0}, "every must be an integer of at least 1"),
        ({"n": 0}, "n must be an integer"),
        ({"seed": -1}, "seed must be an integer"),
        ({"mode": "best"}, "mode must be"),
        ({"monitor": "f1"}, "monitor 'f1' is not computed.* genpr/precision"),
        ({"monitor": "genpr/recall_low"}, "is not computed"),
        ({"image_range": (0, 0)}, "image_range"),
        ({"extractor": "gabor"}, "^extractor "),
        ({"intervals": True}, "created with intervals"),
    ],
)
def test_invalid_options_are_errors(options, message, evaluator):
    with pytest.raises(UsageError, match=message):
        GenprCallback(evaluator, generate, **options)


@pytest.mark.filterwarnings("ignore:.*no-overlap:UserWarning")
def test_history_is_restored_from_a_state_dict(evaluator):
    first = GenprCallback(evaluator, generate)
    for step, darkness in zip(np.arange(2), [0.0, 0.6], strict=True):
        first(step, Fader(darkness))
    second = GenprCallback(evaluator, generate)
    second.history.load_state_dict(json.loads(json.dumps(first.history.state_dict())))
    assert second.history.records == first.history.records
    second(2, Fader(0.5))
    assert second.history.best == first.history.best
    assert second.history.best.step == 0


@pytest.mark.filterwarnings("ignore:.*no-overlap:UserWarning")
def test_best_is_the_first_maximum_or_minimum(evaluator):
    callback = GenprCallback(evaluator, generate)
    options = {"extractor": OPTIONS["extractor"], "metrics": ["fd"], "monitor": "genpr/fd", "mode": "min"}
    distance = GenprCallback(images()[0], generate, **options)
    callback.history.add(-1, {"genpr/precision": 1.0})  # no record is best if the monitor has no value
    assert callback.history.best is None
    for step, darkness in enumerate([0.6, 0.0, 0.3, 0.0]):
        callback(step, Fader(darkness))
        distance(step, Fader(darkness))
    values = [record.scores["genpr/f1"] for record in callback.history.records[1:]]
    assert values[1] == values[3] == max(values)
    assert callback.history.best.step == distance.history.best.step == 1


@pytest.mark.parametrize(
    "records", [None, 3, [{"step": 1}], *([{"step": 1, "scores": {"a": a}}] for a in ("b", float("nan")))]
)
def test_invalid_history_is_an_error(records, evaluator):
    callback = GenprCallback(evaluator, generate)
    callback.history.add(0, {"genpr/f1": 0.5})
    with raising(DataError, "bad-history"):
        callback.history.load_state_dict({} if records is None else {"records": records})
    assert len(callback.history.records) == 1


def test_batches_may_be_arrays_or_floats_of_a_declared_range(evaluator):
    expected = GenprCallback(evaluator, generate)(0, None)
    as_array = images()[1].permute(0, 2, 3, 1).numpy()
    assert GenprCallback(evaluator, lambda _: [as_array])(0, None) == expected
    floats = GenprCallback(evaluator, lambda _: [images()[1] / 127.5 - 1], image_range=(-1, 1))
    assert floats(0, None) == expected
    with pytest.raises(DataError, match="training did not diverge"):
        GenprCallback(evaluator, lambda _: [images()[1] * float("nan")], image_range=(-1, 1))(0, None)
    for kind in (np.float32, np.float64):
        array = (as_array[:, ::-1].astype(kind) / 127.5 - 1)[:, ::-1]
        array.flags.writeable = False
        as_floats = GenprCallback(evaluator, lambda _, array=array: [array], image_range=(-1, 1))
        assert as_floats(0, None) == floats(0, None)
    masked = np.ma.masked_less(array, 0)
    with raising(DataError, "masked-array"):
        GenprCallback(evaluator, lambda _: [masked], image_range=(-1, 1))(0, None)
    model, state = Fader().train(), torch.get_rng_state()
    for batches, message in (([images()[1] / 255], "image_range"), (images()[1], "return a list of")):
        with pytest.raises(DataError, match=message):
            GenprCallback(evaluator, lambda _, batches=batches: batches)(0, model)
    assert model.training
    assert torch.equal(torch.get_rng_state(), state)
    with pytest.raises(UsageError, match="NoneType cannot be read as images"):
        GenprCallback(None, generate)


@pytest.mark.parametrize("image_range", [(-1.0, 1.0), (0.0, 1.0), (-0.3, 0.9)])
def test_floats_are_rounded_and_clamped_as_those_of_generators(image_range):
    low, high = image_range
    steps = torch.linspace(0, 1, 3 * 64 * 64, dtype=torch.float64)
    halves = (torch.arange(256, dtype=torch.float64) + 0.5).repeat(48) / 255  # where rounding is decided
    floats = torch.stack([1.05 * steps, halves]).view(2, 3, 64, 64) * (high - low) + low
    cut, outside = to_uint8(floats, expected=2, image_range=image_range, who="generator")
    assert torch.equal(as_uint8(floats, image_range), cut)
    assert 0 < outside < 0.1
    assert cut.unique().numel() == 256
