"""What a user says about a generator, checked: its name, its latents, labels and settings."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from genpr.checkpoints.generation.generator import Setting
from genpr.errors import UsageError


def own_name(generator: Any) -> str:  # noqa: ANN401 - a user's object
    """What to call a generator that was given no name."""
    for attribute in ("name", "__name__"):
        value = getattr(generator, attribute, None)
        if isinstance(value, str) and value:
            return value
    return type(generator).__name__


def latent_dim_of(generator: object, given: int | None, who: str) -> int:
    """Coordinates of a latent, as given or as the generator says.

    Raises:
        UsageError: Neither says it.
    """
    if given is not None:
        return given
    for attribute in ("z_dim", "latent_dim"):
        value = getattr(generator, attribute, None)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
    raise UsageError(
        f"latent_dim is needed: {who} does not say how many coordinates a latent has (an attribute `z_dim` or "
        "`latent_dim` would)",
        code="latent-dim",
    )


def checked_labels(labels: object, n: int) -> Tensor | None:
    """Labels as a tensor of their own, (n,) or (n, c).

    Raises:
        UsageError: They are no numbers, or not one row per image.
    """
    if labels is None:
        return None
    try:
        rows = torch.as_tensor(np.asarray(labels) if not isinstance(labels, Tensor) else labels)
    except (TypeError, ValueError, RuntimeError) as error:
        raise UsageError(
            f"labels must be numbers, one row per image, not {type(labels).__name__} ({error})",
            code="generator-labels",
        ) from error
    if rows.ndim not in {1, 2} or len(rows) != n:
        raise UsageError(
            f"labels must be (n,) or (n, c) with n = {n}, one row per image, but are {tuple(rows.shape)}",
            code="generator-labels",
        )
    return rows.detach().cpu().clone()


def plain_setting(setting: object, axis: str) -> Setting:
    """A setting as plain JSON can hold it.

    Raises:
        UsageError: It is no finite number and no text.
    """
    if isinstance(setting, np.generic):
        setting = setting.item()
    if isinstance(setting, bool | int | str) or (isinstance(setting, float) and math.isfinite(setting)):
        return setting
    raise UsageError(f"{axis} must be set to a finite number or a text, not {setting!r}", code="bad-setting")
