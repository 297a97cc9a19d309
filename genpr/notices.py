"""Coded notices about a score, each with a suggested action.

A notice never changes a value. Codes are stable, so that programs can rely on them; messages may be reworded. All notices are in
one table.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

from genpr.errors import limited, printable

Level = Literal["note", "warning"]

_TABLE = """
# the comparison
not-comparable note
    values from {extractor} features are comparable with each other, but not with published ones
    use --extractor inception to compare with published values
protocol-not-met warning
    the requirements of protocol {protocol} are not met: {what}
    provide the images that it needs, and do not report this result as a {protocol} score
unlabeled-features note
    {source} does not record its extractor
    write features with `genpr features`, which records it
statistics-unlabeled note
    {source} does not record the extractor of its mean and covariance, which is assumed to be {extractor}
    write statistics with `genpr stats`, which records it; another resize rule gives other distances
statistics-unprepared warning
    --{rule} does not apply to the mean and covariance in {source}, which do not record how their images were prepared
    use them only if their images were prepared by the same rule, or compute them with `genpr stats --{rule}`
statistics-alone note
    {source} has no images, so only distances to its mean and covariance are computed
    for precision and recall, give real images as REAL and this file with --reference-statistics
small-sample note
    only {sets}; with fewer than 1,000 images in a set, values depend strongly on the number
    compare only scores of equal numbers of images
unequal-n note
    {n_real} reals against {n_fake} fakes: coverage falls with fewer fakes, recall depends on their number
    compare each value with its null, compare only scores of equal sizes, or set --max-images{calibrated}
same-input warning
    real and fake contain the same images
    check the paths; a score needs two different sets
copied-reals warning
    {count} of {total} fakes are byte-identical copies of real images, and count as perfect fakes
    remove training images from the generated set
identical-pairs note
    {count} of {total} pairs are identical; their PSNR is infinite and is left out of the mean
    report this count with the PSNR; if it is unexpected, check that RECONSTRUCTED is not REAL
mismatched-pairs warning
    {what}
    check that both sets start at the same image, lack none, and have the same order or the same names
name-order warning
    {what} are assigned to the images in the byte order of their names, in which {first} precedes {second}; in numeric order, {second} precedes {first}
    pad the numbers in the names with zeros, or give each {noun} with a name; ignore this if the {noun}s are in byte order, too
duplicates warning
    {count} of {total} {role} images are duplicates; duplicates shrink the balls around them
    remove duplicates, or check why the generator produces them
float32-ties warning
    {count} of {total} rows of {source} differ in float64 but are equal to another row in float32, in which genpr computes; equal rows shrink the balls around them
    subtract a common offset from the features of both sets, or scale them
near-duplicates warning
    {sides} are near-duplicates of others in their own set (groups of about {size}); they replace other nearest neighbors, so metrics fall below their nulls even for a perfect generator
    keep one image of each group, such as one frame per burst or video shot, and score again
class-ordered-samples warning
    the inception score is {value} in parts of {chunk} images in order, and {shuffled} in the same parts of shuffled images; the fakes appear to be sorted by class, and each part contains few classes
    shuffle the images and score again; published scores use labels in random order
vendi-not-converged note
    vendi of {n} fakes grows with their number and may not have converged below {needed} (arXiv:2410.21719)
    compare it only at equal numbers of images, or score at least {needed}
grouped-images note
    {sides} are not independent: intervals come from halves of their groups, the control splits no group, and metrics have no null
    compare values with real v. real, and only with scores of the same grouping
no-intervals note
    no interval for {names}: {reason}
    {remedy}; --no-intervals disables all intervals
# what values may hide
no-overlap warning
    {names} are 0: the fakes are far from all reals in these features
    check the value range (values from -1 to 1 converted to uint8 are nearly black), the order of color channels, and that both sets show the same kind of images; an untrained generator has this score, too
low-null note
    in these features even a perfect generator would score a precision of {null}
    compare precision and recall of different extractors only by value over null
near-copies warning
    {share} of the fakes are nearly identical to a real image, compared with {expected} of the reals: {shown}
    inspect these pairs; high precision and coverage may come from memorization
copying warning
    the fakes are closer to the training images than held-out reals are: C_T = {z}, and chance stays above -3
    the generator copies training images, so high precision and coverage do not show quality
degenerate-manifold warning
    the balls around {share} of the {role} images have radius 0, because at least k other images have equal features
    remove duplicates, also those in different files; such balls contain only exact copies
shrinkage warning
    the fakes are closer together than the reals: {sign}; this raises precision, density and coverage
    measure diversity by recall or symmetric_recall, and check for truncation or strong guidance
outlier-dominance warning
    the balls of {count} outliers among the reals contain many fakes that few other balls contain, one of them {share} of all: {shown}
    inspect these reals; clipped_density is robust to them
missing-modes warning
    {count} missing modes hold {real} of the reals and {fake} of the fakes; reals in these modes: {shown}
    `genpr modes` lists them, and clusters of reals that no fake covers
clamped warning
    {share} of the values that the generator returned are outside its declared range {low} to {high} and were clamped
    check image_range; a generator may also overshoot early in training
skipped warning
    {count} of {total} {role} images could not be used and were left out
    --json lists them
# groups
few-groups note
    no intervals, because the number of groups is only {n}
    provide images of at least {least} groups
groups-without-pairs note
    {count} of {total} groups have fewer than two {role} images, and so no pair: {shown}
    provide at least two images of each group, under the same name of the group in both sets
# images and their prompts
prompts-truncated warning
    {count} of {total} prompts have more than the {context} tokens that {encoder} reads, and were truncated
    shorten them, or evaluate their ends in another way
duplicate-prompts warning
    {count} of {total} prompts have the same tokens as another one for {encoder} (case, spacing or truncation)
    they count as ties; assign such prompts to one group
small-pool note
    {pool} candidates instead of {requested}, because there are no more {what}
    compare these values only at equal numbers of candidates, and with their chance levels
custom-encoder note
    values from the custom encoder {extractor} are comparable with each other, but not with published ones
    use --extractor clip-vit-b-32 to compare with published values
few-prompts note
    no intervals, because there are only {n} different prompts
    provide images of at least {least} prompts
# labels
classes-differ warning
    {count} were generated for classes without reals ({shown}); they cannot be recognized and count as wrong
    provide reals of these classes, or use the same class names in both sets
few-reals-per-class note
    there are only {share} as many reals as fakes per class, so the null of label.gan_train is too low, and values above it are normal
    provide more reals, or fewer fakes
few-images-per-class note
    {count} of {total} classes have no more images than features have dimensions ({dim}), so {names} of these classes is biased upward by an unknown amount and has no interval
    compare intra-FID only at equal numbers of images per class, or use kd, which is unbiased
# entities
unreadable-answers warning
    {count} of {total} answers could not be parsed and count only in entity.failure_rate: {shown}
    repeat these queries; --json lists all of them with reasons
nothing-expected note
    {count} of {total} {what} have no expected entities and do not count in recall
    {hint}
outside-vocabulary note
    {count} names in answers are not in the vocabulary and are ignored, such as: {shown}
    add names that mean an entity of the vocabulary to it, as aliases
poorly-recognized warning
    for {count} of {total} entities, {classifier} separates labeled images with and without the entity poorly (balanced accuracy below {limit}), so their recall depends more on the classifier than on the images
    compare each recall with its sensitivity, or use a detector that knows these classes
shared-thresholds note
    {count} of {total} entities share a threshold, because fewer than {least} labeled images have them, or lack them
    provide more labeled images of them
weights-unpinned note
    no sha256 is published for the weights of {extractor}; the sha256 of the weights used is {sha256}
    compare it with that of another machine
# the cache
all-cached note
    all {count} {role} features were read from the cache
extractor-not-cached note
    features of {extractor} are not cached: {reason}
    define a `cache_key`, or embed once with `genpr features` and keep the file
cache-unusable warning
    features are not cached: {reason}
    set --cache-dir or GENPR_CACHE
cache-write-failed warning
    features could not be written to {folder}: {reason}
    free space, or set --cache-dir
cache-discarded warning
    the cache file {file} was damaged, or belonged to another user, and was removed; its images were embedded again
cache-unreadable warning
    the cache file {file} could not be read ({reason}) and was not used
# memory
oom-smaller-batches note
    {device} was low on memory; the batch size was reduced from {requested} to {size}
oom-smaller-tiles note
    {device} was low on memory; smaller tiles were used, with equal counts
oom-cpu warning
    {device} ran out of memory {what}; the CPU was used instead
    free GPU memory, or use --device cpu
gpu-unusable warning
    {device} cannot be used ({reason}); the CPU was used instead
    run `genpr doctor` for details, or use --device cpu
# images
codec-mismatch warning
    most reals are {real}, and most fakes are {fake}; compression artifacts change scores
    store both sets in the same format, preferably a lossless one
size-mismatch warning
    real images are {real}, and fake images are {fake}
    resizing to one size changes scores: reduce the larger images with a good filter, as by --prepare resize:N for both sets
size-mix note
    {role} images have {count} different sizes: {shown}
    built-in extractors resize each image separately; a custom extractor must resize its batches
upscaled warning
    {count} of {total} {role} images have a side below 32 pixels; most of the input of {extractor} is interpolated
    compare only with images of the same size
decoded-differently warning
    the two sets were decoded with different options: reals with {real}, fakes with {fake}
    embed both with the same options, unless only one set needs them
multi-frame warning
    {count} of {total} {role} images are animated or multi-page; frame 0 was used
    split them into files if every frame is a sample
16bit-scaled note
    {count} of {total} {role} images have more than 8 bits per channel; the highest 8 were used
    convert them to 8 bits if they use only a part of the range
8bit-values note
    {count} of {total} {role} images have 8 bits, so --value-range does not apply to them
    check that their values 0 and 255 are the black and white of the range, as in images that a generator saved
above-range warning
    more than half of the values of {count} of {total} {role} images are above --value-range, and became white
    check the range against numpy.percentile of the values of the reals
below-range note
    more than half of the values of {count} of {total} {role} images are below --value-range, and became black
    ignore this for a window that leaves out air; otherwise check the range, which images of -1 to 1 need as -1:1
dark-range warning
    {count} of {total} {role} images have no level above 16 of 255 after --value-range
    check that the upper end of the range is the value of white
cmyk-converted warning
    {count} of {total} {role} images are CMYK; they were converted without their color profile
    convert them to sRGB for correct colors
alpha-dropped warning
    {count} of {total} {role} images have transparent pixels; alpha was dropped, which shows hidden colors
    composite them on the background color of the other set before
exif-orientation warning
    {count} of {total} {role} images have an EXIF orientation, which was ignored
    rotate the files if the generator was trained on rotated images (PIL.ImageOps.exif_transpose)
unscaled warning
    {count} of {total} {role} images have no values but 0, 1 and 255, as floats of 0 to 1 or of -1 to 1 that were cast to uint8
    scale before the cast: (x * 255).round() for values of 0 to 1, ((x + 1) * 127.5).round() for values of -1 to 1
16bit-unscaled warning
    no value of the {count} {role} images of 16 bits exceeds 4095, so at most 16 gray levels are left in 8 bits
    scale the values to 0 to 65535 (12 bits times 16), or convert them to 8 bits (12 bits divided by 16)
enlarged warning
    {count} of {total} {role} images are smaller than the size of --prepare and were enlarged
    enlarged images lack fine detail, which changes scores; use a smaller size, or remove them
"""  # code and level of each notice; its message; its hint, if it has one


_NOTICES: dict[str, tuple[Level, str, str]] = {
    code: ("warning" if level == "warning" else "note", message, hint)
    for code, level, message, hint in re.findall(
        r"^([\w-]+) (note|warning)\n {4}(.+)\n(?: {4}(.+)\n)?", _TABLE, re.MULTILINE
    )
}


@dataclass(frozen=True)
class Notice:
    """A note or warning about a result."""

    code: str  # stable identifier in kebab-case
    level: Level  # "warning" when the score may mislead, else "note"
    message: str  # what was found, with its count
    hint: str = ""  # suggested action; may be empty

    def __post_init__(self) -> None:
        """Shorten texts that would fill a screen, such as long names."""
        for name, text, most in (("message", self.message, 1200), ("hint", self.hint, 300)):
            if len(text.encode("utf-8", "surrogatepass")) > most:
                object.__setattr__(self, name, limited(text, most))

    def __str__(self) -> str:
        """`warning [code]: message (hint)`."""
        hint = f" ({self.hint})" if self.hint else ""
        return printable(f"{self.level} [{self.code}]: {self.message}{hint}")


def notice(code: str, **facts: object) -> Notice:
    """Build the notice `code` with its message filled from `facts`."""
    level, message, hint = _NOTICES[code]
    return Notice(code, level, message.format(**facts), hint.format(**facts))


_collectors: dict[object, dict[Notice, None]] = {}  # one per open block


@contextmanager
def collect_notices() -> Iterator[dict[Notice, None]]:
    """Collect the notices that any thread emits in the block, each once and in order."""
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
