"""Results with given values, intervals, nulls and notices, without scoring; and parsed pages."""

import io
from dataclasses import replace

import html5lib
import numpy as np
from PIL import Image

from genpr.evaluation.result import (
    AlignmentSummary,
    Confusion,
    EntityRow,
    EntitySummary,
    LabelRow,
    LabelSummary,
    Misranked,
    Result,
    SideSummary,
    Unreadable,
)
from genpr.features.extractor import ExtractorInfo
from genpr.metrics.metric import Control, MetricValue
from genpr.notices import notice

GABOR = ExtractorInfo("gabor", 736, "bicubic", None, comparable=False, cache_key="ab" * 32)
NULLS = {"precision": 0.9, "recall": 0.9, "density": 1.0, "coverage": 0.97}
HOSTILE = (
    *("<script>alert(1)</script>.png", "=cmd()", "\x1b[31mred\x07.png", "\udc80broken.png", "\u202egnp.exe"),
    *('"><img src=x onerror=alert(1)>', "$\\frac{1}{$", "x" * 4000),
)


def a_side(source="real", n=1000):
    return SideSummary(source, n, n, 0, 0, (), {}, {"pillow": "12"}, 1.0, "c" * 64, "d" * 64)


def a_result(values=None, *, arm=0.03, codes=(), n=1000, nulls=NULLS, control=True, **changes):
    """A result whose `values` are relative to the nulls; half widths of intervals are `arm` nulls, or unknown."""
    shares = {"precision": 1.0, "recall": 1.0, "density": 1.0, "coverage": 1.0} if values is None else values
    metrics = {}
    for name, share in shares.items():
        ends = None if arm is None else (max(0.0, share - arm) * nulls[name], (share + arm) * nulls[name])
        known = {"null": nulls[name], "null_source": "leave-one-out", "interval": ends, "n_counted": n}
        metrics[name] = MetricValue(share * nulls[name], 5, extractor="gabor", **known)
    facts = dict.fromkeys(("shown", "real", "fake", "sign", "z", "share", "expected", "largest"), "1%")
    facts |= {"sets": f"{n} fakes", "count": 3, "total": 9}
    halves = Control(n // 2, n // 2, dict.fromkeys(metrics, 0.88), dict.fromkeys(metrics, 0.87))
    made = Result(
        metrics=metrics,
        protocol="genpr",
        ties="closed",
        extractor=GABOR,
        extractors={"gabor": GABOR},
        deviations=(),
        real=a_side("data/real", n),
        fake=a_side("out/fake", n),
        n_shared=0,
        device="cpu",
        seed=0,
        max_images=None,
        seconds={"fit_real": 1.0},
        versions={"genpr": "0.1.0"},
        notices=tuple(notice(code, **facts) for code in codes),
        control=halves if control else None,
    )
    return replace(made, **changes)


def parsed(page):
    """The parsed document; parse errors of the HTML standard are raised."""
    return html5lib.HTMLParser(strict=True, namespaceHTMLElements=False).parse(page)


def elements(page, name):
    found = (each for each in parsed(page).iter() if isinstance(each.tag, str))
    return [each for each in found if each.tag.rsplit("}", 1)[-1] == name]


def text_of(element):
    return " ".join("".join(element.itertext()).split())


def section(page, name):
    """The text of the section with an id, or None."""
    found = [each for each in elements(page, "section") if each.get("id") == name]
    return text_of(found[0]) if found else None


def picture(form="PNG", seed=0):
    buffer = io.BytesIO()
    pixels = np.random.default_rng(seed).integers(0, 256, (16, 16, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(buffer, form)
    return buffer.getvalue()


def a_conditional_result(name="cat", *, mixed=False):
    """A result with labels, prompts and entities; `name` is the name of a class, a prompt, an entity and an image."""
    plain = a_result({"precision": 1.0, "recall": 0.6} if mixed else {})
    metrics = {
        "label.gan_test": MetricValue(0.7, 5, null=0.9, interval=(0.67, 0.73), chance=0.1),
        "retrieval.r_precision": MetricValue(0.4, None, interval=(0.35, 0.45), chance=0.01, pool=100),
        "alignment.clip_score": MetricValue(0.71, None, interval=(0.7, 0.72)),
        "entity.recall": MetricValue(0.6, None, interval=(0.5, 0.7)),
        "entity.failure_rate": MetricValue(0.01, None),
    }
    labels = LabelSummary(
        classifier="knn",
        k=5,
        rows=(
            LabelRow(name, 100, 10, 5, 90, 895, 10 / 15, 0.1, 0.174),
            LabelRow("dog", 100, 95, 0, 5, 900, 1.0, 0.95, 0.974),
        ),
        confusions=(Confusion(name, "dog", 90),),
        undefined=(),
    )
    failures = tuple(Misranked(name, name, 99.5 - rank, 0.1, name, 0.3) for rank in range(40))
    return replace(
        plain,
        metrics={**plain.metrics, **metrics},
        real=plain.real if mixed else replace(plain.real, what="prompts", source="prompts.csv"),
        labels=labels,
        alignment=AlignmentSummary(100, 900, 3, failures),
        entities=EntitySummary(
            100,
            (EntityRow(name, 50, 10, 4), EntityRow("sky", 9, 9, None)),
            (Unreadable(name, "prose", name),),
        ),
    )


SPREAD = 0.004  # of independent replicates: differences of about 0.008 or more are distinguishable


def a_scored(values, *, seed=1, nulls=NULLS, **changes):
    """As `a_result`, with replicates, which share the variation of the reals among all results."""
    made = a_result(values, nulls=nulls, **changes)
    shared = np.random.default_rng(0).normal(0, 0.05, 50)
    own = np.random.default_rng(seed)
    metrics = {
        name: replace(
            metric,
            replicates=tuple(float(each) for each in metric.value + shared + own.normal(0, SPREAD, 50)),
        )
        for name, metric in made.metrics.items()
    }
    return replace(made, metrics=metrics)


def pair(first, other, **changes):
    """Two results by name, with values `first` and `other` relative to the nulls."""
    return {"a.json": a_scored(first, **changes), "b.json": a_scored(other, seed=2, **changes)}
