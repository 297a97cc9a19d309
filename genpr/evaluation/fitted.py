"""From an opened real side to a judge of fakes: embedded, and fitted for every metric of a plan."""

from __future__ import annotations

from genpr.evaluation.held_out import embedded_held_out
from genpr.evaluation.label_recipe import LabelRecipe
from genpr.evaluation.patient_judge import PatientJudge
from genpr.evaluation.plan import ScorePlan
from genpr.features.embedded_source import SideFeatures
from genpr.features.embedder import Embedder
from genpr.features.inputs import OpenedSide


def fitted_judge(
    plan: ScorePlan,
    opened: OpenedSide,
    embedder: Embedder,
    *,
    held_out: object = None,
    labels: LabelRecipe | None = None,
) -> PatientJudge:
    """Embed the reals and fit them.

    Args:
        plan: What to compute.
        opened: The real side.
        embedder: How images become features.
        held_out: More reals, as the user gave them; None for none.
        labels: What to do about labels; None for nothing.

    Raises:
        UsageError: A path does not exist.
        DataError: The reals cannot be used.
    """
    reals = SideFeatures(opened, "real", embedder, limit=plan.most_real, own=[plan.own])
    reals.require(plan.real_spaces, minimum=plan.least_real, for_metrics=plan.looked_at)
    kept = None if held_out is None else embedded_held_out(held_out, opened, [plan], embedder)
    return PatientJudge(plan, reals, embedder, kept, labels)
