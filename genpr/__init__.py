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

_HOME = {
    "CheckpointImages": "genpr.checkpoints.sampler",
    "DataError": "genpr.errors",
    "Evaluator": "genpr.evaluation.evaluator",
    "FeatureExtractor": "genpr.features.extractor",
    "GenprError": "genpr.errors",
    "KNNManifold": "genpr.metrics.manifold",
    "LabelOptions": "genpr.evaluation.options",
    "ResourceError": "genpr.errors",
    "Result": "genpr.evaluation.result",
    "Sampler": "genpr.checkpoints.sampler",
    "UsageError": "genpr.errors",
    "Vocabulary": "genpr.conditional.vocabulary",
    "align": "genpr.conditional.align",
    "all_ranks": "genpr.distributed",
    "compare": "genpr.evaluation.compare",
    "compare_report": "genpr.report.compare_page",
    "embed": "genpr.features.embed",
    "entity_metrics": "genpr.conditional.entity_scores",
    "evidence_report": "genpr.report.score_page",
    "find_modes": "genpr.evaluation.modes",
    "frechet_distance": "genpr.metrics.frechet",
    "html_report": "genpr.report.score_page",
    "inception_score": "genpr.metrics.fakes_only",
    "kernel_distance": "genpr.metrics.kernel",
    "label_metrics": "genpr.metrics.labels",
    "list_extractors": "genpr.features.registry",
    "load_extractor": "genpr.features.registry",
    "load_generator": "genpr.checkpoints.generator",
    "load_results": "genpr.evaluation.compare",
    "manifold_metrics": "genpr.metrics.manifold",
    "pr_curve": "genpr.metrics.curves",
    "precision_recall": "genpr.metrics.manifold",
    "probabilistic_precision_recall": "genpr.metrics.probabilistic",
    "rank_checkpoints": "genpr.checkpoints.rank",
    "rank_results": "genpr.checkpoints.rank",
    "ranking_metrics": "genpr.metrics.ranking",
    "read_entities": "genpr.conditional.parse_answers",
    "retrieval_metrics": "genpr.metrics.ranking",
    "score": "genpr.evaluation.evaluator",
    "score_entities": "genpr.conditional.entity_scores",
    "score_entities_in_images": "genpr.conditional.recognition",
    "side_by_side": "genpr.report.compare_page",
    "truncation_sweep": "genpr.checkpoints.sweep",
    "vendi_score": "genpr.metrics.fakes_only",
}

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
