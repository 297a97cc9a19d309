"""What two feature sets reveal before any metric: duplicates, copied reals, sizes, decoding, provenance."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict

from genpr.distributed.team import current_team
from genpr.evaluation.identities import Identities
from genpr.features.feature_set import FeatureSet
from genpr.images.policy import choices_in
from genpr.notices import Notice, notice

_SMALL = 1000
_UNEQUAL = 1.1
_DUPLICATES_SHARE = 0.01
_COPIES_SHARE = 0.001


def findings(
    real: FeatureSet,
    fake: FeatureSet,
    real_ids: Identities,
    fake_ids: Identities,
    *,
    protocol: str,
    deviations: Sequence[str],
) -> tuple[Notice, ...]:
    """Everything worth saying about the two sets, most important first."""
    unmet = [notice("protocol-not-met", protocol=protocol, what="; ".join(deviations))] if deviations else []
    notices = [*unmet, *_provenance(real, fake), *_sizes(real, fake), *_copies(real_ids, fake_ids)]
    codecs = real.facts.codec, fake.facts.codec
    if None not in codecs and codecs[0] != codecs[1]:
        notices.append(notice("codec-mismatch", real=codecs[0], fake=codecs[1]))
    for role, features in (("real", real), ("fake", fake)):
        notices += decoding_notices(role, features)
        notices += _files(role, features)
        notices += features.notices
    return tuple(dict.fromkeys(notices))


def found_by_first(find: Callable[[], Sequence[Notice]]) -> tuple[Notice, ...]:
    """What `find` gives on the first rank of a team, on all of them: looking costs, and once is enough."""
    records = current_team().from_first(lambda: [asdict(item) for item in find()])
    return tuple(Notice(**record) for record in records)


def _provenance(real: FeatureSet, fake: FeatureSet) -> list[Notice]:
    info, notices = fake.extractor or real.extractor, []
    if info is not None and not info.comparable:
        notices.append(notice("not-comparable", extractor=info.name))
    chosen = [choices_in(side.decoder) for side in (real, fake)]
    if real.decoder and fake.decoder and chosen[0] != chosen[1]:
        ours, theirs = (
            ", ".join(f"{name} {value}" for name, value in each.items()) or "the defaults" for each in chosen
        )
        notices.append(notice("decoded-unlike", real=ours, fake=theirs))
    return notices


def _sizes(real: FeatureSet, fake: FeatureSet) -> list[Notice]:
    n_real, n_fake = len(real), len(fake)
    notices = []
    if min(n_real, n_fake) < _SMALL:
        notices.append(notice("small-sample", n=min(n_real, n_fake)))
    if max(n_real, n_fake) > _UNEQUAL * min(n_real, n_fake):
        notices.append(notice("unequal-n", n_real=f"{n_real:,}", n_fake=f"{n_fake:,}"))
    return notices


def _copies(real: Identities, fake: Identities) -> list[Notice]:
    notices = []
    if real.distinct == fake.distinct:
        return [notice("same-input")]
    shared = fake.n_shared_with(real)
    if shared > _COPIES_SHARE * len(fake.rows):
        notices.append(notice("copied-reals", count=f"{shared:,}", total=f"{len(fake.rows):,}"))
    for role, side in (("real", real), ("fake", fake)):
        if side.n_duplicates > _DUPLICATES_SHARE * len(side.rows):
            facts = {"role": role, "count": f"{side.n_duplicates:,}", "total": f"{len(side.rows):,}"}
            notices.append(notice("duplicates", **facts))
    return notices


def decoding_notices(role: str, features: FeatureSet) -> list[Notice]:
    """What was left out, converted or dropped while the images of a side were read."""
    total = len(features) + len(features.skipped)
    notices = [
        notice(flag, role=role, count=f"{count:,}", total=f"{features.n_decoded or len(features):,}")
        for flag, count in features.flags.items()
    ]
    if features.skipped:
        notices.append(notice("skipped", role=role, count=f"{len(features.skipped):,}", total=f"{total:,}"))
    if features.n_cached and not features.n_embedded:
        notices.append(notice("all-cached", role=role, count=f"{features.n_cached:,}"))
    return notices


def _files(role: str, features: FeatureSet) -> list[Notice]:
    facts, info = features.facts, features.extractor
    notices = []
    if facts.n_sizes > 1:
        notices.append(notice("size-mix", role=role, count=f"{facts.n_sizes:,}", shown=facts.shown_sizes))
    if facts.n_small and info is not None and info.comparable:  # filters and pixels see what is there
        total = features.n_decoded or len(features)
        small = {"count": f"{facts.n_small:,}", "total": f"{total:,}", "extractor": info.name}
        notices.append(notice("upscaled", role=role, **small))
    return notices
