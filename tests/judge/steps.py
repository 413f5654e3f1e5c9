"""What the model did, step by step, and which fault of the play did it. Knows nothing of what isrwatch said.

A step is blamed on a fault by the brokers that it removed from an ISR, or from leadership where nobody leads
afterwards: those of the fault, or, where a leader removed them for lag, the leader; for a link both ends, for a split
one on each side. Faults of a play are on different brokers, so this decides. Later steps of the partition, until those
brokers are back, only tell how long it lasted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from streaming.contracts.events import Cause
from streaming.contracts.identifiers import NO_LEADER, BrokerId, TopicPartition
from streaming.model.messages.registrations import PartitionRegistration
from streaming.sources.simulated.scenario import Action, Fault
from streaming.sources.simulated.source import TraceEntry
from tests.judge.blame import LAG, Step, explains, is_ordered, was_parted
from tests.judge.minimum import minimum_of
from tests.judge.play import Play
from tests.judge.trouble import LINGER_SECONDS, LOSE_RECORDS

START_MICROS: Final = 1_700_000_000_000_000
ELECTION_SECONDS: Final = 1.0
"""A clean election is one step of the controller; nobody leads for longer only if nobody can."""
_LAGGING_SECONDS: Final = 100.0
"""Twice the longest ``replica.lag.time.max.ms``, and more: what was repaired explains no lag of another fault."""
_PREFERRED_SECONDS: Final = 3.0


class Report(NamedTuple):
    """A leader removed a follower for lag; ``led_by``: who else led partitions that the follower then had in sync."""

    leader: BrokerId
    follower: BrokerId
    other_leaders: frozenset[BrokerId]
    is_stall: bool


@dataclass(slots=True)
class Effect:
    """What one fault did.

    Attributes:
        first, last: seconds of the play of its first and last step; None if there is none.
        harm: of ``refused``, ``leaderless``, ``redundancy``, ``unclean``, ``lost``.
        beside: harm that another fault did to partitions that lacked a broker because of this one.
        removed: who left ISRs because of it; ``unsafe``: those of them whose leaving refused writes or left nobody
            to lead; ``led_last``: who led before an unclean election.
        causes: the true causes of those removals, the ordered ones left out.
        led: brokers that led a partition when they were removed.
        reports: removals for lag.
        removals: who may be blamed for each: who left, and for lag the leader, too.
        partitions: that it touched.
    """

    first: float | None = None
    last: float | None = None
    harm: set[str] = field(default_factory=set)
    beside: set[str] = field(default_factory=set)
    removed: set[BrokerId] = field(default_factory=set)
    unsafe: set[BrokerId] = field(default_factory=set)
    led_last: set[BrokerId] = field(default_factory=set)
    led: set[BrokerId] = field(default_factory=set)
    causes: set[Cause] = field(default_factory=set)
    reports: list[Report] = field(default_factory=list)
    removals: set[frozenset[BrokerId]] = field(default_factory=set)
    partitions: set[TopicPartition] = field(default_factory=set)

    def touch(self, step: Step) -> None:
        self.first = step.at if self.first is None else self.first
        self.last = step.at
        self.partitions.add(step.key)


@dataclass(slots=True)
class Effects:
    """What all faults of a play did: by fault, in their order; and steps that removed a broker for no known reason."""

    of: list[Effect]
    unexplained: list[Step] = field(default_factory=list)


def steps_of(play: Play) -> Iterator[Step]:
    """Give every step with the state before it; creations and deletions of topics are none."""
    states: dict[TopicPartition, PartitionRegistration | TraceEntry] = dict(play.before)
    for entry in play.trace:
        key = TopicPartition(entry.topic_id, entry.partition)
        before = states.get(key)
        states[key] = entry
        if before is None or entry.deleted:
            continue
        removed = tuple(broker for broker in before.isr if broker not in entry.isr)
        if not removed and entry.leader == NO_LEADER != before.leader:
            removed = (before.leader,)
        yield Step((entry.time - START_MICROS) / 1e6, key, entry.topic, before, entry, removed)


class _Account:
    """Blames each step on faults, and keeps what is missing because of whom."""

    def __init__(self, play: Play) -> None:
        self.play = play
        self.effects = Effects([Effect() for _ in play.troubles])
        self.missing: dict[TopicPartition, dict[BrokerId, int]] = {}
        self.offline: dict[TopicPartition, tuple[float, set[int]]] = {}
        self.states: dict[TopicPartition, PartitionRegistration | TraceEntry] = dict(play.before)
        self.led: dict[TopicPartition, BrokerId] = {}
        self.lag_seconds = play.scenario.constants.replica_lag_time_max_ms / 1_000
        self.constants = play.scenario.constants
        self.minima = {plan.name: plan.min_insync_replicas for plan in play.scenario.topics}

    def take(self, step: Step) -> None:
        self.states[step.key] = step.after
        blamed = {place for broker in step.removed for place in self._blame(step, broker)}
        if not step.removed:
            blamed |= set(self._moved(step))
        for place in blamed:
            self.effects.of[place].touch(step)
        held = self.missing.get(step.key, {})
        if step.before.leader != NO_LEADER:
            self.led[step.key] = step.before.leader
        elif step.cause is Cause.UNCLEAN_ELECTION and not step.removed:
            self._elected_uncleanly(step, set(held.values()))
        for broker, place in list(held.items()):
            if broker in step.after.isr or broker not in step.after.replicas:
                self.effects.of[place].touch(step)
                del held[broker]
        self._judge(step, blamed, set(held.values()) - blamed)
        self._judge_what_is_left(step, held)

    def _elected_uncleanly(self, step: Step, places: set[int]) -> None:
        """Blame who is missing: with eligible leader replicas the ISR is empty already, so nobody leaves it."""
        for place in places:
            self.effects.of[place].touch(step)
            self.effects.of[place].harm.add("unclean")
            if (last := self.led.get(step.key)) is not None:
                self.effects.of[place].led_last.add(last)

    def _blame(self, step: Step, broker: BrokerId) -> list[int]:
        """Blame the removal of a broker; note who is missing now because of whom."""
        found = [place for place, one in enumerate(self.play.troubles) if explains(one, step, broker)]
        ends = [trouble.span_of(broker)[1] + _LAGGING_SECONDS for trouble in self.play.troubles]
        lasting = [place for place in found if step.at <= ends[place]]
        parted = [place for place in found if was_parted(self.play.troubles[place], step, broker, self.lag_seconds)]
        likely = parted or lasting or found
        direct = [place for place in likely if broker in self.play.troubles[place].brokers]
        places = (direct or likely)[:1]
        if not places:
            self.effects.unexplained.append(step)
        for place in places:
            effect, trouble = self.effects.of[place], self.play.troubles[place]
            effect.removed.add(broker)
            effect.removals.add(frozenset({broker, step.before.leader} if step.cause in LAG else {broker}))
            if broker == step.before.leader:
                effect.led.add(broker)
            self.missing.setdefault(step.key, {})[broker] = place
            if step.cause in LAG:
                effect.reports.append(self._report(step, broker))
            if not is_ordered(trouble, step, broker):
                effect.causes.add(step.cause)
                effect.harm.add("redundancy")
            if step.cause is Cause.UNCLEAN_ELECTION:
                effect.harm.add("unclean")
                effect.led_last.add(broker)
        return places

    def _report(self, step: Step, follower: BrokerId) -> Report:
        leader = step.before.leader
        others = {
            state.leader
            for state in self.states.values()
            if follower in state.isr and state.leader not in {leader, follower, NO_LEADER}
        }
        return Report(leader, follower, frozenset(others), step.cause is Cause.LEADER_STALL)

    def _moved(self, step: Step) -> Iterator[int]:
        """Find who changed a partition without removing anybody from its ISR."""
        for place, one in enumerate(self.play.troubles):
            if step.at < one.begin - LINGER_SECONDS or step.topic not in one.topics:
                continue
            is_move = step.cause is Cause.REASSIGNMENT and one.kind in {"reassignment", "decommission"}
            is_election = step.cause is Cause.PREFERRED_ELECTION and one.kind == "preferred_election"
            if is_move or (is_election and step.at <= one.begin + _PREFERRED_SECONDS):
                yield place
                return

    def _judge(self, step: Step, blamed: set[int], beside: set[int]) -> None:
        """Find the harm that a step did."""
        least, was = (minimum_of(self.constants, self._minimum(step), state) for state in (step.after, step.before))
        harm = set[str]()
        if len(step.after.isr) < least and len(step.before.isr) >= was:
            harm.add("refused")
        if step.after.leader == NO_LEADER != step.before.leader:
            self.offline[step.key] = (step.at, blamed)
        elif step.after.leader != NO_LEADER and step.key in self.offline:
            self._ended(step.key, step.at)
        if step.cause is Cause.UNCLEAN_ELECTION:
            harm.add("unclean")
        for place in blamed:
            self.effects.of[place].harm |= harm
            if harm or step.after.leader == NO_LEADER:
                self.effects.of[place].unsafe.update(step.removed)
        if harm or step.after.leader == NO_LEADER:
            for place in beside:
                self.effects.of[place].beside |= harm or {"leaderless"}

    def _judge_what_is_left(self, step: Step, held: Mapping[BrokerId, int]) -> None:
        """Find who alone keeps a partition under its minimum, whoever brought it there."""
        least = minimum_of(self.constants, self._minimum(step), step.after)
        absent, places = set(step.after.replicas).difference(step.after.isr), set(held.values())
        if len(step.after.isr) < least and absent == held.keys() and len(places) == 1:
            effect = self.effects.of[places.pop()]
            effect.harm.add("refused")
            effect.unsafe |= absent

    def _minimum(self, step: Step) -> int | None:
        """Give the minimum that a topic itself has, None for none; an administrator may have changed it."""
        done = [act for one in self.play.troubles for act in one.acts if act.at <= step.at]
        for fault in (act.what for act in done if isinstance(act.what, Fault)):
            if (fault.action, fault.topic, fault.key) == (Action.ALTER_CONFIG, step.topic, "min.insync.replicas"):
                return int(fault.value) if fault.value else None
        return self.minima.get(step.topic)

    def _ended(self, key: TopicPartition, at: float) -> None:
        since, blamed = self.offline.pop(key)
        if at - since > ELECTION_SECONDS:
            for place in blamed:
                self.effects.of[place].harm.add("leaderless")

    def close(self) -> None:
        """The play is over; whatever still lacks a broker lasts until then."""
        for key in list(self.offline):
            self._ended(key, self.play.seconds)
        for held in self.missing.values():
            for place in held.values():
                self.effects.of[place].last = self.play.seconds
        for loss in self.play.losses:
            for one, effect in zip(self.play.troubles, self.effects.of, strict=True):
                if loss.topic_partition in effect.partitions and one.kind in LOSE_RECORDS:
                    effect.harm.add("lost")


def effects_of(play: Play) -> Effects:
    account = _Account(play)
    for step in steps_of(play):
        account.take(step)
    account.close()
    return account.effects


def pairs_in(reports: Iterable[Report]) -> set[frozenset[BrokerId]]:
    """Give the pairs of brokers of which one removed the other."""
    return {frozenset((report.leader, report.follower)) for report in reports}
