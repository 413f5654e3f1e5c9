"""The snapshot as JSON: column names of the tables, times as UTC microseconds, each cluster with its data age.

State that is too old for ``/metrics`` stays readable here, marked ``is_stale``.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from exporters.read_model.cluster_names import clusters_by_name
from exporters.read_model.snapshot import ClusterSnapshot
from streaming.contracts import health
from streaming.contracts.state import PartitionState
from streaming.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from exporters.read_model.snapshot import ReplicationSnapshot, SourceProgress

DEFAULT_LIMIT: Final = 1000
_LONGEST_LIMIT: Final = 18
STATES: Final = (
    health.PARTITIONS,
    health.UNDER_REPLICATED,
    health.UNDER_MIN_ISR,
    health.AT_MIN_ISR,
    health.OFFLINE,
    health.OFF_PREFERRED_LEADER,
    health.UNKNOWN_MIN_ISR,
    health.DISKLESS,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiQuery:
    """The rows that a request selects; None selects all."""

    state: str = health.PARTITIONS
    cluster: str | None = None
    topic: str | None = None
    limit: int = DEFAULT_LIMIT


def query_of(parameters: Mapping[str, str]) -> ApiQuery:
    """Parse the parameters of a request.

    Raises:
        ConfigurationError: one of them is wrong; the sentence names it and the values allowed.
    """
    state = parameters.get("state", health.PARTITIONS)
    if state not in STATES:
        raise ConfigurationError(f"state is {state!r}; use one of {', '.join(STATES)}")
    limit = parameters.get("limit", str(DEFAULT_LIMIT))
    if not (limit.isascii() and limit.isdecimal()):
        raise ConfigurationError(f"limit is {limit!r}; use a number from 0")
    rows = int(limit) if len(limit) <= _LONGEST_LIMIT else sys.maxsize  # more than there can be is all of them
    return ApiQuery(state=state, cluster=parameters.get("cluster"), topic=parameters.get("topic"), limit=rows)


@dataclass(frozen=True, slots=True)
class JsonApi:
    """The answers of the JSON API for one snapshot at one time.

    Attributes:
        snapshot: content of the tables.
        now: UTC microseconds; ages are measured from it.
        stale_after_seconds: data age beyond which a cluster is marked stale.
    """

    snapshot: ReplicationSnapshot
    now: int
    stale_after_seconds: float

    def clusters(self) -> dict[str, Any]:
        """Return every cluster: primary source, data age, partitions per state, brokers, sources."""
        return {
            **self._envelope(),
            "clusters": [self._cluster(each) for each in clusters_by_name(self.snapshot).values()],
        }

    def partitions(self, query: ApiQuery) -> dict[str, Any]:
        """Return the partitions in a state; ``count`` is their number before the limit."""
        clusters = [each for name, each in clusters_by_name(self.snapshot).items() if query.cluster in {None, name}]
        matching = [(each, partition) for each in clusters for partition in _matching(each, query)]
        return {
            **self._envelope(),
            "freshness": {each.name: self._freshness(each) for each in clusters},
            "count": len(matching),
            "partitions": [
                {"cluster": each.name, **partition._asdict()} for each, partition in islice(matching, query.limit)
            ],
        }

    def events(self, query: ApiQuery) -> dict[str, Any]:
        """Return the events kept in memory, newest first."""
        newest_first = reversed(self.snapshot.recent_events)
        matching = (
            event
            for event in newest_first
            if query.cluster in {None, event.cluster} and query.topic in {None, event.topic}
        )
        return {**self._envelope(), "events": [event._asdict() for event in islice(matching, query.limit)]}

    def incidents(self, query: ApiQuery) -> dict[str, Any]:
        """Return the open incidents, newest first, and for which clusters incidents are available at all."""
        clusters = [each for name, each in clusters_by_name(self.snapshot).items() if query.cluster in {None, name}]
        open_incidents = [row for each in clusters if each.incidents is not None for row in each.incidents.open]
        newest_first = sorted(open_incidents, key=lambda row: -row["opened_at"])
        return {
            **self._envelope(),
            "freshness": {
                each.name: {**self._freshness(each), "incidents_available": each.incidents is not None}
                for each in clusters
            },
            "count": len(open_incidents),
            "incidents": newest_first[: query.limit],
        }

    def _envelope(self) -> dict[str, Any]:
        return {"table_version": self.snapshot.version, "read_at": self.snapshot.read_at}

    def _freshness(self, cluster: ClusterSnapshot) -> dict[str, Any]:
        return {
            "age_seconds": cluster.age_seconds(self.now),
            "is_stale": cluster.is_stale(self.now, self.stale_after_seconds),
        }

    def _cluster(self, cluster: ClusterSnapshot) -> dict[str, Any]:
        return {
            **cluster.cluster._asdict(),
            "controller": cluster.controller,
            **self._freshness(cluster),
            "states": {state: cluster.counts.in_state(state) for state in STATES},
            "totals": cluster.totals._asdict(),
            "times": cluster.times and cluster.times._asdict(),
            "advice_until": cluster.advice and cluster.advice.until,
            "brokers": [self._broker(cluster, number) for number in cluster.known_brokers()],
            "sources": [_source(source) for _, source in sorted(cluster.sources.items())],
        }

    @staticmethod
    def _broker(cluster: ClusterSnapshot, number: int) -> dict[str, Any]:
        broker = cluster.brokers.get(number)
        advice = cluster.advice.brokers.get(number) if cluster.advice else None
        return {
            **({} if advice is None else advice._asdict()),
            **({"broker": number} if broker is None else broker._asdict()),
            "led_partitions": cluster.counts.led.get(number, 0),
            "hosted_partitions": cluster.counts.hosted.get(number, 0),
            "in_sync_partitions": cluster.counts.in_sync.get(number, 0),
            "isr_departures": cluster.isr_removals_of(number),
        }


def _source(source: SourceProgress) -> dict[str, Any]:
    return {"channel": source.channel, **source.state._asdict(), **source.lag._asdict()}


def _matching(cluster: ClusterSnapshot, query: ApiQuery) -> Iterator[PartitionState]:
    for topic in sorted(cluster.topics.values(), key=lambda topic: topic.topic):
        if query.topic not in {None, topic.topic}:
            continue
        for number in sorted(topic.partitions):
            if query.state in health.states_of(topic.partitions[number]):
                yield topic.partitions[number]
