"""Coded notices: what a user should know about a score, and what to do about it.

A notice never changes a number. Codes are stable, so that programs can react to them; the sentences may be
reworded. All of them stand in one table here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

from genpr.errors import limited

Level = Literal["note", "warning"]

_TABLE = """
# the comparison
not-comparable note
    {extractor} features: compare these numbers with each other, never with published ones
    use --extractor inception for comparable numbers
protocol-not-met warning
    this is not a full {protocol} score: {what}
    do not print it beside {protocol} scores, or give the images it needs
unlabeled-features note
    {source} does not say which extractor made it
    write features with `genpr features`, which records it
statistics-unlabeled note
    {source} does not say which extractor made its mean and covariance; they are taken for those of {extractor}
    `genpr stats` records it; statistics of another resize rule give other distances
statistics-unprepared warning
    --prepare {rule} does not apply to the mean and covariance in {source}, which do not record how their images were prepared
    use them only if their images were prepared by the same rule, or compute them with `genpr stats --prepare {rule}`
statistics-alone note
    {source} has no images, so only distances to its mean and covariance are computed
    give images of reals as REAL, and this file with --reference-statistics, for precision and recall
small-sample note
    only {n} images on one side: below 1,000 these numbers depend strongly on how many there are
    compare scores at equal numbers of images only
unequal-n note
    {n_real} reals against {n_fake} fakes: coverage falls with fewer fakes, recall depends on their number
    read each value beside its null, compare scores at equal sizes only, or set --max-images
same-input warning
    real and fake hold the same images
    a score needs two different sets
copied-reals warning
    {count} of {total} fakes are byte-identical copies of real images and count as perfect
    leave training images out of the generated set
identical-pairs note
    {count} of {total} pairs are identical; their PSNR is infinite and left out of the mean
    report this number with the PSNR; if it is unexpected, check that REAL was not given as RECONSTRUCTED, too
unlike-pairs warning
    {count} of {total} reconstructions are farther from their original than the reconstruction of another image: {shown}
    check that both sides have the same order or the same names
duplicates warning
    {count} of {total} {role} images repeat another one; repeated images shrink the balls around them
    remove repeats, or check why the generator makes them
near-duplicates warning
    {sides} are near-duplicates of others in their own set (groups of about {size}); they take the places of nearest neighbors, so metrics fall below their nulls even for a perfect generator
    keep one image of each group, such as one frame per burst or video shot, and score again
class-ordered-samples warning
    the inception score is {value} in parts of {chunk} images in order, and {shuffled} in the same parts of shuffled images; the fakes seem to be sorted by class, and a part holds few of the classes
    shuffle the images and score again: published scores are of labels in random order
unbalanced-labels warning
    {protocol} expects equally many images of each class, but of {classes} classes {smallest} has {least} and {largest} has {most} fakes
    generate as many images of each class; between balanced and random labels, FID differs by about 0.1
vendi-not-converged note
    vendi of {n} fakes grows with their number and may not have converged below {needed} (arXiv:2410.21719)
    compare it at equal numbers of images only, or score at least {needed}
no-intervals note
    no interval for {names}: {reason}
    {remedy}; --no-intervals leaves all of them out
# what the numbers may hide
low-null note
    in these features even a perfect generator would score a precision of {null}
    compare precision and recall between extractors by value over null only
near-copies warning
    {share} of the fakes all but copy a real image, where {expected} of the reals do: {shown}
    look at these pairs; high precision and coverage may be memorized
copying warning
    the fakes are nearer to the training images than other reals are: C_T = {z}, where chance stays above -3
    the generator copies; high precision and coverage are worth little
degenerate-manifold warning
    the balls around {share} of the {role} images are mere points: as many others have equal features
    remove repeats, also those that are stored in different files; only exact copies lie in such balls
shrinkage warning
    the fakes are closer together than the reals: {sign}; precision, density and coverage gain from that
    judge diversity by recall or symmetric_recall, and look for truncation or a guidance that is too strong
outlier-dominance warning
    the balls of {count} unusual real images hold many fakes that hardly any other ball contains, one {share} of all: {shown}
    look at these reals; clipped_density and witnessed_fidelity do not trust them
missing-kinds warning
    kinds of images that make up {real} of the reals are {fake} of the fakes, such as: {shown}
    check which classes or modes the generator leaves out: `genpr modes` shows them
clamped warning
    {share} of the values that the generator returned lie outside of its declared range {low} to {high} and were cut off
    check image_range; a generator in training may also overshoot that much for a while
skipped warning
    {count} of {total} {role} images could not be used and were left out
    see --json for the list
# images and their prompts
prompts-truncated warning
    {count} of {total} prompts have more than the {context} tokens that {encoder} reads; their ends were not seen
    shorten them, or judge what they end with otherwise
prompts-alike warning
    {count} of {total} prompts read the same as another to {encoder} (case, spacing, or what was cut off)
    they count as ties; give such prompts one group
small-pool note
    {pool} candidates instead of {asked}: there are no more other {what}
    compare these values at equal pools only, and beside their chance
own-encoder note
    {extractor} embeds images and prompts: compare these numbers with each other, never with published ones
    use --extractor clip-vit-b-32 for comparable numbers
few-prompts note
    only {n} different prompts: no intervals, since halves of so few say nothing
    give images of at least {least} prompts
# labels
true-negatives-dominate warning
    an accuracy of {accuracy} hides a recall of {recall}: {negatives} of it are labels rightly left out; nothing at all scores {nothing}
    read recall, precision and F-score of labels instead of accuracy
classes-differ warning
    {count} were asked to be of classes that no real has ({shown}); they cannot be recognized and count as wrong
    give reals of these classes, or the same names on both sides
null-of-fewer note
    only {share} as many reals as fakes, class by class: the null of label.gan_train is of so few and too low, and more is normal
    give more reals, or as few fakes
# entities
unreadable-answers warning
    {count} of {total} answers could not be read and are in no score but entity.failure_rate: {shown}
    ask these again; all are listed with their reasons in --json
nothing-expected note
    nothing is expected in {count} of {total} {what}; they are in no recall
    {hint}
beside-vocabulary note
    {count} found names are not in the vocabulary and count as nothing, such as: {shown}
    give aliases for those that mean something in it
poorly-recognized warning
    of {count} of {total} entities, {classifier} tells labeled images with and without badly apart (below {limit} right on average): their recall is more about it than about the images
    read the sensitivity beside each recall, or use a detector that has these classes
shared-thresholds note
    {count} of {total} entities share a threshold: fewer than {least} images with them, or without, to choose their own on
    give more labeled images of them
weights-unpinned note
    no sha256 is published for the weights of {extractor}; those that were used have {sha256}
    compare it with that of another machine
# the cache
all-cached note
    all {count} {role} features came from the cache; nothing was embedded
extractor-not-cached note
    features of {extractor} are not cached: {reason}
    give it a `cache_key`, or embed once with `genpr features` and keep the file
cache-unusable warning
    features are not cached: {reason}
    set --cache-dir or GENPR_CACHE
cache-write-failed warning
    features could not be written to {folder}: {reason}
    free space, or set --cache-dir
cache-discarded warning
    the cache file {file} was damaged or another user's, and was removed; its images were embedded again
cache-unreadable warning
    {file} in the cache was unreadable ({reason}) and not used
# memory
oom-smaller-batches note
    {device} had little memory: batches of {size}, not {asked} images
oom-smaller-tiles note
    {device} had little memory: smaller tiles gave the same counts
oom-cpu warning
    {device} had too little memory {what}; the CPU did it instead
    free some
gpu-unusable warning
    {device} does not compute ({reason}), so the CPU was used
    `genpr doctor` says more; --device cpu needs no GPU
# images
codec-mismatch warning
    most reals are {real}, most fakes are {fake}, and metrics see what compression leaves behind
    store both sides alike, and without loss if you can
size-mix note
    {role} images have {count} different sizes: {shown}
    each is resized on its own, by the extractor's rule
upscaled warning
    {count} of {total} {role} images have a side below 32 pixels; most of what {extractor} sees is interpolated
    compare with images of the same size only
decoded-unlike warning
    the two sides were decoded in different ways: reals with {real}, fakes with {fake}
    embed both with the same --alpha, --exif and --prepare, unless only one side needs them
multi-frame warning
    {count} of {total} {role} images are animated or multi-page; frame 0 was used
    split them if every frame is a sample
16bit-scaled note
    {count} of {total} {role} images have more than 8 bits per channel; the highest 8 were used
    convert them yourself if they use a part of the range only
cmyk-converted warning
    {count} of {total} {role} images are CMYK; they were converted without their color profile
    convert them to sRGB to be sure of their colors
alpha-dropped warning
    {count} of {total} {role} images have transparent pixels; alpha was dropped and hidden colors show
    lay the background behind them that the other side has, with --alpha
exif-orientation warning
    {count} of {total} {role} images are stored turned, with an EXIF orientation, which was ignored
    --exif apply turns them, if the generator was trained on turned ones
enlarged warning
    {count} of {total} {role} images are smaller than the size of --prepare and were enlarged
    enlarged images lack fine detail, which changes scores; choose a smaller size, or leave them out
"""  # code and level of each notice; its message; its hint, if it has one


_NOTICES: dict[str, tuple[Level, str, str]] = {
    code: ("warning" if level == "warning" else "note", message, hint)
    for code, level, message, hint in re.findall(
        r"^([\w-]+) (note|warning)\n {4}(.+)\n(?: {4}(.+)\n)?", _TABLE, re.MULTILINE
    )
}


@dataclass(frozen=True)
class Notice:
    """One thing to know about a result."""

    code: str  # stable identifier in kebab-case
    level: Level  # "warning" when the score may mislead, else "note"
    message: str  # what was seen, with its count
    hint: str = ""  # what to do about it; may be empty

    def __post_init__(self) -> None:
        """Leave out the middle of what would fill a screen, such as long names."""
        for name, text, most in (("message", self.message, 1200), ("hint", self.hint, 300)):
            if len(text.encode("utf-8", "surrogatepass")) > most:
                object.__setattr__(self, name, limited(text, most))


def notice(code: str, **facts: object) -> Notice:
    """Build the notice `code`, its sentence filled with `facts`."""
    level, message, hint = _NOTICES[code]
    return Notice(code, level, message.format(**facts), hint.format(**facts))


_collectors: dict[object, dict[Notice, None]] = {}  # by a key of each open block


@contextmanager
def collect_notices() -> Iterator[dict[Notice, None]]:
    """Collect what any thread emits in the block, each notice once and in order."""
    key, notices = object(), dict[Notice, None]()
    _collectors[key] = notices
    try:
        yield notices
    finally:
        del _collectors[key]


def emit_notice(code: str, **facts: object) -> None:
    """Add the notice `code` to every open `collect_notices` block."""
    item = notice(code, **facts)
    for notices in tuple(_collectors.values()):
        notices[item] = None
