"""Exact precision, recall, density and coverage for generative image models.

The functions and classes that users call are importable from here; records that they only receive, and rarely used
metrics, are importable from their modules. Modules load on first use, so that `import genpr` is instant and needs neither
torchvision nor FAISS.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from genpr.checkpoints.generator import load_generator
    from genpr.checkpoints.rank import rank_checkpoints, rank_results
    from genpr.checkpoints.sampler import CheckpointImages, Sampler
    from genpr.checkpoints.sweep import truncation_sweep
    from genpr.conditional.align import align
    from genpr.conditional.entity_scores import entity_metrics, score_entities
    from genpr.conditional.parse_answers import read_entities
    from genpr.conditional.recognition import score_entities_in_images
    from genpr.conditional.vocabulary import Vocabulary
    from genpr.distributed import all_ranks
    from genpr.errors import DataError, GenprError, ResourceError, UsageError
    from genpr.evaluation.compare import compare, load_results
    from genpr.evaluation.evaluator import Evaluator, score
    from genpr.evaluation.modes import find_modes
    from genpr.evaluation.options import LabelOptions
    from genpr.evaluation.result import Result
    from genpr.features.embed import embed
    from genpr.features.extractor import FeatureExtractor
    from genpr.features.registry import list_extractors, load_extractor
    from genpr.metrics.curves import pr_curve
    from genpr.metrics.fakes_only import inception_score, vendi_score
    from genpr.metrics.frechet import frechet_distance
    from genpr.metrics.kernel import kernel_distance
    from genpr.metrics.labels import label_metrics
    from genpr.metrics.manifold import KNNManifold, manifold_metrics, precision_recall
    from genpr.metrics.probabilistic import probabilistic_precision_recall
    from genpr.metrics.ranking import ranking_metrics, retrieval_metrics
    from genpr.report.compare_page import compare_report, side_by_side
    from genpr.report.score_page import evidence_report, html_report

__version__ = "0.1.0"

_NAMES = {
    "checkpoints.generator": "load_generator",
    "checkpoints.rank": "rank_checkpoints rank_results",
    "checkpoints.sampler": "CheckpointImages Sampler",
    "checkpoints.sweep": "truncation_sweep",
    "conditional.align": "align",
    "conditional.entity_scores": "entity_metrics score_entities",
    "conditional.parse_answers": "read_entities",
    "conditional.recognition": "score_entities_in_images",
    "conditional.vocabulary": "Vocabulary",
    "distributed": "all_ranks",
    "errors": "DataError GenprError ResourceError UsageError",
    "evaluation.compare": "compare load_results",
    "evaluation.evaluator": "Evaluator score",
    "evaluation.modes": "find_modes",
    "evaluation.options": "LabelOptions",
    "evaluation.result": "Result",
    "features.embed": "embed",
    "features.extractor": "FeatureExtractor",
    "features.registry": "list_extractors load_extractor",
    "metrics.curves": "pr_curve",
    "metrics.fakes_only": "inception_score vendi_score",
    "metrics.frechet": "frechet_distance",
    "metrics.kernel": "kernel_distance",
    "metrics.labels": "label_metrics",
    "metrics.manifold": "KNNManifold manifold_metrics precision_recall",
    "metrics.probabilistic": "probabilistic_precision_recall",
    "metrics.ranking": "ranking_metrics retrieval_metrics",
    "report.compare_page": "compare_report side_by_side",
    "report.score_page": "evidence_report html_report",
}
_HOME = {name: f"genpr.{module}" for module, names in _NAMES.items() for name in names.split()}

__all__ = [
    "CheckpointImages",
    "DataError",
    "Evaluator",
    "FeatureExtractor",
    "GenprError",
    "KNNManifold",
    "LabelOptions",
    "ResourceError",
    "Result",
    "Sampler",
    "UsageError",
    "Vocabulary",
    "__version__",
    "align",
    "all_ranks",
    "compare",
    "compare_report",
    "embed",
    "entity_metrics",
    "evidence_report",
    "find_modes",
    "frechet_distance",
    "html_report",
    "inception_score",
    "kernel_distance",
    "label_metrics",
    "list_extractors",
    "load_extractor",
    "load_generator",
    "load_results",
    "manifold_metrics",
    "pr_curve",
    "precision_recall",
    "probabilistic_precision_recall",
    "rank_checkpoints",
    "rank_results",
    "ranking_metrics",
    "read_entities",
    "retrieval_metrics",
    "score",
    "score_entities",
    "score_entities_in_images",
    "side_by_side",
    "truncation_sweep",
    "vendi_score",
]


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'genpr' has no attribute {name!r}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
