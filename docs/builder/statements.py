"""What is said of Kafka's replication, and what Kafka does: the statements that ``isrwatch explain`` prints."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from docs.builder.markdown import plain
from streaming.model.cluster.statements import STATEMENTS

if TYPE_CHECKING:
    from streaming.model.cluster.statements import Statement

_HEAD: Final = """# What is said of replication, and what Kafka does

{count} statements that texts about Kafka make, from different years of Kafka. Each has a rule in the model of a cluster
that comes with isrwatch, and tests of it; `isrwatch explain` prints them in a terminal, `isrwatch explain min.insync`
those that contain a word.
"""


def statements_page() -> str:
    """Render all statements."""
    parts = [_HEAD.format(count=len(STATEMENTS))]
    return "\n".join([*parts, *(_statement(number, each) for number, each in STATEMENTS.items())])


def _statement(number: int, statement: Statement) -> str:
    module, _, name = statement.rule.partition(":")
    differs = f"\n**The difference.** {plain(statement.differs)}\n" if statement.differs else ""
    return (
        f"## {number}. {plain(statement.claim)}\n\n**What Kafka does.** {plain(statement.does)}\n{differs}\n"
        f"In the model: `{module.replace('.', '/')}.py`: `{name}`.\n"
    )
