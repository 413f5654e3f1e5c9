"""``isrwatch explain``: popular statements about Kafka's replication, what Kafka does, and the difference."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.text import Text

from streaming.errors import ConfigurationError
from streaming.model.statements import STATEMENTS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streaming.model.statements import Statement


def explain(
    words: Annotated[
        list[str] | None, typer.Argument(help="Numbers, or words to search for; default: all statements.")
    ] = None,
) -> None:
    """Print popular statements about Kafka's replication, and what Kafka does."""
    matching = dict(_matching(words or []))
    if not matching:
        raise ConfigurationError(f"no statement contains all of: {' '.join(words or [])}; try other words, or a number")
    console = Console()
    for number, statement in matching.items():
        _print(console, number, statement)


def _matching(words: list[str]) -> Iterator[tuple[int, Statement]]:
    """Select statements by number; without a number, those that contain all words."""
    numbers = {int(word) for word in words if word.isdigit()}
    others = [word.lower() for word in words if not word.isdigit()]
    for number, statement in STATEMENTS.items():
        text = f"{statement.claim} {statement.does} {statement.differs}".lower()
        if number in numbers or (not numbers and all(word in text for word in others)):
            yield number, statement


def _print(console: Console, number: int, statement: Statement) -> None:
    lines = [(f"{number:2}  {statement.claim}", "bold"), (f"    {statement.does}", "")]
    if statement.differs:
        lines.append((f"    {statement.differs}", "yellow"))
    for text, style in lines:
        console.print(Text(text, style=style), soft_wrap=not console.is_terminal)
