"""torchmetrics without its metrics, whose imports (transformers is one) take seconds; its modules are imported as usual."""

import logging
import sys
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType

if "torchmetrics" not in sys.modules and (spec := find_spec("torchmetrics")) is not None:
    light = sys.modules["torchmetrics"] = ModuleType("torchmetrics")
    light.__spec__, light.__path__ = spec, spec.submodule_search_locations
    light._logger = logging.getLogger("torchmetrics")
    light.Metric = import_module("torchmetrics.utilities.checks").Metric
    light.MetricCollection = import_module("torchmetrics.collections").MetricCollection
