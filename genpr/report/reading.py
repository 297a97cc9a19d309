"""What a score says, in plain language, by written rules.

The rules hold fidelity (precision) and diversity (recall) against their nulls, by their 95 % intervals:

1. A metric is read as its value over its null, the share that is there of what a perfect generator reaches.
2. Nothing is blamed unless the whole interval says so: a loss counts only where the upper end lies more than 3 % below the
   null. Of a perfect generator that happens less often than once in forty times, by chance.
3. A loss that counts is told as the nearest simple fraction; as two percentages where the interval spans more than a fifth.
4. Where no loss counts but more than 15 % may be lost, that is said: the images are too few to know.
5. Recall is believed only as far as coverage supports it. Stray fakes have large balls, which hold reals that resemble none
   of them. So where the interval of coverage, over what as many good fakes as precision counts would cover, lies more than
   a tenth below that of recall, coverage is read instead. Where almost no fake is good, variety is not judged at all.
6. What labels, prompts and entities say (`genpr.report.asked_reading`) stands beside that; it is the sentence where it is all
   there is.
7. Warnings that take a sentence back are part of it: equal sets, copies, missing kinds, single odd features.

With m = precision over its null the share of good fakes, k neighbours and r fakes per real, that many good fakes cover
1 - (1 + m r)^-k of the reals, up to terms of 1 / n (Naeem et al. 2020, arXiv:2002.09797, with balls of m r times as many
fakes as reals).
"""

from __future__ import annotations

from dataclasses import dataclass

from genpr.evaluation.result import Result
from genpr.metrics import ball_metrics as metrics
from genpr.report.asked_reading import asked_sentences, objection
from genpr.report.shares import SLACK, Grade, Share, percent, share_of

_CONTRADICTED = 0.10
_FRINGE = 0.80
_WARNINGS = {
    "protocol-not-met": "The protocol could not be met, so do not set these numbers beside others of it.",
    "copied-reals": "Some fakes are byte-identical copies of reals, and copies count as perfect.",
    "near-copies": "Some fakes all but copy reals, so part of this may be memorised.",
    "copying": "The fakes are nearer to the training images than other reals are, so part of this may be memorised.",
    "duplicates": "Many images repeat others, which moves every number.",
    "near-duplicates": "Many images are near-duplicates of others in their own set, which lowers these numbers.",
    "shrinkage": "The fakes are closer together than the reals, which raises precision, density and coverage.",
    "outlier-dominance": "Single unusual reals vouch for many of the fakes, so fidelity may be less than it seems.",
}


@dataclass(frozen=True, slots=True)
class Reading:
    """A score in words.

    Attributes:
        sentence: What a colleague should remember.
        grounds: The numbers that it rests on, one sentence each.
        cautions: What to keep in mind, the weightiest first.
    """

    sentence: str
    grounds: tuple[str, ...]
    cautions: tuple[str, ...]


def read(result: Result) -> Reading:
    """Say in words what a score says, by the rules of this module.

    Args:
        result: Any score; one without precision, recall and coverage has little that can be said.
    """
    fidelity, recall = share_of(result, metrics.precision), share_of(result, metrics.recall)
    diversity = _diversity(result, fidelity, recall)
    codes = {item.code for item in result.notices}
    shares = [share for share in (fidelity, recall, diversity) if share is not None]
    grounds = tuple(dict.fromkeys(_ground(result, share) for share in shares))
    asked = asked_sentences(result)
    if not shares and asked:
        return Reading(asked[0], tuple(asked[1:]), tuple(_cautions(result, None, None, None, codes)))
    sentence = " ".join(filter(None, [_sentence(result, fidelity, diversity, codes), objection(result)]))
    grounds = (*grounds, *(each for each in asked if each[1:] not in sentence))
    return Reading(sentence, grounds, tuple(_cautions(result, fidelity, recall, diversity, codes)))


def _diversity(result: Result, fidelity: Share | None, recall: Share | None) -> Share | None:
    """Recall, or coverage where it contradicts recall or is all there is."""
    coverage = share_of(result, metrics.coverage, expected=_expected_coverage(result, fidelity))
    if recall is None or coverage is None:
        return recall or coverage
    return coverage if coverage.high < min(recall.low, 1.0) - _CONTRADICTED else recall


def _expected_coverage(result: Result, fidelity: Share | None) -> float | None:
    """What the good fakes alone would cover if they were a perfect generator's; None where that is the null."""
    found = result.metrics.get(metrics.coverage.name)
    if found is None or found.null is None or found.k is None or fidelity is None or fidelity.value >= 1:
        return None
    ratio = result.fake.n / result.real.n
    good, everything = (
        1 - (1 + share * ratio) ** -found.k for share in (max(fidelity.value, 1 / result.fake.n), 1.0)
    )
    return found.null * good / everything


def _sentence(result: Result, fidelity: Share | None, diversity: Share | None, codes: set[str]) -> str:
    if "same-input" in codes:
        return "Both sets hold the same images, so these numbers say nothing about a generator."
    if fidelity is None and diversity is None:
        return (
            "These metrics say how far apart the two sets are, not whether the images or their variety are at fault; "
            "precision and recall would."
        )
    if fidelity is None or diversity is None:
        return _one_sided(fidelity, diversity)
    grades = (fidelity.grade, diversity.grade)
    if grades == (Grade.WHOLE, Grade.WHOLE):
        return _nothing_found(codes)
    if grades == (Grade.UNSETTLED, Grade.UNSETTLED):
        return (
            "Nothing tells the generator from a perfect one, but the images are too few to be sure: "
            f"{fidelity.most_lost} of its images may look like no real one, and {diversity.most_lost} of the variety may be "
            "missing."
        )
    if fidelity.grade is Grade.NONE:
        missing = "they reach almost none of the variety"
        judged = missing if diversity.grade is Grade.NONE else "their variety therefore cannot be judged"
        return f"Almost none of the generator's images look like real ones, and {judged}."
    return f"{_of_images(fidelity)}{_link(fidelity, diversity)}{_of_variety(diversity)}{_kinds(diversity, codes)}."


def _nothing_found(codes: set[str]) -> str:
    base = "The generator draws convincing images"
    if "missing-kinds" in codes:
        return f"{base} and reaches most of the variety, but leaves out certain kinds of images."
    if codes & {"odd-features", "lattice"}:
        return f"{base} and reaches all of the variety by distances, but single features give it away."
    return f"{base} and reaches all of the variety; precision and recall do not tell it from a perfect one."


def _one_sided(fidelity: Share | None, diversity: Share | None) -> str:
    """Where only one of the two was scored."""
    if fidelity is not None:
        return f"{_of_images(fidelity)}; what variety it reaches was not scored."
    if diversity is None:
        return ""
    subject = "" if diversity.grade is Grade.UNSETTLED else "the generator "
    return capital(f"{subject}{_of_variety(diversity)}; whether its images convince was not scored.")


def _of_images(fidelity: Share) -> str:
    match fidelity.grade:
        case Grade.WHOLE:
            return "The generator draws convincing images"
        case Grade.UNSETTLED:
            return f"The generator's images look convincing, though {fidelity.most_lost} of them may not be"
        case Grade.PART:
            return f"{capital(fidelity.lost)} of the generator's images look like no real one"
        case Grade.NONE:
            return "Almost none of the generator's images look like real ones"


def _of_variety(diversity: Share) -> str:
    match diversity.grade:
        case Grade.WHOLE:
            return "reaches all of the variety"
        case Grade.UNSETTLED:
            return f"no variety is surely missing, though {diversity.most_lost} may be"
        case Grade.PART:
            return f"misses {diversity.lost} of the variety"
        case Grade.NONE:
            return "reaches almost none of the variety"


def _link(fidelity: Share, diversity: Share) -> str:
    """Between the clause of images and that of variety, with a subject where the images were the subject."""
    if diversity.grade is Grade.UNSETTLED:
        return "; "
    if fidelity.grade is Grade.UNSETTLED:
        return ", and it " if diversity.grade is Grade.WHOLE else ", but it "
    is_good = fidelity.grade is Grade.WHOLE
    if is_good:
        return " but "  # variety is not whole here
    return ", but as a whole it " if diversity.grade is Grade.WHOLE else ", and it "


def _kinds(diversity: Share, codes: set[str]) -> str:
    is_silent = diversity.grade in (Grade.WHOLE, Grade.UNSETTLED)
    return (
        ", except for certain kinds of images that it leaves out"
        if is_silent and "missing-kinds" in codes
        else ""
    )


def _ground(result: Result, share: Share) -> str:
    metric = result.metrics[share.metric]
    ends = f" (95 % interval {percent(share.low)} to {percent(share.high)})" if share.is_measured else ""
    whole = metric.value / share.value if share.value else metric.null
    held = "a perfect generator scores with so many images"
    if metric.null is not None and whole is not None and abs(whole - metric.null) > 1e-9:
        held = "so many good fakes would score"
    return f"{capital(share.metric)} is {metric.value:.3f}, {percent(share.value)} of the {whole:.3f} that {held}{ends}."


def _cautions(
    result: Result, fidelity: Share | None, recall: Share | None, diversity: Share | None, codes: set[str]
) -> list[str]:
    if "same-input" in codes:
        return []
    found = [text for code, text in _WARNINGS.items() if code in codes]
    if recall is not None and diversity is not None and diversity.metric != recall.metric:
        found.append(
            f"Recall alone says {percent(recall.value)}, but coverage contradicts it: stray fakes have large balls, which "
            "hold reals that resemble none of them. The sentence follows coverage."
        )
    density = share_of(result, metrics.density)
    if (
        fidelity is not None
        and fidelity.grade is Grade.WHOLE
        and density is not None
        and density.high < _FRINGE
    ):
        found.append(
            f"The images keep to the fringe of the real ones: density is {percent(density.value)} of its null."
        )
    if fidelity is not None and fidelity.low > 1 + SLACK:
        found.append(
            "More of the images are close to reals than a perfect generator's would be; look for truncation or copies."
        )
    shares = dict.fromkeys(share for share in (fidelity, diversity) if share is not None)
    wide = [share.metric for share in shares if share.is_wide]
    if wide:
        found.append(
            f"The uncertainty of {' and '.join(wide)} is wide: score more images before deciding on it."
        )
    if any(not share.is_measured for share in shares):
        found.append("No intervals are known here; three binomial standard errors stood in for them.")
    return found


def capital(text: str) -> str:
    """As a sentence begins."""
    return text[:1].upper() + text[1:]
