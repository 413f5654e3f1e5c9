"""``isrwatch job``: the Spark streaming job. Also what ``deploy/spark/main.py`` runs under spark-submit."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from streaming import settings as configuration

if TYPE_CHECKING:
    from types import FrameType

    from streaming.jobs.application import Application


def job(
    config: Annotated[Path | None, typer.Option(help="Configuration file (see conf/isrwatch.toml).")] = None,
    bus: Annotated[Path | None, typer.Option(help="Directory of the bus; default: bus.directory.")] = None,
    tables: Annotated[
        Path | None, typer.Option(help="Directory of the Delta tables; default: tables.directory.")
    ] = None,
    checkpoint: Annotated[
        Path | None, typer.Option(help="Directory of Spark's checkpoints; default: job.checkpoint.")
    ] = None,
) -> None:
    """Fold what sources saw into Delta tables, with Spark Structured Streaming, until Ctrl-C.

    Kill it at any moment and start it again: nothing is lost and nothing is doubled, even without its checkpoint.
    Whoever deletes the tables deletes the checkpoint, too.

    Example: isrwatch job --config isrwatch.toml
    """
    from streaming.jobs.application import Application
    from streaming.jobs.queries import Places
    from streaming.jobs.session import build_session
    from streaming.runtime.jars import DELTA, jar_paths
    from streaming.runtime.java import java_environment

    settings = configuration.load(config)
    _say("starting Spark")
    os.environ.update(java_environment())
    spark = build_session("isrwatch", jars=jar_paths(DELTA, progress=_say))
    places = Places(
        bus=bus or Path(settings.bus.directory),
        tables=tables or Path(settings.tables.directory),
        checkpoint=checkpoint or Path(settings.job.checkpoint),
    )
    application = Application(spark, settings.job, places)
    _stop_on_signal(application)
    application.start()
    _say(f"running; tables in {places.tables}; Ctrl-C stops it cleanly")
    application.wait()
    spark.stop()
    _say("stopped; everything that was applied is in the tables")


def _stop_on_signal(application: Application) -> None:
    def stop(_number: int, _frame: FrameType | None) -> None:
        application.request_stop()

    signal.signal(signal.SIGINT, stop)
    signal.signal(signal.SIGTERM, stop)


def _say(text: str) -> None:
    print(f"isrwatch job: {text}", file=sys.stderr, flush=True)  # noqa: T201 - a command talks to its user
