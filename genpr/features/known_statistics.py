"""Published files of reference statistics, identified by their digest, since they have equal keys and shapes but other FIDs.

Most have no public sha256, but the git blob SHA-1 in their repository. Each digest was read from a git tree, or from public
scripts that assert it. Importing this module does not import torch.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class KnownStatistics:
    """One published file."""

    name: str  # author, data set and users
    digest: str  # "git-sha1:" of the blob, or "sha256:" of the file
    source: str  # the repository
    extractor: str = "inception"  # extractor of `mu` and `sigma`


_FILES = """
git-sha1:1da4c17607fe959d54999fd098105649a0c05e15 LTH14/mar ADM's ImageNet-256 statistics, used by MAR and xAR
git-sha1:9f01d3efdb40292e4b8f2af4054e66ffb3c7ef16 LTH14/torch-fidelity ADM's ImageNet-512 statistics
git-sha1:98cd9e0156880187d2c56998ef638a6f21868598 LTH14/torch-fidelity FFHQ statistics of LTH14's torch-fidelity
git-sha1:3c94ea961be94d06efa9e5bf4da71eff52deaebb LTH14/JiT JiT's ImageNet-256 statistics
git-sha1:349293d82b5625afe1c66c9409f3fa198485a19f LTH14/JiT JiT's ImageNet-512 statistics
sha256:925e8b5b4ced42137f9847f97a63250a2bd59b70f33f3f356e03453d0775f1ac nanovisionx/nanogen-evals-stats \
DiffusionBench's ImageNet-256 statistics, reported to be those of JiT and iMF
"""  # digest, repository, name

KNOWN_STATISTICS = tuple(
    KnownStatistics(name, digest, source)
    for digest, source, name in (line.split(" ", 2) for line in _FILES.strip().splitlines())
)


def find_known(*digests: str) -> KnownStatistics | None:
    """The published file with one of the digests."""
    return next((each for each in KNOWN_STATISTICS if each.digest in digests), None)
