"""Exact precision, recall, density and coverage for generative image models.

Everything public is importable from here; the modules behind it load on first use, so that `import genpr`
is instant and needs neither torchvision nor FAISS.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from genpr.checkpoints.generator import load_generator
    from genpr.checkpoints.rank import Ranking, rank_checkpoints, rank_results
    from genpr.checkpoints.sampler import CheckpointImages, Sampler
    from genpr.checkpoints.sweep import Sweep, truncation_sweep
    from genpr.conditional.align import align
    from genpr.conditional.classifiers import ZeroShot, found_entities
    from genpr.conditional.entity_scores import entity_metrics, score_entities
    from genpr.conditional.parse_answers import Answer, Unreadable, read_entities
    from genpr.conditional.recognition import score_entities_in_images
    from genpr.conditional.vocabulary import Vocabulary
    from genpr.distributed.launch import all_ranks
    from genpr.errors import (
        BadImagesError,
        DataError,
        FeatureError,
        GenprError,
        ImageError,
        ResourceError,
        UsageError,
        WeightsError,
    )
    from genpr.evaluation.compare import compare, load_results
    from genpr.evaluation.evaluate import score, score_protocols
    from genpr.evaluation.evaluator import Evaluator
    from genpr.evaluation.label_options import LabelOptions
    from genpr.evaluation.modes import FoundModes, find_modes
    from genpr.evaluation.per_class import ClassScores
    from genpr.evaluation.per_image import PerImageScores
    from genpr.evaluation.result import Result
    from genpr.features.detectors import load_detector
    from genpr.features.embed import embed
    from genpr.features.extractor import ExtractorInfo, FeatureExtractor
    from genpr.features.registry import list_extractors, load_extractor
    from genpr.features.text import load_text_encoder
    from genpr.features.text_encoder import TextEncoder, TextEncoderInfo
    from genpr.metrics.copy_detection import CopyDetection, copy_detection
    from genpr.metrics.curves import pr_curve, prd_curve
    from genpr.metrics.diversity import vendi_score
    from genpr.metrics.entities import EntityMetrics
    from genpr.metrics.frechet import frechet_distance
    from genpr.metrics.frontier import Curve
    from genpr.metrics.inception_score import inception_score
    from genpr.metrics.kernel import cmmd, kernel_distance
    from genpr.metrics.knn_manifold import KNNManifold
    from genpr.metrics.labels import LabelMetrics, label_metrics
    from genpr.metrics.manifold import ManifoldMetrics, PrecisionRecall, manifold_metrics, precision_recall
    from genpr.metrics.memorisation import ct_score
    from genpr.metrics.probabilistic import probabilistic_precision_recall
    from genpr.metrics.ranking import RankingMetrics, distractor_pools, ranking_metrics
    from genpr.metrics.retrieval import Relevancy, RetrievalMetrics, relevancy, retrieval_metrics
    from genpr.metrics.text_matching import MatchedTexts, match_texts
    from genpr.metrics.value import MetricValue
    from genpr.metrics.witnessed import witnessed
    from genpr.notices import Notice
    from genpr.report.pages.compare_page import compare_report
    from genpr.report.pages.evidence_page import evidence_report
    from genpr.report.pages.gallery import Gallery, Picture
    from genpr.report.pages.score_page import html_report
    from genpr.report.pages.side_by_side import side_by_side
    from genpr.report.text.sample_table import write_samples

__version__ = "0.1.0"

_HOME = {
    "Answer": "genpr.conditional.parse_answers",
    "BadImagesError": "genpr.errors",
    "CheckpointImages": "genpr.checkpoints.sampler",
    "ClassScores": "genpr.evaluation.per_class",
    "CopyDetection": "genpr.metrics.copy_detection",
    "Curve": "genpr.metrics.frontier",
    "DataError": "genpr.errors",
    "EntityMetrics": "genpr.metrics.entities",
    "Evaluator": "genpr.evaluation.evaluator",
    "ExtractorInfo": "genpr.features.extractor",
    "FeatureError": "genpr.errors",
    "FeatureExtractor": "genpr.features.extractor",
    "FoundModes": "genpr.evaluation.modes",
    "Gallery": "genpr.report.pages.gallery",
    "GenprError": "genpr.errors",
    "ImageError": "genpr.errors",
    "KNNManifold": "genpr.metrics.knn_manifold",
    "LabelMetrics": "genpr.metrics.labels",
    "LabelOptions": "genpr.evaluation.label_options",
    "ManifoldMetrics": "genpr.metrics.manifold",
    "MatchedTexts": "genpr.metrics.text_matching",
    "MetricValue": "genpr.metrics.value",
    "Notice": "genpr.notices",
    "PerImageScores": "genpr.evaluation.per_image",
    "Picture": "genpr.report.pages.gallery",
    "PrecisionRecall": "genpr.metrics.manifold",
    "Ranking": "genpr.checkpoints.rank",
    "RankingMetrics": "genpr.metrics.ranking",
    "Relevancy": "genpr.metrics.retrieval",
    "ResourceError": "genpr.errors",
    "Result": "genpr.evaluation.result",
    "RetrievalMetrics": "genpr.metrics.retrieval",
    "Sampler": "genpr.checkpoints.sampler",
    "Sweep": "genpr.checkpoints.sweep",
    "TextEncoder": "genpr.features.text_encoder",
    "TextEncoderInfo": "genpr.features.text_encoder",
    "Unreadable": "genpr.conditional.parse_answers",
    "UsageError": "genpr.errors",
    "Vocabulary": "genpr.conditional.vocabulary",
    "WeightsError": "genpr.errors",
    "ZeroShot": "genpr.conditional.classifiers",
    "align": "genpr.conditional.align",
    "all_ranks": "genpr.distributed.launch",
    "cmmd": "genpr.metrics.kernel",
    "compare": "genpr.evaluation.compare",
    "compare_report": "genpr.report.pages.compare_page",
    "copy_detection": "genpr.metrics.copy_detection",
    "ct_score": "genpr.metrics.memorisation",
    "distractor_pools": "genpr.metrics.ranking",
    "embed": "genpr.features.embed",
    "entity_metrics": "genpr.conditional.entity_scores",
    "evidence_report": "genpr.report.pages.evidence_page",
    "find_modes": "genpr.evaluation.modes",
    "found_entities": "genpr.conditional.classifiers",
    "frechet_distance": "genpr.metrics.frechet",
    "html_report": "genpr.report.pages.score_page",
    "inception_score": "genpr.metrics.inception_score",
    "kernel_distance": "genpr.metrics.kernel",
    "label_metrics": "genpr.metrics.labels",
    "list_extractors": "genpr.features.registry",
    "load_detector": "genpr.features.detectors",
    "load_extractor": "genpr.features.registry",
    "load_generator": "genpr.checkpoints.generator",
    "load_results": "genpr.evaluation.compare",
    "load_text_encoder": "genpr.features.text",
    "manifold_metrics": "genpr.metrics.manifold",
    "match_texts": "genpr.metrics.text_matching",
    "pr_curve": "genpr.metrics.curves",
    "prd_curve": "genpr.metrics.curves",
    "precision_recall": "genpr.metrics.manifold",
    "probabilistic_precision_recall": "genpr.metrics.probabilistic",
    "rank_checkpoints": "genpr.checkpoints.rank",
    "rank_results": "genpr.checkpoints.rank",
    "ranking_metrics": "genpr.metrics.ranking",
    "read_entities": "genpr.conditional.parse_answers",
    "relevancy": "genpr.metrics.retrieval",
    "retrieval_metrics": "genpr.metrics.retrieval",
    "score": "genpr.evaluation.evaluate",
    "score_entities": "genpr.conditional.entity_scores",
    "score_entities_in_images": "genpr.conditional.recognition",
    "score_protocols": "genpr.evaluation.evaluate",
    "side_by_side": "genpr.report.pages.side_by_side",
    "truncation_sweep": "genpr.checkpoints.sweep",
    "vendi_score": "genpr.metrics.diversity",
    "witnessed": "genpr.metrics.witnessed",
    "write_samples": "genpr.report.text.sample_table",
}

__all__ = [
    "Answer",
    "BadImagesError",
    "CheckpointImages",
    "ClassScores",
    "CopyDetection",
    "Curve",
    "DataError",
    "EntityMetrics",
    "Evaluator",
    "ExtractorInfo",
    "FeatureError",
    "FeatureExtractor",
    "FoundModes",
    "Gallery",
    "GenprError",
    "ImageError",
    "KNNManifold",
    "LabelMetrics",
    "LabelOptions",
    "ManifoldMetrics",
    "MatchedTexts",
    "MetricValue",
    "Notice",
    "PerImageScores",
    "Picture",
    "PrecisionRecall",
    "Ranking",
    "RankingMetrics",
    "Relevancy",
    "ResourceError",
    "Result",
    "RetrievalMetrics",
    "Sampler",
    "Sweep",
    "TextEncoder",
    "TextEncoderInfo",
    "Unreadable",
    "UsageError",
    "Vocabulary",
    "WeightsError",
    "ZeroShot",
    "__version__",
    "align",
    "all_ranks",
    "cmmd",
    "compare",
    "compare_report",
    "copy_detection",
    "ct_score",
    "distractor_pools",
    "embed",
    "entity_metrics",
    "evidence_report",
    "find_modes",
    "found_entities",
    "frechet_distance",
    "html_report",
    "inception_score",
    "kernel_distance",
    "label_metrics",
    "list_extractors",
    "load_detector",
    "load_extractor",
    "load_generator",
    "load_results",
    "load_text_encoder",
    "manifold_metrics",
    "match_texts",
    "pr_curve",
    "prd_curve",
    "precision_recall",
    "probabilistic_precision_recall",
    "rank_checkpoints",
    "rank_results",
    "ranking_metrics",
    "read_entities",
    "relevancy",
    "retrieval_metrics",
    "score",
    "score_entities",
    "score_entities_in_images",
    "score_protocols",
    "side_by_side",
    "truncation_sweep",
    "vendi_score",
    "witnessed",
    "write_samples",
]


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'genpr' has no attribute {name!r}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
