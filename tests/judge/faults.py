"""How each fault is drawn: its brokers, its length against session and lag time, how it ends.

A drawer gives a ``Trouble`` that begins at 0, or None where the cluster has nothing that it could happen to.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from random import Random
from typing import Final

from streaming.contracts.identifiers import BrokerId, TopicPartition
from streaming.model.messages.network import CONTROLLER
from streaming.model.messages.registrations import PartitionRegistration
from streaming.sources.simulated.scenario import Action, Fault, Scenario, TopicPlan
from tests.judge.trouble import NEVER, Absence, Act, Trouble


@dataclass(frozen=True, slots=True, kw_only=True)
class Stand:
    """A cluster that stands, and chance: what a drawer chooses from.

    Attributes:
        taken: brokers that another fault of the play happens to.
        active: the active controller.
        topic_of: the topic of each partition.
    """

    random: Random
    scenario: Scenario
    partitions: dict[TopicPartition, PartitionRegistration]
    topic_of: dict[TopicPartition, str]
    active: BrokerId
    taken: frozenset[BrokerId] = frozenset()

    @property
    def free(self) -> list[BrokerId]:
        """Brokers that no other fault happens to."""
        return [broker for broker in self.scenario.brokers if broker not in self.taken]

    @property
    def session(self) -> float:
        """broker.session.timeout.ms, in seconds."""
        return self.scenario.constants.broker_session_timeout_ms / 1_000

    @property
    def lag(self) -> float:
        """replica.lag.time.max.ms, in seconds."""
        return self.scenario.constants.replica_lag_time_max_ms / 1_000

    def length(self, *choices: tuple[float, float]) -> float:
        """Draw one of several ranges, and a time in it."""
        least, most = self.random.choice(choices)
        return least if least == most else round(self.random.uniform(least, most), 3)

    def lags(self) -> float:
        """Draw a time around the lag time: shorter, just longer, longer."""
        return self.length(
            (0.2 * self.lag, 0.9 * self.lag), (1.1 * self.lag, 1.6 * self.lag), *[(2 * self.lag, 3 * self.lag)] * 2
        )

    def records_per_second(self, leader: BrokerId, follower: BrokerId) -> float:
        """What a follower must fetch from a leader."""
        rate = {plan.name: plan.records_per_second for plan in self.scenario.topics}
        return sum(
            rate.get(self.topic_of[key], 0.0)
            for key, state in self.partitions.items()
            if state.leader == leader and follower in state.replicas
        )

    def follow(self) -> set[tuple[BrokerId, BrokerId]]:
        """Give (leader, follower) of all partitions."""
        return {
            (state.leader, broker)
            for state in self.partitions.values()
            for broker in state.replicas
            if broker != state.leader
        }


def trouble(kind: str, what: str, acts: Iterable[Act], brokers: Collection[BrokerId] = (), **more: object) -> Trouble:
    ordered = tuple(sorted(acts, key=lambda act: act.at))
    return Trouble(
        kind=kind,
        what=what,
        begin=ordered[0].at,
        end=ordered[-1].at,
        acts=ordered,
        brokers=frozenset(brokers),
        **more,  # type: ignore[arg-type]
    )


def to(at: float, action: Action, broker: BrokerId, **more: object) -> Act:
    return Act(at, Fault(at=at, action=action, broker=broker, **more))  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------------------- brokers that go


def _back(stand: Stand) -> float:
    """Draw when a process that died is started again."""
    return stand.length((0.3, 4.0), (stand.session + 1, 3 * stand.session), (40.0, 120.0), (NEVER, NEVER))


def _died(action: Action, broker: BrokerId, at: float, back: float) -> list[Act]:
    acts = [to(at, action, broker)]
    return acts if back == NEVER else [*acts, to(at + back, Action.START, broker)]


def crash(stand: Stand) -> Trouble | None:
    broker, back = stand.random.choice(stand.free), _back(stand)
    return trouble("crash", f"back after {back:.3g} s", _died(Action.KILL, broker, 0, back), [broker])


def power_loss(stand: Stand) -> Trouble | None:
    broker, back = stand.random.choice(stand.free), _back(stand)
    return trouble("power_loss", f"back after {back:.3g} s", _died(Action.LOSE_POWER, broker, 0, back), [broker])


def cascade(stand: Stand) -> Trouble | None:
    count = stand.random.choice((2, 2, 3))
    if len(stand.free) < count:
        return None
    brokers, at, acts = stand.random.sample(stand.free, count), 0.0, list[Act]()
    for broker in brokers:
        acts += _died(Action.KILL, broker, at, stand.length((1, 30), (30, 150)))
        at += stand.length((40, 120), (120, 300))
    return trouble("cascade", f"{count} crashes in turn", acts, brokers)


def several(stand: Stand) -> Trouble | None:
    racks = stand.scenario.racks
    count = stand.random.randint(2, max(2, len(stand.scenario.brokers) // 2))
    if len(stand.free) < count:
        return None
    brokers = stand.random.sample(stand.free, count)
    whole = {rack for rack in racks.values() if {b for b, other in racks.items() if other == rack} <= set(brokers)}
    if whole:
        return None
    back = stand.length((stand.session + 1, 60))
    acts = [act for broker in brokers for act in _died(Action.KILL, broker, stand.length((0, 2)), back)]
    return trouble("several", f"{count} at once", acts, brokers)


def _rack(stand: Stand) -> list[BrokerId] | None:
    racks = stand.scenario.racks
    members = [[broker for broker, other in racks.items() if other == rack] for rack in sorted(set(racks.values()))]
    whole = [brokers for brokers in members if len(brokers) > 1 and stand.taken.isdisjoint(brokers)]
    return stand.random.choice(whole) if whole else None


def rack(stand: Stand) -> Trouble | None:
    brokers = _rack(stand)
    if brokers is None:
        return None
    action = stand.random.choice((Action.LOSE_POWER, Action.KILL))
    back = stand.length((stand.session + 1, 40), (40, 90))
    acts = [act for broker in brokers for act in _died(action, broker, stand.length((0, 1)), back)]
    return trouble("rack", str(action), acts, brokers)


def combined(stand: Stand) -> Trouble | None:
    broker = BrokerId(-stand.active)
    if broker not in stand.free:
        return None
    dies = [to(0, Action.KILL, broker), to(0, Action.KILL, stand.active)]
    back = stand.length((stand.session + 4, 60))
    acts = [*dies, to(back, Action.START, broker), to(back, Action.START, stand.active)]
    return trouble("combined", f"back after {back:.3g} s", acts, [broker])


def unclean(stand: Stand) -> Trouble | None:
    states = [state for key, state in stand.partitions.items() if stand.topic_of[key] == "clicks"]
    pairs = [state.replicas for state in states if stand.taken.isdisjoint(state.replicas)]
    if not pairs:
        return None
    leader, follower = stand.random.choice(pairs)
    second = stand.length((stand.session + 3, 40))
    back = second + stand.length((stand.session + 3, 40))
    acts = [
        to(0, Action.KILL, follower),
        to(second, Action.KILL, leader),
        to(back, Action.START, follower),
        to(back + stand.length((15, 40)), Action.START, leader),
    ]
    return trouble("unclean", "the follower, then the leader", acts, [leader, follower])


# ------------------------------------------------------------------------------------------------- brokers that hang


def pause(stand: Stand) -> Trouble | None:
    broker = stand.random.choice(stand.free)
    short, long = sorted((stand.session, stand.lag))
    ranges = [(0.2, 0.8 * short), (long + 3, 2 * long + 10)]
    if stand.lag * 1.6 < stand.session:
        ranges += [(stand.lag * 1.55, stand.session - 2.5)] * 2
    seconds = stand.length(*ranges)
    acts = [to(0, Action.PAUSE, broker), to(seconds, Action.RESUME, broker)]
    return trouble("pause", f"for {seconds:.3g} s", acts, [broker])


# ------------------------------------------------------------------------------------------------- orders


def stop(stand: Stand) -> Trouble | None:
    broker = stand.random.choice(stand.free)
    is_small = len(stand.partitions) <= 40
    back = stand.length((2, 30), (30, 150), (NEVER, NEVER))
    if is_small and stand.random.random() < 1 / 6:
        back = stand.length((1_000, 1_100))
    acts = [to(0, Action.STOP, broker)]
    if back != NEVER:
        acts.append(to(back, Action.START, broker))
    return trouble("stop", f"back after {back:.4g} s", acts, [broker], absences=(Absence(broker, 0, back),))


def rolling(stand: Stand) -> Trouble | None:
    if len(stand.free) < 2:
        return None
    count = min(len(stand.free), stand.random.choice((2, 3, 3, 4, 6)))
    brokers = stand.random.sample(stand.free, count)
    at, acts, absences = 0.0, list[Act](), list[Absence]()
    stays_away = len(stand.partitions) <= 40 and stand.random.random() < 1 / 8
    for broker in brokers:
        is_last = broker == brokers[-1]
        back = at + (1_050.0 if is_last and stays_away else stand.length((3, 25)))
        acts += [to(at, Action.STOP, broker), to(back, Action.START, broker)]
        absences.append(Absence(broker, at, back))
        at = back + stand.length((12, 60))
    what = f"{count} turns{', the last stays away' * stays_away}"
    return trouble("rolling", what, acts, brokers, absences=tuple(absences))


def _elsewhere(stand: Stand, state: PartitionRegistration, gone: BrokerId) -> tuple[BrokerId, ...] | None:
    others = [broker for broker in stand.free if broker not in state.replicas]
    if not others:
        return None
    new = stand.random.choice(others)
    return tuple(new if broker == gone else broker for broker in state.replicas)


def moves_of(
    stand: Stand, states: Iterable[tuple[TopicPartition, PartitionRegistration]], gone: BrokerId | None, at: float
) -> list[Act]:
    acts = list[Act]()
    for key, state in states:
        replicas = _elsewhere(stand, state, stand.random.choice(state.replicas) if gone is None else gone)
        if replicas is not None:
            move = Fault(
                at=at, action=Action.REASSIGN, topic=stand.topic_of[key], partition=key.partition, replicas=replicas
            )
            acts.append(Act(at, move))
    return acts


def decommission(stand: Stand) -> Trouble | None:
    broker = stand.random.choice(stand.free)
    hosted = [(key, state) for key, state in stand.partitions.items() if broker in state.replicas]
    moves = moves_of(stand, hosted, broker, 0)
    if len(moves) < len(hosted) or not hosted:
        return None
    ends = stand.length((40, 80))
    last = [to(ends, Action.STOP, broker), to(ends + stand.length((5, 40)), Action.UNREGISTER, broker)]
    acts = [*moves, *(act._replace(if_empty=broker) for act in last)]
    absences = (Absence(broker, ends, NEVER),)
    topics = {move.what.topic for move in moves if isinstance(move.what, Fault)}
    return trouble("decommission", f"{len(moves)} moves", acts, [broker], absences=absences, topics=frozenset(topics))


def reassignment(stand: Stand) -> Trouble | None:
    topic = stand.random.choice(sorted(set(stand.topic_of.values())))
    hosted = [(key, state) for key, state in stand.partitions.items() if stand.topic_of[key] == topic]
    moves = moves_of(stand, stand.random.sample(hosted, min(len(hosted), stand.random.choice((1, 5, 20)))), None, 0)
    if not moves:
        return None
    what, acts = stand.random.choice(("completed", "cancelled", "slow")), moves
    if what == "cancelled":
        at = stand.length((0.01, 0.5), (0.5, 4))
        acts = [*moves, Act(at, Fault(at=at, action=Action.CANCEL_REASSIGNMENT, topic=topic))]
    if what == "slow":
        at = 0.0
        acts = list[Act]()
        for move in moves:
            acts.append(Act(at, move.what))
            at += stand.length((1, 15))
    return trouble("reassignment", what, acts, topics=frozenset({topic}))


def preferred_election(stand: Stand) -> Trouble | None:
    topic = stand.random.choice(sorted(set(stand.topic_of.values())))
    act = Act(0, Fault(at=0, action=Action.ELECT, topic=topic, election="preferred"))
    return trouble("preferred_election", topic, [act], topics=frozenset({topic}))


def topics(stand: Stand) -> Trouble | None:
    name = f"new-{stand.random.randrange(10**9)}"  # two faults of one play may create a topic each
    plan = TopicPlan(
        name=name,
        partitions=stand.random.choice((1, 6, 30)),
        replication_factor=min(3, len(stand.scenario.brokers)),
        records_per_second=0.1,
    )
    acts = [Act(0, plan), Act(stand.length((3, 60)), plan, deletes=True)]
    return trouble("topics", f"{plan.partitions} partitions", acts, topics=frozenset({name}))


def config(stand: Stand) -> Trouble | None:
    topic = stand.random.choice([plan for plan in stand.scenario.topics if plan.name != "clicks"])
    key, value = stand.random.choice(
        (("min.insync.replicas", "1"), ("retention.ms", "3600000"), ("min.insync.replicas", None))
    )
    act = Act(0, Fault(at=0, action=Action.ALTER_CONFIG, topic=topic.name, key=key, value=value))
    return trouble("config", f"{key}={value}", [act], topics=frozenset({topic.name}))


# ------------------------------------------------------------------------------------------------- links and disks


def _on_link(action: Action, at: float, sender: int, receiver: int, **more: object) -> Act:
    return Act(at, Fault(at=at, action=action, link=(BrokerId(sender), BrokerId(receiver)), **more))  # type: ignore[arg-type]


def link(stand: Stand) -> Trouble | None:
    pairs = sorted(pair for pair in stand.follow() if stand.taken.isdisjoint(pair))
    if not pairs:
        return None
    leader, follower = stand.random.choice(pairs)
    how, seconds = stand.random.choice(("cut", "one way", "other way", "slow")), stand.lags()
    if how == "slow":
        rate = round(stand.records_per_second(leader, follower) * stand.random.choice((0.2, 0.5)))
        if rate < 1:
            return None
        seconds = stand.length((1.5 * stand.lag, 3 * stand.lag))
        begins = [_on_link(Action.SLOW, 0, leader, follower, records_per_second=rate)]
        ends = [_on_link(Action.RELEASE, seconds, leader, follower)]
    elif how == "cut":
        begins, ends = [_on_link(Action.CUT, 0, leader, follower)], [_on_link(Action.MEND, seconds, leader, follower)]
    else:
        one, other = (leader, follower) if how == "one way" else (follower, leader)
        begins, ends = [_on_link(Action.HOLD, 0, one, other)], [_on_link(Action.RELEASE, seconds, one, other)]
    return trouble("link", f"{how}, {seconds:.3g} s", [*begins, *ends], [leader, follower])


def _cut_off(
    stand: Stand, kind: str, brokers: Collection[BrokerId], seconds: float, *, also_controllers: bool
) -> Trouble:
    others: list[int] = [broker for broker in stand.scenario.brokers if broker not in brokers]
    smaller = frozenset(brokers) if len(brokers) < len(others) else frozenset(stand.scenario.brokers)
    if len(brokers) > len(others):
        smaller = frozenset(map(BrokerId, others))
    if also_controllers:
        others += [CONTROLLER - number for number in range(stand.scenario.constants.controllers)]
    links = [(broker, other) for broker in brokers for other in others]
    acts = [_on_link(Action.CUT, 0, *ends) for ends in links] + [
        _on_link(Action.MEND, seconds, *ends) for ends in links
    ]
    return trouble(kind, f"{seconds:.3g} s", acts, brokers, side=smaller)


def split(stand: Stand) -> Trouble | None:
    if stand.taken:
        return None  # a split touches everybody
    brokers = _rack(stand) if stand.scenario.racks and stand.random.random() < 1 / 2 else None
    if brokers is None:
        brokers = stand.random.sample(stand.free, stand.random.randint(1, len(stand.free) // 2))
    return _cut_off(stand, "split", brokers, stand.lags(), also_controllers=False)


def _isolated(stand: Stand, kind: str, brokers: list[BrokerId]) -> Trouble:
    short = min(stand.session, stand.lag)
    ranges = [(0.2, 0.8 * short), (stand.session + 3, 60), (stand.session + 3, 60)]
    if stand.lag * 1.6 < stand.session:
        ranges.append((stand.lag * 1.55, stand.session - 2.5))
    return _cut_off(stand, kind, brokers, stand.length(*ranges), also_controllers=True)


def isolation(stand: Stand) -> Trouble | None:
    return _isolated(stand, "isolation", [stand.random.choice(stand.free)])


def rack_isolation(stand: Stand) -> Trouble | None:
    brokers = _rack(stand)
    return None if brokers is None else _isolated(stand, "rack_isolation", brokers)


def slow_disk(stand: Stand) -> Trouble | None:
    followed = sorted(
        {follower for leader, follower in stand.follow() if stand.records_per_second(leader, follower) >= 2}
        - stand.taken
    )
    if not followed:
        return None
    broker = stand.random.choice(followed)
    fetched = max(stand.records_per_second(leader, broker) for leader in stand.scenario.brokers)
    share = stand.random.choice((0.1, 0.3, 0.6, 0.9, 3.0))
    rate = max(1, round(fetched * share))
    seconds = stand.length(
        (0.3 * stand.lag, stand.lag), (1.3 * stand.lag, 2.5 * stand.lag), (3 * stand.lag, 6 * stand.lag)
    )
    acts = [to(0, Action.SLOW_DISK, broker, records_per_second=rate), to(seconds, Action.MEND_DISK, broker)]
    return trouble("slow_disk", f"{rate} of {fetched:.3g} records/s, {seconds:.3g} s", acts, [broker])


def log_dir(stand: Stand) -> Trouble | None:
    broker, count = stand.random.choice(stand.free), stand.scenario.constants.log_dirs
    acts = [to(0, Action.FAIL_LOG_DIR, broker, directory="dir-1")]
    absences: tuple[Absence, ...] = ()
    if count == 1 or stand.random.random() < 1 / 3:
        at = stand.length((stand.session + 3, 60))
        stops = [] if count == 1 else [to(at, Action.STOP, broker)]
        acts += [*stops, to(at + 5, Action.WIPE, broker), to(at + 8, Action.START, broker)]
        absences = (Absence(broker, at, at + 8),)
    return trouble("log_dir", f"1 of {count}{', replaced' * bool(absences)}", acts, [broker], absences=absences)


# ------------------------------------------------------------------------------------------------- controllers


def controller(stand: Stand) -> Trouble | None:
    how = stand.random.choice((Action.KILL, Action.STOP, Action.PAUSE))
    seconds = stand.length((0.2, 0.9), (5, 40)) if how is Action.PAUSE else stand.length((5, 60))
    back = Action.RESUME if how is Action.PAUSE else Action.START
    acts = [to(0, how, stand.active), to(seconds, back, stand.active)]
    return trouble("controller", f"{how}, back after {seconds:.3g} s", acts)


def controller_stall(stand: Stand) -> Trouble | None:
    """The only controller stands still; a broker may die meanwhile, and is what it is: dead."""
    session = stand.session
    seconds = stand.length((0.3 * session, 0.7 * session), (1.1 * session, 1.6 * session), (2 * session, 4 * session))
    acts = [to(0, Action.PAUSE, stand.active), to(seconds, Action.RESUME, stand.active)]
    what, dead = f"for {seconds:.3g} s", list[BrokerId]()
    if stand.random.random() < 1 / 4:
        dead = [stand.random.choice(stand.free)]
        at, back = stand.length((0, seconds)), stand.length((0.3, 4.0), (session + 5, 60), (NEVER, NEVER))
        acts += [to(at, Action.KILL, dead[0])]
        acts += [] if back == NEVER else [to(seconds + back, Action.START, dead[0])]
        what += f", a broker dies after {at:.3g} s"
    return trouble("controller_stall", what, acts, dead)


DRAWERS: Final[dict[str, tuple[float, Callable[[Stand], Trouble | None]]]] = {
    "crash": (8, crash),
    "power_loss": (3, power_loss),
    "cascade": (6, cascade),
    "several": (5, several),
    "rack": (6, rack),
    "combined": (5, combined),
    "unclean": (6, unclean),
    "pause": (9, pause),
    "stop": (10, stop),
    "rolling": (9, rolling),
    "decommission": (4, decommission),
    "reassignment": (7, reassignment),
    "preferred_election": (2, preferred_election),
    "topics": (2, topics),
    "config": (2, config),
    "link": (9, link),
    "split": (7, split),
    "isolation": (4, isolation),
    "rack_isolation": (4, rack_isolation),
    "slow_disk": (9, slow_disk),
    "log_dir": (7, log_dir),
    "controller": (6, controller),
    "controller_stall": (6, controller_stall),
}
"""Each fault with its weight."""
LATER: Final = ("controller_stall",)
"""The faults that are drawn apart, so that the seeds of earlier plays still draw the same."""
