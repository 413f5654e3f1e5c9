"""When partitions were offline or under their minimum ISR: from the model's states and from nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from streaming.contracts.events import Cause
from streaming.contracts.health import effective_min_isr
from streaming.contracts.identifiers import NO_LEADER, TopicPartition
from streaming.model.messages.registrations import PartitionRegistration
from streaming.sources.simulated.scenario import Action, Fault
from streaming.sources.simulated.source import TraceEntry
from tests.judge.play import Play
from tests.judge.steps import START_MICROS, steps_of


class Span(NamedTuple):
    """From when until when, in seconds of the play."""

    begin: float
    end: float

    @property
    def seconds(self) -> float:
        return self.end - self.begin


def unavailable(play: Play) -> list[Span]:
    """Give the times in which at least one partition had no leader or refused writes with acks=all."""
    return _union(span for spans in _by_partition(play) for span in spans)


def unclean_elections(play: Play) -> list[float]:
    """Give the seconds at which a leader was elected that may lack acknowledged records.

    The last known leader is one, too: nothing shows that its log is whole (KIP-966, recovery of an empty ISR).
    """
    return [step.at for step in steps_of(play) if step.cause in {Cause.UNCLEAN_ELECTION, Cause.LAST_KNOWN_LEADER}]


def _by_partition(play: Play) -> Iterator[list[Span]]:
    names = {TopicPartition(entry.topic_id, entry.partition): entry.topic for entry in play.trace}
    states: dict[TopicPartition, list[tuple[float, PartitionRegistration | TraceEntry | None]]] = {
        key: [(0.0, state)] for key, state in play.before.items()
    }
    for entry in play.trace:
        key = TopicPartition(entry.topic_id, entry.partition)
        at = (entry.time - START_MICROS) / 1e6
        states.setdefault(key, []).append((at, None if entry.deleted else entry))
    minima = _minima(play)
    for key, timed in states.items():
        # A partition without a step was never in trouble by itself, but its minimum may have been raised above it.
        name = names.get(key, "")
        yield _spans(timed, minima.get(name, [(0.0, 1)]), play.seconds)


def _minima(play: Play) -> dict[str, list[tuple[float, int]]]:
    """Give the configured minimum of each topic, from which second on."""
    minima = {plan.name: [(0.0, plan.min_insync_replicas)] for plan in play.scenario.topics}
    acts = sorted((act for trouble in play.troubles for act in trouble.acts), key=lambda act: act.at)
    for act in acts:
        fault = act.what
        if isinstance(fault, Fault) and (fault.action, fault.key) == (Action.ALTER_CONFIG, "min.insync.replicas"):
            minima.setdefault(fault.topic or "", [(0.0, 1)]).append((act.at, int(fault.value or 1)))
    return minima


def _spans(
    timed: list[tuple[float, PartitionRegistration | TraceEntry | None]], minima: list[tuple[float, int]], end: float
) -> list[Span]:
    moments = sorted({at for at, _ in timed} | {at for at, _ in minima})
    spans, since = [], None
    for moment in moments:
        state = [state for at, state in timed if at <= moment][-1:]
        minimum = [value for at, value in minima if at <= moment][-1]
        is_bad = bool(state) and _is_unavailable(state[0], minimum)
        if is_bad and since is None:
            since = moment
        elif not is_bad and since is not None:
            spans.append(Span(since, moment))
            since = None
    return spans if since is None else [*spans, Span(since, end)]


def _is_unavailable(state: PartitionRegistration | TraceEntry | None, minimum: int) -> bool:
    if state is None:
        return False
    return state.leader == NO_LEADER or len(state.isr) < (effective_min_isr(minimum, state.replicas) or 1)


def _union(spans: Iterable[Span]) -> list[Span]:
    joined: list[Span] = []
    for span in sorted(spans):
        if joined and span.begin <= joined[-1].end:
            joined[-1] = Span(joined[-1].begin, max(joined[-1].end, span.end))
        else:
            joined.append(span)
    return joined
