"""One play of a slow broker, or of what only looks like one: a seed in, who was called slow and when out.

In the model a slow disk and a slow network delay what is replicated; brokers respond at once, so there replication is
the only signal. Response times are therefore drawn beside it, in plays of their own: noise, pauses, waves of load and
restarts of a kind that is usual, and in some of them a broker that really is slow. All of it after a quiet time, which
is what the rule takes for usual.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Final

from streaming.changes.slow_brokers import BrokerSpeed, SpeedSample, after_round
from streaming.contracts.identifiers import BrokerId, ClusterId, Micros
from streaming.contracts.sample_blocks import BrokerSpeedsObserved
from streaming.model.messages.outbox import CONTROLLER
from streaming.sources.simulated import SimulatedSource
from streaming.sources.simulated.fault import Action, Fault
from streaming.sources.simulated.simulation import WARM_UP_MS
from tests.judge import faults
from tests.judge.clusters import drawn_cluster
from tests.judge.cruise_control import CruiseControl
from tests.judge.faults import Stand
from tests.judge.play import SECOND, START
from tests.judge.trouble import Act, Trouble

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from streaming.sources.simulated.scenario import Scenario

    Round = dict[BrokerId, SpeedSample]

ROUND_SECONDS: Final = 10
QUIET_SECONDS: Final = 160.0
TAIL_SECONDS: Final = 100.0
LEAST_SECONDS: Final = 120.0
"""A broker that is slow for so long, to less than half, must be found."""
LEAST_RATE: Final = 5.0
HALF: Final = 0.5
_LINGER_SECONDS: Final = 120.0
"""After a repair the score falls, and what was missed is caught up with."""
_DRAWS: Final = 2_000
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
    """Play a seed."""
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
    for draw in range(_DRAWS):
        cluster = drawn_cluster(random, (kind,))
        if len(cluster.scenario.brokers) <= 3:
            continue  # of them nothing is said: too few peers
        if kind in {*_SLOW, "half"} and cluster.scenario.topics[0].records_per_second < LEAST_RATE:
            continue  # a link carries whole records per second: of few there is no share
        source = SimulatedSource(
            cluster.scenario,
            seed=seed * _DRAWS + draw,
            cluster_id=ClusterId("judged"),
            cluster="judged",
            name="judge",
            epoch=Micros(START),
        )
        drawn = _DRAWERS[kind][1](_stand(random, source, cluster.scenario))
        if drawn is None:
            continue
        trouble, must = drawn
        trouble = trouble.shifted(round(QUIET_SECONDS + random.uniform(0, 30), 3))
        for act in trouble.acts:
            source._simulation.agenda.at(WARM_UP_MS + round(act.at * 1_000), partial(_do, source, act))
        return SlowPlay(
            seed=seed,
            kind=kind,
            what=trouble.what,
            brokers=len(cluster.scenario.brokers),
            begin=trouble.begin,
            end=trouble.end,
            must=must,
            may=trouble.brokers if kind in _SLOW else frozenset(),
            called=_called(_rounds(source, trouble.end + TAIL_SECONDS)),
        )
    raise ValueError(f"no cluster for {kind}")


def _stand(random: Random, source: SimulatedSource, scenario: Scenario) -> Stand:
    names = {topic_id: topic.topic for topic_id, topic in source.topics().items()}
    partitions = source.partitions()
    return Stand(
        random=random,
        scenario=scenario,
        partitions=partitions,
        topic_of={key: names[key.topic_id] for key in partitions},
        active=source._simulation.cluster.controllers.active or CONTROLLER,
    )


def _do(source: SimulatedSource, act: Act) -> None:
    if isinstance(act.what, Fault):
        source._simulation._inflict(act.what)


def _rounds(source: SimulatedSource, seconds: float) -> Iterator[tuple[float, Round]]:
    for at in range(0, round(seconds) + ROUND_SECONDS, ROUND_SECONDS):
        for block in source.poll(Micros(START + at * SECOND)):
            if isinstance(block, BrokerSpeedsObserved):
                columns = block.values()
                yield (
                    at,
                    {
                        BrokerId(columns["broker"][place]): SpeedSample(
                            *(columns[name][place] for name in SpeedSample._fields)
                        )
                        for place in range(len(block))
                    },
                )


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


def _drawn_times(seed: int, random: Random) -> SlowPlay:
    brokers = [BrokerId(number) for number in range(1, random.choice((4, 6, 6, 9, 12, 24)) + 1)]
    kind = random.choice(("slow responses", "slow responses", "pauses", "wave of load", "restarts", "uneven"))
    slow = random.choice(brokers)
    begin, length = QUIET_SECONDS + random.uniform(0, 200), random.choice((60.0, 150.0, 300.0, 600.0))
    usual = {broker: random.lognormvariate(1.0, 0.7 if kind == "uneven" else 0.3) for broker in brokers}  # ms
    if kind == "uneven":
        usual[slow] *= random.uniform(20, 60)  # another machine room, say: it always was so
    delay, load = random.uniform(150, 2_000), random.uniform(5, 200)
    back = {broker: begin + 60 * place for place, broker in enumerate(brokers)}
    rounds: list[tuple[float, Round]] = []
    for at in range(0, round(begin + length + TAIL_SECONDS), ROUND_SECONDS):
        is_on = begin <= at <= begin + length
        samples: Round = {}
        for broker in brokers:
            if kind == "restarts" and back[broker] - 30 <= at < back[broker]:
                continue
            ms = usual[broker] * random.lognormvariate(0, 0.4)
            if random.random() < (0.3 if kind == "pauses" and broker == slow else 0.01):
                ms += random.uniform(50, 1_000)  # collects garbage
            if kind == "slow responses" and broker == slow and is_on:
                ms += delay * random.lognormvariate(0, 0.3)
            if kind == "wave of load" and is_on:
                ms *= load * random.lognormvariate(0, 0.4)
            if kind == "restarts" and back[broker] <= at < back[broker] + 30:
                ms = ms * 10 + random.uniform(0, 300)  # its caches are cold
            samples[broker] = SpeedSample(round(ms * 1_000), 0, 0, 0, 0)
        rounds.append((at, samples))
    is_slow = kind == "slow responses"
    return SlowPlay(
        seed=seed,
        kind=kind,
        what=f"{length:.0f} s",
        brokers=len(brokers),
        begin=begin if is_slow else 0.0,
        end=begin + length,
        must=frozenset({slow} if is_slow and length >= LEAST_SECONDS else ()),
        may=frozenset({slow} if is_slow else ()),
        called=_called(rounds),
    )
