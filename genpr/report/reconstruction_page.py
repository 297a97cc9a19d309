"""Reconstructions as one HTML file with the worst pairs side by side."""

from __future__ import annotations

from typing import Any

import numpy as np

from genpr.evaluation.reconstruction import Reconstructed
from genpr.evaluation.reconstruction_options import FAMILY
from genpr.images.policy import DecodePolicy
from genpr.metrics.registry import ALL_METRICS
from genpr.report.page import Gallery, Picture, Role, load_images, open_pictures
from genpr.report.score_page import html_report
from genpr.report.text import number

_SHOWN = 24


def reconstruction_report(
    found: Reconstructed, real: object, fake: object, *, policy: DecodePolicy | None = None
) -> str:
    """Metrics of pairs as one self-contained page, with the worst pairs by each metric.

    `real` and `fake` are the sources of the originals and of the reconstructions.
    """
    roles: tuple[Role, Role] = ("real", "fake")
    sources: dict[Role, tuple[object, Any, Any]] = {
        role: (source, side.names, None if side.identities is None else side.identities.numpy())
        for role, source, side in zip(roles, (real, fake), found.sources, strict=True)
    }
    galleries = [_worst(found, name) for name in found.values]
    return html_report(found.result, load_images(open_pictures(sources, policy), galleries))


def _worst(found: Reconstructed, metric: str) -> Gallery:
    """The worst pairs by one metric."""
    values, (real, fake) = found.values[metric], found.sources
    sign = 1 if ALL_METRICS[FAMILY + metric].better == "higher" else -1
    pictures = [
        Picture(
            ("real", row),
            f"{real.name_of(row)}: {metric} {number(float(values[row]))}",
            ("fake", row),
            f"its reconstruction {fake.name_of(row)}",
        )
        for row in np.argsort(sign * values, kind="stable")[:_SHOWN].tolist()
    ]
    sentence = (
        f"Each original (left) with its reconstruction (right), the worst of {len(values):,} pairs first."
    )
    return Gallery(f"Worst pairs by {metric}", sentence, tuple(pictures))
