"""Several protocols in one run."""

from genpr.evaluation.evaluator import score_with
from genpr.evaluation.options import ScoreOptions


def score_protocols(real, fake, *, protocols, **options):
    """The results of several protocols in one run."""
    choices = [ScoreOptions(protocol=name, **options) for name in protocols]
    results = [each.result for each in score_with(real, fake, choices)]
    return {result.protocol: result for result in results}
