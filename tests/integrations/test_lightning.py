"""The callback in runs of Lightning: the kept checkpoint has the best score."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from fading_module import BEST_EPOCH, DARKNESS, generate, module_of, trainer_options
from peers import Peer
from raising import raising
from training_images import images

from genpr.errors import UsageError
from genpr.integrations.callback import GenprCallback

pl, ours = Peer("lightning.pytorch"), Peer("genpr.integrations.lightning")

pytestmark = pytest.mark.filterwarnings("default")  # advice of Lightning, and warnings of its imports
WORKER = Path(__file__).with_name("lightning_worker.py")


def fit(folder, callback, *, package=pl, validates=False, **options):
    checkpoint = package.callbacks.ModelCheckpoint(folder, monitor="genpr/f1", mode="max")
    options = trainer_options(folder) | options
    trainer = package.Trainer(**options, devices=1, callbacks=[checkpoint, callback])
    trainer.fit(module_of(package.LightningModule, validates=validates))
    return trainer, checkpoint


def darkness_of(checkpoint):
    return torch.load(checkpoint.best_model_path, weights_only=True)["state_dict"]["darkness"].item()


@pytest.mark.parametrize("validates", [False, True])
def test_kept_checkpoint_is_the_best(tmp_path, evaluator, validates):
    callback = ours.GenprLightningCallback(evaluator, generate)
    trainer, checkpoint = fit(tmp_path, callback, validates=validates)
    values = [record.scores["genpr/f1"] for record in callback.history.records]
    assert [record.step for record in callback.history.records] == list(range(len(DARKNESS)))
    assert values[BEST_EPOCH] > max(values[:BEST_EPOCH] + values[BEST_EPOCH + 1 :])
    assert callback.history.best.step == BEST_EPOCH
    assert darkness_of(checkpoint) == pytest.approx(DARKNESS[BEST_EPOCH])
    assert checkpoint.best_model_score.item() == pytest.approx(values[BEST_EPOCH], rel=1e-6)
    module = module_of(pl.LightningModule)
    module.darkness.fill_(DARKNESS[0])
    assert callback.history.records[0].scores == GenprCallback(evaluator, generate)(0, module)
    for name, value in callback.history.records[-1].scores.items():
        assert trainer.callback_metrics[name].item() == pytest.approx(value, rel=1e-6)


def test_callbacks_of_one_trainer_differ_by_their_prefix(tmp_path, evaluator):
    def callbacks():
        raw = ours.GenprLightningCallback(evaluator, generate, prog_bar=False)
        return raw, ours.GenprLightningCallback(
            evaluator, lambda _: [images()[0]], prefix="ema/", prog_bar=False
        )

    first, second = callbacks(), callbacks()
    trainer = pl.Trainer(**trainer_options(tmp_path) | {"max_epochs": 1}, callbacks=[*first])
    trainer.fit(module_of(pl.LightningModule))
    logged = trainer.callback_metrics
    assert logged["ema/f1"] == 1 > logged["genpr/f1"]
    trainer.save_checkpoint(tmp_path / "last.ckpt")
    trainer = pl.Trainer(**trainer_options(tmp_path) | {"max_epochs": 1}, callbacks=[*second])
    trainer.fit(module_of(pl.LightningModule), ckpt_path=tmp_path / "last.ckpt")
    assert [each.history.records for each in second] == [each.history.records for each in first]


def test_resumed_run_keeps_its_history(tmp_path, evaluator):
    first = ours.GenprLightningCallback(evaluator, generate)
    _, kept = fit(tmp_path, first, max_epochs=3)
    second = ours.GenprLightningCallback(evaluator, generate)
    trainer = pl.Trainer(**trainer_options(tmp_path), callbacks=[second])
    trainer.fit(module_of(pl.LightningModule), ckpt_path=kept.best_model_path)
    assert [record.step for record in second.history.records] == [0, 1, 2, 3]
    assert second.history.records[:3] == first.history.records
    assert second.history.best.step == BEST_EPOCH


def test_every_must_be_a_multiple_of_the_epochs_between_validations(tmp_path, evaluator):
    def run(every, *, validates=True, **options):
        callback = ours.GenprLightningCallback(evaluator, generate, every=every)
        fit(tmp_path, callback, validates=validates, max_epochs=4, check_val_every_n_epoch=2, **options)
        return [record.step for record in callback.history.records]

    with raising(UsageError, "bad-option"):
        run(3)
    assert run(2) == [1, 3]
    trainer = SimpleNamespace(check_val_every_n_epoch=2, enable_validation=True)
    ours.GenprLightningCallback(evaluator, generate, every=4).on_fit_start(trainer, None)
    assert run(3, validates=False) == run(3, limit_val_batches=0) == [2]


def test_example_on_the_page(tmp_path, write_images, monkeypatch):
    text = (WORKER.parents[2] / "docs" / "integrations.md").read_text()
    code = re.search(r"^```python\n(from lightning.*?)^```$", text, re.MULTILINE | re.DOTALL)[1]
    for before, after in {'"inception"': '"gabor"', "=5": "=2", "Trainer(c": "Trainer(**options, c"}.items():
        assert before in code
        code = code.replace(before, after)
    write_images("real", images()[0].permute(0, 2, 3, 1).numpy())
    monkeypatch.chdir(tmp_path)
    module, options = module_of(pl.LightningModule), trainer_options(tmp_path)
    names = {"generate": generate, "module": module, "options": options}
    exec(compile(code, "integrations.md", "exec"), names)
    assert [record.step for record in names["scores"].history.records] == [1, 3]
    assert darkness_of(names["best"]) == pytest.approx(DARKNESS[1])


@pytest.mark.slow
def test_two_ranks_have_the_same_history(tmp_path, evaluator):
    tests = WORKER.parents[1]
    paths = os.pathsep.join(map(str, (tests.parent, tests / "helpers", WORKER.parent)))
    environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(WORKER), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=200)
    assert done.returncode == 0, done.stderr
    first, second = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in (0, 1))
    assert first["sampling_ranks"] == [0] * len(DARKNESS)
    assert second["sampling_ranks"] == []
    single = ours.GenprLightningCallback(evaluator, generate)
    fit(tmp_path, single)
    for each in (first, second):
        assert each["history"] == single.state_dict()
        assert each["best"] == BEST_EPOCH
        assert each["logged"] == first["logged"]
        assert each["kept"] == first["kept"]
    kept = torch.load(first["kept"], weights_only=True)["state_dict"]["darkness"].item()
    assert kept == DARKNESS[BEST_EPOCH]
