"""One play of a slow broker, or of what only looks like one: a seed in, who was called slow and when out.

In the model a slow disk and a slow network delay what is replicated; brokers respond at once, so there replication is
the only signal. Response times are therefore drawn beside it, in plays of their own: noise, pauses, waves of load and
restarts of a kind that is usual, and in some of them a broker that really is slow. All of it after a quiet time, which
is what the rule takes for usual. In two of three plays of both sorts brokers have agents; a slow disk is seen by its
agent alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Final, NamedTuple

from streaming.changes.advice.slow_brokers import LEAST_PEERS, BrokerSpeed, SpeedSample, after_round
from streaming.contracts.identifiers import BrokerId, Micros
from streaming.contracts.sample_blocks import BrokerSpeedsObserved
from streaming.sources.simulated import SimulatedSource
from streaming.sources.simulated.scenario import Action, Fault
from streaming.sources.simulated.simulation import WARM_UP_MS
from tests.blocks import speeds_of
from tests.judge import faults
from tests.judge.agents import Agents
from tests.judge.clusters import drawn_cluster
from tests.judge.cruise_control import CruiseControl
from tests.judge.faults import Stand
from tests.judge.play import SECOND, START, do, source_of, stand_of
from tests.judge.trouble import Act, Trouble

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    Round = dict[BrokerId, SpeedSample]

ROUND_SECONDS: Final = 10
QUIET_SECONDS: Final = 160.0
TAIL_SECONDS: Final = 100.0
LEAST_SECONDS: Final = 120.0
"""A broker that is slow for so long, to less than half, must be found."""
LEAST_RATE: Final = 5.0
HALF: Final = 0.5
AGENTS: Final = 2 / 3
"""In so many plays brokers have agents; in those of a slow disk always."""
LEAST_APPEND_MS: Final = 45.0
"""A broker that takes so long for an append must be found, if its agent and those of two peers were never silent."""
_LINGER_SECONDS: Final = 120.0
"""After a repair the score falls, and what was missed is caught up with."""
_DRAWS: Final = 2_000
_MOST_DRAWS: Final = 10 * _DRAWS
"""Of clusters, until there is one with enough traffic; most plays need a few."""
RULES: Final = ("isrwatch", "Cruise Control")


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowPlay:
    """What was played, and what both rules said.

    Attributes:
        must: slow brokers that must be found.
        may: brokers that may be called slow, because they are, less or for a shorter time.
        called: by rule: broker to the seconds at which it was first called slow.
    """

    seed: int
    kind: str
    what: str
    brokers: int
    has_agents: bool
    begin: float
    end: float
    must: frozenset[BrokerId]
    may: frozenset[BrokerId]
    called: dict[str, list[tuple[BrokerId, float]]]

    def found(self, rule: str) -> dict[BrokerId, float]:
        """Return the slow brokers that a rule found, and after how many seconds."""
        in_time = [(broker, at) for broker, at in self.called[rule] if self.begin <= at <= self.end + _LINGER_SECONDS]
        return {broker: at - self.begin for broker, at in reversed(in_time) if broker in self.must}

    def false_alarms(self, rule: str) -> list[tuple[BrokerId, float]]:
        """Return who was called slow and was not, or not then."""
        last = self.end + _LINGER_SECONDS
        return [each for each in self.called[rule] if each[0] not in self.may or not self.begin <= each[1] <= last]


def slow_played(seed: int) -> SlowPlay:
    random = Random(f"{seed} slow")
    return _drawn_times(seed, random) if random.random() < HALF else _in_the_model(seed, random)


def _called(rounds: Iterable[tuple[float, Round]]) -> dict[str, list[tuple[BrokerId, float]]]:
    """Apply both rules to the rounds; note each beginning of being called slow."""
    speeds: dict[BrokerId, BrokerSpeed] = {}
    other, called = CruiseControl(), {rule: list[tuple[BrokerId, float]]() for rule in RULES}
    before: dict[str, frozenset[BrokerId]] = dict.fromkeys(RULES, frozenset())
    for at, samples in rounds:
        speeds |= after_round(speeds, samples, Micros(round(at * SECOND)))
        ours = frozenset(broker for broker in samples if speeds[broker].is_slow)
        for rule, slow in zip(RULES, (ours, other.slow_after(samples)), strict=True):
            called[rule] += [(broker, at) for broker in sorted(slow - before[rule])]
            before[rule] = slow
    return called


# ------------------------------------------------------------------------------------------------- the model


def _in_the_model(seed: int, random: Random) -> SlowPlay:
    kind = random.choices([*_DRAWERS], [weight for weight, _ in _DRAWERS.values()])[0]
    for draw in range(_MOST_DRAWS):
        cluster = drawn_cluster(random, (kind,))
        if kind == "half" and len(cluster.scenario.brokers) == 3:
            continue  # two of three that receive slowly from the third are one that sends slowly
        if kind in {*_SLOW, "half"} and cluster.scenario.topics[0].records_per_second < LEAST_RATE:
            continue  # a link carries whole records per second: of few there is no share
        source = source_of(cluster.scenario, seed * _DRAWS + draw)
        drawn = _DRAWERS[kind][1](stand_of(random, source, cluster.scenario))
        if drawn is None:
            continue
        trouble, must = drawn
        trouble = trouble.shifted(round(QUIET_SECONDS + random.uniform(0, 30), 3))
        for act in trouble.acts:
            source.simulation.agenda.at(WARM_UP_MS + round(act.at * 1_000), partial(do, source, act))
        rounds = _rounds(source, trouble.end + TAIL_SECONDS)
        if has_agents := random.random() < AGENTS:
            agents = Agents(random, cluster.scenario.brokers, lambda _: random.lognormvariate(1.0, 0.5))
            rounds = ((at, agents.said(samples, at)) for at, samples in rounds)
        return SlowPlay(
            seed=seed,
            kind=kind,
            what=trouble.what,
            brokers=len(cluster.scenario.brokers),
            has_agents=has_agents,
            begin=trouble.begin,
            end=trouble.end,
            must=must,
            may=trouble.brokers if kind in _SLOW else frozenset(),
            called=_called(rounds),
        )
    raise ValueError(f"no cluster for {kind}")


def _rounds(source: SimulatedSource, seconds: float) -> Iterator[tuple[float, Round]]:
    for at in range(0, round(seconds) + ROUND_SECONDS, ROUND_SECONDS):
        for block in source.poll(Micros(START + at * SECOND)):
            if isinstance(block, BrokerSpeedsObserved):
                yield at, speeds_of(block)


_Drawn = tuple[Trouble, frozenset[BrokerId]]


def _slowed(stand: Stand, kind: str, brokers: list[BrokerId], *, receives: bool, sends: bool) -> _Drawn | None:
    """Slow what some brokers receive or send, or both, each link to the same share of what it has to carry."""
    share, seconds = stand.random.choice((0.1, 0.3, 0.5, 0.8)), stand.length((30.0, 100.0), *[(120.0, 300.0)] * 3)
    acts, must = list[Act](), set[BrokerId]()
    for broker in brokers:
        others = [other for other in stand.scenario.brokers if other not in brokers]
        links = [(other, broker) for other in others if receives] + [(broker, other) for other in others if sends]
        carried = {link: stand.records_per_second(*link) for link in links}
        rates = {link: max(1, round(share * rate)) for link, rate in carried.items() if rate}
        slower = {link: rate for link, rate in rates.items() if rate < carried[link]}
        if len(slower) <= len(rates) / 2 or len(rates) < 2:
            return None  # too little traffic: nothing would be slow
        halved = [link for link, rate in rates.items() if rate <= HALF * carried[link]]
        if seconds >= LEAST_SECONDS and len(halved) > len(rates) / 2:
            must.add(broker)
        for link, rate in rates.items():
            acts.append(Act(0, Fault(at=0, action=Action.SLOW, link=link, records_per_second=rate)))
            acts.append(Act(seconds, Fault(at=seconds, action=Action.RELEASE, link=link)))
    return faults.trouble(kind, f"{share} for {seconds:.3g} s", acts, brokers), frozenset(must)


def _one(kind: str, *, receives: bool, sends: bool) -> Callable[[Stand], _Drawn | None]:
    return lambda stand: _slowed(stand, kind, [stand.random.choice(stand.free)], receives=receives, sends=sends)


def _half(stand: Stand) -> _Drawn | None:
    """So many at once that none of them is to blame."""
    drawn = _slowed(
        stand, "half", stand.random.sample(stand.free, max(2, len(stand.free) // 2)), receives=True, sends=False
    )
    return None if drawn is None else (drawn[0], frozenset())


def _nobody(drawer: Callable[[Stand], Trouble | None]) -> Callable[[Stand], _Drawn | None]:
    def drawn(stand: Stand) -> _Drawn | None:
        trouble = drawer(stand)
        return None if trouble is None or trouble.end > 400 else (trouble, frozenset())

    return drawn


_SLOW: Final = frozenset({"slow receiver", "slow sender", "slow both ways"})
_DRAWERS: Final[dict[str, tuple[int, Callable[[Stand], _Drawn | None]]]] = {
    "slow receiver": (8, _one("slow receiver", receives=True, sends=False)),
    "slow sender": (6, _one("slow sender", receives=False, sends=True)),
    "slow both ways": (4, _one("slow both ways", receives=True, sends=True)),
    "half": (4, _half),
    **{
        name: (2, _nobody(drawer))
        for name, drawer in (
            ("link", faults.link),
            ("crash", faults.crash),
            ("pause", faults.pause),
            ("stop", faults.stop),
            ("rolling", faults.rolling),
            ("reassignment", faults.reassignment),
            ("isolation", faults.isolation),
            ("log_dir", faults.log_dir),
        )
    },
}


# ------------------------------------------------------------------------------------------------- drawn times


class _Times(NamedTuple):
    """What happens to the times of brokers, in milliseconds, in one play.

    Attributes:
        slow: the broker to which it happens, where it is one.
        usual: response times; each is drawn around it.
        disk: times of an append.
        back: when each is back after its restart.
    """

    random: Random
    kind: str
    slow: BrokerId
    begin: float
    end: float
    usual: dict[BrokerId, float]
    disk: dict[BrokerId, float]
    delay: float
    load: float
    back: dict[BrokerId, float]

    def is_on(self, at: float) -> bool:
        return self.begin <= at <= self.end

    def is_down(self, broker: BrokerId, at: float) -> bool:
        return self.kind == "restarts" and self.back[broker] - 30 <= at < self.back[broker]

    def is_cold(self, broker: BrokerId, at: float) -> bool:
        return self.kind == "restarts" and self.back[broker] <= at < self.back[broker] + 30

    def response(self, broker: BrokerId, at: float) -> float:
        random, is_slow = self.random, broker == self.slow
        ms = self.usual[broker] * random.lognormvariate(0, 0.4)
        if random.random() < (0.3 if self.kind == "pauses" and is_slow else 0.01):
            ms += random.uniform(50, 1_000)  # collects garbage
        if self.kind == "slow responses" and is_slow and self.is_on(at):
            ms += self.delay * random.lognormvariate(0, 0.3)
        if self.kind == "wave of load" and self.is_on(at):
            ms *= self.load * random.lognormvariate(0, 0.4)
        return ms * 10 + random.uniform(0, 300) if self.is_cold(broker, at) else ms

    def slower_disk(self, broker: BrokerId, at: float) -> float:
        if self.kind == "slow disk" and broker == self.slow and self.is_on(at):
            return 10.0
        if self.kind == "wave of load" and self.is_on(at):
            return self.load / 5 * self.random.lognormvariate(0, 0.4)
        return 20.0 if self.is_cold(broker, at) else 1.0


def _times(random: Random, brokers: list[BrokerId]) -> _Times:
    kind = random.choice(("slow responses", "slow disk", "slow disk", "pauses", "wave of load", "restarts", "uneven"))
    slow, begin = random.choice(brokers), QUIET_SECONDS + random.uniform(0, 200)
    usual = {broker: random.lognormvariate(1.0, 0.7 if kind == "uneven" else 0.3) for broker in brokers}
    disk = {broker: random.lognormvariate(2.0 if kind == "slow disk" else 1.0, 0.3) for broker in brokers}
    if kind == "uneven":
        usual[slow] *= random.uniform(20, 60)  # another machine room, say: it always was so
        disk[slow] *= random.uniform(5, 30)
    return _Times(
        random=random,
        kind=kind,
        slow=slow,
        begin=begin,
        end=begin + random.choice((60.0, 150.0, 300.0, 600.0)),
        usual=usual,
        disk=disk,
        delay=random.uniform(150, 2_000),
        load=random.uniform(5, 200),
        back={broker: begin + 60 * place for place, broker in enumerate(brokers)},
    )


def _drawn_times(seed: int, random: Random) -> SlowPlay:
    brokers = [BrokerId(number) for number in range(1, random.choice((3, 3, 4, 6, 6, 9, 12, 24)) + 1)]
    times = _times(random, brokers)
    agents = Agents(random, brokers, times.disk.__getitem__, times.slower_disk)
    has_agents = times.kind == "slow disk" or random.random() < AGENTS
    rounds: list[tuple[float, Round]] = []
    for at in range(0, round(times.end + TAIL_SECONDS), ROUND_SECONDS):
        samples = {
            broker: SpeedSample(round(times.response(broker, at) * 1_000))
            for broker in brokers
            if not times.is_down(broker, at)
        }
        rounds.append((at, agents.said(samples, at) if has_agents else samples))
    is_disk, is_slow = times.kind == "slow disk", times.kind in {"slow responses", "slow disk"}
    peers = sum(agents.said_always(broker) for broker in brokers if broker != times.slow)
    is_said = agents.said_always(times.slow) and peers >= LEAST_PEERS
    must = is_slow and times.end - times.begin >= LEAST_SECONDS
    if is_disk:
        must = must and is_said and 10 * times.disk[times.slow] >= LEAST_APPEND_MS
    return SlowPlay(
        seed=seed,
        kind=times.kind,
        what=f"{times.end - times.begin:.0f} s",
        brokers=len(brokers),
        has_agents=has_agents,
        begin=times.begin if is_slow else 0.0,
        end=times.end,
        must=frozenset({times.slow} if must else ()),
        may=frozenset({times.slow} if is_slow else ()),
        called=_called(rounds),
    )
