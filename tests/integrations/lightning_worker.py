"""A run of Lightning on two ranks: `python lightning_worker.py FOLDER`."""

import json
import sys
from pathlib import Path

import torch
from fading_module import generate, module_of, trainer_options
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from training_images import OPTIONS, images

from genpr.integrations.lightning import GenprLightningCallback


def main(folder):
    """Train, and write the results of each rank."""
    torch.set_num_threads(1)
    sampling_ranks = []

    def counted(module):
        sampling_ranks.append(module.global_rank)
        yield from generate(module)

    callback = GenprLightningCallback(images()[0], counted, extractor=OPTIONS["extractor"], timeout=60)
    checkpoint = ModelCheckpoint(folder / "kept", monitor="genpr/f1", mode="max")
    trainer = Trainer(**trainer_options(folder), devices=2, strategy="ddp", callbacks=[checkpoint, callback])
    trainer.fit(module_of(LightningModule))
    found = {
        "history": callback.state_dict(),
        "best": callback.history.best.step,
        "kept": checkpoint.best_model_path,
        "logged": {name: value.item() for name, value in trainer.callback_metrics.items()},
        "sampling_ranks": sampling_ranks,
    }
    (folder / f"{trainer.global_rank}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
