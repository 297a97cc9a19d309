"""Exact precision, recall, density and coverage for generative image models.

The functions and classes that users call are importable from here; records that they only receive, and rarely used
metrics, are importable from their modules. Modules load on first use, so that `import genpr` is instant and needs neither
torchvision nor FAISS.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from genpr.checkpoints.generator import CheckpointImages as CheckpointImages
    from genpr.checkpoints.generator import Sampler as Sampler
    from genpr.checkpoints.generator import load_generator as load_generator
    from genpr.checkpoints.rank import rank_checkpoints as rank_checkpoints
    from genpr.checkpoints.rank import rank_results as rank_results
    from genpr.checkpoints.sweep import truncation_sweep as truncation_sweep
    from genpr.conditional.align import align as align
    from genpr.conditional.entity_scores import score_entities as score_entities
    from genpr.conditional.parse_answers import read_entities as read_entities
    from genpr.conditional.recognition import score_entities_in_images as score_entities_in_images
    from genpr.conditional.vocabulary import Vocabulary as Vocabulary
    from genpr.distributed import all_ranks as all_ranks
    from genpr.errors import DataError as DataError
    from genpr.errors import GenprError as GenprError
    from genpr.errors import ResourceError as ResourceError
    from genpr.errors import UsageError as UsageError
    from genpr.evaluation.compare import compare as compare
    from genpr.evaluation.compare import load_results as load_results
    from genpr.evaluation.diversity import diversity as diversity
    from genpr.evaluation.evaluator import Evaluator as Evaluator
    from genpr.evaluation.evaluator import score as score
    from genpr.evaluation.modes import find_modes as find_modes
    from genpr.evaluation.options import LabelOptions as LabelOptions
    from genpr.evaluation.panel import PanelResult as PanelResult
    from genpr.evaluation.panel import score_panel as score_panel
    from genpr.evaluation.reconstruction import reconstruct as reconstruct
    from genpr.evaluation.result import Result as Result
    from genpr.evaluation.write_statistics import reference_statistics as reference_statistics
    from genpr.features.embed import embed as embed
    from genpr.features.extractor import FeatureExtractor as FeatureExtractor
    from genpr.features.registry import list_extractors as list_extractors
    from genpr.features.registry import load_extractor as load_extractor
    from genpr.metrics.fakes_only import inception_score as inception_score
    from genpr.metrics.fakes_only import vendi_score as vendi_score
    from genpr.metrics.frechet import frechet_distance as frechet_distance
    from genpr.metrics.kernel import kernel_distance as kernel_distance
    from genpr.metrics.manifold import KNNManifold as KNNManifold
    from genpr.metrics.manifold import manifold_metrics as manifold_metrics
    from genpr.metrics.manifold import precision_recall as precision_recall
    from genpr.metrics.ranking import ranking_metrics as ranking_metrics
    from genpr.report.compare_page import compare_report as compare_report
    from genpr.report.score_page import evidence_report as evidence_report
    from genpr.report.score_page import html_report as html_report

__version__ = "0.1.0"

_NAMES = {
    "checkpoints.generator": "CheckpointImages Sampler load_generator",
    "checkpoints.rank": "rank_checkpoints rank_results",
    "checkpoints.sweep": "truncation_sweep",
    "conditional.align": "align",
    "conditional.entity_scores": "score_entities",
    "conditional.parse_answers": "read_entities",
    "conditional.recognition": "score_entities_in_images",
    "conditional.vocabulary": "Vocabulary",
    "distributed": "all_ranks",
    "errors": "DataError GenprError ResourceError UsageError",
    "evaluation.compare": "compare load_results",
    "evaluation.evaluator": "Evaluator score",
    "evaluation.modes": "find_modes",
    "evaluation.options": "LabelOptions",
    "evaluation.panel": "PanelResult score_panel",
    "evaluation.diversity": "diversity",
    "evaluation.reconstruction": "reconstruct",
    "evaluation.result": "Result",
    "evaluation.write_statistics": "reference_statistics",
    "features.embed": "embed",
    "features.extractor": "FeatureExtractor",
    "features.registry": "list_extractors load_extractor",
    "metrics.fakes_only": "inception_score vendi_score",
    "metrics.frechet": "frechet_distance",
    "metrics.kernel": "kernel_distance",
    "metrics.manifold": "KNNManifold manifold_metrics precision_recall",
    "metrics.ranking": "ranking_metrics",
    "report.compare_page": "compare_report",
    "report.score_page": "evidence_report html_report",
}
_HOME = {name: f"genpr.{module}" for module, names in _NAMES.items() for name in names.split()}

__all__ = sorted([*_HOME, "__version__"])


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'genpr' has no attribute {name!r}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
