"""The metadata log as a source: batches in, observations out, and a checkpoint of what the bus holds.

Knows the tail, the cluster image and the checkpoint file; no network and no byte.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any, Final

from streaming.contracts.codec import UNDECODABLE
from streaming.contracts.identifiers import Micros, Offset
from streaming.contracts.observations import SCHEMA_VERSION, SnapshotReason
from streaming.contracts.records import LeaderChange, RecordBatch
from streaming.errors import ConfigurationError, ConnectionRefused
from streaming.sources.image import ClusterImage
from streaming.sources.metadata_log import checkpoint
from streaming.sources.metadata_log.connection import CannotServe
from streaming.sources.metadata_log.messages import LogEnd
from streaming.sources.metadata_log.quorum import Bootstrap, dialer, parse_servers
from streaming.sources.metadata_log.security import from_client
from streaming.sources.metadata_log.tail import LoadedSnapshot, Tail

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from streaming.contracts.observations import Observation
    from streaming.settings import Settings
    from streaming.sources.metadata_log.quorum import Dial

CHECKPOINT_VERSION: Final = 1
# A checkpoint is due soon after observations, seldom after heartbeats only, and never takes more than a twentieth
# of the time, however large the cluster is.
_BUSY: Final = 5_000_000
_IDLE: Final = 60_000_000
_COST: Final = 20


def wall_clock() -> Micros:
    """Give the present moment."""
    return Micros(time.time_ns() // 1000)


class MetadataLogSource:
    """Every committed change of a cluster's metadata, in the order of the log.

    Without a checkpoint it reads what is there in silence and tells the state as one START snapshot. With one it goes
    on exactly behind it; where the log no longer reaches back that far, it tells the state as a HISTORY_LOST snapshot.

    Args:
        bootstrap: the brokers.
        dial: opens connections to controllers.
        cluster: the name people gave the cluster.
        name: who we are on the bus.
        path: the checkpoint file.
        heartbeat_seconds: how often to tell that nothing happens.
        snapshot_seconds: how often to tell the whole state.
        report: takes one line for people.

    Raises:
        ConnectionRefused: no broker can be reached.
        ConfigurationError: the checkpoint is of another cluster, or damaged.
    """

    def __init__(  # noqa: PLR0913 - what a collector configures
        self,
        bootstrap: Bootstrap,
        dial: Dial,
        *,
        cluster: str,
        name: str,
        path: Path,
        heartbeat_seconds: float,
        snapshot_seconds: float,
        report: Callable[[str], None] = lambda _: None,
        clock: Callable[[], Micros] = wall_clock,
    ) -> None:
        self.name = name
        self.cluster_id, self._cluster = bootstrap.cluster_id(), cluster
        self._path, self._report, self._clock = path, report, clock
        self._heartbeat_micros = int(heartbeat_seconds * 1e6)
        self._snapshot_micros = int(snapshot_seconds * 1e6)
        self._undecodable: list[bytes] = []
        self._untold: SnapshotReason | None = SnapshotReason.START  # why the image is ahead of what was told
        self._snapshot_at = self._checkpoint_at = self._clock()
        self._checkpoint_cost = 0
        self._is_busy = self._is_unsafe = False
        self._image = self._restored() or self._empty()
        end = LogEnd(self._image.image_offset + 1, self._image.image_epoch)
        self._tail = Tail(bootstrap, dial, cluster_id=self.cluster_id, end=end, report=report)

    def connect(self, *, seconds: float) -> None:
        """Find out whether the log may be read, before anything depends on it; wait for a leader that long.

        Raises:
            ConnectionRefused: it may not, or no controller can be reached.
        """
        deadline = time.monotonic() + seconds
        while True:
            try:
                return self._tail.connect()
            except CannotServe:
                raise
            except ConnectionRefused:
                if time.monotonic() > deadline:
                    raise

    def poll(self, now: Micros) -> Sequence[Observation]:
        """Wait up to half a second for changes; observations are stamped when they arrive, not with ``now``."""
        del now
        progress = self._tail.poll()
        at = self._clock()
        if progress.rewritten:
            self._image, self._untold = self._empty(), self._untold or SnapshotReason.HISTORY_LOST
        found = [] if progress.snapshot is None else self._replace_image(progress.snapshot, at)
        if self._untold is None:
            for batch in progress.batches:
                found += self._image.apply(batch, at)
        else:
            self._image.load(progress.batches)
            if self._tail.position.is_caught_up:
                found += self._whole(self._untold, at)
                self._untold = None
        if self._untold is None and at - self._snapshot_at >= self._snapshot_micros:
            found += self._whole(SnapshotReason.PERIODIC, at)
        self._put_aside()
        if found or self._undecodable:
            self._is_busy = self._is_unsafe = True
        return found

    def take_undecodable(self) -> list[bytes]:
        """Hand over what could not be read since the last call, one JSON object each; it belongs on the bus, too."""
        taken, self._undecodable = self._undecodable, []
        return taken

    def acknowledge(self) -> None:
        """Everything returned is on the bus: write a checkpoint when one is due."""
        self._is_unsafe = False
        due = max(_BUSY if self._is_busy else _IDLE, _COST * self._checkpoint_cost)
        if self._clock() - self._checkpoint_at >= due:
            self._write_checkpoint()

    def close(self) -> None:
        """Hang up; what is on the bus for sure is checkpointed."""
        self._tail.close()
        if not self._is_unsafe:
            self._write_checkpoint()

    def _empty(self) -> ClusterImage:
        return ClusterImage(
            cluster_id=self.cluster_id,
            cluster=self._cluster,
            source=self.name,
            heartbeat_micros=self._heartbeat_micros,
        )

    def _restored(self) -> ClusterImage | None:
        """Read the checkpoint; names and periods are those of today's configuration."""
        document = checkpoint.read(self._path)
        if document is None:
            return None
        if document.get("version") != CHECKPOINT_VERSION:
            raise checkpoint.unusable(self._path, f"version {document.get('version')!r}")
        known = document.get("cluster_id")
        if known != self.cluster_id:
            raise ConfigurationError(
                f"the checkpoint {self._path} is of cluster {known}, but cluster.bootstrap_servers leads to "
                f"{self.cluster_id}; correct the address, or remove the checkpoint if the cluster was rebuilt"
            )
        today = {"cluster": self._cluster, "source": self.name, "heartbeat_micros": self._heartbeat_micros}
        try:
            image = ClusterImage.from_document({**document["image"], **today})
            self._snapshot_at = Micros(int(document["snapshot_at"]))
        except (KeyError, TypeError, ValueError) as error:
            raise checkpoint.unusable(self._path, str(error)) from None
        self._untold = None
        self._report(f"resuming after offset {image.image_offset} of the metadata log")
        return image

    def _replace_image(self, snapshot: LoadedSnapshot, at: Micros) -> list[Observation]:
        """Take the state of a KRaft snapshot; what happened before it was not seen."""
        previous, image = self._image, self._empty()
        image.load(snapshot.batches)
        if snapshot.leader is not None:
            told = LeaderChange(controller=snapshot.leader.node, epoch=snapshot.leader.epoch)
            at_end = Offset(image.image_offset + 1)
            image.load([RecordBatch(base_offset=at_end, epoch=told.epoch, timestamp=Micros(0), records=(told,))])
        image.image_offset, image.image_epoch = Offset(snapshot.end.offset - 1), snapshot.end.epoch
        image.image_timestamp = max(previous.image_timestamp, snapshot.timestamp or image.image_timestamp)
        self._put_aside()
        self._image = image
        if self._untold is not None:
            return []
        self._report(f"the log begins after offset {previous.image_offset}: changes up to here were not seen")
        return self._whole(SnapshotReason.HISTORY_LOST, at)

    def _whole(self, reason: SnapshotReason, at: Micros) -> list[Observation]:
        self._snapshot_at = at
        snapshot_id = f"{self.name}-{self._image.image_offset}-{at}"
        return self._image.snapshot(snapshot_id=snapshot_id, reason=reason, collected_at=at)

    def _put_aside(self) -> None:
        for offset, record in self._image.undecodable:
            self._report(f"the metadata record at offset {offset} goes to quarantine: {record.reason}")
            document = {
                "v": SCHEMA_VERSION,
                "kind": UNDECODABLE,
                "cluster_id": self.cluster_id,
                "cluster": self._cluster,
                "source": self.name,
                "metadata_offset": offset,
                "reason": record.reason,
                "raw": record.value.hex(),
            }
            self._undecodable.append(json.dumps(document).encode())
        self._image.undecodable.clear()

    def _write_checkpoint(self) -> None:
        if self._untold is not None:
            return  # the image holds what was not told yet
        began = self._clock()
        document: dict[str, Any] = {
            "version": CHECKPOINT_VERSION,
            "cluster_id": self.cluster_id,
            "snapshot_at": self._snapshot_at,
            "image": self._image.to_document(),
        }
        checkpoint.write(self._path, document)
        self._checkpoint_at = self._clock()
        self._checkpoint_cost = self._checkpoint_at - began
        self._is_busy = False


def checkpoint_path(bus: Path, name: str) -> Path:
    """Give the checkpoint of a source on a directory bus."""
    return bus / "checkpoints" / f"{name.replace(':', '-')}.json"


def open_metadata_log(settings: Settings, *, path: Path, report: Callable[[str], None]) -> MetadataLogSource:
    """Make the source that a configuration asks for.

    Raises:
        UnsupportedMechanism: the metadata log is not read with the configured login.
        ConfigurationError: an address or a client property is wrong, or the checkpoint is of another cluster.
        ConnectionRefused: no broker can be reached.
    """
    dial = dialer(from_client(settings.cluster.client))
    return MetadataLogSource(
        Bootstrap(parse_servers(settings.cluster.bootstrap_servers), dial),
        dial,
        cluster=settings.cluster.name,
        name=f"metadata_log:{settings.collect.collector}",
        path=path,
        heartbeat_seconds=settings.collect.heartbeat_seconds,
        snapshot_seconds=settings.collect.snapshot_seconds,
        report=report,
    )
