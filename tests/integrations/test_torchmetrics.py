"""The metric of torchmetrics: its values equal those of an evaluator, and it follows the interface of torchmetrics."""

import json
import pickle

import numpy as np
import pytest
import torch
from peers import Peer
from raising import raising
from torch import nn
from training_images import GABOR, OPTIONS, expected, images

import genpr
from genpr.cli.main import run
from genpr.errors import DataError, UsageError
from genpr.integrations.callback import GenprCallback

INTEGRATION = Peer("genpr.integrations.torchmetrics")
NAMES = ["calibrated_precision", "calibrated_recall", "precision", "recall", "density", "coverage", "f1"]


def metric_of(real=None, **options):
    own = {} if isinstance(real, genpr.Evaluator) else OPTIONS
    return INTEGRATION.PrecisionRecallDensityCoverage(real, **own, **options)


def fill(metric, *, real=True, batch=25):
    for is_real in (True, False) if real else (False,):
        for part in images()[0 if is_real else 1].split(batch):
            metric.update(part, real=is_real)
    return metric


def floats(values):
    return {name: value.item() for name, value in values.items()}


@pytest.fixture(scope="module")
def numbers():
    return expected()


def test_metric_callback_evaluator_and_command_line_give_the_same_values(write_images, capsys):
    numbers = expected(options=GABOR)
    values = fill(INTEGRATION.PrecisionRecallDensityCoverage(**GABOR), batch=64).compute()
    assert all(value.dtype == torch.float64 and value.shape == () for value in values.values())
    assert floats(values) == numbers
    assert list(values) == NAMES
    metric = fill(metric_of(intervals=True), batch=7)
    assert floats(metric.compute()) == expected(intervals=True)
    assert metric.result.metrics["recall"].interval is not None
    callback = GenprCallback(images()[0], lambda _: images()[1].split(64), extractor="gabor")
    assert callback(0, None) == {f"genpr/{name}": value for name, value in numbers.items()}
    folders = [write_images(name, images()[at].permute(0, 2, 3, 1).numpy()) for at, name in enumerate("rf")]
    options = ["--extractor", "gabor", "--device", "cpu", "--json", "-q", "--no-intervals", "--no-control"]
    assert run(["score", *map(str, folders), *options]) == 0
    record = json.loads(capsys.readouterr().out)
    assert list(record["metrics"]) == NAMES[:-1]
    assert all(each["value"] == numbers[name] for name, each in record["metrics"].items())


def test_reals_may_be_given_as_an_evaluator(numbers, evaluator, write_images):
    folder = write_images("real", images()[0].permute(0, 2, 3, 1).numpy())
    for real in (evaluator, images()[0], folder):
        metric = metric_of(real)
        assert floats(fill(metric, real=False).compute()) == numbers
        with raising(UsageError, "real-given"):
            metric.update(images()[0], real=True)


def test_reset_removes_reals_unless_they_are_kept(numbers, monkeypatch):
    fitted = []
    fit = genpr.Evaluator
    monkeypatch.setattr(
        "genpr.integrations.torchmetrics.Evaluator", lambda *of, **how: fitted.append(0) or fit(*of, **how)
    )
    metric = fill(metric_of(reset_real_features=False))
    metric.compute()
    metric.reset()
    metric.update(images()[1][:20], real=False)
    assert floats(metric.compute()) != numbers
    metric.reset()
    assert floats(fill(metric, real=False).compute()) == numbers
    assert len(fitted) == 1  # the radii are not computed again
    metric.update(images()[1][:20], real=True)
    metric.compute()
    assert len(fitted) == 2
    resetting = fill(metric_of())
    resetting.reset()
    assert not resetting.real_rows
    assert floats(fill(resetting).compute()) == numbers


def test_float_images_have_a_declared_range(numbers):
    for low, high, options in [(0, 1, {"normalize": True}), (-1, 1, {"image_range": (-1, 1)})]:
        metric = metric_of(**options)
        for role, part in zip((True, False), images(), strict=True):
            metric.update(part / 255 * (high - low) + low, real=role)
        assert floats(metric.compute()) == numbers
        metric.reset()
        assert floats(fill(metric).compute()) == numbers  # uint8 as it is


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"image_range": (1, -1)}, "two numbers, black and white"),
        ({"image_range": (0, float("inf"))}, "two numbers"),
        ({"image_range": (0, 1), "normalize": True}, "one of the two"),
        ({"sync_timeout": 0}, "sync_timeout must be"),
        ({"sync_timeout": 1e10}, "sync_timeout must be"),  # more than threads can wait
        ({"metrics": ["precision", "fid"]}, "one object per network"),
        ({"batch_size": 0}, "batch_size"),
        ({"real": genpr.Evaluator(np.eye(30))}, "extractor=NAME"),
    ],
)
def test_invalid_options_are_errors(options, message):
    with pytest.raises(UsageError, match=message):
        metric_of(**options)


class Trained(nn.Module):
    """An extractor that is trained."""

    dim = 12
    name = "trained"

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(12, 12)

    def forward(self, batch):
        return self.linear(nn.functional.adaptive_avg_pool2d(batch.float() / 255, 2).flatten(1))


def test_network_is_not_part_of_the_module():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.metric = INTEGRATION.PrecisionRecallDensityCoverage(extractor=network, device="cpu")

    network = Trained()
    model = Model()
    model.metric.update(images()[0], real=True)
    assert not list(model.parameters())
    assert not model.state_dict()
    model.eval()
    assert network.training  # its owner's business


def test_reals_of_the_constructor_make_all_images_fakes(numbers, evaluator):
    metric = metric_of(evaluator)
    metric.update(images()[1])
    assert floats(metric.compute()) == numbers
    with raising(UsageError, "bad-option"):
        metric_of().update(images()[1])


def test_casting_the_module_does_not_round_values(numbers):
    metric = fill(metric_of())
    nn.ModuleList([metric]).to(torch.bfloat16).half()
    assert metric.set_dtype(torch.float16) is metric
    assert floats(metric.compute()) == numbers


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        (torch.zeros(2, 2, 8, 8, dtype=torch.uint8), "needs shape"),
        (torch.zeros(2, 3, 8, 8, dtype=torch.int64), "needs uint8"),
        (torch.zeros(2, 3, 8, 8), "normalize=True for values in 0..1"),
    ],
)
def test_invalid_images_are_errors(batch, message, evaluator):
    metric = metric_of()
    with pytest.raises(DataError, match=message):
        metric.update(batch, real=True)
    with pytest.raises(UsageError, match="True or False, not 1"):
        metric.update(images()[0], real=1)
    with pytest.raises(UsageError, match=r"call metric.update"):
        metric(images()[0], real=True)
    assert not metric.real_rows
    metric.update(images()[0], real=True)
    with pytest.raises(DataError, match=r"^fake .*has 0 images"):
        metric.compute()
    wrong = (
        ({"extractor": "gabor", "k": 4}, "^extractor, k "),
        ({"intervals": True}, "created with intervals"),
    )
    for options, message in wrong:
        with pytest.raises(UsageError, match=message):
            INTEGRATION.PrecisionRecallDensityCoverage(evaluator, **options)


def test_copies_are_independent_and_can_be_pickled(numbers, evaluator):
    given = fill(metric_of(evaluator), real=False)
    for metric in (fill(metric_of()), given):
        metric.compute()
        copied = metric.clone()
        metric.reset()
        copied._computed = None
        assert floats(copied.compute()) == numbers
    sent = pickle.loads(pickle.dumps(fill(metric_of())))
    assert floats(sent.compute()) == numbers
    sent.reset()
    assert floats(fill(sent).compute()) == numbers
    with raising(UsageError, "not-portable"):
        pickle.dumps(given)


def test_metric_works_in_a_collection_and_states_merge(numbers):
    before = torch.get_rng_state()
    collection = Peer("torchmetrics").MetricCollection(
        {"near": metric_of(k=2), "usual": metric_of()}, prefix="val/"
    )
    for role, part in zip((True, False), images(), strict=True):
        collection.update(part, real=role)
    values = floats(collection.compute())
    assert {name: values[f"val/usual_{name}"] for name in NAMES} == numbers
    assert values["val/near_recall"] < numbers["recall"]
    metric, other = metric_of(), metric_of()
    for each, part in ((metric, slice(0, 30)), (other, slice(30, None))):
        for real, side in zip((True, False), images(), strict=True):
            each.update(side[part], real=real)
    metric.merge_state(other)
    merged = floats(metric.compute())
    # The null of recall is that of a random part of the reals, which depends on their order.
    assert merged.pop("calibrated_recall") == pytest.approx(numbers["calibrated_recall"], abs=0.1)
    assert merged == {name: value for name, value in numbers.items() if name != "calibrated_recall"}
    assert torch.equal(torch.get_rng_state(), before)
