"""Polling through the brokers: the authority where no controller may be read, a corroborator elsewhere.

Knows confluent-kafka's admin client, the clock that the caller gives and the contracts. Nothing waits for a broker:
the metadata are read by a thread, offsets are asked of each leader on its own, and a poll takes what has arrived.
"""

from __future__ import annotations

import time
from concurrent.futures import FIRST_COMPLETED, wait
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from streaming.contracts.identifiers import Micros
from streaming.contracts.observations import Authority, Heartbeat, Observation, SnapshotReason
from streaming.errors import ConfigurationError, ConnectionRefused
from streaming.sources.admin_configs import ConfigsRound
from streaming.sources.admin_metadata import MetadataRound, Read, monotonic
from streaming.sources.admin_offsets import OffsetsRound
from streaming.sources.admin_refusals import Complaints, error_of, forbidden
from streaming.sources.admin_view import ClusterView, is_same_cast, snapshot, steps

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

HOUR: Final = Micros(3_600_000_000)
_PATIENCE: Final = Micros(1_000_000)  # how long one poll may wait
_AT_ONCE: Final = Micros(0)
_DEFAULTS: Final = {
    "client.id": "isrwatch",
    "log_level": "2",  # what goes wrong is told by errors
    "log.connection.close": "false",
    "socket.timeout.ms": "10000",  # a hung broker is let go of
}


@dataclass(slots=True)
class _Timer:
    """Comes due at once, then each period."""

    period: Micros
    next_at: Micros = _AT_ONCE

    def strike(self, now: Micros) -> bool:
        """Tell whether it is due, and if so, set the next time."""
        if now < self.next_at:
            return False
        self.next_at = Micros(now + self.period)
        return True


class AdminSource:
    """Asks a cluster's brokers for metadata, offsets and configurations.

    As the authority (``Authority.POLL``) it tells every partition that changed between two polls, with the window in
    which it happened, and a full snapshot at the start, after lost sight, when a topic or a broker came or went, and
    each ``snapshot_micros``. As a corroborator (``Authority.NONE``) it tells offsets and configurations only.

    Args:
        bootstrap_servers: ``host:port``, comma-separated.
        client: librdkafka properties for security and the like.
        cluster: the name people gave the cluster.
        name: this source on the bus, for example ``admin:collector-1``.
        poll_micros: period of metadata polls.
        offsets_micros: period of offsets.
        config_micros: period of configurations; topic ids are read again as often.
        authority: ``POLL`` or ``NONE``.
        snapshot_micros: period of full snapshots, and of telling every configuration again.
        request_seconds: limit of each request.

    Raises:
        ConfigurationError: librdkafka refuses a property.
    """

    def __init__(  # noqa: PLR0913 - one argument a setting
        self,
        *,
        bootstrap_servers: str,
        client: Mapping[str, str],
        cluster: str,
        name: str,
        poll_micros: Micros,
        offsets_micros: Micros,
        config_micros: Micros,
        authority: Authority,
        snapshot_micros: Micros = HOUR,
        request_seconds: float = 5.0,
    ) -> None:
        self.name = name
        self._cluster = cluster
        self._authority = authority
        self._seconds = request_seconds
        self._complaints = Complaints(bootstrap_servers)
        self._properties = {**_DEFAULTS, **client, "error_cb": self._complaints}
        is_authority = authority is Authority.POLL
        self._metadata_due = _Timer(poll_micros if is_authority else min(offsets_micros, config_micros))
        self._offsets_due = _Timer(offsets_micros)
        self._configs_due = _Timer(config_micros)
        self._ids_due = _Timer(config_micros)
        self._timers = (self._metadata_due, self._offsets_due, self._configs_due, self._ids_due)
        self._snapshot_due = _Timer(snapshot_micros)
        self._everything_due = _Timer(snapshot_micros)
        self._offsets = OffsetsRound(request_seconds)
        self._configs = ConfigsRound(request_seconds)
        self._metadata = MetadataRound(
            self._connect, bootstrap_servers, cluster=cluster, name=name, seconds=request_seconds
        )
        self._last: Read | None = None
        self._told_until = 0
        self._lost_sight = False
        self._refusal: ConnectionRefused | None = None
        self._complained: set[str] = set()

    def poll(self, now: Micros) -> Sequence[Observation]:
        """Return what has arrived, or wait for it for at most a second.

        Raises:
            ConnectionRefused: nobody answers, or a permission is missing; the latter is told once.
        """
        skew = now - monotonic()
        until = monotonic() + _PATIENCE
        while True:
            moment = Micros(monotonic() + skew)
            self._ask(moment)
            found = self._take(moment, skew)
            if found:
                return found
            self._refuse()
            if not self._wait(moment, until):
                return []

    def acknowledge(self) -> None:
        """Do nothing: a poll has no position."""

    def close(self) -> None:
        """Let go of the connections; a request under way ends by its own limit."""
        self._metadata.close()

    def _connect(self, servers: str) -> AdminClient:
        try:
            return AdminClient({**self._properties, "bootstrap.servers": servers})
        except (KafkaException, TypeError, ValueError) as failure:
            reason = error_of(failure).str() if isinstance(failure, KafkaException) else str(failure)
            raise ConfigurationError(f"[cluster.client] is refused by librdkafka: {reason}") from None

    def _ask(self, now: Micros) -> None:
        """Send every question that is due."""
        if self._metadata_due.strike(now):
            self._metadata.ask()
        if self._last is None:
            return
        if self._ids_due.strike(now):
            self._metadata.ask_ids(self._last.view)
        if self._offsets_due.strike(now):
            self._offsets.ask(self._metadata.client, self._last.view, now)
        if self._configs_due.strike(now):
            self._configs.ask(self._metadata.client, self._last.view, now, everything=self._everything_due.strike(now))

    def _take(self, now: Micros, skew: int) -> list[Observation]:
        """Collect every answer that has arrived."""
        found = self._take_metadata(now, skew)
        if self._last is not None:
            envelope = self._envelope(self._last.view, now)
            found += self._offsets.take(envelope, now)
            found += self._configs.take(envelope, now)
        return found

    def _take_metadata(self, now: Micros, skew: int) -> list[Observation]:
        before = self._last
        try:
            read = self._metadata.take(None if before is None else before.view)
        except KafkaException as failure:
            self._metadata.client.poll(0)  # hands over the complaints that tell why
            self._refusal = forbidden(failure, "DESCRIBE", "all topics") or self._complaints.refusal(failure)
            self._lost_sight = before is not None
            self._metadata_due.next_at = now
            return []
        soon = self._metadata.second_look_after()
        if soon is not None:
            self._metadata_due.next_at = min(self._metadata_due.next_at, Micros(now + soon))
        if read is None:
            return []
        self._complaints.clear()
        self._last = read
        if before is None or before.view.topics.keys() != read.view.topics.keys():
            self._configs_due.next_at = now
        return self._told(before, read, now, skew) if self._authority is Authority.POLL else []

    def _told(self, before: Read | None, read: Read, now: Micros, skew: int) -> list[Observation]:
        """Tell what differs from the view before: it happened after that was asked and before this was answered."""
        envelope = self._envelope(read.view, now)
        # A clock that is set back must not make news look older than what was told before.
        told_until, self._told_until = self._told_until, max(read.ended + skew, self._told_until + 1)
        envelope["occurred_not_before"] = Micros(min(max((before or read).began + skew, told_until), self._told_until))
        envelope["occurred_not_after"] = Micros(self._told_until)
        reason = self._snapshot_reason(before, read, now)
        if before is None or reason is not None:
            self._lost_sight = False
            return snapshot(
                None if before is None else before.view,
                read.view,
                envelope,
                snapshot_id=f"{self.name}/{read.began + skew}",
                reason=reason or SnapshotReason.START,
            )
        return steps(before.view, read.view, envelope) or [Heartbeat(**envelope)]

    def _snapshot_reason(self, before: Read | None, read: Read, now: Micros) -> SnapshotReason | None:
        is_due = self._snapshot_due.strike(now)
        if before is None or before.view.cluster_id != read.view.cluster_id:
            return SnapshotReason.START
        if self._lost_sight:
            return SnapshotReason.HISTORY_LOST
        return SnapshotReason.PERIODIC if is_due or not is_same_cast(before.view, read.view) else None

    def _envelope(self, view: ClusterView, now: Micros) -> dict[str, Any]:
        return {
            "cluster_id": view.cluster_id,
            "cluster": self._cluster,
            "source": self.name,
            "authority": self._authority,
            "occurred_not_before": now,
            "occurred_not_after": now,
            "collected_at": now,
        }

    def _refuse(self) -> None:
        """Raise what is to be told: lost connections each time, a missing permission once."""
        refusal, self._refusal = self._refusal, None
        if refusal is not None:
            raise refusal
        for told in (self._offsets.refusal, self._configs.refusal):
            if told is not None and str(told) not in self._complained:
                self._complained.add(str(told))
                raise told

    def _wait(self, now: Micros, until: int) -> bool:
        """Wait for an answer or for the next question; False when the patience of this poll is over."""
        left = until - monotonic()
        if left <= 0:
            return False
        timers = [self._metadata_due] if self._last is None else [*self._timers]
        due = min(timer.next_at for timer in timers) - now
        pending = [*self._metadata.pending(), *self._offsets.pending(), *self._configs.pending()]
        seconds = max(1_000, min(left, due)) / 1_000_000
        if pending:
            wait(pending, timeout=seconds, return_when=FIRST_COMPLETED)
        else:
            time.sleep(seconds)
        return True
