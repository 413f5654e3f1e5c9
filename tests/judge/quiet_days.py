"""What happens on a day of a healthy cluster, drawn by chance: work that harms nobody, and now and then a trouble.

Every hour has one thing at most: brokers that are restarted cleanly, one or all in turn, after it was announced;
leaders that return; replicas that are moved; a topic that is created, used and deleted; a group whose members come and
go, which moves its coordinator's load; the active controller that is stopped, so that another is elected.

A *trouble* is planted on a day in seven: a broker that crashes and is back after twenty minutes, one that hangs for
less than a minute, or a link that is cut for a few. None of them takes away what clients were promised: three replicas,
of which two are enough.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any, Final, NamedTuple

from streaming.contracts.identifiers import BrokerId, Micros
from streaming.contracts.observations import Heartbeat, MaintenanceObserved, Observation, SourceKind
from streaming.sources.simulated.scenario import Action, Fault, GroupPlan, TopicPlan
from streaming.sources.simulated.simulation import Simulation, members
from streaming.sources.simulated.source import SimulatedSource
from tests.judge.play import SECOND, START

DAY: Final = 86_400
HOUR: Final = 3_600
TOPICS: Final = ("orders", "payments")
_TROUBLED_DAYS: Final = 1 / 7
_MOST_MOVES: Final = 6
_BEFORE_WORK: Final = 60.0
_AFTER_WORK: Final = 120.0
_FIRST_MEMBER: Final = 1_001


class Planted(NamedTuple):
    """A trouble: its kind, and from when until when, in seconds since the first day."""

    kind: str
    begin: float
    end: float


class Day:
    """One day: puts what happens on the agenda of a simulation, and says what was planted and announced.

    Args:
        random: of this day alone.
        source: the cluster, as it stands at its begin.
        begin: second of its begin, since the first day.
        hours: of a piece of a day.
    """

    def __init__(self, random: Random, source: SimulatedSource, begin: int, hours: int = 24) -> None:
        self.random, self.source, self.begin = random, source, begin
        self.planted: list[Planted] = []
        self.leases: list[tuple[float, Observation]] = []
        self.done: list[str] = []
        troubled = random.randrange(24) if random.random() < _TROUBLED_DAYS else None
        for hour in range(hours):
            at = begin + hour * HOUR + random.uniform(120, 900)
            what = random.choice(list(TROUBLES)) if hour == troubled else random.choice([*WORK, None, None])
            if what is not None:
                ({**WORK, **TROUBLES})[what](self, at)
                self.done.append(what)

    def at(self, second: float, act: Callable[[Simulation], object]) -> None:
        """Plan an act; what it does is decided when it is done."""
        simulation = self.source.simulation
        origin = simulation.now - simulation.cluster.now * 1_000
        simulation.agenda.at(round((START + second * SECOND - origin) / 1_000), partial(act, simulation))

    def fault(self, second: float, action: Action, **more: Any) -> None:
        """Plan a fault, or its repair."""
        fault = Fault(at=0, action=action, **more)
        self.at(second, lambda simulation: simulation.inflict(fault))

    def announce(self, broker: BrokerId, begin: float, end: float) -> None:
        """Announce work on a broker, and end the announcement when it is over."""
        for second in (begin, end):
            now = Micros(START + round(second * SECOND))
            self.leases.append(
                (second, _lease(broker, f"{broker} at {begin:.0f}", now, Micros(START + round(end * SECOND))))
            )


def _lease(broker: BrokerId, lease: str, now: Micros, until: Micros) -> Observation:
    return MaintenanceObserved(**_announcer(now), broker=broker, lease=lease, lease_until=until, why="planned")


def nothing_announced(second: int) -> Observation:
    """Give what who reads announcements says when there is none."""
    return Heartbeat(**_announcer(Micros(START + second * SECOND)))


def _announcer(now: Micros) -> dict[str, Any]:
    moments = dict.fromkeys(("occurred_not_before", "occurred_not_after", "collected_at"), now)
    identity = {"cluster_id": "judged", "cluster": "judged", "source": "maintenance:judge"}
    return {**identity, **moments, "source_kind": SourceKind.NONE}


# ------------------------------------------------------------------------------------------------- work


def _restarted(day: Day, broker: BrokerId, at: float) -> float:
    """Stop and start a broker, announced; return when it is over."""
    back = at + day.random.uniform(30, 400)
    day.announce(broker, at - _BEFORE_WORK, back + _AFTER_WORK)
    day.fault(at, Action.STOP, broker=broker)
    day.fault(back, Action.START, broker=broker)
    return back + _AFTER_WORK


def _restart(day: Day, at: float) -> None:
    _restarted(day, day.random.choice(day.source.simulation.scenario.brokers), at)


def _rolling(day: Day, at: float) -> None:
    for broker in day.source.simulation.scenario.brokers:
        at = _restarted(day, broker, at) + _BEFORE_WORK


def _elect(day: Day, at: float) -> None:
    day.fault(at, Action.ELECT, topic=day.random.choice(TOPICS), election="preferred")


def _moves(day: Day, at: float) -> None:
    """Move replicas from the broker that has most to the one that has fewest."""
    for _ in range(day.random.randint(1, _MOST_MOVES)):
        day.at(at, partial(_move, day.random.choice(TOPICS)))
        at += day.random.uniform(5, 60)


def _move(topic: str, simulation: Simulation) -> None:
    partitions = simulation.cluster.controller.registry.partitions
    hosted = dict.fromkeys(simulation.scenario.brokers, 0)
    for state in partitions.values():
        for broker in state.replicas:
            hosted[broker] += 1
    least, most = min(hosted, key=hosted.__getitem__), max(hosted, key=hosted.__getitem__)
    for key, state in sorted(partitions.items()):
        is_movable = most in state.replicas and least not in state.replicas
        if is_movable and key.topic_id == simulation.topic_ids[topic] and set(state.isr) == set(state.replicas):
            replicas = tuple(least if broker == most else broker for broker in state.replicas)
            simulation.inflict(
                Fault(at=0, action=Action.REASSIGN, topic=topic, partition=key.partition, replicas=replicas)
            )
            return


def _topic(day: Day, at: float) -> None:
    plan = TopicPlan(
        name=f"job-{day.random.randrange(10**9)}",
        partitions=day.random.choice((1, 3, 12)),
        replication_factor=3,
        min_insync_replicas=2,
    )
    day.at(at, lambda simulation: simulation.create(plan))
    day.at(at + day.random.uniform(60, 2_400), lambda simulation: simulation.delete(plan))


def _group(day: Day, at: float) -> None:
    """Let a group come, and let its members go one after the other."""
    first = BrokerId(_FIRST_MEMBER + day.begin // DAY * 100 + 4 * len(day.done))
    plan = GroupPlan(
        id=first, name=f"app-{day.random.randrange(5)}", topics=TOPICS[:1], members=day.random.choice((1, 2, 3))
    )
    day.at(at, partial(_come, plan))
    for number in range(plan.members):
        day.fault(at + day.random.uniform(60, 2_400), Action.STOP, client=BrokerId(first + number))


def _come(plan: GroupPlan, simulation: Simulation) -> None:
    for member in members(simulation, plan):
        simulation.cluster.connect(member.node, member)
        member.act(simulation.cluster.now)
        simulation.cluster.flush(member.node)


def _controller(day: Day, at: float) -> None:
    """Stop the active controller, and start it again."""
    stopped: list[int] = []

    def stop(simulation: Simulation) -> None:
        active = simulation.cluster.controllers.active
        if active is not None:
            stopped.append(active)
            simulation.inflict(Fault(at=0, action=Action.STOP, broker=BrokerId(active)))

    def start(simulation: Simulation) -> None:
        for node in stopped:
            simulation.inflict(Fault(at=0, action=Action.START, broker=BrokerId(node)))

    day.at(at, stop)
    day.at(at + day.random.uniform(20, 200), start)


# ------------------------------------------------------------------------------------------------- troubles


def _crash(day: Day, at: float) -> None:
    broker, back = day.random.choice(day.source.simulation.scenario.brokers), at + day.random.uniform(1_100, 1_300)
    day.fault(at, Action.KILL, broker=broker)
    day.fault(back, Action.START, broker=broker)
    day.planted.append(Planted("crash", at, back))


def _hang(day: Day, at: float) -> None:
    broker, back = day.random.choice(day.source.simulation.scenario.brokers), at + day.random.uniform(15, 50)
    day.fault(at, Action.PAUSE, broker=broker)
    day.fault(back, Action.RESUME, broker=broker)
    day.planted.append(Planted("hang", at, back))


def _cut(day: Day, at: float) -> None:
    link, mended = tuple(day.random.sample(day.source.simulation.scenario.brokers, 2)), at + day.random.uniform(60, 300)
    day.fault(at, Action.CUT, link=link)
    day.fault(mended, Action.MEND, link=link)
    day.planted.append(Planted("cut", at, mended))


WORK: Final[dict[str, Callable[[Day, float], None]]] = {
    "restart": _restart,
    "rolling": _rolling,
    "elect": _elect,
    "moves": _moves,
    "topic": _topic,
    "group": _group,
    "controller": _controller,
}
TROUBLES: Final[dict[str, Callable[[Day, float], None]]] = {"crash": _crash, "hang": _hang, "cut": _cut}
