"""What an operator was woken for in vain: five kinds of plays of one cluster that must wake nobody.

Each is drawn by chance, as faults are: the cluster, the brokers, how long it lasts. In all of them the model's cluster
does for clients what it promised, which ``tests/judge/harm.py`` finds by itself; that is why they are no list of what
must stay silent, but plays as all others. Two more are about many clusters, in ``tests/judge/fleet.py``.

- ``lost_controllers``: a rule of a firewall, an ACL or a certificate keeps the collector from the controllers. Brokers
  answer it as before, and name the leader of the quorum; the poller stands in for the metadata log.
- ``lost_broker``: one broker is away for 7 to 13 minutes, or for half an hour, and every topic has three replicas of
  which two are enough. The longer ones lose redundancy, which must be told.
- ``announced_work``: a broker is stopped for work that was announced, and has the only replica of partitions.
- ``filling_disk``: a reassignment fills the volume of a broker for twenty minutes, faster than it would last for two
  hours, and is over with room to spare.
- ``losing_group``: Kafka deletes records before a group has read them: its application is too slow, or stands still.

The model has no bytes of volumes and does not delete by size: what brokers say of these two is put beside what it does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from random import Random
from typing import Any, Final

from streaming.contracts.identifiers import BrokerId, Micros, Offset
from streaming.contracts.observations import Channel, Heartbeat, MaintenanceObserved, Observation, SourceKind
from streaming.contracts.samples import GroupObserved, GroupOffsetsObserved, LogDirectoryObserved, QuorumMemberObserved
from streaming.sources.collector.opening import POLL_SNAPSHOT_SECONDS
from streaming.sources.simulated.scenario import Action, Scenario, TopicPlan
from streaming.sources.simulated.source import SimulatedSource
from streaming.sources.source import SILENCE_SECONDS
from tests.judge.clusters import drawn_cluster
from tests.judge.faults import Stand, moves_of, to, trouble
from tests.judge.play import SECOND, START, Batch, Play, Sees, run, source_of, stand_of, topics_of
from tests.judge.polls.bare import Poller
from tests.judge.trouble import Absence, Act, Trouble

_DRAWS: Final = 40
_GIGABYTE: Final = 1 << 30
_VOLUME: Final = 1_000 * _GIGABYTE
_ROUND_SECONDS: Final = 10


@dataclass(frozen=True, slots=True)
class Waker:
    """One play: what happens, what the collector sees of it, and what its own metrics say.

    Attributes:
        sees: of what happened, with what is put beside it.
        silent: from when until when the collector does not reach the controllers, seconds of the play.
        tail: seconds after the last act.
    """

    trouble: Trouble
    sees: Sees
    silent: tuple[float, float] = (math.inf, math.inf)
    tail: float = 400.0

    def lines(self, second: float) -> str:
        """Give what the collector exposes of itself."""
        up = int(not self.silent[0] <= second < self.silent[1])
        return f'isrwatch_collector_source_up{{cluster="judged",source="metadata_log:judge"}} {up}\n'


def waker_played(seed: int, kind: str, watch: Callable[[Batch, str], None] | None = None) -> Play:
    """Play a kind; ``watch`` gets what each micro-batch commits, and what the collector exposes of itself then."""
    random = Random(f"{seed} waker {kind}")
    for draw in range(_DRAWS):
        cluster = drawn_cluster(random, ())
        scenario = _with_topics(random, cluster.scenario, kind)
        source = source_of(scenario, seed * _DRAWS + draw)
        waker = DRAWERS[kind](stand_of(random, source, scenario))
        if waker is not None:
            return _played(seed, cluster.preset, source, waker, watch)
    raise ValueError(f"no cluster on which {kind} can happen")


def _played(
    seed: int, preset: str, source: SimulatedSource, waker: Waker, watch: Callable[[Batch, str], None] | None
) -> Play:
    one = waker.trouble
    play = Play(
        seed=seed,
        preset=preset,
        polling=None,
        scenario=source.simulation.scenario,
        troubles=(one,),
        begin=one.begin,
        seconds=math.ceil(max(one.end, *(act.at for act in one.acts), 0.0) + waker.tail),
        before=source.partitions(),
        topics=topics_of(source),
    )
    shown = None if watch is None else lambda batch: watch(batch, waker.lines((batch.now - START) / SECOND))
    stand_in = _StandIn(source, waker.silent)
    run(play, source, shown, lambda second, seen: [*waker.sees(second, seen), *stand_in.poll(second)])
    return play


class _StandIn:
    """The poller of the collector, which reports the state while the metadata log is silent."""

    def __init__(self, source: SimulatedSource, silent: tuple[float, float]) -> None:
        self._source, self._silent, self._reports, self._poller = source, silent, -1, Poller(source.simulation)

    def poll(self, second: float) -> list[Observation]:
        """Give what it reports, now and then the whole state."""
        begin, end = self._silent
        if not begin + SILENCE_SECONDS <= second < end:
            return []
        if (reports := int((second - begin) // POLL_SNAPSHOT_SECONDS)) != self._reports:
            self._reports, self._poller = reports, Poller(self._source.simulation)
        return self._poller.poll(Micros(START + round(second * SECOND)))


def _with_topics(random: Random, scenario: Scenario, kind: str) -> Scenario:
    """Give topics of three replicas of which two are enough; for announced work one of a single replica, too."""
    topics = [
        TopicPlan(
            name=name,
            partitions=random.choice((3, 6, 12, 24)),
            replication_factor=3,
            min_insync_replicas=2,
            records_per_second=rate,
        )
        for name, rate in (("orders", 0.5), ("payments", 0.1))
    ]
    if kind == "announced_work":
        topics.append(TopicPlan(name="scratch", partitions=random.choice((3, 6, 12)), replication_factor=1))
    return replace(scenario, topics=tuple(topics))


def _everything(_: float, seen: list[Observation]) -> list[Observation]:
    return seen


# ------------------------------------------------------------------------------------------------- the five


def lost_controllers(stand: Stand) -> Waker | None:
    begin = stand.length((30, 60))
    end = begin + stand.length((150, 400), (400, 1_200))
    held: list[Observation] = []

    def sees(second: float, seen: list[Observation]) -> list[Observation]:
        seen = [*seen, *_quorum(stand, second)]
        if not begin <= second < end:
            now = Micros(START + round(second * SECOND))
            late = [replace(each, collected_at=now) for each in held]
            held.clear()
            return [*late, *seen]
        held.extend(each for each in seen if each.channel is Channel.REPLICATION)
        return [each for each in seen if each.channel is not Channel.REPLICATION]

    one = Trouble(kind="lost_controllers", what=f"for {end - begin:.0f} s", begin=begin, end=end, acts=())
    return Waker(one, sees, (begin, end), tail=240.0)


def _quorum(stand: Stand, second: float) -> Iterator[Observation]:
    """Give what brokers answer to DescribeQuorum; the model's own quorum answers where it has one."""
    if second % _ROUND_SECONDS or stand.scenario.constants.controllers > 1:
        return
    now = Micros(START + round(second * SECOND))
    yield QuorumMemberObserved(
        **_envelope(now),
        node=-stand.active,
        is_voter=True,
        controller=-stand.active,
        controller_epoch=1,
        high_watermark=Offset(round(2 * second)),
        log_end_offset=Offset(round(2 * second)),
        last_fetch_at=now,
        last_caught_up_at=now,
    )


def lost_broker(stand: Stand) -> Waker | None:
    broker = stand.random.choice(stand.free)
    begin, back = stand.length((20, 40)), stand.length((420, 780), (1_500, 1_750))
    acts = [to(begin, Action.KILL, broker), to(begin + back, Action.START, broker)]
    return Waker(trouble("lost_broker", f"broker {broker} is back after {back:.0f} s", acts, [broker]), _everything)


def announced_work(stand: Stand) -> Waker | None:
    alone = {state.replicas[0] for key, state in stand.partitions.items() if stand.topic_of[key] == "scratch"}
    broker = stand.random.choice(sorted(alone))
    announced, begin, back = 20.0, 30.0, 30.0 + stand.length((100, 300), (300, 900))
    acts = [to(begin, Action.STOP, broker), to(back, Action.START, broker)]
    until = back + 120.0
    one = trouble(
        "announced_work",
        f"broker {broker} for {back - begin:.0f} s",
        acts,
        [broker],
        absences=(Absence(broker, begin, back),),
        announced=(Absence(broker, announced, until),),
    )
    lease = MaintenanceObserved(
        **{**_envelope(Micros(START + round(announced * SECOND))), "source": "maintenance:judge"},
        broker=broker,
        lease="judge",
        lease_until=Micros(START + round(until * SECOND)),
        why="a new kernel",
    )

    def sees(second: float, seen: list[Observation]) -> list[Observation]:
        return [*([lease] if second == announced else ()), *_reader_of_announcements(second), *seen]

    return Waker(one, sees)


def _reader_of_announcements(second: float) -> list[Observation]:
    """Give what who reads announcements says when there is none."""
    now = Micros(START + round(second * SECOND))
    return [Heartbeat(**{**_envelope(now), "source": "maintenance:judge"})]


def filling_disk(stand: Stand) -> Waker | None:
    """Free space falls from 20 % to 7 % of the volume in twenty minutes, and stays: it would last for an hour."""
    topic = stand.random.choice(("orders", "payments"))
    hosted = [(key, state) for key, state in stand.partitions.items() if stand.topic_of[key] == topic]
    moves = moves_of(stand, hosted, None, 0)
    if not moves:
        return None
    begin, lasts, least = 60.0, stand.length((1_000, 1_400)), stand.random.uniform(0.055, 0.085)
    acts = [_later(act, begin + number * lasts / len(moves)) for number, act in enumerate(moves)]
    filled = stand.random.choice(stand.free)

    def sees(second: float, seen: list[Observation]) -> list[Observation]:
        done = min(1.0, max(0.0, (second - begin) / lasts))
        free = {filled: round(_VOLUME * (0.2 - done * (0.2 - least)))}
        return [_with_bytes(each, free) for each in seen]

    what = f"broker {filled} has {least:.1%} left after {lasts:.0f} s"
    one = trouble("filling_disk", what, acts, topics=frozenset({topic}))
    return Waker(replace(one, end=begin + lasts), sees, tail=900.0)


def _later(act: Act, at: float) -> Act:
    return act._replace(at=at)


def _with_bytes(observed: Observation, free: dict[BrokerId, int]) -> Observation:
    if not isinstance(observed, LogDirectoryObserved):
        return observed
    usable = free.get(observed.broker, _VOLUME // 2)
    return replace(observed, total_bytes=_VOLUME, usable_bytes=usable)


def losing_group(stand: Stand) -> Waker | None:
    key = stand.random.choice(sorted(key for key in stand.partitions if stand.topic_of[key] == "orders"))
    begin, is_alive = 60.0, stand.random.random() < 2 / 3
    lasts = stand.length((420, 900))

    def sees(second: float, seen: list[Observation]) -> list[Observation]:
        if second % _ROUND_SECONDS:
            return seen
        return [*seen, *_group(stand, key, second, max(0, round(20 * (second - begin))), is_alive=is_alive)]

    what = "its application is too slow" if is_alive else "its application stands still"
    return Waker(Trouble(kind="losing_group", what=what, begin=begin, end=begin + lasts, acts=()), sees)


def _group(stand: Stand, key: Any, second: float, start: int, *, is_alive: bool) -> Iterator[Observation]:
    envelope = _envelope(Micros(START + round(second * SECOND)))
    state: dict[str, Any] = {
        "group": "reports",
        "group_protocol": "classic",
        "group_state": "Stable" if is_alive else "Empty",
        "members": int(is_alive),
    }
    yield GroupObserved(**envelope, **state, coordinator=stand.free[0])
    yield GroupOffsetsObserved(
        **envelope,
        **state,
        topic_id=key.topic_id,
        topic=stand.topic_of[key],
        partition=key.partition,
        committed_offset=Offset(start // 2 if is_alive else 0),
        log_start_offset=Offset(start),
        last_stable_offset=Offset(start + 5_000),
        high_watermark=Offset(start + 5_000),
    )


def _envelope(now: Micros) -> dict[str, Any]:
    moments = dict.fromkeys(("occurred_not_before", "occurred_not_after", "collected_at"), now)
    identity = {"cluster_id": "judged", "cluster": "judged", "source": "metadata_log:judge"}
    return {**identity, **moments, "source_kind": SourceKind.NONE}


DRAWERS: Final[dict[str, Callable[[Stand], Waker | None]]] = {
    "lost_controllers": lost_controllers,
    "lost_broker": lost_broker,
    "announced_work": announced_work,
    "filling_disk": filling_disk,
    "losing_group": losing_group,
}
NAMED: Final = {"lost_controllers": 1, "lost_broker": 2, "announced_work": 3, "filling_disk": 4, "losing_group": 5}
"""The seed of the one play of each kind that is the same every time."""
