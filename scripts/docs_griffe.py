"""Extension of griffe: signatures and docstrings that `takes_options` makes from a record of options at run time.

Also lets griffe read sections named "Example", which it knows as "Examples" only.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from types import ModuleType
from typing import Any

import griffe

# What genpr.integrations takes from other frameworks, whose imports would take most of the time of a build.
STAND_INS = {
    "torchmetrics": "Metric",
    "torchmetrics.utilities": "dim_zero_cat",
    "lightning.pytorch": "Callback",
}
sys.modules["lightning"] = ModuleType("lightning")
for _name, _member in STAND_INS.items():
    sys.modules[_name] = ModuleType(_name)
    setattr(sys.modules[_name], _member, type(_member, (), {}))


class OptionRecords(griffe.Extension):
    """Show the fields of the record as keyword arguments of the function or class that takes them."""

    def on_object(self, *, obj: griffe.Object, **_: object) -> None:
        """Rename the section of examples of any docstring."""
        if obj.docstring is not None:
            obj.docstring.value = obj.docstring.value.replace("\nExample:\n", "\nExamples:\n")

    def on_function(self, *, func: griffe.Function, **_: object) -> None:
        """A function, or the `__init__` of a class."""
        if func.name == "__init__" and isinstance(func.parent, griffe.Class) and _takes_options(func.parent):
            func.parameters = _parameters(_loaded(func.parent).__init__)
        elif _takes_options(func):
            found = _loaded(func)
            func.parameters = _parameters(found)
            _describe(func, found)

    def on_class(self, *, cls: griffe.Class, **_: object) -> None:
        """The docstring of a class."""
        if _takes_options(cls):
            _describe(cls, _loaded(cls))


def _takes_options(item: griffe.Class | griffe.Function) -> bool:
    return any(each.callable_path.endswith("takes_options") for each in item.decorators)


def _loaded(item: griffe.Object) -> Any:  # noqa: ANN401 - a function or class of genpr
    found: Any = importlib.import_module(item.module.path)
    for name in item.path.removeprefix(f"{item.module.path}.").split("."):
        found = getattr(found, name)
    return found


def _describe(item: griffe.Object, found: Any) -> None:  # noqa: ANN401 - see _loaded
    if item.docstring is not None:
        item.docstring.value = inspect.cleandoc(found.__doc__).replace("\nExample:\n", "\nExamples:\n")


def _parameters(function: Any) -> griffe.Parameters:  # noqa: ANN401 - see _loaded
    kinds = {kind: griffe.ParameterKind(kind.description) for kind in inspect._ParameterKind}
    return griffe.Parameters(
        *(
            griffe.Parameter(
                each.name,
                annotation=None if each.annotation is each.empty else str(each.annotation),
                kind=kinds[each.kind],
                default=None if each.default is each.empty else repr(each.default),
            )
            for each in inspect.signature(function).parameters.values()
        )
    )
