"""The metadata log as a source: batches in, observations out, and a checkpoint of what is on the bus.

Depends on the tail, the cluster image and the checkpoint file; not on the network or wire formats.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Final

from streaming.contracts.identifiers import SECOND, Micros, Offset
from streaming.contracts.observations import SnapshotReason
from streaming.contracts.records import LeaderChange, RecordBatch
from streaming.errors import BusFull, ConnectionRefused
from streaming.sources import checkpoint
from streaming.sources.metadata_log.image import MOST_BEHIND, ClusterImage
from streaming.sources.metadata_log.image_state import undecodable
from streaming.sources.metadata_log.incarnations import Incarnations
from streaming.sources.metadata_log.messages import LoadedSnapshot, LogEnd
from streaming.sources.metadata_log.tail import NOTHING, Progress, Tail
from streaming.sources.protocol.connection import ServiceRefused
from streaming.sources.source import SILENCE_SECONDS, Silence, Timer, monotonic, wall_clock

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from streaming.contracts.observations import Observation
    from streaming.contracts.records import EndPoint
    from streaming.sources.metadata_log.quorum import Bootstrap
    from streaming.sources.protocol.connection import Dial

# The response to an unreadable record of the metadata log, and the warning before that.
#
# A record of a newer version that changes topics, partitions or brokers leaves the state unknown. Only a KRaft
# snapshot that was taken after it contains the state again, in records that can perhaps be read. Of a damaged snapshot
# a repaired copy does. The log itself is followed meanwhile, so that the connection is there, but nothing of it can be
# applied.


RESYNC_SECONDS: Final = 10.0


class Resync:
    """The periodic search for a KRaft snapshot from after the record that could not be read."""

    def __init__(self, seconds: float, report: Callable[[str], None]) -> None:
        self._seconds, self._report = seconds, report
        self._after: int | None = None  # the offset that a snapshot must end after; None while the image is whole
        self._damaged: LoadedSnapshot | None = None
        self._due = 0.0

    def note(self, image: ClusterImage, snapshot: LoadedSnapshot | None) -> None:
        """Say once that the image has become incomplete; ``snapshot`` is what it has just been loaded from, if any."""
        if image.incomplete_since is None:
            self._after = self._damaged = None
            return
        if self._after is not None:
            return
        self._after = image.incomplete_since
        if snapshot is not None and snapshot.is_damaged:
            self._damaged = snapshot
            self._report(
                f"no data from the metadata log: the controller's KRaft snapshot before offset {snapshot.end.offset} "
                f"is damaged ({image.incomplete_because}). Looking for it repaired, or a newer one"
            )
            return
        self._report(
            f"no data from the metadata log: its record at offset {image.incomplete_since} cannot be read "
            f"({image.incomplete_because}). Looking for a KRaft snapshot from after it"
        )

    def search(self, tail: Tail, progress: Progress) -> Progress:
        """Drop what was read, because it cannot be applied; when it is time, look for another KRaft snapshot."""
        if progress.rewritten or progress.snapshot is not None:
            return progress
        if self._after is None or time.monotonic() < self._due:
            return NOTHING
        self._due = time.monotonic() + self._seconds
        snapshot = tail.snapshot_after(self._after)
        if snapshot is None or snapshot == self._damaged:
            return NOTHING
        self._damaged = snapshot if snapshot.is_damaged else None
        self._after = snapshot.unread_until  # if it cannot be read, either
        return Progress(snapshot=snapshot)


# Microseconds between checkpoints, after observations and after none. Writing one never takes more than a twentieth of
# the time, however large the cluster is.
_BUSY: Final = 5_000_000
_IDLE: Final = 60_000_000
_COST: Final = 20


class MetadataLogSource:
    """Every committed change of a cluster's metadata, in log order.

    Without a checkpoint it reads the existing log without observations and then sends a full report (START). With one
    it continues exactly behind it; when the log no longer reaches back that far, it sends a full report (HISTORY_LOST).

    When a record cannot be read that may have changed the state, it says so once and returns nothing more, not even a
    heartbeat, until it has loaded a KRaft snapshot that was taken after this record; then it sends a full report
    (HISTORY_LOST). The checkpoint stays before the record meanwhile, so a program that can read it loses nothing.

    Invariants: while ``_pending_report`` is set, the image is ahead of what was reported, so nothing but that report
    may be returned and no checkpoint may be written. A checkpoint never contains an observation that is not
    acknowledged: after a crash observations are repeated, never lost.

    Args:
        bootstrap: the brokers.
        dial: opens connections to controllers.
        cluster: the display name of the cluster.
        name: name of the source on the bus.
        path: the checkpoint file.
        heartbeat_seconds: interval of heartbeats while nothing changes.
        snapshot_seconds: interval of full reports.
        report: takes one line for the user.
        resync_seconds: interval of the search for a newer KRaft snapshot while the state is unknown.
        silence_seconds: after so many without an answer another source has to take over.
        clock: the wall-clock time; what is due is decided by ``timer``, the monotonic time.

    Raises:
        ConnectionRefused: no broker can be reached.
        ConfigurationError: the checkpoint is of another cluster, or of another version of this program.
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
        timer: Callable[[], Micros] = monotonic,
        resync_seconds: float = RESYNC_SECONDS,
        silence_seconds: float = SILENCE_SECONDS,
    ) -> None:
        self.name = name
        self.cluster_id, self._cluster = bootstrap.cluster_id(), cluster
        self._path, self._report, self._clock, self._timer = path, report, clock, timer
        self._heartbeat_micros = int(heartbeat_seconds * 1e6)
        self._quiet_due = Timer(Micros(2 * self._heartbeat_micros))
        self._quiet_due.restart(timer())
        self._silence = Silence(Micros(int(silence_seconds * 1e6)), timer)
        self._undecodable: list[bytes] = []
        self._resync, self._last_reason = Resync(resync_seconds, report), ""
        self._pending_report: SnapshotReason | None = SnapshotReason.START
        self._report_due = Timer(Micros(int(snapshot_seconds * 1e6)))
        self._report_due.restart(timer())
        self._snapshot_at, self._checkpoint_at = clock(), Micros(timer() - _IDLE)  # the first one is due at once
        self._checkpoint_cost = 0
        self._is_busy = self._is_unacknowledged = self._is_new_log = self._is_disk_full = False
        self._advertised = self._ask_advertised(bootstrap)
        self._incarnations, self._doubled = Incarnations(), dict[str, str]()
        self._image = self._restored() or self._empty()
        self._image.learn_listener(self._advertised)
        end = LogEnd(self._image.image_offset + 1, self._image.image_epoch)
        self._tail = Tail(bootstrap, dial, cluster_id=self.cluster_id, end=end, report=report, timer=timer)

    def connect(self, *, seconds: float) -> None:
        """Verify that the log can be read; wait up to ``seconds`` for a leader.

        Raises:
            ConnectionRefused: it is not authorised, or no controller can be reached.
        """
        deadline = time.monotonic() + seconds
        while True:
            try:
                self._tail.connect()
            except ConnectionRefused as refusal:
                if isinstance(refusal, ServiceRefused) or time.monotonic() > deadline:
                    self._silence.begin()
                    raise
            else:
                self._silence.end()
                return

    def poll(self, now: Micros) -> Sequence[Observation]:
        """Wait up to half a second for changes; ``collected_at`` is the time of arrival, not ``now``."""
        del now
        progress = self._read()
        self._is_unacknowledged = True  # if anything below fails, the image is ahead of what is on the bus
        if not self.is_whole:
            progress = self._resync.search(self._tail, progress)
        at = self._clock()
        if progress.rewritten:
            self._begin_log()
        observations = [] if progress.snapshot is None else self._replace_image(progress.snapshot, at)
        if self._pending_report is None:
            for batch in progress.batches:
                observations += self._image.apply(batch, at)
        else:
            self._image.load(progress.batches)
            if self._tail.position.is_caught_up and self.is_whole:
                observations += self._full_report(self._pending_report, at)
                self._pending_report = None
        if not self.is_whole:
            self._pending_report = self._pending_report or SnapshotReason.HISTORY_LOST
        if self._pending_report is None and self._report_due.take_due(self._timer()):
            observations += self._full_report(SnapshotReason.PERIODIC, at)
        observations = observations or self._quiet(at)
        self._resync.note(self._image, progress.snapshot)
        self._note_doubled(progress)
        self._quarantine()
        if observations and observations[-1].occurred_not_after > at - MOST_BEHIND:
            self._quiet_due.restart(self._timer())
        self._is_busy |= bool(observations or self._undecodable)
        return observations

    @property
    def doubled(self) -> dict[str, str]:
        """Sentences about the nodes as which two processes run, by their names."""
        return self._incarnations.doubled()

    def _note_doubled(self, progress: Progress) -> None:
        """Say once as which nodes two processes run, and when that is over."""
        if progress.rewritten or progress.snapshot is not None:
            self._incarnations = Incarnations()
        for batch in progress.batches:
            self._incarnations.follow(batch)
        before, self._doubled = self._doubled, self.doubled
        for node in self._doubled.keys() - before.keys():
            self._report(self._doubled[node])
        for node in before.keys() - self._doubled.keys():
            self._report(f"two processes no longer register as {node}")

    def _read(self) -> Progress:
        """Read on. After a silence everything is reported: another source may have taken over meanwhile."""
        try:
            progress = self._tail.poll()
        except ServiceRefused:
            self._silence.begin()
            raise
        if self._tail.is_serving and self._silence.end():
            # Not at once: what is older than what a poller reported last would not be believed.
            self._report_due.hasten(self._timer() + self._quiet_due.period + SECOND)
        return progress

    def _quiet(self, at: Micros) -> list[Observation]:
        """Return a heartbeat where the log is known to its end and no record has said for long what time it is.

        A cluster may have no records without a change (``metadata.max.idle.interval.ms`` of 0), or one of another time.
        """
        is_known = self._pending_report is None and self.is_whole and self._tail.is_serving
        if not (is_known and self._tail.position.is_caught_up and self._quiet_due.take_due(self._timer())):
            return []
        was_behind, beat = self._image.behind, self._image.heartbeat(at, at)
        if self._image.behind and not was_behind:
            self._report(
                f"the clock of the controller that leads is {self._image.behind // SECOND} s behind the clock here, "
                "which dates its changes: set the one that is wrong"
            )
        return [beat]

    @property
    def is_whole(self) -> bool:
        """True if every record that matters has been read; while it is not, another source has to take over."""
        return self._image.incomplete_since is None

    @property
    def is_primary(self) -> bool:
        """True if it is whole, and controllers have answered lately; else another source has to take over."""
        return self.is_whole and not self._silence.lasts

    @property
    def end_points(self) -> dict[tuple[str, int], tuple[EndPoint, ...]]:
        """The listeners that brokers and controllers have registered, by role and id; of another thread, too."""
        return self._image.end_points

    def take_undecodable(self) -> list[bytes]:
        """Return and drop the records that could not be decoded since the last call, one JSON object each."""
        taken, self._undecodable = self._undecodable, []
        return taken

    def request_full_report(self) -> None:
        """Send a full report with the next poll."""
        self._report_due.expire()

    def acknowledge(self) -> None:
        """Note that everything returned is on the bus; write a checkpoint when one is due."""
        self._is_unacknowledged = False
        due = max(_BUSY if self._is_busy else _IDLE, _COST * self._checkpoint_cost)
        if self._timer() - self._checkpoint_at >= due:
            self._write_checkpoint()

    def close(self) -> None:
        """Close the connections; write a checkpoint unless an observation is not acknowledged."""
        self._tail.close()
        if not self._is_unacknowledged:
            self._write_checkpoint()

    @staticmethod
    def _ask_advertised(bootstrap: Bootstrap) -> dict[int, tuple[str, int]]:
        """Return the addresses that brokers advertise to us; none if they do not say."""
        try:
            return {broker: (at.host, at.port) for broker, at in bootstrap.brokers().items()}
        except ConnectionRefused:
            return {}

    def _empty(self) -> ClusterImage:
        return ClusterImage(
            cluster_id=self.cluster_id, cluster=self._cluster, source=self.name, heartbeat_micros=self._heartbeat_micros
        )

    def _restored(self) -> ClusterImage | None:
        """Read the checkpoint; names and intervals are those of the current configuration. A damaged one is left."""
        configured = {"cluster": self._cluster, "source": self.name, "heartbeat_micros": self._heartbeat_micros}
        try:
            if (document := checkpoint.read(self._path, self.cluster_id)) is None:
                return None
            image = ClusterImage.from_document({**document["image"], **configured})
            self._snapshot_at = Micros(int(document["snapshot_at"]))
        except (checkpoint.DamagedCheckpoint, KeyError, TypeError, ValueError) as error:
            self._report(checkpoint.put_aside(self._path, error))
            self._pending_report = SnapshotReason.HISTORY_LOST
            return None
        self._report_due.restart(self._timer(), passed=self._clock() - self._snapshot_at)
        self._pending_report = None
        self._report(f"resuming after offset {image.image_offset} of the metadata log")
        return image

    def _replace_image(self, snapshot: LoadedSnapshot, at: Micros) -> list[Observation]:
        """Replace the image by a KRaft snapshot; the changes before it are lost."""
        previous, image = self._image, self._empty()
        image.learn_listener(self._advertised)
        image.load(snapshot.batches)
        if snapshot.leader is not None:
            leader = LeaderChange(controller=snapshot.leader.node, epoch=snapshot.leader.epoch)
            at_end = Offset(image.image_offset + 1)
            image.load([RecordBatch(base_offset=at_end, epoch=leader.epoch, timestamp=Micros(0), records=(leader,))])
        # The records of a snapshot have offsets of their own; the log continues at the snapshot's end offset.
        image.image_offset, image.image_epoch = Offset(snapshot.end.offset - 1), snapshot.end.epoch
        image.image_timestamp = max(previous.image_timestamp, snapshot.timestamp or image.image_timestamp)
        if image.incomplete_since is not None:
            image.incomplete_since = snapshot.unread_until
        self._quarantine()
        self._image = image
        if self._pending_report is not None or not self.is_whole:
            return []
        self._report(f"the log begins after offset {previous.image_offset}: the changes up to this snapshot were lost")
        return self._full_report(SnapshotReason.HISTORY_LOST, at)

    def _begin_log(self) -> None:
        """Begin with another log, which does not contain what was read. Its times are later, so that they order."""
        newest, self._image = self._image.image_timestamp, self._empty()
        self._image.learn_listener(self._advertised)
        self._image.image_timestamp = Micros(newest + 1)
        self._is_new_log = self._pending_report is not SnapshotReason.START
        self._pending_report = self._pending_report or SnapshotReason.HISTORY_LOST
        self._report("the metadata log is another one than before: it is read again")

    def _full_report(self, reason: SnapshotReason, at: Micros) -> list[Observation]:
        self._snapshot_at = at
        self._report_due.restart(self._timer())
        snapshot_id = f"{self.name}-{self._image.image_offset}-{at}"
        is_new_log, self._is_new_log = self._is_new_log, False
        return self._image.snapshot(snapshot_id=snapshot_id, reason=reason, collected_at=at, is_new_log=is_new_log)

    def _quarantine(self) -> None:
        for offset, record in self._image.undecodable:
            document = undecodable({**self._image.identity, "metadata_offset": offset}, record)
            self._undecodable.append(json.dumps(document).encode())
        if self._image.undecodable and self.is_whole:
            offset, record = self._image.undecodable[0]
            others = f"; {count - 1} more in its batch" if (count := len(self._image.undecodable)) > 1 else ""
            if record.reason != self._last_reason:  # a new type of record may come again each second
                self._report(f"the metadata record at offset {offset} goes to quarantine: {record.reason}{others}")
            self._last_reason = record.reason
        self._image.undecodable.clear()

    def _write_checkpoint(self) -> None:
        if self._pending_report is not None:
            return
        began = self._timer()
        image = self._image.to_document()
        at = {"version": checkpoint.VERSION, "cluster_id": self.cluster_id, "snapshot_at": self._snapshot_at}
        self._checkpoint_at = self._timer()
        try:
            checkpoint.write(self._path, {**at, "image": image})
        except BusFull as refusal:  # the one before holds: more is repeated after a restart, and nothing is lost
            if not self._is_disk_full:
                self._report(f"{refusal}; trying again")
            self._is_disk_full = True
            return
        if self._is_disk_full:
            self._report(f"writes the checkpoint {self._path} again")
        self._is_disk_full, self._checkpoint_at = False, self._timer()
        self._checkpoint_cost = self._checkpoint_at - began
        self._is_busy = False
