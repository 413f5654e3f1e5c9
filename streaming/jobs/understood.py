"""The rows of a batch as observations in order, and what was refused. Knows Arrow and the contracts, no Spark."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import pyarrow.compute as pc

from streaming.changes.confirmed import Confirmed
from streaming.contracts.codec import decode
from streaming.delta.quarantine import Refused
from streaming.errors import Quarantined

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa

    from streaming.contracts.observations import Channel, Observation
    from streaming.jobs.repeats import Repeats, Run, Told


class Positions(Protocol):
    """Whoever knows how far each source was applied."""

    def position(self, source: str) -> int:
        """Give the position of the last applied observation of a source, -1 for none."""


@dataclass(frozen=True, slots=True)
class Understood:
    """A batch after reading.

    Attributes:
        observations: in order; runs that repeat what is known stand as ``Confirmed``.
        refused: what could not be read.
        positions: how far each source came.
        snapshots: partitions within snapshots that were decoded, to be remembered when they were applied.
    """

    observations: tuple[Observation, ...]
    refused: tuple[Refused, ...]
    positions: Mapping[str, int]
    snapshots: tuple[Told, ...] = ()

    @property
    def count(self) -> int:
        """How many observations came, each of a run counted."""
        return sum(
            each.sequence - each.first_sequence + 1 if isinstance(each, Confirmed) else 1 for each in self.observations
        )


def understand(rows: pa.Table, applied: Positions, channel: Channel, repeats: Repeats | None = None) -> Understood:
    """Read the rows of a batch that were not applied yet, merged by time; each source keeps its own order.

    Args:
        rows: as in ``schemas.bus_schema``.
        applied: what was applied already.
        channel: where they were read; what belongs elsewhere is refused.
        repeats: what was told before; what says the same again becomes ``Confirmed``.
    """
    fresh = fresh_rows(rows, applied)
    reading = _Reading(channel, repeats, set()).read(fresh)
    while reading.has_doubts():  # their order decides, so both are decoded
        reading = _Reading(channel, repeats, reading.doubtful).read(fresh)
    merged = sorted(reading.timed, key=lambda timed: timed[0])  # stable: a source's own order stays
    observations = tuple(observed for _, observed in merged)
    return Understood(observations, tuple(reading.refused), newest_positions(fresh), tuple(reading.snapshots))


def newest_positions(rows: pa.Table) -> dict[str, int]:
    """Tell how far each source came."""
    newest = rows.group_by("source").aggregate([("position", "max")])
    return dict(zip(newest["source"].to_pylist(), newest["position_max"].to_pylist(), strict=True))


def observation_of(payload: bytes, damage: str | None, channel: Channel) -> Observation:
    """Decode one row.

    Raises:
        Quarantined: with the reason why it is no observation of this channel.
    """
    if damage is not None:
        raise Quarantined(damage)
    observed = decode(payload)
    if observed.channel is not channel:
        raise Quarantined(f"{observed.kind} does not belong on the channel {channel}")
    return observed


def fresh_rows(rows: pa.Table, applied: Positions) -> pa.Table:
    """Give the rows of a batch that were not applied yet."""
    keep = None
    for source in pc.unique(rows["source"]).to_pylist():
        newer = pc.and_(pc.equal(rows["source"], source), pc.greater(rows["position"], applied.position(source)))
        keep = newer if keep is None else pc.or_(keep, newer)
    return rows if keep is None or pc.all(keep).as_py() else rows.filter(keep)


def _logs(rows: pa.Table) -> Iterator[tuple[str, pa.Table]]:
    """Give the rows of each source, in the order of its log; payloads are moved only if they must be."""
    sources = sorted(pc.unique(rows["source"]).to_pylist())
    for source in sources:
        log = rows if len(sources) == 1 else rows.filter(pc.equal(rows["source"], source))
        positions = log["position"].combine_chunks()
        is_sorted = pc.all(pc.less_equal(positions[:-1], positions[1:])).as_py()
        yield source, log if is_sorted is not False else log.sort_by("position")


class _Reading:
    """One pass over the rows of a batch."""

    def __init__(self, channel: Channel, repeats: Repeats | None, doubtful: set[int]) -> None:
        self._channel, self._repeats = channel, repeats
        self.doubtful = doubtful
        self.timed: list[tuple[int, Observation]] = []
        self.refused: list[Refused] = []
        self.snapshots: list[Told] = []
        self._runs: list[Run] = []
        self._latest: dict[str, int] = {}

    def read(self, rows: pa.Table) -> _Reading:
        """Read rows; each source by itself."""
        for source, log in _logs(rows):
            self._read_log(source, log)
        return self

    def _read_log(self, source: str, rows: pa.Table) -> None:
        payloads, damages = rows["payload"].to_pylist(), rows["damage"].to_pylist()
        sound = [payload if damage is None else b"" for payload, damage in zip(payloads, damages, strict=True)]
        at = 0
        while at < len(payloads):
            try:
                run = self._decoded(source, payloads[at], damages[at])
            except Quarantined as reason:
                position = rows["position"][at].as_py()
                self.refused.append(Refused(source=source, position=position, reason=str(reason), raw=payloads[at]))
                run = None
            at += 1
            if run is not None:
                at = run.skip(sound, at)
                self._end(source, run)

    def has_doubts(self) -> bool:
        """Tell whether something was skipped that another observation of the batch may have made news."""
        return any(not self.doubtful.isdisjoint(run.skipped) for run in self._runs)

    def _decoded(self, source: str, payload: bytes, damage: str | None) -> Run | None:
        """Decode one observation; give the run that may follow it."""
        observed = observation_of(payload, damage, self._channel)
        self._add(source, observed)
        if self._repeats is None:
            return None
        self.doubtful |= self._repeats.doubted_by(observed)
        begun = self._repeats.run_after(observed, payload, self.doubtful)
        if begun is None:
            return None
        self.snapshots.append(begun[1])
        return begun[0]

    def _end(self, source: str, run: Run) -> None:
        """Let a run stand for what it skipped."""
        if run.skipped:
            self._runs.append(run)
            self._add(source, run.confirmed())

    def _add(self, source: str, observed: Observation) -> None:
        """Take one observation, at its own time or that of an earlier one of its source."""
        self._latest[source] = max(self._latest.get(source, 0), observed.occurred_not_after)
        self.timed.append((self._latest[source], observed))
