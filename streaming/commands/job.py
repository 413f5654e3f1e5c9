"""``isrwatch job``: the Spark streaming job. ``deploy/spark/main.py`` runs the same under spark-submit."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.text import Text

from streaming import settings as configuration
from streaming.configuration_file import OPTION_HELP
from streaming.contracts.observations import Channel
from streaming.delta.log.maintenance import RetentionPolicy
from streaming.delta.store.announced import finish_announcements
from streaming.delta.store.place import tables_place
from streaming.errors import IsrwatchError
from streaming.secret_values import with_bus_secrets
from streaming.terminal import Terminal, print_log

if TYPE_CHECKING:
    from types import FrameType

    from streaming.bus.kafka.reader import KafkaReader
    from streaming.delta.log.claim import Claim
    from streaming.jobs.application import Application
    from streaming.jobs.java_output import JavaOutput
    from streaming.jobs.queries import JobLocations
    from streaming.settings import JobSettings


SEVERAL_TASKS: Final = (
    "executors run several tasks at once, so the processes of one take turns with the clusters, and read their state "
    "from the tables each time: set spark.executor.cores=1 (--executor-cores 1), and take more executors"
)
WebConfigFile = Annotated[
    str | None, typer.Option("--web.config.file", help="TLS and logins for --listen; default: job.web_config_file.")
]


def job(
    *,
    config: Annotated[Path | None, typer.Option(help=OPTION_HELP)] = None,
    bus: Annotated[
        Path | None, typer.Option(help="Bus directory; default: bus.kafka if it is set, else bus.directory.")
    ] = None,
    tables: Annotated[
        str | None, typer.Option(help="Folder or URL of the Delta tables; default: tables.directory.")
    ] = None,
    checkpoint: Annotated[
        Path | None, typer.Option(help="Spark's checkpoint directory; default: job.checkpoint.")
    ] = None,
    query: Annotated[
        list[str] | None, typer.Option(help="Run only this query; repeatable; default: job.queries.")
    ] = None,
    listen: Annotated[
        str | None, typer.Option(help='host:port of /metrics and /-/healthy, "" for none; default: job.listen.')
    ] = None,
    web_config_file: WebConfigFile = None,
    standby: Annotated[
        bool, typer.Option("--standby", help="Start Spark, and wait until no other job writes the tables.")
    ] = False,
) -> None:
    """Fold the observations on the bus into Delta tables, with Spark Structured Streaming, until Ctrl-C.

    It can be killed and restarted at any time: nothing is lost or duplicated, even without its checkpoint.

    Serves /metrics, /-/healthy (503 while a query is down or hangs, or Spark has no executor) and /-/ready (503 also
    while it is behind) on job.listen, by default 127.0.0.1:9309. A query that fails is restarted without affecting the
    others. The exit code is 1 if a query failed permanently.

    Example: isrwatch job --config isrwatch.toml

    With --standby it takes over from a job that was killed, hangs or lost its machine: its /-/ready is 503 until then.

    One query in a job of its own: isrwatch job --query replication --listen 127.0.0.1:9311

    With spark-submit; conf/log4j2.properties keeps its log short: spark-submit
    --driver-java-options -Dlog4j2.configurationFile=conf/log4j2.properties --driver-memory 4g deploy/spark/main.py
    --config isrwatch.toml
    """
    settings = configuration.load(config)
    job_settings = replace(
        settings.job,
        queries=tuple(query) if query else settings.job.queries,
        listen=settings.job.listen if listen is None else listen,
        web_config_file=settings.job.web_config_file if web_config_file is None else web_config_file,
    )
    has_run = _run_alone(job_settings, _places(settings, bus, tables, checkpoint), standby=standby)
    say("stopped; everything applied is in the tables" if has_run else "stopped; it was standing by")


def _places(
    settings: configuration.Settings, bus: Path | None, tables: str | None, checkpoint: Path | None
) -> JobLocations:
    """Return the places of the configuration, and of the options, which win."""
    from streaming.jobs.queries import JobLocations
    from streaming.jobs.session import is_local

    kafka = _kafka(settings, bus)
    return JobLocations(
        bus=bus or Path(settings.bus.directory),
        tables=tables_place(settings, tables),
        retention=RetentionPolicy.of_seconds(settings.tables.history, settings.advanced.reader_time),
        advanced=settings.advanced,
        checkpoint=checkpoint or Path(settings.job.checkpoint),
        kafka=kafka,
        on_executors=kafka is not None and not is_local(),
    )


def _kafka(settings: configuration.Settings, directory: Path | None) -> KafkaReader | None:
    """Return Kafka as the bus, if it is configured; a directory that is given as an option is the bus itself."""
    if directory is not None or not settings.bus.kafka.bootstrap_servers:
        return None
    from streaming.bus.kafka.reader import KafkaReader
    from streaming.jobs.streams.kafka_source import java_properties

    bus = with_bus_secrets(settings.bus.kafka)
    java_properties(bus)  # what Spark cannot do is refused before it starts
    return KafkaReader(bus, warn)


def _run_alone(settings: JobSettings, places: JobLocations, *, standby: bool) -> bool:
    """Run the job as the only one on its tables; return False if it has only stood by."""
    from streaming.delta.log.claim import claim_of
    from streaming.jobs.application import chosen

    claim = claim_of(places.tables, chosen(settings.queries), settings.lease, warn)
    try:
        if not standby:
            _take(claim, places)
        return run_until_stopped(settings, places, claim, standby=standby)
    finally:
        claim.release()
        finish_announcements()


def _take(claim: Claim, places: JobLocations) -> None:
    """Take the claim at once: what starts this job again after its end must not wait for the one that ended."""
    from streaming.jobs.application import recover

    recover(places.tables, warn)
    if (before := claim.take()) is not None and not before.is_released:
        say(f"took over from {before}, which stops if it still runs")


def run_until_stopped(settings: JobSettings, places: JobLocations, claim: Claim, *, standby: bool) -> bool:
    """Run the job in a Spark session until a signal ends it; return False if it has only stood by."""
    from streaming.jobs.application import Application, chosen, recover
    from streaming.jobs.java_output import JavaOutput
    from streaming.jobs.session import build_session, session_ends, tasks_at_once
    from streaming.jobs.streams.kafka_source import POLLING_DELAY
    from streaming.runtime.java import java_environment
    from streaming.runtime.memory import return_freed_memory

    return_freed_memory()
    # Before Spark, which takes seconds to start: this verifies what it needs, the bus, the tables and the checkpoint.
    os.environ.update(java_environment())
    application = Application(settings, places, warn, claim, stands_by=standby)
    if not Terminal(stderr=True).is_terminal:
        application.log_batches(say)
    say("starting Spark")
    output = JavaOutput()
    _stop_on_signal(application, output)  # before Spark starts: its JVM would live on if Python were interrupted
    jars = () if places.kafka is None else connector_jars()
    try:
        extra = {} if places.kafka is None else POLLING_DELAY
        spark = build_session("isrwatch", jars=jars, extra=extra, output=output)
    except IsrwatchError:
        if application.is_stopping():  # a signal to the whole group has ended its Java process, too
            return not standby
        raise
    _stop_on_signal(application, output)  # Spark has put its own in their place
    with output.shown_on_failure(), session_ends(spark):
        if places.on_executors and tasks_at_once(spark) != 1:
            warn(SEVERAL_TASKS)
        if standby:
            if not application.stand_by(spark, claim, say):
                application.close()
                return False
            say("taking over")
            recover(places.tables, warn, chosen(settings.queries))
            application.open()
        application.start(spark)
        _say_started(application, places)
        application.wait(say)
        return True


def _say_started(application: Application, places: JobLocations) -> None:
    names = ", ".join(query.name for query in application.queries)
    say(f"running {names}; tables in {places.tables}; Ctrl-C stops it cleanly")
    if places.kafka is not None:
        say(f"reading the bus {places.kafka.settings.bootstrap_servers}")
    elif not places.reader().logs(Channel.REPLICATION):
        say(f"nothing was published to the bus {places.bus} yet: waiting for isrwatch collect with this bus.directory")


def connector_jars() -> tuple[Path, ...]:
    """Return the jars of Spark's connector to Kafka, and fetch them; none under spark-submit, which was given them."""
    from streaming.jobs.session import is_submitted
    from streaming.runtime.jars import SPARK_KAFKA, jar_paths

    return () if is_submitted() else jar_paths(SPARK_KAFKA, progress=say)


def _stop_on_signal(application: Application, output: JavaOutput) -> None:
    def stop(_number: int, _frame: FrameType | None) -> None:
        application.request_stop()
        output.hold()

    signal.signal(signal.SIGINT, stop)
    signal.signal(signal.SIGTERM, stop)


def say(line: str) -> None:
    """Print a line on stderr: coloured on a terminal, plain in a pipe."""
    print_log(Text.assemble(("isrwatch job: ", "dim"), line))


def warn(line: str) -> None:
    """Print a problem on stderr."""
    print_log(Text.assemble(("isrwatch job: ", "dim"), (line, "red")))
