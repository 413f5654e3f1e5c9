"""The values of causes, evidence and incidents with their meaning."""

from __future__ import annotations

from typing import Final

from docs.builder.markdown import plain, table
from streaming.contracts.events import EventKind
from streaming.contracts.meanings import EXPLAINED, meanings

_HEAD: Final = """# Events, causes, incidents

The values of `event`, `cause` and `evidence` in [replication_events](tables.md#replication_events), and of `class` and
`severity` in [incidents](tables.md#incidents). `isrwatch explain ambiguous` prints the meaning of one in a terminal.
How often they are right: [judged](../judge.md).
"""


def events_page() -> str:
    """Render one table per set of values."""
    events = ", ".join(f"`{kind}`" for kind in EventKind)
    parts = [_HEAD, "## Events", "", f"{events}.", ""]
    for title, values in EXPLAINED.items():
        rows = ((f"`{value}`", plain(text)) for value, text in meanings(values).items())
        parts += [f"## {title}", "", *table(("value", "meaning"), rows), ""]
    return "\n".join(parts)
