"""The judge's own rule of groups: where is one stuck, beyond the end, or losing; since when, and must it be told?

The rule reads the truth: the logs, what was committed, which processes run and what each reads; and of isrwatch only
which coordinators and leaders answered it when. It knows nothing of what isrwatch keeps or says. It was committed
before the rules that it judges. Change it by argument only, never because a rule fails it.

- **Stuck**: for fifteen minutes a record could have been read, somebody reads the partition, and the same offset stayed
  committed. A marker, an aborted record, one that compaction removed or that an open transaction holds back is no
  record that can be read; of a group that commits its position, and so would have passed them, they may be told.
  Somebody reads the partition while a process of the group has it, or asks for it in a rebalance. Of a consumer without
  membership nothing shows that but its commits: within an hour of the last one it *must* be told, afterwards, or when
  the process is gone, it may be. A process that is gone *may* count as one that rebalances for as long as a rebalance
  may take.
- **Beyond**: what is committed exceeds the end of the log, whoever reads it. It must be told after two minutes.
- **Losing**: a record was deleted that a reader had not read. It must be told if an answer shows it, that is, before
  the group has committed behind it: what is committed behind it by then may as well have been read. Losses of a quarter
  of an hour are one. What was read before it was deleted, and committed after, may be told, and so may a loss while
  nobody reads, and that of a share group, which commits nothing: what of it was read, nobody knows.

What began must be told within ``TOLD_WITHIN`` of the first answer that shows it: of the coordinator, with the
partition's leader. After a silence of five minutes the waiting may begin again. What is over may be told until
``OVER_WITHIN`` after the first answer that shows that it is over, or that the group is gone, or until ``GONE_WITHIN``
where none comes any more.

Each is told **once**: what is told of partitions of a group that overlap is one story, and has one alert from its first
partition to its last. Two more alerts of groups must have a reason, and need not fire: *lag grows* while the group is
five minutes behind in a partition that somebody reads, and a minute more than before; *near retention* while it has yet
to read three quarters of what is kept, where that was not deleted because it was committed.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from tests.judge.groups.applications import Application, Protocol, Reading
from tests.judge.groups.logs import LogKind

STUCK, BEYOND, LOSING = "IsrwatchGroupStuck", "IsrwatchGroupBeyondEnd", "IsrwatchGroupLosesRecords"
GROWS, NEAR = "IsrwatchGroupLagGrows", "IsrwatchGroupNearRetention"
WAITS: Final = {STUCK: 900.0, BEYOND: 120.0, LOSING: 0.0}
"""So long it must have lasted until it must be told."""
NOT_BEFORE: Final = {STUCK: 840.0, BEYOND: 60.0}
LASTS: Final = {LOSING: 900.0, GROWS: 1_200.0, NEAR: 2_400.0}
"""So long a moment of it counts."""
TOLD_WITHIN: Final = 150.0
OVER_WITHIN: Final = 420.0
"""Alerts are kept firing for five minutes, so that one bridges the restart of an exporter."""
GONE_WITHIN: Final = 900.0
REBALANCES: Final = 300.0
SILENCE: Final = 300.0
_STEP: Final = 15.0
_MOMENT: Final = 75.0
_BRIEF: Final = 60.0
_COMMITS: Final = 3_600.0
_BEHIND: Final = 270.0
_GROWN: Final = 45.0
_BEFORE: Final = 900.0
_USED: Final = 0.75
_KEPT: Final = 36 * 3_600.0

Place = tuple[str, str]
"""Group and partition."""


class Episode(NamedTuple):
    """Something that was wrong with a group in a partition.

    Attributes:
        begin, end: it may be told then.
        due: by then it must be told; None if it need not be.
    """

    alert: str
    group: str
    part: str
    begin: float
    due: float | None
    end: float


class _Spans:
    """When something was so, as looks at it show that are at most a few seconds apart."""

    def __init__(self) -> None:
        self.spans: list[list[float]] = []

    def add(self, now: float, *, lasts: float = _STEP, is_new: bool = False) -> None:
        """Note that it is so now; what is new does not go on with what was before."""
        if self.spans and not is_new and now <= self.spans[-1][1] + lasts:
            self.spans[-1][1] = now
            return
        if is_new and self.spans and self.spans[-1][1] - self.spans[-1][0] < _BRIEF:
            self.spans.pop()
        self.spans.append([now, now])

    def forget(self, before: float) -> None:
        self.spans = [each for each in self.spans if each[1] >= before]


class Watch:
    """Follows the truth of all groups."""

    def __init__(self) -> None:
        self._must: dict[tuple[str, Place], _Spans] = defaultdict(_Spans)
        self._may: dict[tuple[str, Place], _Spans] = defaultdict(_Spans)
        self._unshown: set[Place] = set()
        self._losses: dict[Place, list[float]] = defaultdict(list)
        self._said: dict[Place, list[float]] = defaultdict(list)
        self._committed: dict[Place, int | None] = {}
        self._waiting: dict[Place, float] = {}
        self._unmoved: dict[Place, tuple[float, float]] = {}
        self._lags: dict[Place, list[tuple[float, float]]] = defaultdict(list)

    def answered(self, now: float, group: Application, starts: Mapping[str, int]) -> None:
        """Note the partitions of which the coordinator of a group, and before it their leaders, say how they are.

        Args:
            now: second.
            group: that it answers for.
            starts: the log starts that the leaders of these partitions said.
        """
        for part, start in starts.items():
            place, reading, said = (group.name, part), group.readings[part], self._said[group.name, part]
            if place in self._unshown and start == reading.log.start:
                self._unshown.discard(place)
                is_shown = reading.committed is not None and reading.committed < start
                if is_shown and said and now - said[-1] < SILENCE:
                    self._losses[place].append(now)
            said.append(now)

    def gone(self, now: float, group: Application) -> None:
        """Note that the coordinator of a group says that there is none: whatever was wrong with it is over."""
        for place in ((group.name, part) for part in group.readings):
            self._unshown.discard(place)
            self._said[place].append(now)

    def follow(self, now: float, group: Application, starts: Mapping[str, int]) -> None:
        """Look at a group; ``starts`` are the log starts of the look before."""
        for part, reading in group.readings.items():
            place, log, unread = (group.name, part), reading.log, reading.committed
            must, may = _is_read(now, group, reading)
            if unread is None:
                self._forget_offset(place)
                continue
            self._stand(now, place, reading, must=must, may=may)
            if unread > log.end:
                for of in (self._must, self._may):
                    of[BEYOND, place].add(now)
            self._lost(now, place, reading, starts[part], is_due=must and group.protocol is not Protocol.SHARE)
            if may:
                self._slow(now, place, reading)

    def _forget_offset(self, place: Place) -> None:
        self._committed[place] = None
        self._waiting.pop(place, None)
        self._unmoved.pop(place, None)

    def _stand(self, now: float, place: Place, reading: Reading, *, must: bool, may: bool) -> None:
        """Note where the same offset stays committed before a record; that none was there for a moment, nobody sees."""
        log, unread = reading.log, reading.committed or 0
        if self._committed.get(place) != reading.committed:
            self._forget_offset(place)
        self._committed[place] = reading.committed
        has_record = log.first_record(unread, log.stable) is not None
        if not has_record:
            self._waiting.pop(place, None)
        since = self._waiting.setdefault(place, now) if has_record else None
        if must and since is not None:
            self._must[STUCK, place].add(now, is_new=since == now)
        if not has_record and (reading.commits_records or max(unread, log.start) >= log.stable):
            return
        begin, last = self._unmoved.get(place, (now, now))
        begin = begin if now - last < _MOMENT else now
        self._unmoved[place] = begin, now
        if may:
            self._may[STUCK, place].add(now, lasts=_MOMENT, is_new=begin == now)

    def _lost(self, now: float, place: Place, reading: Reading, start: int, *, is_due: bool) -> None:
        """Note what was deleted since the log started at ``start``."""
        log = reading.log
        if log.start > start and log.holds_record(max(reading.committed or 0, start), log.start):
            self._may[LOSING, place].add(now, lasts=LASTS[LOSING])
            if is_due and log.holds_record(max(reading.position, start), log.start):
                self._unshown.add(place)

    def _slow(self, now: float, place: Place, reading: Reading) -> None:
        """Note where the lag grows, and where retention is near."""
        log, unread = reading.log, max(reading.committed or 0, reading.log.start)
        if now % 30 == 0:
            lag, lags = log.readable_for(unread, now), self._lags[place]
            lags.append((now, lag))
            while lags[0][0] < now - _BEFORE - 60:
                lags.pop(0)
            if lag >= _BEHIND and lag - min(each for _, each in lags) >= _GROWN:
                self._may[GROWS, place].add(now, lasts=LASTS[GROWS])
        kept = log.end - log.start
        is_purged = log.kind is LogKind.PURGED or log.start == reading.committed
        if log.start and kept and not is_purged and (log.end - unread) / kept >= _USED:
            self._may[NEAR, place].add(now, lasts=LASTS[NEAR])

    def forget(self, now: float) -> None:
        """Forget what is over for long."""
        for spans in (*self._must.values(), *self._may.values()):
            spans.forget(now - _KEPT)
        for moments in (*self._losses.values(), *self._said.values()):
            del moments[: bisect_left(moments, now - _KEPT)]

    def episodes(self, now: float) -> Iterator[Episode]:
        """Yield what was wrong until now, of the last hours."""
        for (alert, place), spans in self._may.items():
            said = self._said[place]
            for begin, end in spans.spans:
                first = begin + NOT_BEFORE.get(alert, 0.0)
                until = _over(said, end + LASTS.get(alert, 0.0), now)
                if first <= until and (alert not in NOT_BEFORE or end >= first):
                    dues = [due for due in self._dues(alert, place) if first <= due <= until + TOLD_WITHIN]
                    yield Episode(alert, *place, first, min(dues, default=None), until)

    def _dues(self, alert: str, place: Place) -> Iterator[float]:
        """Yield by when what must be told of a partition must have been."""
        said = self._said[place]
        if alert == LOSING:
            yield from (at + TOLD_WITHIN for at in self._losses[place])
        for begin, end in self._must[alert, place].spans if alert in WAITS else ():
            due = _due(said[bisect_left(said, begin) :], WAITS[alert])
            if due is not None and due <= end:
                yield due


def _due(said: Sequence[float], waits: float) -> float | None:
    """Return by when it must be told, by the answers that show it: without a long silence for long enough."""
    since, before = None, None
    for at in said:
        if since is None or before is None or at - before >= SILENCE:
            since = at
        if at - since >= waits:
            return at + TOLD_WITHIN
        before = at
    return None


def _over(said: Sequence[float], end: float, now: float) -> float:
    """Return until when it may be told that was so until then: until an answer shows that it is over, or none comes."""
    after = next(iter(said[bisect_left(said, end) :]), None)
    return min(now, end + GONE_WITHIN) if after is None else after + OVER_WITHIN


def _is_read(now: float, group: Application, reading: Reading) -> tuple[bool, bool]:
    """Return whether somebody reads a partition, and whether one may take it so."""
    reads = group.is_up and group.exists and reading.is_subscribed
    if group.protocol is Protocol.ASSIGN:
        is_recent = now - reading.moved_at <= _COMMITS
        return reads and is_recent, reads or is_recent
    return reads, reads or now - max(group.down_since, group.gone_since, reading.left_at) <= REBALANCES + TOLD_WITHIN


class Story(NamedTuple):
    """What must be told of a group, once: from when until when it may be, by when it must be, and of which partitions.

    ``may`` are all partitions that may be told in it.
    """

    alert: str
    group: str
    begin: float
    due: float
    end: float
    parts: frozenset[str]
    may: frozenset[str]


def stories(episodes: Iterable[Episode]) -> Iterator[Story]:
    """Join the episodes of each group that overlap, and yield those that must be told."""
    of: dict[tuple[str, str], list[Episode]] = defaultdict(list)
    for each in sorted(episodes, key=lambda each: each.begin):
        of[each.alert, each.group].append(each)
    for (alert, group), some in of.items():
        for joined in _joined(some):
            dues = {each.part: each.due for each in joined if each.due is not None}
            if dues:
                end, may = max(each.end for each in joined), frozenset(each.part for each in joined)
                yield Story(alert, group, joined[0].begin, min(dues.values()), end, frozenset(dues), may)


def _joined(some: Iterable[Episode]) -> Iterator[list[Episode]]:
    joined: list[Episode] = []
    for each in some:
        if joined and each.begin > max(one.end for one in joined):
            yield joined
            joined = []
        joined.append(each)
    if joined:
        yield joined


def reason(alert: str, group: str, at: float, episodes: Iterable[Episode]) -> bool:
    """Return whether there is a reason for an alert to begin at a moment."""
    return any((each.alert, each.group) == (alert, group) and each.begin <= at <= each.end for each in episodes)
