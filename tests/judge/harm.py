"""The judge's own rule: what is harm, since when and to which topics, and must the on-call engineer be woken for it?

The rule reads the model's states, the orders and the announcements, and nothing that isrwatch or its alerts say. It was
committed before the rules that it judges. Change it by argument only, never because a rule fails it.

**Harm** begins when clients cannot do what they were promised, or when records are gone:

- ``offline``: a partition has no leader, so it can be neither read nor written;
- ``refused``: a partition is under its minimum ISR, so writes with acks=all are refused, even if none comes just then.
  Where neither topic nor cluster sets a minimum, that of the leader's own file counts, even if other brokers disagree;
- ``no controller``: no controller is active, or the active one stands still, so no leader can be elected and no ISR
  can change;
- ``unclean``: a leader was elected that may lack acknowledged records. This is a moment: what is lost stays lost.

Brokers that the controller fences because it stood still itself are not lost: they are back with their next heartbeat.
Nobody is to be told of them as lost, unless one stays away.

Missing copies alone are no harm. *Redundancy* is lost then, which can wait for the morning.

**Must wake**: within ``WAKE_WITHIN`` seconds of harm. Harm adds up over ``WINDOW`` seconds: clients that are refused
for a minute out of every three suffer as much as in one outage. The limit is five minutes because

- less is over before the message is read: restarts, failovers and elections take from seconds to two minutes, and a
  pager that rings for each of them is one that people learn to ignore;
- more cannot be afforded: 99.95 % of a month leaves 21 minutes, and an engineer who was asleep needs ten to act;
- the way from the log to the phone (batch, scrape, evaluation, group wait) takes less than one minute, which leaves a
  rule four to be sure.

**Must not wake**: unless harm lasts for ``BRIEF`` seconds, added up as above. Shorter harm is over when the message
arrives. Between the two limits a wake is allowed and not required, since a few seconds decide.

Three states allow a wake and never require one:

- *ordered*: a broker was stopped by an order that was not announced, and partitions need every replica they have (one
  replica, or a minimum as large as the replication factor). Their owners chose that; the operator may not have known;
- *last copy*: one of three or more replicas is left, and writes continue: the next failure loses records;
- *at the minimum* for ``AT_MINIMUM`` seconds: the next failure refuses writes.

**Announced work** takes partitions that need every replica away by design. While the announcement lasts, they do no
harm if only brokers of announced work are missing. When it ends, they do.

**Blindness** is harm of another kind: while isrwatch sees nothing, harm would be missed. For expected clusters it must
wake within ``BLIND_WITHIN`` seconds, once for all clusters behind one cause. The limit is longer because nothing is
broken yet, and a job that restarts, image pull and Spark included, is back within five minutes.

**One trouble, one wake**: at most one for each fault that did harm. **Lost redundancy** that lasts for
``REDUNDANCY_LOST`` seconds must be told within ``WAKE_WITHIN`` more: once per fault, as a warning. Replicas that are
being moved and brokers of announced work do not count as lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from streaming.contracts.events import Cause
from streaming.contracts.identifiers import NO_LEADER, BrokerId, TopicPartition
from streaming.model.constants import Constants
from streaming.model.messages.registrations import PartitionRegistration
from streaming.sources.simulated.scenario import Action, Fault
from streaming.sources.simulated.source import TraceEntry
from tests.judge.minimum import minimum_of
from tests.judge.play import Play
from tests.judge.steps import START_MICROS, steps_of

WAKE_WITHIN: Final = 300.0
WINDOW: Final = 1_800.0
BRIEF: Final = 60.0
AT_MINIMUM: Final = 1_800.0
BLIND_WITHIN: Final = 1_200.0
REDUNDANCY_LOST: Final = 900.0
_MANY: Final = 3
MUST, MAY, MUST_NOT = "must", "may", "must not"

State = PartitionRegistration | TraceEntry


class Span(NamedTuple):
    """From when until when, in seconds of the play."""

    begin: float
    end: float

    @property
    def seconds(self) -> float:
        return self.end - self.begin


class Harm(NamedTuple):
    """What is wrong with a topic, or with the cluster (``""``), from when until when."""

    kind: str
    topic: str
    span: Span


class Judged(NamedTuple):
    """What the rule says of a play.

    Attributes:
        harm: of every topic, by time.
        disputed: what may wake, and need not.
        unclean: seconds of unclean elections.
        lost: for each broker, while partitions lacked it that ought to have it; only what lasted long enough.
        end: of the play.
    """

    harm: tuple[Harm, ...]
    disputed: tuple[Harm, ...]
    unclean: tuple[float, ...]
    lost: dict[BrokerId, Span]
    end: float

    @property
    def due(self) -> float | None:
        """The second by which the wake must have come; None if none is required."""
        moments = [at + WAKE_WITHIN for at in self.unclean if at + WAKE_WITHIN <= self.end]
        moments += _reached(_union(each.span for each in self.harm), WAKE_WITHIN)
        return min(moments, default=None)

    @property
    def call(self) -> str:
        """Whether the play must, may or must not wake."""
        if self.due is not None:
            return MUST
        return MAY if self.unclean or _reached(self._wakeful, BRIEF) else MUST_NOT

    def is_justified(self, second: float) -> bool:
        """Return whether there was a reason for a wake at a second, or shortly before it."""
        begun = [span for span in self._wakeful if span.begin <= second and span.end >= second - WINDOW]
        return sum(span.seconds for span in begun) >= BRIEF or any(0 <= second - at <= WINDOW for at in self.unclean)

    @property
    def _wakeful(self) -> list[Span]:
        return _union(each.span for each in (*self.harm, *self.disputed))


def judged_harm(play: Play) -> Judged:
    """Apply the rule to what the model did."""
    found = [each for one in _by_partition(play) for each in _found(one, play)]
    found += [Harm("no controller", "", Span(*span)) for span in play.without_controller]
    harm = sorted((each for each in found if each.kind in _HARMFUL), key=lambda each: each.span)
    disputed = [each for each in found if each.kind in _DISPUTED]
    unclean = [step.at for step in steps_of(play) if step.cause in {Cause.UNCLEAN_ELECTION, Cause.LAST_KNOWN_LEADER}]
    return Judged(_by_topic(harm), _by_topic(disputed), tuple(unclean), _lost(play), play.seconds)


def _reached(spans: Sequence[Span], seconds: float) -> list[float]:
    """Give the moments at which spans add up to so many seconds of the window before: of each span at most one."""
    moments = []
    for place, span in enumerate(spans):
        steps = (span.begin + step for step in range(int(span.seconds) + 1))
        at = next((at for at in steps if _within(spans[: place + 1], at) >= seconds), None)
        if at is not None:
            moments.append(at)
    return moments


def _within(spans: Sequence[Span], at: float) -> float:
    """Add up what lies in the window that ends at a moment."""
    return sum(max(0.0, min(each.end, at) - max(each.begin, at - WINDOW)) for each in spans)


def _by_topic(found: Iterable[Harm]) -> tuple[Harm, ...]:
    """Join what partitions of a topic suffer at once."""
    of: dict[tuple[str, str], list[Span]] = {}
    for each in found:
        of.setdefault((each.kind, each.topic), []).append(each.span)
    joined = (Harm(*key, span) for key, spans in of.items() for span in _union(spans))
    return tuple(sorted(joined, key=lambda each: (each.span, each.topic)))


def _union(spans: Iterable[Span]) -> list[Span]:
    joined: list[Span] = []
    for span in sorted(spans):
        if joined and span.begin <= joined[-1].end:
            joined[-1] = Span(joined[-1].begin, max(joined[-1].end, span.end))
        else:
            joined.append(span)
    return joined


# ------------------------------------------------------------------------------------------------- partitions


class _Moment(NamedTuple):
    """One partition at one moment; ``minimum`` is its effective minimum ISR."""

    at: float
    state: State
    minimum: int

    @property
    def missing(self) -> frozenset[BrokerId]:
        return frozenset(self.state.replicas) - frozenset(self.state.isr)


class _History(NamedTuple):
    """A partition while its state, its minimum and what was announced change; None: it does not exist."""

    topic: str
    moments: list[_Moment | None]
    times: list[float]

    def spans(self, holds: Callable[[_Moment], bool], end: float) -> Iterator[Span]:
        """Yield when something held."""
        since: float | None = None
        for at, moment in zip(self.times, self.moments, strict=True):
            is_so = moment is not None and holds(moment)
            if is_so and since is None:
                since = at
            elif not is_so and since is not None:
                yield Span(since, at)
                since = None
        if since is not None:
            yield Span(since, end)


def _by_partition(play: Play) -> Iterator[_History]:
    names = {**play.topics, **{TopicPartition(entry.topic_id, entry.partition): entry.topic for entry in play.trace}}
    timed: dict[TopicPartition, list[tuple[float, State | None]]] = {
        key: [(0.0, state)] for key, state in play.before.items()
    }
    for entry in play.trace:
        key = TopicPartition(entry.topic_id, entry.partition)
        at = (entry.time - START_MICROS) / 1e6
        timed.setdefault(key, []).append((at, None if entry.deleted else entry))
    minima, orders = _minima(play), _orders(play)
    for key, states in timed.items():
        changes = minima.get(names[key], [(0.0, None)])
        times = sorted({at for at, _ in states} | {at for at, _ in changes} | orders)
        times = [at for at in times if at >= states[0][0]]
        constants = play.scenario.constants
        yield _History(names[key], [_at(at, states, changes, constants) for at in times], times)


def _at(
    at: float, states: list[tuple[float, State | None]], minima: list[tuple[float, int | None]], constants: Constants
) -> _Moment | None:
    state = [state for since, state in states if since <= at][-1]
    minimum = [value for since, value in minima if since <= at][-1]
    return None if state is None else _Moment(at, state, minimum_of(constants, minimum, state))


def _minima(play: Play) -> dict[str, list[tuple[float, int | None]]]:
    """Give the minimum that each topic itself has, from which second on; None for none."""
    minima: dict[str, list[tuple[float, int | None]]] = {
        plan.name: [(0.0, plan.min_insync_replicas)] for plan in play.scenario.topics
    }
    acts = sorted((act for trouble in play.troubles for act in trouble.acts), key=lambda act: act.at)
    for act in acts:
        fault = act.what
        if isinstance(fault, Fault) and (fault.action, fault.key) == (Action.ALTER_CONFIG, "min.insync.replicas"):
            value = int(fault.value) if fault.value else None
            minima.setdefault(fault.topic or "", [(0.0, None)]).append((act.at, value))
    return minima


def _orders(play: Play) -> set[float]:
    """Give the moments at which what was announced or ordered changes."""
    announced = {at for one in play.troubles for span in one.announced for at in (span.stopped, span.started)}
    ordered = {span.started + _RETURN_SECONDS for one in play.troubles for span in one.absences}
    return {at for at in announced | ordered if at < play.seconds}


def _announced(play: Play, at: float) -> frozenset[BrokerId]:
    spans = (span for one in play.troubles for span in one.announced)
    return frozenset(span.broker for span in spans if span.stopped <= at < span.started)


def _ordered(play: Play, at: float) -> frozenset[BrokerId]:
    spans = (span for one in play.troubles for span in one.absences)
    return frozenset(span.broker for span in spans if span.stopped - 1.0 <= at <= span.started + _RETURN_SECONDS)


_RETURN_SECONDS: Final = 60.0
_HARMFUL: Final = frozenset({"offline", "refused", "no controller"})
_DISPUTED: Final = ("ordered", "last copy", "at the minimum")


def _found(history: _History, play: Play) -> Iterator[Harm]:
    kinds = {id(moment): _verdict(moment, play) for moment in history.moments if moment is not None}
    for kind in sorted(set(kinds.values()) - {""}):
        for span in history.spans(lambda moment, kind=kind: kinds[id(moment)] == kind, play.seconds):  # type: ignore[misc]
            yield Harm(kind, history.topic, span)
    for span in history.spans(lambda each: len(each.state.isr) == each.minimum and bool(each.missing), play.seconds):
        if span.seconds > AT_MINIMUM:
            yield Harm("at the minimum", history.topic, Span(span.begin + AT_MINIMUM, span.end))


def _verdict(moment: _Moment, play: Play) -> str:
    """Say what is wrong with a partition at a moment; "" if nothing is, or if it was announced."""
    state, kind = moment.state, _kind(moment)
    if not kind:
        return "last copy" if len(state.replicas) >= _MANY and len(state.isr) == 1 else ""
    needs_all, away = moment.minimum >= len(state.replicas), moment.missing | _gone(moment)
    if needs_all and away <= _announced(play, moment.at):
        return ""
    return "ordered" if needs_all and away <= _ordered(play, moment.at) else kind


def _kind(moment: _Moment) -> str:
    if moment.state.leader == NO_LEADER:
        return "offline"
    return "refused" if len(moment.state.isr) < moment.minimum else ""


def _gone(moment: _Moment) -> frozenset[BrokerId]:
    """Give the replicas that are missed without a leader: with one replica, the ISR still names it."""
    return frozenset(moment.state.replicas) if moment.state.leader == NO_LEADER else frozenset()


def _lost(play: Play) -> dict[BrokerId, Span]:
    """Give while partitions lacked a broker for long enough to be told; those that are being moved lack none."""
    moved = {topic for one in play.troubles if one.kind in {"reassignment", "decommission"} for topic in one.topics}
    of: dict[BrokerId, list[Span]] = {}
    for history in _by_partition(play):
        if history.topic in moved:
            continue
        for broker in {broker for moment in history.moments if moment for broker in moment.missing}:
            spans = history.spans(
                lambda each, broker=broker: broker in each.missing and broker not in _announced(play, each.at),  # type: ignore[misc]
                play.seconds,
            )
            of.setdefault(broker, []).extend(spans)
    longest = {broker: max(_union(spans), key=lambda span: span.seconds) for broker, spans in of.items() if spans}
    return {broker: span for broker, span in longest.items() if span.seconds >= REDUNDANCY_LOST}
