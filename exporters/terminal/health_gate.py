"""Waits until clusters are healthy: a gate between two steps of a rolling restart, or for an installer.

It passes on nothing from before its start: the data must be newer than that, and must then show the clusters healthy
without interruption for the time to settle, counted in the time of the data itself, so that standing data never passes.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, NamedTuple

from exporters.answers.answer import ServerUnavailable
from exporters.answers.health import served_health
from exporters.read_model.cluster_health import HealthAnswer, HealthStatus, health_of
from exporters.read_model.cluster_names import clusters_by_name, selected_clusters
from exporters.read_model.reader import TablesReader, micros_now
from exporters.read_model.times import SECOND
from streaming.errors import ConfigurationError, IsrwatchError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from exporters.answers.server import Server
    from exporters.read_model.cluster_health import HealthBasis
    from streaming.delta.store.place import Place

LOOK_EVERY: Final = 1.0


class Look(NamedTuple):
    """One look at the tables: the health, the tables that cannot be read, and clusters that were never observed."""

    health: HealthAnswer
    unreadable: Mapping[str, str] = {}
    missing: tuple[str, ...] = ()
    seconds_to_settle: float = 0.0

    @property
    def passes(self) -> bool:
        """Return whether everything is healthy, and has been for long enough."""
        return self.health.status is HealthStatus.HEALTHY and self.seconds_to_settle <= 0

    @property
    def status(self) -> HealthStatus:
        """Return the status to end with: what did not settle is unknown."""
        is_healthy = self.health.status is HealthStatus.HEALTHY
        return HealthStatus.UNKNOWN if is_healthy and not self.passes else self.health.status


class HealthReader:
    """Looks at the health of clusters, again and again."""

    def __init__(self, tables: Place, clusters: tuple[str, ...], basis: HealthBasis) -> None:
        """Read nothing yet; the folder of the tables need not exist yet. Without names or ids, all clusters count."""
        self._reader = TablesReader(tables)
        self._clusters = clusters
        self.basis = basis

    def begin(self) -> None:
        """Count only data from after this moment."""
        self.basis = replace(self.basis, newer_than=micros_now())

    def look(self) -> Look:
        """Read what is new, and judge it. What cannot be read is no error, but leaves unknown whether all is well.

        Raises:
            ConfigurationError: the tables are not where, or not of whom, they should be.
        """
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

    def names(self) -> tuple[str, ...]:
        """Return the names of all clusters, as of the last look."""
        return tuple(clusters_by_name(self._reader.snapshot))


class ServerHealthReader:
    """Looks at the health that an exporter judges, again and again."""

    def __init__(self, server: Server, clusters: tuple[str, ...], basis: HealthBasis, max_age: float | None) -> None:
        """Ask for nothing yet; ``max_age``: as of :func:`served_health`."""
        self._server, self._clusters, self._max_age = server, clusters, max_age
        self._names: tuple[str, ...] = ()
        self.basis = basis

    def begin(self) -> None:
        """Count only data from after this moment, by the clock of the server: the client's may be another.

        Raises:
            ServerRefused: no later look would help.
            ServerUnavailable: the server does not answer, so its time is unknown.
        """
        *_, now = served_health(self._server, (), self.basis, self._max_age)
        self.basis = replace(self.basis, newer_than=now)

    def look(self) -> Look:
        """Ask once. A server that does not answer leaves unknown whether all is well.

        Raises:
            ServerRefused: no later look would help.
        """
        try:
            health, unreadable, missing, self._names, _ = served_health(
                self._server, self._clusters, self.basis, self._max_age
            )
        except ServerUnavailable as error:
            return Look(HealthAnswer(HealthStatus.UNKNOWN, ()), {"server": str(error)})
        if missing and health.status is HealthStatus.HEALTHY:
            health = health._replace(status=HealthStatus.UNKNOWN)
        return Look(health, unreadable, missing)

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
        """Look until everything is healthy and settled, or the time is over.

        Args:
            look: looks once.
            report: is given each look that does not pass, with the seconds left.

        Returns:
            the last look.
        """
        end, settling = self.clock() + self.seconds, SettlingClock(self.settle_seconds)
        while True:
            last = settling.after(look())
            left = end - self.clock()
            if last.passes or left <= 0:
                return last
            report(last, left)
            self.sleep(min(LOOK_EVERY, left))
