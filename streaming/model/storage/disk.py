"""Disks: what outlives a broker's process, and what power cuts and broken disks take away."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from streaming.contracts.identifiers import BrokerEpoch
from streaming.model.storage.replica import HighWatermarkCheckpoint, LocalReplica

if TYPE_CHECKING:
    from streaming.contracts.identifiers import TopicPartition
    from streaming.model.storage.log import Log

NO_BROKER_EPOCH: Final = BrokerEpoch(-1)
"""Epoch of a broker that was never registered, or did not stop cleanly."""


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


# The directories that a broker keeps its logs in, one a disk (``LogManager``; KIP-112, KIP-858, KIP-1066).
#
# A replica lies in one directory. With a single one, which is the usual case, nothing is kept for replicas.


class LogDirs:
    """Directories ``dir-1``, ``dir-2``, ...

    Attributes:
        names: all that the broker is configured with.
        offline: those that cannot be read; an ordered set.
        cordoned: those that get no new replicas.
        placed: where each replica lies; empty with a single directory.
        untold: those of ``placed`` that the controller was not told yet; an ordered set.
    """

    __slots__ = ("_replicas_in", "cordoned", "names", "offline", "placed", "untold")

    def __init__(self, count: int = 1) -> None:
        self.names = tuple(f"dir-{number}" for number in range(1, count + 1))
        self.offline: dict[str, None] = {}
        self.cordoned: tuple[str, ...] = ()
        self.placed: dict[TopicPartition, str] = {}
        self.untold: dict[TopicPartition, None] = {}
        self._replicas_in = dict.fromkeys(self.names, 0)

    @property
    def online(self) -> tuple[str, ...]:
        """The directories that can be read."""
        return tuple(name for name in self.names if name not in self.offline)

    @property
    def registered_names(self) -> tuple[str, ...]:
        """Directories in a registration: the readable ones; a broker with a single directory names none."""
        return self.online if len(self.names) > 1 else ()

    def place(self, key: TopicPartition) -> None:
        """Put a new replica where the fewest are; into a cordoned directory only if there is no other."""
        if len(self.names) == 1:
            return
        open_ones = [name for name in self.online if name not in self.cordoned] or list(self.online)
        name = min(open_ones, key=self._replicas_in.__getitem__)
        self.placed[key] = name
        self.untold[key] = None
        self._replicas_in[name] += 1

    def remove(self, key: TopicPartition) -> None:
        """A replica was deleted."""
        name = self.placed.pop(key, None)
        if name is not None:
            self._replicas_in[name] -= 1
            self.untold.pop(key, None)

    def is_offline(self, key: TopicPartition) -> bool:
        """Return whether a replica lies where nothing can be read."""
        return bool(self.offline) and self.placed.get(key, self.names[0]) in self.offline

    def take_untold(self) -> tuple[tuple[TopicPartition, str], ...]:
        """Give what the controller has to be told of."""
        untold, self.untold = self.untold, {}
        return tuple((key, self.placed[key]) for key in untold)
