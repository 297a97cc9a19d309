"""Whether two sets of features were made by the same function."""

from __future__ import annotations

from genpr.errors import FeatureError
from genpr.features.extractor import ExtractorInfo


def check_same_extractor(name: str, info: ExtractorInfo, other_name: str, other: ExtractorInfo) -> None:
    """Refuse features of two different functions; `name` and `other_name` say whose they are.

    Raises:
        FeatureError: They differ in name, width, resize rule, weights or code.
    """
    if info.cache_key is not None and info.cache_key == other.cache_key:
        return
    identity = (info.name, info.dim, info.resize, info.weights_sha256)
    if identity == (other.name, other.dim, other.resize, other.weights_sha256):
        if info.cache_key == other.cache_key or None in (info.cache_key, other.cache_key):
            return
        difference = "its code or settings have changed in between"
    else:
        difference = f"{_describe(other)} there, {_describe(info)} here"
    raise FeatureError(
        f"{name} and {other_name} were not embedded by the same extractor ({difference}); embed both again with one",
        code="other-extractor",
    )


def _describe(info: ExtractorInfo) -> str:
    weights = f", weights {info.weights_sha256[:8]}" if info.weights_sha256 else ""
    return f"{info.name} ({info.dim}-d, {info.resize}{weights})"
