"""Programs of genpr and clean-fid that take any Inception weights; otherwise both accept the published ones only.

    python _score_commands.py genpr SHA256 BYTES score REAL FAKE --weights FILE ...
    python _score_commands.py clean-fid FOLDER REAL FAKE DEVICE WORKERS

FOLDER has the TorchScript program of the network. Start-up counts in the time of a command, so that this module imports
nothing that its tool does not import.
"""

from __future__ import annotations

import sys


def run_genpr(sha256: str, size: str, *arguments: str) -> None:
    """Run the command line of genpr with another sha256 and length of the published file."""
    from genpr.__main__ import main
    from genpr.runtime import limit_malloc_arenas

    limit_malloc_arenas()  # as in main, before an import starts a thread
    from dataclasses import replace

    from genpr.features import known_weights

    # The registry, which is not imported yet, refers to this entry.
    known_weights.INCEPTION_2015 = replace(known_weights.INCEPTION_2015, sha256=sha256, size=int(size))
    sys.argv[1:] = arguments
    main()


def run_clean_fid(folder: str, real: str, fake: str, device: str, workers: str) -> None:
    """Print the FID of `compute_fid`, which is what clean-fid has instead of a command."""
    from importlib import import_module
    from typing import Any

    import torch

    features: Any = import_module("cleanfid.features")
    fid: Any = import_module("cleanfid.fid")
    network = features.InceptionV3W
    features.InceptionV3W = lambda _folder, **options: network(folder, **options)
    value = fid.compute_fid(
        real,
        fake,
        num_workers=int(workers),
        device=torch.device(device),
        use_dataparallel=device != "cpu",
    )
    print("FID:", value)


if __name__ == "__main__":
    program = run_genpr if sys.argv[1] == "genpr" else run_clean_fid
    program(*sys.argv[2:])
