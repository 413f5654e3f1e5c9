"""Waits until clusters are healthy: a gate between two steps of a rolling restart, or for an installer.

It passes on nothing from before its start: the data must be newer than that, and must then show the clusters healthy
without interruption for the time to settle, counted in the time of the data itself, so that standing data never passes.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, NamedTuple

from exporters.answers.answer import ServerUnavailable, refuse_unknown
from exporters.answers.health import served_health
from exporters.answers.subject import names_of_now
from exporters.read_model.cluster_health import HealthAnswer, HealthStatus, health_of
from exporters.read_model.cluster_names import clusters_by_name, selected_clusters, selected_then
from exporters.read_model.past import Past
from exporters.read_model.reader import TablesReader, micros_now
from exporters.read_model.times import SECOND
from streaming.errors import ConfigurationError, IsrwatchError, TableUnreadable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from exporters.answers.server import Server
    from exporters.read_model.cluster_health import HealthBasis
    from streaming.delta.store.place import Place

LOOK_EVERY: Final = 1.0


class Look(NamedTuple):
    """One look at the tables: the health, the tables that cannot be read, and clusters that were never observed.

    ``as_of`` is the moment of the past that was judged, UTC microseconds; None is the present.
    """

    health: HealthAnswer
    unreadable: Mapping[str, str] = {}
    missing: tuple[str, ...] = ()
    seconds_to_settle: float = 0.0
    as_of: int | None = None

    @property
    def passes(self) -> bool:
        """Return whether everything is healthy, and has been for long enough."""
        return self.health.status is HealthStatus.HEALTHY and self.seconds_to_settle <= 0

    @property
    def before(self) -> str:
        """Return what an age is before: now, or the moment of the past."""
        return "ago" if self.as_of is None else "earlier"

    @property
    def status(self) -> HealthStatus:
        """Return the status to end with: what did not settle is unknown."""
        is_healthy = self.health.status is HealthStatus.HEALTHY
        return HealthStatus.UNKNOWN if is_healthy and not self.passes else self.health.status


class HealthReader:
    """Looks at the health of clusters, again and again."""

    def __init__(self, tables: Place, clusters: tuple[str, ...], basis: HealthBasis, at: int | None = None) -> None:
        """Read nothing yet; the folder of the tables need not exist yet.

        Without patterns of names or ids all clusters count; ``at`` is a moment of the past.
        """
        self._tables, self._reader, self._at = tables, TablesReader(tables), at
        self._clusters = clusters
        self.basis = basis

    def begin(self) -> None:
        """Count only data from after this moment."""
        self.basis = replace(self.basis, newer_than=micros_now())

    def look(self) -> Look:
        """Read what is new, and judge it. What cannot be read is no error, but leaves unknown whether all is well.

        Raises:
            ConfigurationError: the tables are not where, or not of whom, they should be; or the moment cannot be shown.
        """
        if self._at is not None:
            return self._look_back(self._at)
        unreadable: dict[str, str] = {}
        try:
            self._reader.refresh()
        except ConfigurationError:
            raise
        except IsrwatchError as error:
            unreadable["partition_changes"] = str(error)
        unreadable |= {each.table: each.error for each in self._reader.statuses if each.error is not None}
        selected, missing = selected_clusters(self._reader.snapshot, self._clusters)
        health = health_of(selected, unreadable, micros_now(), self.basis)
        if missing and health.status is HealthStatus.HEALTHY:
            health = health._replace(status=HealthStatus.UNKNOWN)
        return Look(health, unreadable, tuple(missing))

    def _look_back(self, at: int) -> Look:
        """Judge a moment of the past, by what has a history."""
        try:
            then, now = Past(self._tables).snapshot(at), names_of_now(self._tables)
        except TableUnreadable as error:
            return Look(HealthAnswer(HealthStatus.UNKNOWN, ()), {"partition_changes": str(error)}, as_of=at)
        selected = selected_then(then, now, self._clusters)
        refuse_unknown(selected.unknown, {*clusters_by_name(then), *selected.not_yet.values()}, "cluster")
        return Look(health_of(selected.clusters, {}, at, self.basis, selected.not_yet), as_of=at)

    def names(self) -> tuple[str, ...]:
        """Return the names of all clusters, as of the last look."""
        return tuple(clusters_by_name(self._reader.snapshot))


class ServerHealthReader:
    """Looks at the health that an exporter judges, again and again."""

    def __init__(
        self,
        server: Server,
        clusters: tuple[str, ...],
        basis: HealthBasis,
        max_age: float | None,
        at: str | None = None,
    ) -> None:
        """Ask for nothing yet; ``max_age`` and ``at``: as of :func:`served_health`."""
        self._server, self._clusters, self._max_age, self._at = server, clusters, max_age, at
        self._names: tuple[str, ...] = ()
        self.basis = basis

    def begin(self) -> None:
        """Count only data from after this moment, by the clock of the server: the client's may be another.

        Raises:
            ServerRefused: no later look would help.
            ServerUnavailable: the server does not answer, so its time is unknown.
        """
        served = served_health(self._server, (), self.basis, self._max_age)
        self.basis = replace(self.basis, newer_than=served.now)

    def look(self) -> Look:
        """Ask once. A server that does not answer leaves unknown whether all is well.

        Raises:
            ServerRefused: no later look would help.
        """
        try:
            served = served_health(self._server, self._clusters, self.basis, self._max_age, self._at)
        except ServerUnavailable as error:
            return Look(HealthAnswer(HealthStatus.UNKNOWN, ()), {"server": str(error)})
        health, self._names = served.health, served.names
        if served.missing and health.status is HealthStatus.HEALTHY:
            health = health._replace(status=HealthStatus.UNKNOWN)
        as_of = None if self._at is None else served.read_at
        return Look(health, served.unreadable, served.missing, as_of=as_of)

    def names(self) -> tuple[str, ...]:
        """Return the names of all clusters, as of the last look."""
        return self._names


@dataclass(slots=True)
class SettlingClock:
    """For how long the clusters have been healthy, by the time of their data."""

    seconds: float
    _since: int | None = field(default=None, init=False)

    def after(self, look: Look) -> Look:
        """Return a look with the seconds that are left to settle."""
        times = [each.observed_until for each in look.health.clusters if each.observed_until is not None]
        if look.health.status is not HealthStatus.HEALTHY or not times:
            self._since = None
            return look
        newest = min(times)  # of the cluster that is furthest behind
        self._since = newest if self._since is None else self._since
        return look._replace(seconds_to_settle=self.seconds - (newest - self._since) / SECOND)


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitLimits:
    """Longest wait, and the time that everything must have been healthy; a clock in seconds, and a way to sleep."""

    seconds: float
    settle_seconds: float
    clock: Callable[[], float]
    sleep: Callable[[float], None]

    def until_healthy(self, look: Callable[[], Look], report: Callable[[Look, float], None]) -> Look:
        """Look until everything is healthy and settled, or the time is over; return the last look.

        ``report`` is given each look that does not pass, with the seconds left.
        """
        end, settling = self.clock() + self.seconds, SettlingClock(self.settle_seconds)
        while True:
            last = settling.after(look())
            left = end - self.clock()
            if last.passes or left <= 0:
                return last
            report(last, left)
            self.sleep(min(LOOK_EVERY, left))
