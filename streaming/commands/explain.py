"""``isrwatch explain``: what causes, evidence and classes of incidents mean; popular statements about Kafka."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from streaming.contracts.events import EXPLAINED, meanings
from streaming.errors import ConfigurationError
from streaming.model.cluster.statements import STATEMENTS
from streaming.terminal import Terminal, print_wrapped

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streaming.model.cluster.statements import Statement


def explain(
    words: Annotated[
        list[str] | None,
        typer.Argument(help="A cause, evidence or class of incidents; words or numbers; default: all statements."),
    ] = None,
) -> None:
    """Print what a cause, evidence or a class of incidents means, and popular statements about Kafka's replication.

    Example: isrwatch explain ambiguous
    """
    matching = dict(_matching(words or []))
    values = list(_values(words or []))
    if not matching and not values:
        raise ConfigurationError(
            f"no cause, evidence or class of incidents, and no statement contains all of: {' '.join(words or [])}; try "
            "other words, or a number"
        )
    console = Terminal()
    for title, text in values:
        _write(console, [(title, "bold"), (f"    {text}", "")])
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


def _values(words: list[str]) -> Iterator[tuple[str, str]]:
    """Give each value that is one of the words, and of what it is one, with its meaning."""
    asked = {word.lower() for word in words}
    for title, values in EXPLAINED.items():
        for value, text in meanings(values).items():
            if value in asked:
                yield f"{title}: {value}", text.replace("``", "")


def _print(console: Terminal, number: int, statement: Statement) -> None:
    lines = [(f"{number:2}  {statement.claim}", "bold"), (f"    {statement.does}", "")]
    if statement.differs:
        lines.append((f"    {statement.differs}", "yellow"))
    _write(console, lines)


def _write(console: Terminal, lines: list[tuple[str, str]]) -> None:
    for text, style in lines:
        print_wrapped(console, Text(text, style=style))
