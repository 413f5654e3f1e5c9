"""The numbers of incidents: ``prod-17`` is number 17 under the name ``prod``. Pure; no clock, no IO."""

# Theory of operation
#
# The short id of an incident is the name that its cluster had when it was opened, and a number.
#
# Numbers are given in the order in which incidents were opened in the change log, by version and ordinal. A fold says
# in that order which incidents it opened and where observations were lost (``NumberStep``); ``IncidentNumbers`` follows
# these steps. Shards fold side by side, and two clusters of one name may be in different shards, so no shard gives a
# number. The only writer of ``incidents`` does, once a version is committed: it takes the steps of the shards in the
# order of their ordinals. A start after a kill folds the same versions again, of all clusters in one fold, and meets
# the same steps in the same order. A number and the counters are written in the commit that first shows the incident,
# so no reader has seen a number that a replay might give to another one.
#
# Two counters are kept, both stored with the table: the last number under a name, and the last number of a cluster,
# whatever it was called. The next one is higher than both.
#   - A new Kafka cluster under an old name continues the count there, since the name's counter is not the cluster's.
#   - A cluster with a new name continues its own numbers under the new name, so each of its numbers is given once
#     over all of its names. That is what lets either name find any of its incidents (``exporters.read_model.
#     incident_ids``).
#
# Tables that were brought back from an older copy do not know which numbers were given since. What the bus still holds
# is applied again, with the same incidents and numbers. What it does not hold shows in the change log: the next
# observation of a source skips sequence numbers, its log on the bus is another one, or its next full report closes a
# time in which no source observed the cluster. Numbers may have been given in that time, so the counters jump: by one
# for each minute of it, by ``AT_ONCE`` more, then up to a whole thousand. A collector or a bus that lost observations
# while the tables were there lets them jump as well: the change log alone cannot distinguish that. A time shorter than
# ``SHORTEST_GAP`` does not count by itself, since every restart of a collector has one.
#
# Invariants, tried by tests/changes/test_incident_numbers.py and tests/jobs/shards/test_short_ids.py
#   1. No two incidents have one short id, and no two of a cluster have one number.
#   2. An incident has the number that an undisturbed fold of the same change log gives it, whatever is cut, killed or
#      applied again. It never changes.
#   3. Behind a jump no number is given that may have been given before, if at most so many were as stated above.
# Not covered: tables and bus brought back together from a copy that is younger than ``SHORTEST_GAP``; a name that was
# used for the first time after the copy was made; two clusters that have one name at one time, if the bus is applied
# again and mixes them in another order.

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from streaming.contracts.events import EventKind
from streaming.contracts.identifiers import short_id

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from streaming.changes.incidents.context import ChangeRow

AT_ONCE: Final = 100
MICROS_PER_NUMBER: Final = 60_000_000
ROUND: Final = 1000
SHORTEST_GAP: Final = 300_000_000
"""Microseconds without observation of a cluster that may hide numbers although no observation is missing."""


class Opened(NamedTuple):
    """An incident was opened; ``cluster`` is the name that its cluster has then."""

    incident_id: str
    cluster_id: str
    cluster: str


class Lost(NamedTuple):
    """Observations of a cluster may have been lost, of a time of so many microseconds."""

    cluster_id: str
    cluster: str
    micros: int


NumberStep = Opened | Lost


def losses_of(row: ChangeRow, blind_before: int) -> Iterator[Lost]:
    """Yield what a row says of lost observations.

    Args:
        row: a step of the cluster, or of a source.
        blind_before: ``blind_since`` of the cluster before it.
    """
    if EventKind.CHANGES_MISSED in row.events:
        yield Lost(row.cluster_id, row.cluster, max(0, row.time - row.watermark) if row.watermark else 0)
    elif row.blind_since not in (0, blind_before) and row.time - row.blind_since >= SHORTEST_GAP:
        yield Lost(row.cluster_id, row.cluster, row.time - row.blind_since)


def beyond(last: int, micros: int) -> int:
    """Return the counter after observations of so many microseconds were lost.

    >>> beyond(17, 0), beyond(950, 0), beyond(17, 86_400_000_000)
    (1000, 2000, 2000)
    """
    return -(-(last + AT_ONCE + micros // MICROS_PER_NUMBER) // ROUND) * ROUND


class IncidentNumbers:
    """The counters of a table of incidents, and what follows for new ones. Owned by its writer."""

    def __init__(self, stored: Callable[[str], int | None]) -> None:
        """Continue with stored counters.

        Args:
            stored: reads a counter by its name; None if it was never stored.
        """
        self._stored = stored
        self._moved: dict[str, int] = {}

    @property
    def moved(self) -> dict[str, int]:
        """Return the counters that are to be stored, by name."""
        return dict(self._moved)

    def are_stored(self) -> None:
        """Forget what was to be stored."""
        self._moved = {}

    def follow(self, steps: Iterable[NumberStep]) -> dict[str, str]:
        """Follow steps in the order of the change log; return the short id of each opened incident, by its id."""
        given: dict[str, str] = {}
        for step in steps:
            counters = f"number/name/{step.cluster}", f"number/cluster/{step.cluster_id}"
            last = max(map(self._last, counters))
            if isinstance(step, Lost):
                last = beyond(last, step.micros)
            else:
                last += 1
                given[step.incident_id] = short_id(step.cluster, last)
            self._moved |= dict.fromkeys(counters, last)
        return given

    def _last(self, counter: str) -> int:
        return self._moved[counter] if counter in self._moved else self._stored(counter) or 0
