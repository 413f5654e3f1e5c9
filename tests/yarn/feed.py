"""What the model did, through Kafka, a piece at a time: so a test says what is to be in the tables, and since when."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from streaming.bus.directory import DirectoryPublisher
from streaming.bus.kafka.shipper import Shipper
from streaming.contracts.identifiers import ClusterId
from streaming.contracts.observations import Channel
from streaming.contracts.tables import PARTITION_STATE_TABLE
from streaming.delta.log.storage import open_table
from streaming.delta.state import as_of_version
from streaming.errors import TableUnreadable
from tests.chaos.comparison import all_differences, undisturbed
from tests.end_to_end.model_trace import recorded, steps
from tests.plays import played

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.end_to_end.test_kafka_bus import KafkaPipeline

SCENARIOS: Final = ("broker_loss", "rolling_restart", "disk_failure", "controller_failover")
SECONDS: Final = 120


class Feed:
    """Scenarios, each as a cluster of its own, cut into pieces."""

    def __init__(self, pipeline: KafkaPipeline, pieces: int) -> None:
        self._pipeline, self._left = pipeline, list(range(pieces))
        self._plays = {name: played(name, SECONDS) for name in SCENARIOS}
        self._observations = {}
        for name, play in self._plays.items():
            own = {"cluster_id": ClusterId(f"id-of-{name}"), "cluster": name, "source": f"metadata_log:{name}"}
            self._observations[name] = [replace(each, **own) for each in play.observations]
        self._pieces = pieces
        self._shipper = Shipper(pipeline.bus, pipeline.settings)
        assert self._shipper.lock()

    def publish(self) -> None:
        """Publish the next piece of each cluster, and ship it."""
        number = self._left.pop(0)
        with closing(DirectoryPublisher(self._pipeline.bus, segment_bytes=1 << 30)) as publisher:
            for observations in self._observations.values():
                size = -(-len(observations) // self._pieces)
                publisher.publish(observations[size * number : size * (number + 1)])
        while self._shipper.round():
            pass

    def is_applied(self) -> bool:
        """Return whether the change log has all that was published, by the positions in it; False if it is away."""
        applied = dict[str, int]()
        try:
            rows = self._pipeline.rows("partition_changes")
        except TableUnreadable:
            return False
        for row in rows:
            if row["subject"] == "source":
                applied[row["source"]] = max(applied.get(row["source"], -1), row["source_after"]["position"])
        due = {source: at for (channel, source), at in self._pipeline.last_positions().items()
               if channel is Channel.REPLICATION}  # fmt: skip
        return all(applied.get(source, -1) >= at for source, at in due.items())

    def is_derived(self) -> bool:
        """Return whether the derived tables have all of the change log."""
        newest = max(row["version"] for row in self._pipeline.rows("partition_changes") if row["subject"] != "source")
        state = open_table(self._pipeline.tables / PARTITION_STATE_TABLE.name)
        return state is not None and as_of_version(state) >= newest

    def differences(self) -> Iterator[str]:
        """Compare all tables with the steps of the model, and with an undisturbed fold of what was published."""
        assert not self._left, "not everything was published"
        rows = self._pipeline.rows("partition_changes")
        for name, play in self._plays.items():
            found, expected = recorded(rows, name), steps(play.trace)
            if [step[:-1] for step in found] != [step[:-1] for step in expected]:
                yield f"{name}: {len(found)} steps in the tables, {len(expected)} of the model"
        alone = self._pipeline.directory / "undisturbed"
        undisturbed(self._pipeline.bus, alone)
        yield from all_differences(self._pipeline.tables, alone)

    def close(self) -> None:
        self._shipper.close()
