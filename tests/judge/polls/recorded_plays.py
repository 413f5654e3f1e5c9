"""Recorded plays of real clusters, played by the model: the same steps at the same times, and what its listeners do."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from random import Random
from typing import Final, NamedTuple

from streaming.contracts.identifiers import BrokerId, Micros
from streaming.model.constants import NEWEST, PRESETS, Constants
from streaming.model.controller.metadata_writer import Commit
from streaming.sources.polling.inference.inquiry import Ask, BrokerQuestion, Meeting, Met, Presence
from streaming.sources.simulated.scenario import Action, Fault, Scenario, TopicPlan
from streaming.sources.simulated.simulation import WARM_UP_MS
from tests.judge.play import START, source_of
from tests.judge.polls.answers import Answers
from tests.judge.polls.images import Images
from tests.judge.polls.listeners import TICK_MS, Listeners
from tests.judge.polls.surroundings import Span, Surroundings
from tests.listeners.recordings import NEVER, Play

BROKERS: Final = tuple(map(BrokerId, (1, 2, 3)))
EVERY_MS: Final = 200
_BEGIN_MS: Final = 5_000
_TAIL_MS: Final = 15_000
_BROKER_STARTS_MS: Final = 1_300
"""A JVM and its logs, until the broker asks for its registration."""
_ELECTION_MS: Final = 300
_LONGEST_START_MS: Final = 2_800
"""The topic is created three seconds after the begin of the model."""
_ACTIONS: Final = {
    "gets SIGTERM": Action.STOP,
    "gets SIGKILL": Action.KILL,
    "gets SIGSTOP": Action.PAUSE,
    "gets SIGCONT": Action.RESUME,
    "is started": Action.START,
}


class Seen(NamedTuple):
    """Something that is met from a time on, in milliseconds after the first step.

    ``what``: how a listener behaves (``answers``, ``gone``, ``silent``, ``unreachable``), or whom a broker lists.
    """

    at: int
    node: int
    what: str


def recorded(play: Play, node: int, probe: str) -> list[Seen]:
    """Give how a probe of a node fared, from the first step on; a connection that ended is a process that is gone."""
    names = {"answered": "answers", "silent": "silent", "unreachable": "unreachable", "accepted, silent": "silent"}
    seen = [Seen(at, node, names.get(how, "gone")) for at, how in play.hows(node, probe)]
    return changes([one for one in seen if one.what != "gone" or one.at > 0])


def recorded_lists(play: Play, node: int, broker: int) -> list[Seen]:
    """Give when a node began and ceased to list another one."""
    return changes(
        [
            Seen(at, node, f"lists {broker}" if broker in answer["listed"] else f"misses {broker}")
            for at, answer in play.answers(node, "DescribeCluster")
        ]
    )


def changes(seen: list[Seen]) -> list[Seen]:
    """Leave out what is as it was."""
    return [one for place, one in enumerate(seen) if not place or seen[place - 1].what != one.what]


def lasting(seen: list[Seen], least_ms: int) -> list[Seen]:
    """Leave out what is over sooner."""
    ends = [one.at for one in seen[1:]] + [NEVER]
    return changes([one for one, end in zip(seen, ends, strict=True) if end - one.at >= least_ms])


class Replay:
    """One recorded play, on the model.

    Args:
        version: of Kafka.
        play: of the steps, the times of the cluster, and how long its processes take to start.
    """

    def __init__(self, version: str, play: Play) -> None:
        self._play = play
        self.met: dict[Ask, list[Met]] = {Ask.PRESENCE: [], Ask.QUORUM: []}
        commits = list[Commit]()
        self._source = source_of(_scenario(version, play), 1, on_commit=commits.append)
        self._simulation = self._source.simulation
        self._begin = WARM_UP_MS + _BEGIN_MS
        images = Images(self._simulation.cluster, commits)
        around = Surroundings(
            unreached=tuple(self._cut_from_us()), addresses={each: (f"b{each}", 9092) for each in BROKERS}
        )
        self._listeners = [
            Listeners(
                self._simulation,
                Answers(self._simulation, images, around.addresses, lists_fenced=True, random=Random(1)),
                around,
                random=Random(2),
                take=self.met[ask].append,
                origin=Micros(0),
            )
            for ask in self.met
        ]
        self._plan()

    def _plan(self) -> None:
        agenda = self._simulation.agenda
        active = self._simulation.cluster.controllers.active
        for at, text in self._play.steps:
            if "is started" in text:
                at = self._starts_at(at)  # noqa: PLW2901 - what the machine of the recording took is not the broker's
            for fault in faults_of(text, active or BrokerId(-100), len(self._play.data["controllers"])):
                agenda.at(self._begin + at, partial(self._simulation.inflict, fault))
        agenda.every(TICK_MS, WARM_UP_MS + TICK_MS, self._tick)
        agenda.every(EVERY_MS, WARM_UP_MS + EVERY_MS, self._ask)

    def _starts_at(self, at: int) -> int:
        """Return when a process must be started so that it registers when the recorded one did.

        One that is started at once waits for the end of the session of the one before, which says nothing of it.
        """
        registered = self._play.written(since=at, register=3)
        is_known = registered < NEVER and at > self._play.session_ms
        return max(at, registered - _BROKER_STARTS_MS) if is_known else at

    def _tick(self) -> None:
        for listeners in self._listeners:
            listeners.tick()

    def _ask(self) -> None:
        for ask, listeners in zip(self.met, self._listeners, strict=True):
            for broker in BROKERS:
                listeners.ask(BrokerQuestion(ask, broker))

    def _cut_from_us(self) -> list[Span]:
        steps = self._play.steps
        begins = [at for at, text in steps if "from everybody" in text or "from the recorder" in text]
        ends = [at for at, text in steps if "network is whole" in text]
        begin = _BEGIN_MS / 1_000
        return [
            Span(frozenset({BrokerId(3)}), begin + one / 1_000, begin + min(ends, default=math.inf) / 1_000)
            for one in begins
        ]

    def run(self) -> Replay:
        """Play to the end."""
        last = max(at for at, _ in self._play.steps)
        self._source.poll(Micros(START + (_BEGIN_MS + last + _TAIL_MS) * 1_000))
        return self

    def _ms(self, micros: int) -> int:
        return micros // 1_000 - _BEGIN_MS

    def seen(self, node: int, ask: Ask) -> list[Seen]:
        """Give how a kind of question fared at a broker; silence from when it was asked."""
        names = {
            Meeting.ANSWERED: "answers", Meeting.SILENT: "silent", Meeting.UNREACHABLE: "silent"
        }  # fmt: skip
        return changes(
            [
                Seen(self._ms(met.asked if met.how is Meeting.SILENT else met.ended), node, names.get(met.how, "gone"))
                for met in self.met[ask]
                if met.question.broker == node
            ]
        )

    def lists(self, node: int, broker: int) -> list[Seen]:
        """Give when a broker began and ceased to list another one."""
        return changes(
            [
                Seen(
                    self._ms(met.ended),
                    node,
                    f"lists {broker}" if BrokerId(broker) in met.content.unfenced else f"misses {broker}",
                )
                for met in self.met[Ask.PRESENCE]
                if met.question.broker == node and isinstance(met.content, Presence)
            ]
        )


def _scenario(version: str, play: Play) -> Scenario:
    """Give a cluster as the recorded one: its times, and processes that take as long to start."""
    back = next((at for at, text in play.steps if "is started" in text and text.startswith("10")), 0)
    is_back = play.first(1, "DescribeQuorum", "answered", back)
    start_up = is_back - back - _ELECTION_MS if back else _BROKER_STARTS_MS
    constants: Constants = replace(
        PRESETS["kraft-3.9" if version == "3.9" else NEWEST],
        broker_session_timeout_ms=play.session_ms,
        broker_heartbeat_interval_ms=500 if play.session_ms < 9_000 else 2_000,
        replica_lag_time_max_ms=play.lag_ms,
        controllers=len(play.data["controllers"]),
        start_up_ms=min(max(start_up, _BROKER_STARTS_MS), _LONGEST_START_MS),
    )
    rotating = ((1, 2, 3), (2, 3, 1), (3, 1, 2), (1, 3, 2), (2, 1, 3), (3, 2, 1))
    leads = [row for row in rotating if row[0] != 3] if "leads nothing" in play.data["about"] else rotating
    topic = TopicPlan(
        name="orders",
        partitions=len(leads),
        replication_factor=3,
        min_insync_replicas=1,
        records_per_second=5.0,
        assignments=tuple(tuple(map(BrokerId, row)) for row in leads),
    )
    return Scenario(name="recorded", brokers=BROKERS, duration=86_400.0, constants=constants, topics=(topic,))


def faults_of(text: str, active: BrokerId, controllers: int) -> list[Fault]:
    """Turn the text of a step into faults of the model; the controller that is named first is its active one."""
    if "has ended" in text:
        return []
    voters = [BrokerId(-100 - number) for number in range(controllers)]
    if "network is whole" in text:
        every = [*BROKERS, *voters]
        pairs = [(one, other) for place, one in enumerate(every) for other in every[place + 1 :]]
        return [Fault(at=0, action=Action.MEND, link=pair) for pair in pairs]
    node = int(text.split(maxsplit=1)[0])
    of = BrokerId(node) if node < 100 else active
    if "is cut off" in text:
        (others,) = (those for what, those in _beyond(voters).items() if f"from {what}" in text)
        return [Fault(at=0, action=Action.CUT, link=(of, other)) for other in others if other != of]
    action = next(action for said, action in _ACTIONS.items() if said in text)
    return [Fault(at=0, action=action, broker=of)]


def _beyond(voters: list[BrokerId]) -> dict[str, list[BrokerId]]:
    """Give whom a cut separates a node from, as a step names them."""
    return {
        "the controllers": voters,
        "everybody": [*BROKERS, *voters],
        "all other nodes": [*BROKERS, *voters],
        "the other brokers": [*BROKERS],
        "broker 1": [BrokerId(1)],
        "the recorder": [],
    }
