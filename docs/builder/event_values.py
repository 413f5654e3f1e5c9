"""The values of causes, evidence and incidents with their meaning, which stands below each of them in the code."""

from __future__ import annotations

import ast
import inspect
from enum import StrEnum
from itertools import pairwise
from typing import Final

from docs.builder.markdown import plain, table
from streaming.contracts.events import Cause, EventKind, Evidence
from streaming.contracts.incidents import IncidentClass, Severity

_HEAD: Final = """# Events, causes, incidents

The values of `event`, `cause` and `evidence` in [replication_events](tables.md#replication_events), and of `class` and
`severity` in [incidents](tables.md#incidents). How often they are right: [judged](../judge.md).
"""


def events_page() -> str:
    """Render one table per set of values."""
    events = ", ".join(f"`{kind}`" for kind in EventKind)
    parts = [_HEAD, "## Events", "", f"{events}.", ""]
    sets: dict[str, type[StrEnum]] = {
        "Causes": Cause,
        "Evidence": Evidence,
        "Classes of incidents": IncidentClass,
        "Severity of incidents": Severity,
    }
    for title, values in sets.items():
        rows = ((f"`{value}`", plain(text)) for value, text in meanings(values).items())
        parts += [f"## {title}", "", *table(("value", "meaning"), rows), ""]
    return "\n".join(parts)


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
