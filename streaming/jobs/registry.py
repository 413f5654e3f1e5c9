"""The queries of the job, by name: each is one line of the table, runs alone or beside the others.

A new query is a line here and a file that knows what to do with a micro-batch.
"""

from __future__ import annotations

import shutil
from functools import partial
from typing import TYPE_CHECKING, Final

from streaming.bus.directory import DirectoryReader
from streaming.contracts.observations import Channel
from streaming.contracts.tables import INCIDENTS, PARTITION_CHANGES
from streaming.errors import ConfigurationError
from streaming.jobs import bus_source, changes_source
from streaming.jobs.batch import ReplicationBatch
from streaming.jobs.cluster_batch import ClusterReplicationBatch
from streaming.jobs.cluster_newest import ClusterNewestBatch
from streaming.jobs.cluster_projections import ClusterProjections
from streaming.jobs.incidents import IncidentsBatch
from streaming.jobs.newest import NewestBatch
from streaming.jobs.projecting import ProjectionThread
from streaming.jobs.queries import Definition
from streaming.settings import CLUSTER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from streaming.jobs.queries import Batch, ClusterBatch, Places
    from streaming.settings import JobSettings

SAMPLES_TRIGGER_SECONDS: Final = 1.0
# Each batch of samples rewrites tables as large as the cluster, so its batches are larger than job.batch_bytes.
SAMPLES_BATCH_FACTOR: Final = 4
INCIDENTS_TRIGGER_SECONDS: Final = 1.0


def register_sources(spark: SparkSession) -> None:
    """Make the formats that the queries read known to a session."""
    bus_source.register(spark)
    changes_source.register(spark)


def _bus(channel: Channel, spark: SparkSession, places: Places, settings: JobSettings) -> DataFrame:
    factor = 1 if channel is Channel.REPLICATION else SAMPLES_BATCH_FACTOR
    options = {
        bus_source.DIRECTORY: str(places.bus),
        bus_source.CHANNEL: channel,
        bus_source.MAX_BYTES: str(settings.batch_bytes * factor),
    }
    return spark.readStream.format(bus_source.FORMAT).options(**options).load()


def _changes(spark: SparkSession, places: Places, _settings: JobSettings) -> DataFrame:
    truth = places.tables / PARTITION_CHANGES.name
    return spark.readStream.format(changes_source.FORMAT).option(changes_source.PATH, str(truth)).load()


def _open_incidents(places: Places, settings: JobSettings) -> IncidentsBatch:
    batch = IncidentsBatch(places.tables, settings.incident_gap_seconds, settings.incident_rolling_gap_seconds)
    # Of versions that the log may have lost since; the table knows better how far it is, and skips what comes again.
    _forget(places.checkpoint / INCIDENTS.name)
    return batch


def _open_replication(places: Places, settings: JobSettings) -> ReplicationBatch | ClusterReplicationBatch:
    batch = (
        ClusterReplicationBatch(places.tables, settings.buckets)
        if settings.execution == CLUSTER
        else ReplicationBatch(places.tables, places.keep)
    )
    if batch.is_empty:
        _forget(places.checkpoint / Channel.REPLICATION)
    return batch


def _forget(checkpoint: Path) -> None:
    """Delete the checkpoint of empty tables: it would skip what they lack, and the bus still holds."""
    try:
        shutil.rmtree(checkpoint)
    except FileNotFoundError:
        return
    except OSError as error:
        raise ConfigurationError(
            f"the checkpoint {checkpoint} belongs to other tables and cannot be deleted: {error.strerror}; delete it"
        ) from None


def _open_newest(channel: Channel, places: Places, settings: JobSettings) -> NewestBatch | ClusterNewestBatch:
    if settings.execution == CLUSTER:
        return ClusterNewestBatch(places.tables, channel, settings.buckets)
    return NewestBatch(places.tables, channel)


def _project(batch: ReplicationBatch | ClusterReplicationBatch, settings: JobSettings) -> ProjectionThread:
    if isinstance(batch, ClusterReplicationBatch):
        return ProjectionThread(ClusterProjections(batch.directory).project, settings.projection_seconds)
    return ProjectionThread(partial(batch.projections.project, batch.shared), settings.projection_seconds)


def _checked(
    channel: Channel,
    opened: Callable[[Places, JobSettings], Batch | ClusterBatch],
    places: Places,
    settings: JobSettings,
) -> Batch | ClusterBatch:
    """Open, and refuse a bus that was replaced: what was applied must still be in it, or have been deleted from it."""
    batch = opened(places, settings)
    for source, end in DirectoryReader(places.bus).end_positions(channel).items():
        if 0 < end <= batch.position(source):
            raise ConfigurationError(
                f"the bus holds less of {source} (up to {end}) than the tables have applied: it was replaced; "
                "bring the old bus back, or point tables.directory and job.checkpoint at new folders"
            )
    return batch


def _samples(channel: Channel) -> Definition:
    return Definition(
        stream=partial(_bus, channel),
        open=partial(_checked, channel, partial(_open_newest, channel)),
        trigger_seconds=lambda _: SAMPLES_TRIGGER_SECONDS,
        channel=channel,
    )


QUERIES: Final[dict[str, Definition]] = {
    "replication": Definition(
        stream=partial(_bus, Channel.REPLICATION),
        open=partial(_checked, Channel.REPLICATION, _open_replication),
        trigger_seconds=lambda settings: settings.trigger_seconds,
        channel=Channel.REPLICATION,
        follow=_project,
    ),
    "offsets": _samples(Channel.OFFSETS),
    "metrics": _samples(Channel.METRICS),
    "incidents": Definition(stream=_changes, open=_open_incidents, trigger_seconds=lambda _: INCIDENTS_TRIGGER_SECONDS),
}


def chosen(names: Iterable[str]) -> dict[str, Definition]:
    """Give the queries of these names, all of them for none.

    Raises:
        ConfigurationError: there is no such query.
    """
    wanted = set(names) or set(QUERIES)
    for name in sorted(wanted - set(QUERIES)):
        raise ConfigurationError(f"job.queries (--query): there is no query {name!r}; choose of {', '.join(QUERIES)}")
    return {name: definition for name, definition in QUERIES.items() if name in wanted}
