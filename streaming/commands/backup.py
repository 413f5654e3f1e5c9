"""``isrwatch backup`` and ``isrwatch restore``: all tables at one commit, while the job runs."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from streaming import settings as configuration
from streaming.configuration_file import OPTION_HELP
from streaming.delta.backup import back_up
from streaming.delta.backup import restore as brought_back
from streaming.delta.store.place import place_of, tables_place
from streaming.secret_values import storage_of
from streaming.terminal import Terminal, print_wrapped

if TYPE_CHECKING:
    from streaming.delta.backup import Copied
    from streaming.delta.store.place import Place

ConfigOption = Annotated[Path | None, typer.Option(help=OPTION_HELP)]
TablesOption = Annotated[str | None, typer.Option(help="Folder or URL of the Delta tables; default: tables.directory.")]


def backup(
    place: Annotated[
        str, typer.Argument(metavar="PLACE", help="New folder, or the URL of one in a store; must be empty.")
    ],
    *,
    tables: TablesOption = None,
    config: ConfigOption = None,
) -> None:
    """Copy all tables as they are at one commit; the job may run meanwhile.

    On the disk of the tables it takes a moment and no space, because files that never change are linked; files that
    the job deletes later stay in it. Every command reads a backup, with --tables PLACE. To delete it, delete the
    folder. If PLACE is in a store, it is opened with tables.storage.

    Example: isrwatch backup "/backup/isrwatch-$(date +%F)"
    """
    given = configuration.load(config)
    source, target = tables_place(given, tables), _place(given, place)
    _say(f"backed up {_of(back_up(source, target, dt.datetime.now(dt.UTC)))} to {target}")


def restore(
    place: Annotated[str, typer.Argument(metavar="PLACE", help="Folder or URL that isrwatch backup has written.")],
    *,
    tables: TablesOption = None,
    config: ConfigOption = None,
) -> None:
    """Bring back all tables from a backup, to a place without tables; the job must be stopped.

    The next start of the job reads what the tables lack from the bus, and records as missed what it no longer holds.

    Example: isrwatch restore /backup/isrwatch-2026-03-01
    """
    given = configuration.load(config)
    source, target = _place(given, place), tables_place(given, tables)
    _say(f"restored {_of(brought_back(source, target))} to {target}")


def _place(settings: configuration.Settings, text: str) -> Place:
    return place_of(text, storage_of(settings), "PLACE")


def _of(copied: Copied) -> str:
    return (
        f"{copied.tables} tables of version {copied.version} of partition_changes, in {copied.files:,} files of "
        f"{copied.size / 1e6:,.1f} MB together,"
    )


def _say(line: str) -> None:
    print_wrapped(Terminal(), line)
