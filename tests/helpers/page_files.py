"""Small files under the names that commands and code in docs/ use."""

import io
import json
import os
import shutil
import tarfile
from zipfile import ZipFile

import blob_checkpoints
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image
from toy_networks import write_statistics

import genpr

N_CLASSED, N_PLAIN, N_PAIRED = 52, 30, 12
"""Images of folders with classes (two, halves), of other folders, and of those with prompts or pairs."""
_NETWORK = """
class MeanColor:
    name, dim, cache_key = "mean-color", 3, "1"

    def __call__(self, images):
        return images.float().mean(dim=(2, 3))


def load():
    return MeanColor()
"""
_DETECTOR = """
import torch


class Detector:
    names = ("cat", "dog", "couch")

    def __call__(self, images):
        return torch.stack([image[0, :3, 0] / 255 for image in images])


def load():
    return Detector()
"""


def _pixels(n, seed):
    return np.random.default_rng(seed).integers(0, 256, (n, 16, 16, 3), dtype=np.uint8)


def _folder(path, n, seed, *, classes=False):
    """PNG files, half of them in cat/ and half in dog/ if there are classes."""
    for row, image in enumerate(_pixels(n, seed)):
        place = path / ("cat" if row < n // 2 else "dog") if classes else path
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(place / f"{row:05d}.png", compress_level=1)


def _names(path):
    return sorted(file.relative_to(path).as_posix() for file in path.rglob("*.png"))


def build(folder):
    """Write everything."""
    for seed, name in enumerate(("real", "fake", "fakes", "step-10k", "step-20k")):
        _folder(folder / name, N_CLASSED, seed, classes=True)
    for seed, name in enumerate(("old", "new", "psi05", "psi07", "psi10", "reals", "data/real"), 10):
        _folder(folder / name, N_PLAIN, seed)
    for seed, name in enumerate(("epoch_1", "epoch_2"), 20):
        _folder(folder / "runs/7/samples" / name, N_PLAIN, seed)
        (folder / "runs/7/samples" / name / "COMPLETE").touch()
    paired = "images samples train val recon val2014 adm10k imagenet/val coco/val2014 bird"
    paired += " imagenet-val-prc train50k"
    for seed, name in enumerate(paired.split(), 30):
        _folder(folder / name, N_PAIRED, seed)
    shutil.make_archive(str(folder / "data"), "zip", folder / "train")
    _write_arrays(folder)
    _write_archives(folder)
    _write_texts(folder)
    write_statistics(folder, _pixels(N_PAIRED, 50))
    floats, levels = "return (2.0 * inside - 1)", "return (255 * inside.to(torch.uint8))"
    assert floats in blob_checkpoints.GENERATOR
    blob_checkpoints.write_generator(folder, blob_checkpoints.GENERATOR.replace(floats, levels))
    (folder / "gan").mkdir()
    for name in ("gan/step-1000.pt", "gan/step-2000.pt", "gan/step-3000.pt", "G.pt", "runs/7/step-1.pt"):
        blob_checkpoints.write_checkpoint(folder / name, 0.5 + len(name) / 50)
    for name in ("net.py", "cifar10_cnn.py"):
        (folder / name).write_text(_NETWORK)
    (folder / "detector.py").write_text(_DETECTOR)


def _write_arrays(folder):
    labels = np.repeat([0, 1], N_CLASSED // 2)
    np.savez(folder / "samples.npz", arr_0=_pixels(N_CLASSED, 60), arr_1=labels)
    for seed, name in enumerate(("val", "recon"), 61):
        np.savez(folder / f"{name}.npz", arr_0=_pixels(N_PAIRED, seed))
    rng = np.random.default_rng(0)
    for name in ("real", "fake"):
        np.save(folder / f"{name}.npy", rng.normal(size=(N_PLAIN, 4)))
    others = rng.normal(size=(4, N_PLAIN, 4))
    for name, features in zip(("a", "b", "old", "new"), others, strict=True):
        _write_result(folder / f"{name}.json", others[0], features)
    for step in (100, 200, 300):
        _write_result(folder / f"step-{step}.json", others[0], rng.normal(size=(N_PLAIN, 4)))


def _write_result(path, real, fake):
    path.write_text(genpr.score(real, fake).to_json())


def _write_archives(folder):
    for archive in (folder / "imagenet.zip", folder / "cifar10/test.zip"):
        archive.parent.mkdir(exist_ok=True)
        with ZipFile(archive, "w") as zipped:
            for name in _names(folder / "real"):
                zipped.write(folder / "real" / name, name)
            labels = [[name, int(name.startswith("dog"))] for name in _names(folder / "real")]
            zipped.writestr("dataset.json", json.dumps({"labels": labels}))
    (folder / "laion").mkdir()
    for name in ("imagenet/train-0000.tar", "imagenet/train-0001.tar", "laion/0.tar", "laion/1.tar"):
        with tarfile.open(folder / name, "w") as tar:
            for row, image in enumerate(_pixels(N_PLAIN // 2, len(name) + int(name[-5]))):
                data = io.BytesIO()
                Image.fromarray(image).save(data, "PNG")
                member = tarfile.TarInfo(f"{row:03d}.png")
                member.size = data.tell()
                data.seek(0)
                tar.addfile(member, data)
    data = [(folder / "real" / name).read_bytes() for name in _names(folder / "real")]
    labels = [name.partition("/")[0] for name in _names(folder / "real")]
    table = pa.table({"image": [{"bytes": each, "path": None} for each in data], "label": labels})
    for name in ("data/train-0.parquet", "cifar10/plain_text/train-0.parquet"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, folder / name)


def _write_texts(folder):
    for side in ("real", "fake"):
        rows = [f"{name},{name.partition('/')[0]}\n" for name in _names(folder / side)]
        (folder / f"{side}.csv").write_text("".join(rows))
    shutil.copy(folder / "fake.csv", folder / "requested.csv")
    shutil.copy(folder / "fake.csv", folder / "predicted.csv")
    names = _names(folder / "images")
    prompts = [
        f"a {'cat' if row % 2 else 'cat and a dog'} of kind {'abcdefghijkl'[row]}" for row in range(12)
    ]
    for name, prompt in zip(names, prompts, strict=True):
        (folder / "images" / name).with_suffix(".txt").write_text(prompt)
    by_name = dict(zip(names, prompts, strict=True))
    rows = [f"{name},{prompt}\n" for name, prompt in by_name.items()]
    (folder / "prompts.csv").write_text("file_name,prompt\n" + "".join(rows))
    lines = [json.dumps({"id": name, "prompt": prompt}) + "\n" for name, prompt in by_name.items()]
    (folder / "prompts.jsonl").write_text("".join(lines))
    (folder / "captions.json").write_text(json.dumps(by_name))
    (folder / "captions.txt").write_text("".join(f"{prompt}\n" for prompt in prompts))
    (folder / "prompts.txt").write_text("".join(f"{'abcdef'[n % 6] * (n + 1)}\n" for n in range(N_CLASSED)))
    (folder / "expected.csv").write_text("id,expected\n" + "".join(f'{name},"cat, dog"\n' for name in names))
    found = [{"id": name, "answer": '["cat"]' if row % 2 else "cat, dog"} for row, name in enumerate(names)]
    (folder / "answers.jsonl").write_text("".join(json.dumps(each) + "\n" for each in found))
    for name, text in {
        "forbidden.txt": "couch\n",
        "objects.txt": "cat\ndog\ncouch\n",
        "people.csv": "Neil Armstrong,Armstrong\nMoon\n",
    }.items():
        (folder / name).write_text(text)


def copied(folder, place):
    """A copy for one page; files are links, since commands replace files as wholes."""
    shutil.copytree(folder, place, copy_function=os.link)
    return place
