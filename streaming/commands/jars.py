"""``isrwatch jars``: show, download, verify and lock the jars."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from typing import Annotated, Final

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from streaming.errors import IsrwatchError
from streaming.resources import conf_path
from streaming.runtime import jars
from streaming.runtime.folders import exclusive

_WIDE: Final = 1_000  # in a pipe no line is wrapped or truncated
app = typer.Typer(no_args_is_help=False, add_completion=False, context_settings={"help_option_names": ["-h", "--help"]})


@app.callback(invoke_without_command=True)
def show(context: typer.Context) -> None:
    """Show the jars of Spark and the sandbox, and which of them are cached."""
    if context.invoked_subcommand is not None:
        return
    table = Table("group", "coordinate", "kB", "cached")
    for name, group in jars.groups().items():
        for jar, checksum in sorted(group.jars.items()):
            path = jars.jars_folder() / jar.path
            size = f"{path.stat().st_size // 1024:,}" if path.exists() else ""
            state = "yes" if jars.intact(jar, checksum) else "damaged" if path.exists() else "no"
            table.add_row(name, Text(str(jar)), size, state)  # as markup ":one:" would be an emoji
    table.columns[2].justify = "right"
    console = _console()
    console.print(table)
    console.print(f"Folder: {jars.jars_folder()}. Fetch with: isrwatch jars fetch [GROUP...]", soft_wrap=True)


def _console() -> Console:
    return Console(width=None if sys.stdout.isatty() else _WIDE)


@app.command()
def fetch(
    names: Annotated[list[str] | None, typer.Argument(metavar="[GROUP]...", help="Default: all groups.")] = None,
) -> None:
    """Download the missing jars of the groups, and verify those in the cache.

    For Delta's group it also archives the classes that Spark loads, unless that was done: it runs a job for a moment.
    """
    console = _console()
    selected = tuple(names or jars.groups())
    with console.status("fetching jars") as status:
        paths = jars.jar_paths(*selected, progress=lambda file: status.update(f"fetched {file}"))
        repaired = _repair(selected)
    megabytes = sum(path.stat().st_size for path in paths) / (1 << 20)
    have = f"{len(paths)} jars ({megabytes:,.1f} MB) in {jars.jars_folder()}"
    console.print(f"{have}{f', {repaired} fetched again' if repaired else ''}", soft_wrap=True)
    if jars.DELTA in selected and find_spec("pyspark") is not None:
        _archive_classes(console)


def _archive_classes(console: Console) -> None:
    from streaming.commands import spark_classes

    try:
        with console.status("archiving Spark's classes, once: a minute"):
            outcome = f"Spark's classes in {spark_classes.archive()}"
    except (IsrwatchError, OSError) as error:
        outcome = f"Spark's classes are not archived, so it starts in twice the time: {error}"
    console.print(outcome, soft_wrap=True)


def _repair(names: tuple[str, ...]) -> int:
    """Download again the cached jars that do not match the lock file; return their number."""
    groups = jars.groups()
    damaged = {
        jar: checksum for name in names for jar, checksum in groups[name].jars.items() if not jars.intact(jar, checksum)
    }
    with exclusive(jars.jars_folder()):
        jars.install(damaged, lambda _: None)
    return len(damaged)


@app.command()
def lock() -> None:
    """Resolve "resolve" and "exact" of conf/jars.lock again and write the result. For developers of isrwatch."""
    console = _console()
    with console.status("resolving") as status:
        text = jars.relock(lambda file: status.update(f"resolving, fetched {file}"))
    conf_path("jars.lock").write_text(text, encoding="utf-8")
    console.print(f"wrote {conf_path('jars.lock')}")
