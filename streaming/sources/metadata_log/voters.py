"""The voters of the controller quorum as a source: who votes, and who has caught up. Asks a broker (DescribeQuorum).

Not part of the metadata log: a static quorum is in no record of it, and no record says that a voter is behind.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from streaming.contracts.identifiers import Micros
from streaming.contracts.observations import ControllerObserved, Observation, SourceKind
from streaming.errors import ConnectionRefused
from streaming.sources.metadata_log.opening import bootstrap_of
from streaming.sources.timer import Timer, monotonic

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from streaming.contracts.identifiers import ClusterId
    from streaming.settings import Settings
    from streaming.sources.metadata_log.quorum import Bootstrap
    from streaming.sources.protocol.peers import Peers
    from streaming.sources.protocol.quorum_messages import Quorum

ASKED_EVERY: Final = Micros(10_000_000)
REPORTED_EVERY: Final = Micros(30_000_000)
# Longer than controller.quorum.fetch.timeout.ms (2 s): a voter that is further behind has missed a leader's time.
CAUGHT_UP_MILLIS: Final = 5_000
_WAIT_SECONDS: Final = 0.5


class VotersSource:
    """Reports the voters when they, or those that have caught up, change, and every half minute.

    It orders no partitions (``SourceKind.NONE``). While the quorum has no leader, or cannot be asked, it reports that
    it is unknown who has caught up. It asks for the cluster's id each time: the cluster may have been rebuilt.
    """

    def __init__(
        self, bootstrap: Bootstrap, *, cluster: str, name: str, clock: Callable[[], Micros] = monotonic
    ) -> None:
        self.name = name
        self._bootstrap, self._cluster = bootstrap, cluster
        self._cluster_id: ClusterId | None = None
        self._ask_due, self._report_due, self._clock = Timer(ASKED_EVERY), Timer(REPORTED_EVERY), clock
        self._last: Quorum | None = None
        self._reported: tuple[object, ...] = ()

    def poll(self, now: Micros) -> Sequence[Observation]:
        """Return the voters if there is something to report, or wait for half a second."""
        if not self._ask_due.take_due(self._clock()):
            time.sleep(_WAIT_SECONDS)
            return []
        try:
            cluster_id = self._bootstrap.cluster_id()
            self._last = self._last if cluster_id == self._cluster_id else None
            self._cluster_id = cluster_id
            self._last, caught_up = (quorum := self._bootstrap.quorum()), caught_up_in(quorum)
        except ConnectionRefused:
            caught_up = None
        last = self._last
        if self._cluster_id is None or last is None or not last.voters:
            return []
        content = self._cluster_id, last.leader, tuple(sorted(last.voters)), caught_up
        if content != self._reported:
            self._report_due.expire()
        if not self._report_due.take_due(self._clock()):
            return []
        self._reported = content
        return [
            ControllerObserved(
                cluster_id=self._cluster_id,
                cluster=self._cluster,
                source=self.name,
                authority=SourceKind.NONE,
                occurred_not_before=now,
                occurred_not_after=now,
                collected_at=now,
                controller=last.leader.node,
                controller_epoch=last.leader.epoch,
                voters=tuple(sorted(last.voters)),
                caught_up=caught_up,
            )
        ]

    def acknowledge(self) -> None:
        """Do nothing: there is no position."""

    def close(self) -> None:
        """Do nothing: each question has a connection of its own."""


def open_voters(settings: Settings, peers: Peers | None = None) -> VotersSource:
    """Create the source for a configuration with which the metadata log can be read."""
    return VotersSource(
        bootstrap_of(settings, peers), cluster=settings.cluster.name, name=f"quorum:{settings.collect.collector}"
    )


def caught_up_in(quorum: Quorum) -> tuple[int, ...] | None:
    """Return the voters that have what their leader had a moment ago; None if the leader does not give its own time."""
    now = quorum.voters.get(quorum.leader.node)
    if now is None:
        return None
    return tuple(
        sorted(voter for voter, until in quorum.voters.items() if until is not None and now - until <= CAUGHT_UP_MILLIS)
    )
