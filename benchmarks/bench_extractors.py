"""Images per second from files to features, of every extractor and of the peer that computes the same features."""

from __future__ import annotations

import importlib
import shlex
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, TypeAlias

import click
import numpy as np
import torch
from _embedding import TIMM_DINOV2, load_genpr, make_images, write_random_weights
from _shared import (
    RESULTS,
    CaseFailedError,
    Machine,
    TreeMemory,
    append_record,
    describe_machine,
    in_new_process,
    without_folder,
)
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor, nn

import genpr
from genpr.runtime import state_guard, usable_cores

Rows: TypeAlias = NDArray[np.floating[Any]]
Embed: TypeAlias = Callable[[Path], Rows]
"""Computes features (n, d) of a folder of images, in the order of file names."""

_AGREES = 1e-4  # of the range of the features; images must differ by ten times as much
_IMAGENET = {"mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}
_WARM_UP_IMAGES = 64
_PACKAGES = ("torchvision", "pillow", "pytorch-fid", "open_clip_torch", "timm")

# Tools: each loads the given weights and runs its own loop.


def genpr_embed(extractor: str, weights: Path | None, *, device: str, batch_size: int) -> Embed:
    """`genpr.embed`, which keeps no cache."""
    loaded = load_genpr(extractor, weights, device)
    return lambda folder: genpr.embed(folder, loaded, batch_size=batch_size).numpy()


def torch_fidelity(extractor: str, weights: Path, *, device: str, batch_size: int) -> Embed:
    """Features by the extraction of torch-fidelity from a folder, without its cache."""
    library = importlib.import_module("torch_fidelity.utils")
    name, layer = {"inception": ("inception-v3-compat", "2048"), "vgg16": ("vgg16", "fc2_relu")}[extractor]
    options = {"cuda": device == "cuda", "verbose": False}
    network = library.create_feature_extractor(
        name, [layer], feature_extractor_weights_path=str(weights), **options
    )

    def embed(folder: Path) -> Rows:
        features: Tensor = library.extract_featuresdict_from_input_id(
            1, network, input1=str(folder), batch_size=batch_size, cache=False, **options
        )[layer]
        return features.numpy()

    return embed


def pytorch_fid(_extractor: str, weights: Path, *, device: str, batch_size: int) -> Embed:
    """Features by `get_activations`, with the number of workers of its command line."""
    fid_score: Any = importlib.import_module("pytorch_fid.fid_score")
    inception: Any = importlib.import_module("pytorch_fid.inception")
    # It has no option for a file of weights.
    inception.load_state_dict_from_url = lambda *_args, **_kwargs: torch.load(weights)
    network = inception.InceptionV3([inception.InceptionV3.BLOCK_INDEX_BY_DIM[2048]]).to(device)
    fid_score.tqdm = _no_bar

    def embed(folder: Path) -> Rows:
        activations: Rows = fid_score.get_activations(
            _files(folder), network, batch_size=batch_size, device=device, num_workers=_workers()
        )
        return activations

    return embed


def open_clip(_extractor: str, weights: Path, *, device: str, batch_size: int) -> Embed:
    """`encode_image` on what its own preprocessing gives, as its README shows, in float32 and not normalized."""
    import open_clip as library

    network, _, preprocess = library.create_model_and_transforms(
        "ViT-B-32", pretrained=str(weights), force_quick_gelu=True, device=device
    )
    network.eval()
    return _loader_loop(network.encode_image, preprocess, device=device, batch_size=batch_size)


def dgm_eval(extractor: str, weights: Path, *, device: str, batch_size: int) -> Embed:
    """The loop and the transform of dgm-eval, around timm's build of the network that it takes from torch.hub.

    timm's attention is fused; that of the hub is so only where xformers is installed.
    """
    from torchvision import transforms

    transform = transforms.Compose(
        [
            transforms.Resize((224, 224), transforms.InterpolationMode.BICUBIC),
            transforms.ToTensor(),
            transforms.Normalize(**_IMAGENET),
        ]
    )
    network = _hub_dinov2(TIMM_DINOV2[extractor], weights).to(device)
    return _loader_loop(network, transform, device=device, batch_size=batch_size)


def _hub_dinov2(architecture: str, weights: Path) -> nn.Module:
    """Load the model with position embeddings resampled as by `interpolate_pos_encoding` of its authors."""
    import timm
    from timm.models.vision_transformer import checkpoint_filter_fn

    state = torch.load(weights)
    network: Any = timm.create_model(architecture, img_size=224, num_classes=0)
    positions = state["pos_embed"]
    grid = positions[:, 1:].reshape(1, 37, 37, -1).permute(0, 3, 1, 2)
    factor = (16 + 0.1) / 37
    grid = nn.functional.interpolate(grid, scale_factor=(factor, factor), mode="bicubic")
    state["pos_embed"] = torch.cat([positions[:, :1], grid.permute(0, 2, 3, 1).flatten(1, 2)], dim=1)
    network.load_state_dict(checkpoint_filter_fn(state, network))
    evaluated: nn.Module = network.eval()
    return evaluated


class _ImageFiles(torch.utils.data.Dataset[Tensor]):
    def __init__(self, files: list[str], transform: Callable[[Image.Image], Tensor]) -> None:
        self._files = files
        self._transform = transform

    def __len__(self) -> int:
        return len(self._files)

    def __getitem__(self, index: int) -> Tensor:
        return self._transform(Image.open(self._files[index]).convert("RGB"))


def _loader_loop(
    network: Callable[[Tensor], Tensor],
    transform: Callable[[Image.Image], Tensor],
    *,
    device: str,
    batch_size: int,
) -> Embed:
    """A DataLoader in front of a network, with the workers of pytorch-fid and dgm-eval."""

    def embed(folder: Path) -> Rows:
        loader = torch.utils.data.DataLoader(
            _ImageFiles(_files(folder), transform),
            batch_size=batch_size,
            num_workers=_workers(),
            pin_memory=device == "cuda",
        )
        with torch.no_grad():
            rows = [network(batch.to(device, non_blocking=True)).cpu() for batch in loader]
        return torch.cat(rows).numpy()

    return embed


def _files(folder: Path) -> list[str]:
    return sorted(map(str, folder.iterdir()))


def _workers() -> int:
    return min(usable_cores(), 8)


def _no_bar(batches: Any) -> Any:  # noqa: ANN401 - any iterable, given back
    return batches


# Measurements.


@dataclass(frozen=True, slots=True)
class Peer:
    """Another implementation of the same features, with its default batch size."""

    name: str
    module: str  # that must be installed
    load: Callable[..., Embed]
    batch_size: int


_FIDELITY = Peer("torch-fidelity", "torch_fidelity", torch_fidelity, 64)
_DGM_EVAL = Peer("dgm-eval's loop, timm", "timm", dgm_eval, 50)
COMPARISONS = {
    "inception": _FIDELITY,
    "inception@torch-bilinear": Peer("pytorch-fid", "pytorch_fid", pytorch_fid, 50),
    "vgg16": _FIDELITY,
    "clip-vit-b-32": Peer("open_clip", "open_clip", open_clip, 64),
    "dinov2-vits14": _DGM_EVAL,
    "dinov2-vitb14": _DGM_EVAL,
    "dinov2-vitl14": _DGM_EVAL,
    "gabor": None,
    "pixels": None,
}
_LARGE = {"dinov2-vitb14", "dinov2-vitl14"}


@dataclass(slots=True)
class Tool:
    """One tool of a comparison, and what was measured of it."""

    name: str
    load: Callable[..., Embed]
    batch_size: int
    rates: list[float] = field(default_factory=list)  # images per second, by round
    peak_bytes: int | None = None  # with libraries, network and workers; of torch's memory on a GPU
    failure: str = ""


@dataclass(slots=True)
class Record:
    """genpr and its peer with an extractor; difference and spread between images are over the range of all features."""

    extractor: str
    tools: list[Tool]
    difference: float | None = None
    spread: float | None = None

    @property
    def agrees(self) -> bool | None:
        """Whether the features are the same, and those of different images are not; None without two of them."""
        if self.difference is None or self.spread is None:
            return None
        return self.difference <= _AGREES and self.spread >= 10 * _AGREES

    @property
    def ratios(self) -> list[float]:
        """Images per second over the peer's, round by round."""
        ours, *theirs = [tool.rates for tool in self.tools]
        return [own / peer for own, peer in zip(ours, *theirs, strict=False)] if theirs else []


def measure(
    load: Callable[..., Embed],
    extractor: str,
    weights: Path | None,
    folder: Path,
    device: str,
    batch_size: int,
    out: Path | None,
) -> tuple[float, int | None]:
    """Load the network, warm up on a few images, then embed the folder: seconds, or features in `out` and peak memory."""
    torch.manual_seed(0)
    embed = load(extractor, weights, device=device, batch_size=batch_size)
    embed(folder.with_name("warm-up"))
    if out is None:
        start = perf_counter()
        embed(folder)  # the features are on the CPU, so a GPU has finished
        return perf_counter() - start, None
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    # Peers leave TensorFloat-32 on where a GPU has it, which moves features by 1e-3; they are timed with it.
    with state_guard(), TreeMemory() as memory:
        np.save(out, embed(folder).astype(np.float32))
    return 0.0, torch.cuda.max_memory_allocated() if device == "cuda" else memory.peak


def compare(
    extractor: str, peer: Peer | None, folder: Path, *, device: str, batch_size: int, rounds: int
) -> Record:
    """Compare the features, then time rounds in which the tools alternate; a tool that fails is not run again."""
    weights = write_random_weights(extractor, folder.parent)
    tools = [Tool("genpr", genpr_embed, batch_size)]
    if peer is not None and find_spec(peer.module) is not None:
        tools.append(Tool(peer.name, peer.load, peer.batch_size))
    record, files = Record(extractor, tools), []
    for number in range(rounds + 1):  # the first of features and memory
        for tool in tools:
            if tool.failure:
                continue
            out = folder.with_name(f"{tool.load.__name__}.npy") if number == 0 else None
            job = (measure, tool.load, extractor, weights, folder, device, tool.batch_size, out)
            try:
                seconds, peak = in_new_process(*job, timeout=3600)
            except CaseFailedError as error:
                tool.failure = str(error)
                continue
            if out is not None:
                tool.peak_bytes = peak
                files.append(out)
            else:
                tool.rates.append(len(list(folder.iterdir())) / seconds)
        click.echo(f"{extractor}: {number} of {rounds} rounds", err=True)
    if len(files) == 2:
        ours, theirs = (np.load(file).astype(np.float64) for file in files)
        extent = float(theirs.max() - theirs.min()) or 1.0
        is_same_shape = ours.shape == theirs.shape
        record.difference = float(np.abs(ours - theirs).max()) / extent if is_same_shape else float("inf")
        record.spread = float(np.median(theirs.std(axis=0))) / extent
    return record


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--only", multiple=True, type=click.Choice(list(COMPARISONS)), help="Default: all but the large DINOv2."
)
@click.option("--images", default=256, show_default=True, help="Number of PNG files of 256 x 256 pixels.")
@click.option("--rounds", default=3, show_default=True)
@click.option("--batch-size", default=64, show_default=True, help="Batch size of genpr.")
@click.option("--device", default="cpu", show_default=True, type=click.Choice(["cpu", "cuda"]))
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    help="JSON lines; a table is written next to it.",
)
def main(
    only: tuple[str, ...], images: int, rounds: int, batch_size: int, device: str, out: Path | None
) -> None:
    """Embed a folder with genpr and with torch-fidelity, pytorch-fid, open_clip and dgm-eval's loop.

    Features are compared first. Then the tools alternate, each time in a new process, with their default numbers of
    threads and workers and their default batch size. Both use the same random weights.

    Exits 1 if features disagree or a tool fails.
    """
    machine = describe_machine(threads=usable_cores(), device=device, also=_PACKAGES)
    out = out or RESULTS / f"extractors-{datetime.now(UTC):%Y-%m-%d}-{machine.slug}.jsonl"
    command = shlex.join(["bench_extractors.py", *map(without_folder, sys.argv[1:])])
    records = []
    with tempfile.TemporaryDirectory(prefix="genpr-bench-") as scratch:
        folder, warm_up = Path(scratch) / "images", Path(scratch) / "warm-up"
        folder.mkdir()
        warm_up.mkdir()
        make_images(folder, count=images, size=256)
        for path in sorted(folder.iterdir())[:_WARM_UP_IMAGES]:
            shutil.copyfile(path, warm_up / path.name)
        for extractor, peer in COMPARISONS.items():
            if extractor in only if only else extractor not in _LARGE:
                record = compare(extractor, peer, folder, device=device, batch_size=batch_size, rounds=rounds)
                records.append(record)
                tools = [{**asdict(tool), "load": tool.load.__name__} for tool in record.tools]
                facts = {"command": command, "images": images, "device": device, "agrees": record.agrees}
                measured = {"difference": record.difference, "spread": record.spread, "ratios": record.ratios}
                append_record(
                    out, "extractors", machine, extractor=extractor, tools=tools, **facts, **measured
                )
    text = markdown(records, machine, f"`{command}`")
    out.with_suffix(".md").write_text(text, encoding="utf-8")
    click.echo(text)
    sys.exit(any(record.agrees is False or any(tool.failure for tool in record.tools) for record in records))


_COLUMNS = (
    "extractor",
    "tool",
    "batch",
    "median images/s",
    "min–max",
    "genpr / peer",
    "per round",
    "peak GB",
    "difference",
)


def markdown(records: list[Record], machine: Machine, command: str) -> str:
    """The report."""
    lines = [
        f"# {datetime.now(UTC):%Y-%m-%d}, extractors, {machine.gpu or machine.cpu}",
        "",
        *machine.paragraph,
        command,
    ]
    lines += ["", f"| {' | '.join(_COLUMNS)} |", f"|---|---|{'--:|' * 7}"]
    for record in records:
        for tool in record.tools:
            rates, is_ours = tool.rates, tool.name == "genpr"
            cells = [
                record.extractor if is_ours else "",
                tool.name,
                str(tool.batch_size),
                f"{median(rates):.3g}" if rates else f"FAILED: {tool.failure}",
                f"{min(rates):.3g}–{max(rates):.3g}" if rates else "",
                "" if is_ours or not record.ratios else f"{median(record.ratios):.2f}",
                "" if is_ours else ", ".join(f"{ratio:.2f}" for ratio in record.ratios),
                "" if tool.peak_bytes is None else f"{tool.peak_bytes / 1e9:.2f}",
                "" if is_ours or record.difference is None else f"{record.difference:.1e}",
            ]
            lines.append(f"| {' | '.join(cells)} |")
    compared = [record.agrees for record in records if record.agrees is not None]
    return (
        "\n".join(
            [*lines, "", f"{sum(compared)} of {len(compared)} extractors give the features of their peer."]
        )
        + "\n"
    )


if __name__ == "__main__":
    main()
