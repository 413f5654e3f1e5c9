"""What single words in the output mean: causes, evidence, classes and severity of incidents.

The meaning of a value stands below it in the code; the reference of events and ``isrwatch explain`` show it.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Mapping
from enum import StrEnum
from itertools import pairwise
from typing import Final

from streaming.contracts.events import Cause, Evidence
from streaming.contracts.incidents import IncidentClass, Severity

EXPLAINED: Final[Mapping[str, type[StrEnum]]] = {
    "Causes": Cause,
    "Evidence": Evidence,
    "Classes of incidents": IncidentClass,
    "Severity of incidents": Severity,
}
"""The sets of values, by their heading in the reference."""


def meanings(values: type[StrEnum]) -> dict[str, str]:
    """Return the docstring that stands below each value of an enumeration, by value.

    >>> meanings(Severity)["warning"]
    'Redundancy is missing, and nobody ordered that.'
    """
    (body,) = (node.body for node in ast.parse(inspect.getsource(values)).body if isinstance(node, ast.ClassDef))
    documented: dict[str, str] = {}
    for node, following in pairwise(body):
        match node, following:
            case ast.Assign(value=ast.Constant(value=str(value))), ast.Expr(value=ast.Constant(value=str(text))):
                documented[value] = " ".join(text.split())
            case _:
                pass
    return documented
