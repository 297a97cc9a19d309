"""Metrics that compare images with the labels, prompts, entities or originals that they were generated from.

Families are never averaged: `recall` is a share of the reals' variety, `label.macro_recall` of requested classes,
`entity.recall` of named objects. Importing this module does not import torch.
"""

from __future__ import annotations

from genpr.metrics.metric import Metric

_LABELS = "Sokolova and Lapalme 2009, 10.1016/j.ipm.2009.03.002"
_RANKS = "Manning et al. 2008, Introduction to Information Retrieval"
_R_PRECISION = "Xu et al. 2018, arXiv:1711.10485; Park et al. 2021"
_NDCG = "Järvelin and Kekäläinen 2002, 10.1145/582415.582418"
_COPIES = "Pizzi et al. 2022, arXiv:2202.10261"
_ENTITIES = "Hinz et al. 2020, arXiv:1910.13321"
_CLIP_SCORE = "Hessel et al. 2021, arXiv:2104.08718"
_DREAMBOOTH = "Ruiz et al. 2023, arXiv:2208.12242"
_GAN_TEST = "Shmelkov et al. 2018, arXiv:1807.09499"
_GAN_TRAIN = "Shmelkov et al. 2018; Ravuri and Vinyals 2019, arXiv:1905.10887"

_RECONSTRUCTED = "reconstruction."
_SIGNED = {f"{_RECONSTRUCTED}{name}" for name in ("ssim", "clip_i", "dino_i")}  # from -1 to 1
_UNBOUNDED = {f"{_RECONSTRUCTED}{name}" for name in ("psnr", "lpips", "rfid")} | {"alignment.clip_score"}
_LOWER = {"retrieval.copy_rate", "entity.failure_rate", "reconstruction.lpips", "reconstruction.rfid"}

Row = tuple[str, str, str]  # name, meaning and reference


def _ranked(prefix: str, found: str, pool: str) -> list[Row]:
    name = f"retrieval.{prefix}"
    return [
        (f"{name}r_precision", f"{found} ranked first of the pool {pool}", _R_PRECISION),
        *((f"{name}hit_{k}", f"{found} among the first {k} {pool}", _RANKS) for k in (1, 5, 10)),
        (f"{name}mrr", f"mean of 1 / rank of {found} {pool}", _RANKS),
        (f"{name}ndcg", f"discounted gain of {found} {pool}", _NDCG),
        (f"{name}map", f"mean average precision {pool}", _RANKS),
    ]


_ROWS: list[Row] = [
    ("label.gan_test", "accuracy on fakes of a classifier of reals (fidelity)", _GAN_TEST),
    ("label.gan_train", "accuracy on reals of a classifier of fakes (diversity)", _GAN_TRAIN),
    ("label.accuracy", "share of images recognized as the requested class", _LABELS),
    ("label.macro_precision", "precision of a class, averaged over classes", _LABELS),
    ("label.macro_recall", "recall of a class, averaged over classes", _LABELS),
    ("label.macro_f1", "F1 of a class, averaged over classes", _LABELS),
    *_ranked("", "own prompt", "(image to text)"),
    *_ranked("t2i_", "own image", "(text to image)"),
    ("retrieval.copy_rate", "share of fakes too similar to a training image", _COPIES),
    ("alignment.clip_score", "2.5 cos of image and prompt, at least 0", _CLIP_SCORE),
    ("entity.recall", "share of an image's expected entities found", _ENTITIES),
    ("entity.micro_recall", "share of expected entities found, pooled", _ENTITIES),
    ("entity.macro_recall", "share of an entity's images with it, by entity", _ENTITIES),
    ("entity.all_found", "share of images with all entities right", "Ghosh et al. 2023, arXiv:2310.11513"),
    ("entity.precision", "share of an image's found entities expected", _ENTITIES),
    ("entity.micro_precision", "share of found entities expected, pooled", _ENTITIES),
    ("entity.macro_precision", "share of an entity's finds expected, by entity", _ENTITIES),
    ("entity.failure_rate", "share of unreadable answers", "this package"),
    (f"{_RECONSTRUCTED}psnr", "10 log10(255^2 / MSE) of a pair, in dB", "Wang et al. 2004"),
    (f"{_RECONSTRUCTED}ssim", "structural similarity of a pair", "Wang et al. 2004, 10.1109/TIP.2003.819861"),
    (f"{_RECONSTRUCTED}lpips", "distance of a pair in a network", "Zhang et al. 2018, arXiv:1801.03924"),
    (
        f"{_RECONSTRUCTED}rfid",
        "Fréchet distance of all pairs' features",
        "Heusel et al. 2017, arXiv:1706.08500",
    ),
    (f"{_RECONSTRUCTED}clip_i", "cosine of a pair's CLIP embeddings", _DREAMBOOTH),
    (f"{_RECONSTRUCTED}dino_i", "cosine of a pair's DINO embeddings", _DREAMBOOTH),
]

CONDITIONAL_METRICS = [
    Metric(
        name=name,
        meaning=meaning,
        kind="conditional",
        better="lower" if name in _LOWER else "higher",
        reference=reference,
        lower=-1.0 if name in _SIGNED else 0.0,
        upper=None if name in _UNBOUNDED else 1.0,
    )
    for name, meaning, reference in _ROWS
]
"""In display order."""
