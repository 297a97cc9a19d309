"""Where weight files may lie on this machine: genpr's own folder, and the caches of torch.hub and Hugging Face."""

from __future__ import annotations

import os
import re
from pathlib import Path

from genpr.features.weights.known import WeightsFile
from genpr.runtime import cache_root, expanded, folder_risk, is_own_file, private_folder, user_cache


def weights_folder() -> Path:
    """Folder of downloaded weights; it need not exist yet."""
    return cache_root() / "weights"


def make_weights_folder() -> Path:
    """Create `weights_folder` for this user alone.

    Raises:
        ResourceError: It cannot be created, or belongs to somebody else.
    """
    return private_folder(cache_root(), weights_folder().name)


def is_trusted(path: Path) -> bool:
    """Whether a file in `weights_folder` is this user's own, in folders that no other user can change.

    Raises:
        OSError: It cannot be examined.
    """
    return is_own_file(path) and not any(map(folder_risk, (cache_root(), weights_folder())))


def shared_copy(entry: WeightsFile) -> Path:
    """Where the program that usually fetches `entry` would have put it; it need not be there."""
    address = entry.hub_address
    return _torch_hub_folder() / entry.name if address is None else _hugging_face_copy(*address)


def sha256_of_blob(path: Path) -> str | None:
    """The digest by which Hugging Face's cache names a large file that `path` links to, if it does."""
    target = path.resolve()
    is_blob = target.parent.name == "blobs" and re.fullmatch(r"[0-9a-f]{64}", target.name)
    return target.name if is_blob else None


def _torch_hub_folder() -> Path:
    home = os.environ.get("TORCH_HOME") or user_cache() / "torch"
    return expanded(home) / "hub" / "checkpoints"


def _hugging_face_copy(repo_id: str, revision: str, filename: str) -> Path:
    home = os.environ.get("HF_HOME") or user_cache() / "huggingface"
    caches = expanded(os.environ.get("HF_HUB_CACHE") or Path(home) / "hub")
    folder = caches / f"models--{repo_id.replace('/', '--')}"
    try:
        commit = (folder / "refs" / revision).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        commit = revision  # it is a commit, or nothing is there
    return folder / "snapshots" / commit / filename
