"""Ten seconds of work with known answers: fidelity and diversity told apart, every count right, every codec read.

The answers do not come from genpr: features are whole multiples of one step, so that all squared distances are integers
and numpy's int64 has no rounding.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from genpr.doctor.finding import Finding, State

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Integers = NDArray[np.int64]

_REPORT = "do not trust scores of this machine; report this output as a bug of genpr"
_STEP = 2.0**-21  # float32 values between 4 and 8 are whole multiples of it
_K = 5
_Kinds = tuple[tuple[str, dict[str, object]], ...]
_LOSSLESS: _Kinds = (
    ("PNG", {}),
    ("WEBP", {"lossless": True}),
    ("GIF", {}),
    ("BMP", {}),
    ("PPM", {}),
    ("TIFF", {}),
)
_LOSSY: _Kinds = (("JPEG", {"quality": 90}), ("WEBP", {"quality": 90}), ("AVIF", {"quality": 90}))
_MOST_OFF = 24  # grey levels, of a smooth image at quality 90; a mix-up of channels is beyond 100


def look_at_directions() -> Iterator[Finding]:
    """Precision and recall are not exchanged: lost kinds lower recall alone, noise lowers precision alone."""
    import numpy as np

    from genpr.evaluation.evaluate import score

    rng = np.random.default_rng(0)
    centres, kind = 6 * rng.normal(size=(6, 8)), np.arange(300) % 6
    real = (centres[kind] + rng.normal(size=(300, 8))).astype(np.float32)
    dropped = (centres[kind % 2] + rng.normal(size=(300, 8))).astype(np.float32)
    noisy = (centres[kind] + 5 * rng.normal(size=(300, 8))).astype(np.float32)
    found = {}
    for name, fake in (("dropped", dropped), ("noisy", noisy)):
        result = score(real, fake, device="cpu", control=False, intervals=False)
        found[name] = {metric: result[metric] for metric in ("precision", "recall")}
    swapped = score(dropped, real, device="cpu", control=False, intervals=False)
    is_right = (
        found["dropped"]["precision"] > 0.6 > 0.5 > found["dropped"]["recall"]
        and found["noisy"]["recall"] > 0.6 > 0.4 > found["noisy"]["precision"]
        and swapped["recall"] == found["dropped"]["precision"]
        and swapped["precision"] == found["dropped"]["recall"]
    )
    pairs = ", ".join(f"{v['precision']:.2f}/{v['recall']:.2f}" for name, v in found.items())
    yield _finding("directions", is_right, f"fidelity and diversity are told apart ({pairs})", pairs, found)


def look_at_exactness() -> Iterator[Finding]:
    """Counts by the fast search equal those by integers, with ties and copies, and far from the origin."""
    yield from _exactness("exactness", "cpu")


def look_at_gpus() -> Iterator[Finding]:
    """As `look_at_exactness`, on each GPU; nothing where there is none."""
    import torch

    for index in range(torch.cuda.device_count()):
        yield from _exactness(f"exactness cuda:{index}", f"cuda:{index}")


def _exactness(name: str, device: str) -> Iterator[Finding]:
    import numpy as np

    rng = np.random.default_rng(1)
    grid = rng.integers(0, 4, (2, 250, 6))  # ties without end
    grid[1, :40] = grid[0, :40]
    near = np.rint((5 + 0.05 * rng.normal(size=(2, 250, 16))) / _STEP).astype(
        np.int64
    )  # mean 5, deviation 0.05
    near[1, :40] = near[0, :40]
    wrong = [
        what
        for what, sets, step in (("ties", grid, 1.0), ("off-centre", near, _STEP))
        if not _counts_agree(sets, step, device)
    ]
    text = "every count equals brute force on integers"
    yield _finding(
        name,
        not wrong,
        text,
        f"counts differ from brute force on integers: {', '.join(wrong)}",
        {"wrong": wrong},
    )


def _counts_agree(sets: Integers, step: float, device: str) -> bool:
    """Whether genpr counts as integers do: sets (2, n, d) in units of `step`, both directions, closed and strict balls."""
    import numpy as np

    from genpr.metrics.knn_manifold import KNNManifold

    for centres, queries in (sets, sets[::-1]):
        own, across = _sq_distances(centres, centres), _sq_distances(queries, centres)
        np.fill_diagonal(own, np.iinfo(np.int64).max)
        radii = np.sort(own, axis=1)[:, _K - 1]
        rows = [(side * step).astype(np.float32) for side in (centres, queries)]
        for ties, inside in (("closed", across <= radii), ("strict", across < radii)):
            manifold = KNNManifold.fit(rows[0], k=_K, ties=ties, device=device)  # type: ignore[arg-type]
            if not np.array_equal(manifold.count(rows[1]).cpu().numpy(), inside.sum(1)):
                return False
    return True


def _sq_distances(x: Integers, y: Integers) -> Integers:
    """Between the rows of (n, d) and of (m, d), in units of a squared step: (n, m), exactly."""
    import numpy as np

    return np.stack([np.square(row - y).sum(axis=1) for row in x])


def look_at_codecs() -> Iterator[Finding]:
    """Each format that genpr reads, from bytes made here; a Pillow without a codec refuses such images."""
    import numpy as np
    from PIL import Image, features

    ramp = np.arange(0, 240, 4, dtype=np.uint8)
    pixels = np.stack(
        [np.broadcast_to(ramp, (60, 60)), np.broadcast_to(ramp[:, None], (60, 60)), np.full((60, 60), 200)],
        axis=2,
    )
    pixels = pixels.astype(np.uint8)
    absent = [name for name in ("WEBP", "AVIF") if not features.check(name.lower())]
    wrong: list[str] = []
    right: list[str] = []
    for most_off, kinds in ((0, _LOSSLESS), (_MOST_OFF, _LOSSY)):
        for name, options in kinds:
            if name in absent:
                continue
            sent = _few_colours(pixels) if name == "GIF" else pixels
            off = _decoded_off(Image.fromarray(sent), sent, name, options)
            (wrong if off is None or off > most_off else right).append(name)
    facts = {"read": sorted(set(right)), "wrong": sorted(set(wrong)), "absent": absent}
    read = ", ".join(dict.fromkeys(right))
    if wrong:
        yield _finding(
            "decoding", False, "", f"decoded to other pixels than were encoded: {', '.join(wrong)}", facts
        )
    elif absent:
        text = f"{read} are read rightly; this Pillow was built without {' and '.join(absent)}"
        yield Finding(
            "decoding", "warn", text, "pip install --force-reinstall --only-binary :all: pillow", facts
        )
    else:
        yield Finding("decoding", "ok", f"{read} read rightly", facts=facts)


def _few_colours(pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """64 colours, which a GIF holds without loss."""
    return pixels // 32 * 32


def _decoded_off(
    image: object, sent: NDArray[np.uint8], name: str, options: Mapping[str, object]
) -> int | None:
    """The largest difference in grey levels after encoding and genpr's decoding; None where either fails."""
    import numpy as np

    from genpr.images.decode import decode
    from genpr.images.policy import DecodePolicy

    buffer = io.BytesIO()
    try:
        image.save(buffer, format=name, **options)  # type: ignore[attr-defined]
        got = decode(buffer.getvalue(), name=f"made.{name.lower()}", policy=DecodePolicy()).pixels
    except Exception:  # noqa: BLE001 - of a broken codec
        return None
    return int(np.abs(got.astype(np.int16) - sent).max()) if got.shape == sent.shape else None


def look_at_features() -> Iterator[Finding]:
    """The same images give the same features, to the bit, embedded together and one by one."""
    import torch

    from genpr.demo.shapes import ShapesGenerator, draw_latents
    from genpr.features.embed import embed
    from genpr.features.registry import load_extractor

    images = ShapesGenerator()(draw_latents(24, seed=0))
    gabor = load_extractor("gabor", device="cpu")
    rows = [embed(images, gabor, batch_size=size) for size in (24, 24, 1)]
    is_right = all(torch.equal(rows[0], other) for other in rows[1:]) and bool(rows[0].std(0).max() > 0)
    text = "equal to the bit, embedded together and one by one"
    yield _finding("same features", is_right, text, "the same images gave other features (gabor)", {})


def _finding(name: str, is_right: bool, text: str, wrong: str, facts: Mapping[str, object]) -> Finding:
    state: State = "ok" if is_right else "broken"
    return Finding(name, state, text if is_right else wrong, "" if is_right else _REPORT, facts)
