"""The snapshot as JSON: column names of the tables, times as UTC microseconds, each cluster with the age of our sight.

What is too old for ``/metrics`` stays readable here, marked ``is_stale``.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from exporters.snapshot import ClusterSnapshot, Partition
from streaming.contracts import health
from streaming.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from exporters.snapshot import ReplicationSnapshot

DEFAULT_LIMIT: Final = 1000
STATES: Final = (
    health.PARTITIONS,
    health.UNDER_REPLICATED,
    health.UNDER_MIN_ISR,
    health.AT_MIN_ISR,
    health.OFFLINE,
    health.OFF_PREFERRED_LEADER,
    health.UNKNOWN_MIN_ISR,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """Which rows are asked for; None is any."""

    state: str = health.PARTITIONS
    cluster: str | None = None
    topic: str | None = None
    limit: int = DEFAULT_LIMIT


def query_of(parameters: Mapping[str, str]) -> Query:
    """Read the parameters of a request.

    Raises:
        ConfigurationError: one of them is wrong; the sentence names it and what is right.
    """
    state = parameters.get("state", health.PARTITIONS)
    if state not in STATES:
        raise ConfigurationError(f"state is {state!r}; use one of {', '.join(STATES)}")
    limit = parameters.get("limit", str(DEFAULT_LIMIT))
    if not (limit.isascii() and limit.isdecimal()):
        raise ConfigurationError(f"limit is {limit!r}; use a number from 0")
    return Query(state=state, cluster=parameters.get("cluster"), topic=parameters.get("topic"), limit=int(limit))


@dataclass(frozen=True, slots=True)
class Answers:
    """Answers about one snapshot at one moment.

    Attributes:
        snapshot: what the tables say.
        now: UTC microseconds; ages are told from it.
        stale_after_seconds: age beyond which a cluster is marked stale.
    """

    snapshot: ReplicationSnapshot
    now: int
    stale_after_seconds: float

    def clusters(self) -> dict[str, Any]:
        """Tell of every cluster: who orders it, how old our sight is, how many partitions are in each state."""
        return {**self._envelope(), "clusters": [self._cluster(each) for each in self.snapshot.by_name().values()]}

    def partitions(self, query: Query) -> dict[str, Any]:
        """Tell of the partitions in a state, with their count where the limit cuts them off."""
        clusters = [each for name, each in self.snapshot.by_name().items() if query.cluster in {None, name}]
        found = [(each, partition) for each in clusters for partition in _matching(each, query)]
        return {
            **self._envelope(),
            "sight": {each.name: self._sight(each) for each in clusters},
            "count": len(found),
            "partitions": [
                {"cluster": each.name, **partition._asdict()} for each, partition in islice(found, query.limit)
            ],
        }

    def events(self, query: Query) -> dict[str, Any]:
        """Tell of the newest events that are kept in memory, newest first."""
        newest_first = reversed(self.snapshot.recent_events)
        found = (
            event
            for event in newest_first
            if query.cluster in {None, event.cluster} and query.topic in {None, event.topic}
        )
        return {**self._envelope(), "events": [event._asdict() for event in islice(found, query.limit)]}

    def incidents(self, query: Query) -> dict[str, Any]:
        """Tell of the open incidents, newest first, and of which clusters incidents are told at all."""
        clusters = [each for name, each in self.snapshot.by_name().items() if query.cluster in {None, name}]
        found = [row for each in clusters if each.incidents is not None for row in each.incidents.open]
        newest_first = sorted(found, key=lambda row: -row["opened_at"])
        return {
            **self._envelope(),
            "sight": {
                each.name: {**self._sight(each), "are_incidents_told": each.incidents is not None} for each in clusters
            },
            "count": len(found),
            "incidents": newest_first[: query.limit],
        }

    def _envelope(self) -> dict[str, Any]:
        return {"table_version": self.snapshot.version, "read_at": self.snapshot.read_at}

    def _sight(self, cluster: ClusterSnapshot) -> dict[str, Any]:
        return {
            "age_seconds": cluster.age_seconds(self.now),
            "is_stale": cluster.is_stale(self.now, self.stale_after_seconds),
        }

    def _cluster(self, cluster: ClusterSnapshot) -> dict[str, Any]:
        return {
            **cluster.cluster._asdict(),
            **self._sight(cluster),
            "states": {state: cluster.tally.states.get(state, 0) for state in STATES},
            "totals": cluster.totals._asdict(),
            "times": cluster.times and cluster.times._asdict(),
            "advice_until": cluster.advice and cluster.advice.until,
            "brokers": [self._broker(cluster, number) for number in cluster.known_brokers()],
            "sources": [source._asdict() for _, source in sorted(cluster.sources.items())],
        }

    @staticmethod
    def _broker(cluster: ClusterSnapshot, number: int) -> dict[str, Any]:
        known = cluster.brokers.get(number)
        advice = cluster.advice.brokers.get(number) if cluster.advice else None
        return {
            **({} if advice is None else advice._asdict()),
            **({"broker": number} if known is None else known._asdict()),
            "led_partitions": cluster.tally.led.get(number, 0),
            "hosted_partitions": cluster.tally.hosted.get(number, 0),
            "in_sync_partitions": cluster.tally.in_sync.get(number, 0),
            "isr_departures": dict(cluster.departures.get(number, {})),
        }


def _matching(cluster: ClusterSnapshot, query: Query) -> Iterator[Partition]:
    for topic in sorted(cluster.topics.values(), key=lambda topic: topic.topic):
        if query.topic not in {None, topic.topic}:
            continue
        for number in sorted(topic.partitions):
            if query.state in health.states_of(topic.partitions[number]):
                yield topic.partitions[number]
