"""``isrwatch job``: the Spark streaming job. Also what ``deploy/spark/main.py`` runs under spark-submit."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.text import Text

from streaming import settings as configuration
from streaming.delta.upkeep import Keep

if TYPE_CHECKING:
    from types import FrameType

    from streaming.jobs.application import Application
    from streaming.jobs.queries import Places
    from streaming.settings import JobSettings


def job(
    *,
    config: Annotated[Path | None, typer.Option(help="Configuration file (see conf/isrwatch.toml).")] = None,
    bus: Annotated[Path | None, typer.Option(help="Directory of the bus; default: bus.directory.")] = None,
    tables: Annotated[
        Path | None, typer.Option(help="Directory of the Delta tables; default: tables.directory.")
    ] = None,
    checkpoint: Annotated[
        Path | None, typer.Option(help="Directory of Spark's checkpoints; default: job.checkpoint.")
    ] = None,
    query: Annotated[
        list[str] | None, typer.Option(help="Run this query only; repeat it for several; default: job.queries.")
    ] = None,
    listen: Annotated[
        str | None, typer.Option(help='host:port of its own /metrics, "" for none; default: job.listen.')
    ] = None,
) -> None:
    """Fold what sources saw into Delta tables, with Spark Structured Streaming, until Ctrl-C.

    Kill it at any moment and start it again: nothing is lost and nothing is doubled, even without its checkpoint.

    Pages: /metrics, /-/healthy (503 while a query is down), on 127.0.0.1:9309 unless job.listen says otherwise.

    A query that fails starts again by itself and leaves the others alone. The exit code is 1 when one was lost.

    Example: isrwatch job --config isrwatch.toml

    Each query may have a job of its own: isrwatch job --query replication --listen 127.0.0.1:9310

    With Spark's own launcher: spark-submit --driver-memory 4g deploy/spark/main.py --config isrwatch.toml
    """
    from streaming.delta.writing import sole_writer
    from streaming.jobs.queries import Places
    from streaming.jobs.registry import chosen

    settings = configuration.load(config)
    places = Places(
        bus=bus or Path(settings.bus.directory),
        tables=tables or Path(settings.tables.directory),
        keep=Keep(settings.tables.history_days, settings.tables.versions),
        checkpoint=checkpoint or Path(settings.job.checkpoint),
    )
    wanted = replace(
        settings.job,
        queries=tuple(query) if query else settings.job.queries,
        listen=settings.job.listen if listen is None else listen,
    )
    with sole_writer(places.tables, chosen(wanted.queries)):
        _run(wanted, places)
    _say("stopped; everything that was applied is in the tables")


def _run(settings: JobSettings, places: Places) -> None:
    from streaming.jobs.application import Application
    from streaming.jobs.session import build_session
    from streaming.runtime.jars import DELTA, jar_paths
    from streaming.runtime.java import java_environment

    application = Application(settings, places, _warn)  # whatever is wrong with the places, before Spark takes its time
    _say("starting Spark")
    os.environ.update(java_environment())
    spark = build_session("isrwatch", jars=jar_paths(DELTA, progress=_say))
    _stop_on_signal(application)
    application.start(spark)
    names = ", ".join(query.name for query in application.queries)
    _say(f"running {names}; tables in {places.tables}; Ctrl-C stops it cleanly")
    application.wait(_say)
    spark.stop()


def _stop_on_signal(application: Application) -> None:
    def stop(_number: int, _frame: FrameType | None) -> None:
        application.request_stop()

    signal.signal(signal.SIGINT, stop)
    signal.signal(signal.SIGTERM, stop)


def _say(line: str) -> None:
    """Tell people one fact: coloured on a terminal, plain in a pipe."""
    Console(stderr=True).print(Text.assemble(("isrwatch job: ", "dim"), line), soft_wrap=True)


def _warn(line: str) -> None:
    """Tell people what went wrong."""
    Console(stderr=True).print(Text.assemble(("isrwatch job: ", "dim"), (line, "red")), soft_wrap=True)
