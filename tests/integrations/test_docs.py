"""The code of docs/integrations.md gives the shown results."""

import re
from pathlib import Path

import pytest
import torch
from fading_module import DARKNESS, generate, module_of, trainer_options
from training_images import images

TEXT = (Path(__file__).parents[2] / "docs" / "integrations.md").read_text()
LOOP, METRIC, LIGHTNING, *_ = re.findall(r"^```python\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)


@pytest.fixture
def run_code(write_images, monkeypatch):
    folder = write_images("real", images()[0].permute(0, 2, 3, 1).numpy())
    monkeypatch.chdir(folder.parent)

    def run(code, changes, **names):
        for before, after in changes.items():
            assert before in code, before
            code = code.replace(before, after)
        exec(compile(code, "integrations.md", "exec"), names)
        return names

    return run


class Noise(torch.nn.Module):
    """Draws images of noise; it has a parameter, and with it a device."""

    def __init__(self):
        super().__init__()
        self.brightness = torch.nn.Parameter(torch.ones(1))

    def forward(self, part):
        return (2 * torch.rand(len(part), 3, 16, 16) - 1) * self.brightness


@pytest.mark.filterwarnings("ignore:.*no-overlap:UserWarning")  # of noise
def test_example_of_a_training_loop(run_code):
    changes = {'"inception"': '"gabor"', "2000": "40", "every=1000": "every=2"}
    names = run_code(LOOP, changes, steps=4, train_one_step=lambda model: None, model=Noise())
    assert [record.step for record in names["score"].history.records] == [0, 2]
    assert names["score"].result.fake.n == 40


def test_example_of_the_metric(run_code):
    names = run_code(
        METRIC,
        {'"inception"': '"gabor"'},
        real_loader=images()[0].split(20),
        fake_batches=images()[1].div(255).split(20),
    )
    assert len(names["metric"].real_rows) == 4
    assert not names["metric"].fake_rows


@pytest.mark.filterwarnings("default")  # Lightning's advice about workers
def test_example_of_lightning(run_code, tmp_path):
    pl = pytest.importorskip("lightning.pytorch")
    changes = {'"inception"': '"gabor"', "=5": "=2", "Trainer(c": "Trainer(**options, c"}
    module = module_of(pl.LightningModule)
    names = run_code(LIGHTNING, changes, generate=generate, module=module, options=trainer_options(tmp_path))
    assert [record.step for record in names["scores"].history.records] == [1, 3]
    kept = torch.load(names["best"].best_model_path, weights_only=True)["state_dict"]["darkness"]
    assert kept.item() == pytest.approx(DARKNESS[1])
