"""The queries of the job, by name: each is one entry of ``QUERIES``, and runs alone or beside the others.

A new query is an entry here and a module that applies its micro-batches.
"""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Final

from streaming.bus.directory import DirectoryReader
from streaming.contracts.identifiers import LogPosition
from streaming.contracts.observations import Channel
from streaming.contracts.tables import INCIDENTS, PARTITION_CHANGES
from streaming.delta.log.storage import open_table
from streaming.delta.log.table_log import BEFORE_FIRST
from streaming.delta.state import as_of_version
from streaming.errors import ConfigurationError
from streaming.jobs.driver.batch import ReplicationBatch
from streaming.jobs.driver.incidents import IncidentsBatch
from streaming.jobs.driver.newest import NewestBatch
from streaming.jobs.driver.projecting import ProjectionThread
from streaming.jobs.queries import OpenedQuery, QueryDefinition
from streaming.jobs.streams import bus_options, bus_source, changes_source

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from streaming.jobs.queries import BusProgress, Places
    from streaming.settings import JobSettings

SAMPLES_TRIGGER_SECONDS: Final = 1.0
# Each batch of samples rewrites tables as large as the Kafka cluster, so its batches exceed job.batch_bytes.
SAMPLES_BATCH_FACTOR: Final = 4
INCIDENTS_TRIGGER_SECONDS: Final = 1.0
_SAMPLE_COLUMNS: Final = {bus_options.SAMPLE_COLUMNS: "true"}


def register_sources(spark: SparkSession) -> None:
    """Register the stream formats that the queries read with a session."""
    bus_source.register(spark)
    changes_source.register(spark)


def _bus(
    channel: Channel, spark: SparkSession, places: Places, settings: JobSettings, progress: BusProgress | None
) -> DataFrame:
    is_replication = channel is Channel.REPLICATION
    factor = 1 if is_replication else SAMPLES_BATCH_FACTOR
    options = {
        bus_options.DIRECTORY: str(places.bus),
        bus_options.CHANNEL: channel,
        bus_options.MAX_BYTES: str(settings.batch_bytes * factor),
        bus_options.STARTING_POSITIONS: json.dumps({} if progress is None else unapplied(channel, places, progress)),
    }
    if not is_replication:  # they have a trigger interval
        options[bus_options.WAIT_SECONDS] = "0"
    options |= {bus_options.REPEATED: str(_repeated_blocks(places))} if is_replication else _SAMPLE_COLUMNS
    return spark.readStream.format(bus_source.FORMAT).options(**options).load()


def unapplied(channel: Channel, places: Places, progress: BusProgress) -> dict[str, LogPosition]:
    """Return where to go on in each log: at the last record that was applied, whose end the tables do not know.

    That is behind its begin, but in a log that is not there now: when it comes, it is another one. Of that one a
    channel may have applied records, and one of its tables none (``at`` has only the log's identity).
    """
    bus = DirectoryReader(places.bus)
    names = {*bus.logs(channel), *(state.source for state in progress.sources()[0])}
    begins = {
        source: LogPosition(log[0].base, log[0].log_id) for source in names if (log := bus.segments(channel, source))
    }
    applied = {source: progress.at(source) for source in names}
    return {
        source: max(begins.get(source, LogPosition(0, at.log_id)), at, key=itemgetter(0))
        for source, at in applied.items()
        if source in begins or at.position >= 0 or at.log_id is not None
    }


def _changes(spark: SparkSession, places: Places, _settings: JobSettings, _progress: BusProgress | None) -> DataFrame:
    incidents = open_table(places.tables / INCIDENTS.name)
    options = {
        changes_source.PATH: str(places.tables / PARTITION_CHANGES.name),
        changes_source.AFTER: str(BEFORE_FIRST if incidents is None else as_of_version(incidents)),
    }
    return spark.readStream.format(changes_source.FORMAT).options(**options).load()


def _open_incidents(places: Places, settings: JobSettings) -> OpenedQuery:
    batch = IncidentsBatch(
        places.tables, settings.incident_gap_seconds, settings.incident_rolling_gap_seconds, places.retention
    )
    return OpenedQuery(batch=batch)


def _open_replication(places: Places, settings: JobSettings) -> OpenedQuery:
    read = partial(DirectoryReader(places.bus).read, Channel.REPLICATION)
    batch = ReplicationBatch(places.tables, places.retention, read, _repeated_blocks(places))
    tables, shared = batch.projections, batch.shared
    background = ProjectionThread(
        partial(tables.project, shared), settings.projection_seconds, partial(tables.is_due, shared)
    )
    return OpenedQuery(batch=batch, progress=batch, background=background)


def _repeated_blocks(places: Places) -> Path:
    """Return the file by which the driver lets the workers leave blocks out; workers that do not find it read all."""
    return places.checkpoint / "repeated_blocks"


def _open_newest(channel: Channel, places: Places, _settings: JobSettings) -> OpenedQuery:
    batch = NewestBatch(places.tables, channel, places.retention)
    return OpenedQuery(batch=batch, progress=batch)


def _open_on_same_bus(
    channel: Channel,
    open_query: Callable[[Places, JobSettings], OpenedQuery],
    places: Places,
    settings: JobSettings,
) -> OpenedQuery:
    """Open, and go back where a log on the bus is another one than before: what was applied last must be in it."""
    opened = open_query(places, settings)
    if opened.progress is None:
        return opened
    bus = DirectoryReader(places.bus)
    before = opened.progress.go_back(bus.logs(channel), partial(bus.last_common, channel))
    return replace(opened, notes=tuple(_note(channel, source, opened.progress.at(source)) for source in sorted(before)))


def _note(channel: Channel, source: str, now_at: LogPosition) -> str:
    begin = "its beginning" if now_at.position < 0 else f"position {now_at.position}, up to which both are the same"
    return (
        f"the log {channel}/{source} on the bus was replaced, restored from a copy, or cut since it was read: it is "
        f"read from {begin}; what the bus has lost meanwhile is recorded as missed"
    )


def _samples(channel: Channel) -> QueryDefinition:
    return QueryDefinition(
        stream=partial(_bus, channel),
        open=partial(_open_on_same_bus, channel, partial(_open_newest, channel)),
        trigger_seconds=lambda _: SAMPLES_TRIGGER_SECONDS,
        channel=channel,
    )


QUERIES: Final[dict[str, QueryDefinition]] = {
    "replication": QueryDefinition(
        stream=partial(_bus, Channel.REPLICATION),
        open=partial(_open_on_same_bus, Channel.REPLICATION, _open_replication),
        trigger_seconds=lambda settings: settings.trigger_seconds,
        channel=Channel.REPLICATION,
    ),
    "offsets": _samples(Channel.OFFSETS),
    "metrics": _samples(Channel.METRICS),
    "incidents": QueryDefinition(
        stream=_changes, open=_open_incidents, trigger_seconds=lambda _: INCIDENTS_TRIGGER_SECONDS
    ),
}


def chosen(names: Iterable[str]) -> dict[str, QueryDefinition]:
    """Return the queries of these names; all of them if no name is given.

    Raises:
        ConfigurationError: there is no such query.
    """
    selected = set(names) or set(QUERIES)
    for name in sorted(selected - set(QUERIES)):
        raise ConfigurationError(f"job.queries (--query): there is no query {name!r}; choose of {', '.join(QUERIES)}")
    return {name: definition for name, definition in QUERIES.items() if name in selected}
