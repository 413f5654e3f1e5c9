"""``isrwatch explain``: what people are told about Kafka's replication, what Kafka does, where the two differ."""

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
        list[str] | None, typer.Argument(help="Numbers, or words to look for; without any, all statements.")
    ] = None,
) -> None:
    """Print the statements of popular texts about replication beside what Kafka really does."""
    found = dict(_matching(words or []))
    if not found:
        raise ConfigurationError(f"no statement has all of: {' '.join(words or [])}; try other words, or a number")
    console = Console()
    for number, statement in found.items():
        _print(console, number, statement)


def _matching(words: list[str]) -> Iterator[tuple[int, Statement]]:
    """Numbers choose statements; without a number, words must all occur in one."""
    numbers = {int(word) for word in words if word.isdigit()}
    others = [word.lower() for word in words if not word.isdigit()]
    for number, statement in STATEMENTS.items():
        text = f"{statement.told} {statement.does} {statement.differs}".lower()
        if number in numbers or (not numbers and all(word in text for word in others)):
            yield number, statement


def _print(console: Console, number: int, statement: Statement) -> None:
    told = [(f"{number:2}  {statement.told}", "bold"), (f"    {statement.does}", "")]
    if statement.differs:
        told.append((f"    {statement.differs}", "yellow"))
    for text, style in told:
        console.print(Text(text, style=style), soft_wrap=not console.is_terminal)
