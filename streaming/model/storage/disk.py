"""What outlives a broker's process, and what power cuts and broken disks take away."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from streaming.contracts.identifiers import BrokerEpoch
from streaming.model.storage.log_dirs import LogDirs
from streaming.model.storage.replica import HighWatermarkCheckpoint, LocalReplica

if TYPE_CHECKING:
    from streaming.contracts.identifiers import TopicPartition
    from streaming.model.storage.log import Log

NO_BROKER_EPOCH: Final = BrokerEpoch(-1)
"""Of a broker that was never registered, or did not stop cleanly."""


class Disk:
    """Replicas, the checkpoint of their high watermarks, and the clean-shutdown file.

    Attributes:
        replicas: at most one of a partition.
        log_dirs: where they lie.
        checkpoint: high watermarks as the file has them.
        clean_shutdown_epoch: what the clean-shutdown file has: the broker epoch of the last clean stop.
    """

    __slots__ = ("checkpoint", "clean_shutdown_epoch", "log_dirs", "replicas")

    def __init__(self, log_dirs: int = 1) -> None:
        self.replicas: dict[TopicPartition, LocalReplica] = {}
        self.log_dirs = LogDirs(log_dirs)
        self.checkpoint = HighWatermarkCheckpoint()
        self.clean_shutdown_epoch: BrokerEpoch = NO_BROKER_EPOCH

    def replica(self, key: TopicPartition) -> LocalReplica:
        """Give the replica of a partition, a new one if there is none yet."""
        replica = self.replicas.get(key)
        if replica is None:
            replica = self.replicas[key] = LocalReplica(self.checkpoint)
            self.log_dirs.place(key)
        return replica

    def has(self, key: TopicPartition) -> bool:
        """Return whether there is a replica of a partition that can be read."""
        return key in self.replicas and not self.log_dirs.is_offline(key)

    def logs_in(self, directory: str) -> list[Log]:
        """Give the logs that lie in a directory; costs as much as there are."""
        placed, (first, *_) = self.log_dirs.placed, self.log_dirs.names
        return [replica.log for key, replica in self.replicas.items() if placed.get(key, first) == directory]

    def remove(self, key: TopicPartition) -> None:
        """Delete a replica, if there is one."""
        if self.replicas.pop(key, None) is not None:
            self.log_dirs.remove(key)

    def sync(self) -> None:
        """Operating system writes its cache back: nothing that was appended so far can be lost any more."""
        for replica in self.replicas.values():
            replica.log.sync()

    def stop_cleanly(self, broker_epoch: BrokerEpoch) -> None:
        """Broker ends as agreed: logs flushed, checkpoints written, the clean-shutdown file last."""
        self.sync()
        self.checkpoint.write()
        self.clean_shutdown_epoch = broker_epoch

    def lose_process(self) -> None:
        """Process is gone. What it wrote is in the operating system's cache; what it only knew is lost."""
        self.checkpoint.read()

    def lose_power(self) -> None:
        """Machine loses power: every log loses what was not flushed.

        Departs from Kafka: epoch cache and log start, small files, are never older than the log they describe.
        """
        for replica in self.replicas.values():
            if replica.log.flushed < replica.log.end:
                replica.truncate(max(replica.log.flushed, replica.log.start))
        self.checkpoint.write()
