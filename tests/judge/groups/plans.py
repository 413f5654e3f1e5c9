"""The judge's groups, and what happens to them: work that harms nobody, and planted troubles, drawn by chance.

Groups of every protocol read topics of every kind: some own partitions and never commit, some have left a topic, read
partitions at different speeds, commit by record, read 50,000 records per second, come and go. Every hour half of them
do what applications do: replay, seek, pause for less than ten minutes, rebalance, restart, stop for long, delete what
they have read. In some an hour a *trouble* is planted: all or some of its partitions stand still; offsets are set
beyond the end, or the end falls behind them; it is slower than the retention, or what it has yet to read is deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Final

from tests.judge.groups.applications import Application, Protocol, Reading, Reset
from tests.judge.groups.logs import Log, LogKind
from tests.judge.quiet_days import Planted

_TROUBLES_PER_HOUR: Final = 4
_WORK_SHARE: Final = 1 / 2
_LAST_BEGIN: Final = 1_200.0
_REST: Final = 1_500.0
"""So long after a trouble nothing else happens to a group."""

Act = tuple[float, Callable[[float], None]]


def made_logs() -> dict[str, Log]:
    """Make the partitions, by name."""
    of = {
        "orders.new": (LogKind.PLAIN, 6, 2.0, 20_000),
        "clicks": (LogKind.PLAIN, 4, 5.0, 4_500),
        "ledger.moves": (LogKind.TRANSACTIONAL, 4, 0.0, None),
        "views.latest": (LogKind.COMPACTED, 4, 1.0, None),
        "app-totals-repartition": (LogKind.PURGED, 3, 3.0, None),
        "firehose": (LogKind.PLAIN, 2, 50_000.0, 200_000_000),
        "nightly": (LogKind.SPARSE, 2, 0.0, None),
        "drained": (LogKind.PLAIN, 2, 0.02, None),
    }
    logs = (Log(topic, number, kind, rate, kept)
            for topic, (kind, count, rate, kept) in of.items() for number in range(count))  # fmt: skip
    return {log.part: log for log in logs}


def made_groups(logs: dict[str, Log]) -> list[Application]:
    """Make the groups; two of each of the usual ones."""
    groups = [
        _group(logs, f"{name}-{number}", protocol, *topics, speed=speed, every=every)
        for number in (1, 2, 3)
        for name, protocol, topics, speed, every in (
            ("billing", Protocol.CLASSIC, ("orders.new",), 40, 5),
            ("search", Protocol.CONSUMER, ("orders.new", "clicks"), 60, 5),
            ("mail", Protocol.SHARE, ("clicks",), 50, 10),
            ("flink", Protocol.ASSIGN, ("orders.new", "clicks"), 90, 60),
        )
    ]
    groups += [
        _group(logs, "totals", Protocol.STREAMS, "orders.new", "app-totals-repartition", speed=80, every=30),
        _group(logs, "ledger", Protocol.CLASSIC, "ledger.moves", speed=30, every=5),
        _group(logs, "audit", Protocol.CONSUMER, "ledger.moves", speed=30, every=5),
        _group(logs, "views", Protocol.CLASSIC, "views.latest", speed=100, every=10),
        _group(logs, "firehose", Protocol.CONSUMER, "firehose", speed=60_000, every=5),
        _group(logs, "nightly", Protocol.CONSUMER, "nightly", speed=10, every=5),
        _group(logs, "mixed", Protocol.CLASSIC, "orders.new", "clicks", speed=20, every=5),
        _group(logs, "fresh", Protocol.CONSUMER, "clicks", speed=20, every=5),
        _group(logs, "left", Protocol.CONSUMER, "orders.new", "clicks", speed=20, every=5),
        _group(logs, "drained", Protocol.CLASSIC, "drained", speed=5, every=5),
        _group(logs, "spark sink", Protocol.ASSIGN, "ledger.moves", speed=40, every=120),
    ]
    of = {group.name: group for group in groups}
    for reading in of["ledger"].readings.values():
        reading.commits_records = True
    for number, reading in enumerate(of["mixed"].readings.values()):
        reading.speed = (5.2, 8, 20, 200)[number % 4]
    for reading in of["fresh"].readings.values():
        reading.commits = False
    for part, reading in of["left"].readings.items():
        reading.is_subscribed = not part.startswith("clicks")
        reading.committed = 0
    return groups


def _group(
    logs: dict[str, Log], name: str, protocol: Protocol, *topics: str, speed: float, every: float
) -> Application:
    readings = {part: Reading(log, speed, every) for part, log in logs.items() if log.topic in topics}
    return Application(name, protocol, readings, members=1 + len(name) % 3)


class Plans:
    """What happens in an hour: acts in order of time; says what was planted, and what was done."""

    def __init__(self, random: Random, logs: dict[str, Log], groups: list[Application]) -> None:
        self.random, self.logs, self.groups = random, logs, groups
        self.planted: list[tuple[str, Planted]] = []
        self.done: list[str] = []

    def hour(self, begin: float, *, is_last: bool) -> list[Act]:
        """Draw an hour; in the last one of a day nothing that lasts begins."""
        acts: list[Act] = []
        free = [group for group in self.groups if group.busy_until <= begin]
        self.random.shuffle(free)
        for group in free if not is_last else ():
            at = begin + self.random.uniform(60, _LAST_BEGIN)
            if len([each for each in self.planted if each[1].begin >= begin]) < _TROUBLES_PER_HOUR:
                kind, drawn = self._trouble(group)
                until, some = drawn(self, group, at)
                if some:
                    self.planted.append((group.name, Planted(kind, at, until)))
            elif self.random.random() < _WORK_SHARE:
                kind = self.random.choice([*_WORK])
                until, some = _WORK[kind](self, group, at)
                self.done += [kind] if some else []
            else:
                continue
            group.busy_until = until + _REST if some else begin
            acts += some
        return sorted(acts, key=lambda each: each[0])

    def _trouble(self, group: Application) -> tuple[str, Drawn]:
        kinds = ["hang", "hang", "set beyond", "truncated"]
        if any(log.kept for log in self._of(group)) and group.protocol is not Protocol.SHARE:
            kinds += ["slow", "deleted"]
        if group.name == "drained":
            kinds = ["deleted"]
        kind = self.random.choice(kinds)
        return kind, _TROUBLES[kind]

    def _of(self, group: Application) -> Iterator[Log]:
        yield from (each.log for each in group.readings.values())

    def some(self, group: Application) -> list[Reading]:
        """Choose some partitions that are read, or all."""
        read = [each for each in group.readings.values() if each.is_subscribed and each.commits]
        return self.random.sample(read, self.random.choice((1, 1, 2, len(read)))) if len(read) > 1 else read


Drawn = Callable[[Plans, Application, float], tuple[float, list[Act]]]


# ------------------------------------------------------------------------------------------------- work


def _replay(plans: Plans, group: Application, at: float) -> tuple[float, list[Act]]:
    """Go back to the beginning, or for some thousand records, and read again."""
    back, readings = plans.random.choice((500, 5_000, 10**12)), plans.some(group)

    def act(_: float) -> None:
        for each in readings:
            each.set(max(each.log.start, (each.committed or 0) - back))

    return at + 600, [(at, act)]


def _to_the_end(plans: Plans, group: Application, at: float) -> tuple[float, list[Act]]:
    readings = plans.some(group)

    def act(_: float) -> None:
        for each in readings:
            each.set(each.log.end)

    return at, [(at, act)]


def _pause(plans: Plans, group: Application, at: float) -> tuple[float, list[Act]]:
    """Hold partitions for less than a quarter of an hour."""
    readings, until = plans.some(group), at + plans.random.uniform(60, 700)
    return until, [(at, lambda _: _hold(readings)), (until, lambda _: _hold(readings, is_paused=False))]


def _hold(readings: list[Reading], *, is_paused: bool = True) -> None:
    for each in readings:
        each.is_paused = is_paused


def _rebalance(plans: Plans, group: Application, at: float) -> tuple[float, list[Act]]:
    """Members come or go."""
    lasts, members = plans.random.uniform(5, 200), plans.random.randint(1, 4)

    def act(now: float) -> None:
        group.members, group.rebalances_until = members, now + lasts

    return at + lasts, [(at, act)]


def _restart(plans: Plans, group: Application, at: float) -> tuple[float, list[Act]]:
    back = at + plans.random.choice((plans.random.uniform(10, 200), plans.random.uniform(1_200, 5_000)))
    return back, [(at, group.stop), (back, group.start)]


def _recreate(plans: Plans, group: Application, at: float) -> tuple[float, list[Act]]:
    """Stop it, delete it with its offsets, and start it some time later from the beginning."""
    deleted, back = at + plans.random.uniform(60, 400), at + plans.random.uniform(500, 4_000)
    return back + 300, [(at, group.stop), (deleted, group.delete), (back, group.start)]


def _delete_left(_: Plans, group: Application, at: float) -> tuple[float, list[Act]]:
    """Delete the records that nobody of this group reads any more."""
    left = [each.log for each in group.readings.values() if not each.is_subscribed]
    return at, [(at, lambda _: _delete(left, 50))] if left else []


def _delete(logs: list[Log], leaves: int) -> None:
    for log in logs:
        log.delete(log.end - leaves)


_WORK: Final[dict[str, Drawn]] = {
    "replay": _replay,
    "to the end": _to_the_end,
    "pause": _pause,
    "rebalance": _rebalance,
    "restart": _restart,
    "recreate": _recreate,
    "delete left": _delete_left,
}


# ------------------------------------------------------------------------------------------------- troubles


def _hang(plans: Plans, group: Application, at: float) -> tuple[float, list[Act]]:
    """Partitions stand still while their consumer stays."""
    readings, until = plans.some(group), at + plans.random.uniform(1_500, 3_000)
    return until, [(at, lambda _: _hold(readings)), (until, lambda _: _hold(readings, is_paused=False))]


def _set_beyond(plans: Plans, group: Application, at: float) -> tuple[float, list[Act]]:
    """Set offsets beyond the end of partitions that the application does not read meanwhile."""
    if group.protocol is Protocol.SHARE:
        return at, []
    readings, until = plans.some(group)[:2], at + plans.random.uniform(600, 2_000)

    def act(_: float) -> None:
        _hold(readings)
        for each in readings:
            each.set(each.log.end + plans.random.choice((10, 500)) + round(2 * each.log.rate * (until - at)))

    def back(_: float) -> None:
        _hold(readings, is_paused=False)
        for each in readings:
            each.set(each.log.end)

    return until, [(at, act), (until, back)]


def _truncated(plans: Plans, group: Application, at: float) -> tuple[float, list[Act]]:
    """The end of partitions falls behind what the group has committed; it is reset, or stays there."""
    of = [each for each in plans.some(group) if each.log.kind in {LogKind.PLAIN, LogKind.SPARSE}][:2]
    reset, until = plans.random.choice([*Reset]), at + plans.random.uniform(600, 1_500)

    def act(_: float) -> None:
        group.reset = reset
        for each in of:
            each.log.truncate(plans.random.choice((1, 40, 400)))

    def back(_: float) -> None:
        group.reset = Reset.EARLIEST
        for each in of if reset is Reset.NONE else ():
            each.set(min(each.committed or 0, each.log.end))

    return until, [(at, act), (until, back)] if of else []


def _slow(plans: Plans, group: Application, at: float) -> tuple[float, list[Act]]:
    """It is slower than records come, until some are deleted before it reads them."""
    readings = [each for each in plans.some(group) if each.log.kept is not None and each.log.rate < 1_000]
    speeds, until = [each.speed for each in readings], at + plans.random.uniform(2_700, 5_000)

    def act(_: float) -> None:
        for each in readings:
            each.speed = each.log.rate * plans.random.uniform(0.1, 0.4)
            each.set(max(each.log.start, (each.committed or 0) - (each.log.kept or 0) + 300))

    def back(_: float) -> None:
        for each, speed in zip(readings, speeds, strict=True):
            each.speed = speed

    return until, [(at, act), (until, back)] if readings else []


def _deleted(plans: Plans, group: Application, at: float) -> tuple[float, list[Act]]:
    """What it has yet to read is deleted, once; it stands still for some minutes before, or is behind."""
    readings = [each for each in plans.some(group) if each.log.rate < 1_000 and each.log.kind is LogKind.PLAIN]
    until, leaves = at + plans.random.uniform(200, 500), plans.random.choice((0, 10))
    logs = [each.log for each in readings]
    acts: list[Act] = [
        (at, lambda _: _hold(readings)),
        (until - 20, lambda _: _delete(logs, leaves)),
        (until, lambda _: _hold(readings, is_paused=False)),
    ]
    return until + 900, acts if readings else []


_TROUBLES: Final[dict[str, Drawn]] = {
    "hang": _hang,
    "set beyond": _set_beyond,
    "truncated": _truncated,
    "slow": _slow,
    "deleted": _deleted,
}
