"""``isrwatch mcp``: a server of the Model Context Protocol on stdin and stdout, for the assistant that starts it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from streaming.configuration_file import OPTION_HELP


def mcp(
    *,
    server: Annotated[
        str | None,
        typer.Option(
            metavar="URL", help="Ask this exporter instead of reading tables; default: $ISRWATCH_SERVER, or server.url."
        ),
    ] = None,
    tables: Annotated[
        str | None, typer.Option(help="Folder or URL of the Delta tables; default: tables.directory.")
    ] = None,
    config_file: Annotated[Path | None, typer.Option("--config", help=OPTION_HELP)] = None,
) -> None:
    """Answer an assistant about incidents, changes and brokers. It reads, and changes nothing.

    An assistant starts it, and asks over stdin and stdout: see docs/assistants.md.

    Example: isrwatch mcp --server https://isrwatch.example
    """
    from exporters.answers.source import AnswerSource
    from exporters.mcp.tools import server_for

    server_for(AnswerSource.of(server, tables, config_file)).run("stdio")
