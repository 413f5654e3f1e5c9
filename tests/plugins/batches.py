"""The batches of the job on the folders of an installation, without Spark: for tests of what follows from them."""

from __future__ import annotations

import threading
from collections import Counter
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from streaming.bus.directory import DirectoryReader
from streaming.contracts.observations import Channel
from streaming.contracts.state import SourceLag
from streaming.delta.progress import ProgressTable
from streaming.jobs.shards.batch import ReplicationBatch
from streaming.jobs.shards.samples import SampleBatch
from streaming.jobs.streams.bus_source import SCHEMA, arrow_batches

if TYPE_CHECKING:
    from pathlib import Path

    from streaming.delta.store.place import Place


def store_progress(tables: Place, samples: SampleBatch) -> None:
    """Store how far samples were applied, as the job does every few seconds and when it stops."""
    offsets, sources = samples.offsets, samples.sources()[0]
    ProgressTable(tables, Channel.SAMPLES).replace([(source, SourceLag()) for source in sources], None, offsets)


class Batches(threading.Thread):
    """The job's batches, over and over: what has come on the bus is applied to the tables."""

    def __init__(self, bus: Path, tables: Path) -> None:
        super().__init__(name="batches", daemon=True)
        self.errors: list[Exception] = []
        self._ended = threading.Event()
        self._bus = DirectoryReader(bus)
        self._replication = ReplicationBatch(tables)
        samples = SampleBatch(tables)
        self._batches: dict[Channel, Any] = {Channel.REPLICATION: self._replication, Channel.SAMPLES: samples}
        self._read: Counter[tuple[Channel, str]] = Counter()

    def run(self) -> None:
        try:
            while not self._ended.wait(0.5):
                for channel in self._batches:
                    self._apply(channel)
                self._replication.project()
        except Exception as error:  # noqa: BLE001 - whatever it is, the test that waits in vain shows it
            self.errors.append(error)

    def _apply(self, channel: Channel) -> None:
        for source, end in self._bus.end_positions(channel).items():
            begin = self._read[channel, source]
            if begin < end:
                log_id = self._bus.segments(channel, source)[-1].log_id
                rows = arrow_batches(source, self._bus.read(channel, source, begin, end), log_id)
                self._batches[channel].apply(pa.Table.from_batches(rows, schema=SCHEMA))
                self._read[channel, source] = end

    def end(self) -> None:
        self._ended.set()
        self.join()
