"""Texts about an incident for a person: how bad it is, what it means for clients, what to do first. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from streaming.changes.incidents.incident import OFFLINE, UNDER_MIN_ISR
from streaming.contracts.events import PLANNED_CLASSES, Cause, IncidentClass, Severity
from streaming.contracts.harm import Harm, topics_named
from streaming.contracts.identifiers import NO_LEADER, Micros
from streaming.contracts.topic_roles import GUESSED, TopicRole, failing, role_of
from streaming.contracts.words import utc_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from streaming.changes.incidents.incident import DegradedCount, Incident

_MICROS: Final = 1_000_000
_HARMLESS: Final = PLANNED_CLASSES | {IncidentClass.CONTROLLER_FAILOVER}


class IncidentText(NamedTuple):
    """Texts of an incident as it is now, or as it was at its end."""

    summary: str
    severity: Severity
    consequence: str
    next_step: str


def text_of(incident: Incident, kind: IncidentClass, suspects: tuple[int, ...]) -> IncidentText:
    """Return the summary of an incident in one sentence, with what it consists of."""
    consequence, next_step = _consequence(incident, kind), _next_step(incident, kind, suspects)
    facts = f"{_facts(incident, kind, suspects)}{_sureness(incident)}"
    now = next_step if not _is_over(incident, kind) else "recovered" if incident.closed_at is None else ""
    return IncidentText(
        summary=facts if kind in _HARMLESS else "; ".join(filter(None, (facts, consequence, now))),
        severity=_severity(incident, kind),
        consequence=consequence,
        next_step=next_step,
    )


_ALIKE: Final = (", which the log cannot tell", ": a clean stop and a crash look alike here")
_SENTENCES: Final = 2


def _sureness(incident: Incident) -> str:
    """Say of an incident that polls have shown that its causes are inferred, and from what."""
    if not incident.is_polled:
        return ""
    why = "; ".join(incident.because[:_SENTENCES])
    return f" (inferred from polls: {why})" if why else " (inferred from polls)"


def is_mended(incident: Incident, kind: IncidentClass) -> bool:
    """Return whether nothing remains to be fixed. Until the incident is closed it may still continue."""
    return incident.is_recovered and kind is not IncidentClass.CONTROLLER_FAILOVER


def _is_over(incident: Incident, kind: IncidentClass) -> bool:
    return incident.closed_at is not None or is_mended(incident, kind)


def _severity(incident: Incident, kind: IncidentClass) -> Severity:
    if kind in _HARMLESS:
        return Severity.INFO
    is_critical = incident.refused or incident.leaderless or incident.counts["unclean_elections"]
    return Severity.CRITICAL if is_critical else Severity.WARNING


def _consequence(incident: Incident, kind: IncidentClass) -> str:
    unsure = incident.unknown - incident.refused - incident.leaderless
    doubt = (
        f"whether writers of {topics_named(_names(incident, unsure))} were refused is unknown, as min ISR is"
        if unsure
        else ""
    )
    harm = ", ".join(_harm(incident))
    if kind in _HARMLESS:
        beside = f"{harm}, which planned work alone does not explain: other brokers were missing, too" if harm else ""
        said = ", ".join(filter(None, (waited_for_leaders(incident), doubt, beside)))
        if said or not incident.announced:
            return said or "clients notice nothing"
    is_over = "no write was refused" if not incident.held else "writes continue with fewer copies"
    return ", ".join(filter(None, (harm, doubt))) or is_over


def _harm(incident: Incident) -> Iterator[str]:
    """Say what fails while partitions are degraded because of an incident, or failed."""
    refusing, offline = (_topics_in_state(incident, place) for place in (UNDER_MIN_ISR, OFFLINE))
    yield from _now_and_before(incident, incident.leaderless, offline, Harm.OFFLINE)
    yield from _now_and_before(incident, incident.refused, refusing, Harm.REFUSED)
    roles = {role_of(incident.topics.get(topic_id, "")) for topic_id in incident.leaderless | incident.refused}
    failing_now = {role_of(incident.topics.get(topic_id, "")) for topic_id in offline | refusing}
    for role in TopicRole:
        if role in roles - GUESSED:
            yield f"{failing(role)} fail{'ed' * (role not in failing_now)}"
    if incident.counts["unclean_elections"]:
        yield Harm.LOST.sentence()


def _topics_in_state(incident: Incident, place: int) -> set[str]:
    """Return the ids of the topics with partitions that are in a state of ``DegradedPartition`` now."""
    return {topic_id for (topic_id, _), held in incident.held.items() if held.states[place]}


def _now_and_before(incident: Incident, topic_ids: set[str], now: set[str], harm: Harm) -> Iterator[str]:
    """Say what fails, and what does not any more: of several topics one may have recovered before the others."""
    for those, is_over in ((topic_ids & now, False), (topic_ids - now, True)):
        if those:
            yield harm.sentence(_names(incident, those), is_over=is_over)


def _names(incident: Incident, topic_ids: set[str]) -> set[str]:
    return {incident.topics.get(topic_id, topic_id) for topic_id in topic_ids}


def _next_step(incident: Incident, kind: IncidentClass, suspects: tuple[int, ...]) -> str:
    if _is_over(incident, kind) and kind not in _NOT_OVER:
        is_loss = incident.counts["unclean_elections"]
        why = "find out which records are missing, and why" if is_loss else "find out why, before it comes again"
        return "nothing to do" if kind in _HARMLESS else why
    if kind in _AWAY and suspects:
        away = tuple(broker for broker in suspects if incident.down_now(broker) is not None)
        away = away or tuple(sorted({down.broker for down in incident.downs if down.back_at is None}))
        if not away:
            has = "has" if len(suspects) == 1 else "have"
            return f"wait until {brokers_named(suspects)} {has} caught up, and stop no other broker meanwhile"
        suspects = away
    usual = _NEXT[kind].format(brokers=brokers_named(suspects), rack=incident.rack, stall=look_for_stall(suspects))
    return _special_step(incident, kind, suspects) or usual


def _special_step(incident: Incident, kind: IncidentClass, suspects: tuple[int, ...]) -> str | None:
    """Return what is to be done first of an incident that is not the usual one of its class."""
    if kind is IncidentClass.BROKER_LOSS and not incident.lost:
        return f"find out why {brokers_named(suspects)} did not come back, and stop no other broker meanwhile"
    if kind is IncidentClass.BROKER_LOSS and incident.is_none_left:
        return f"check whether {brokers_named(suspects)} reach the controllers, and start them if they do not run"
    if _is_between(incident, kind, suspects):
        return f"check the network between {brokers_named(suspects)}, and restart nothing meanwhile"
    if incident.is_elected_by_stall:
        return f"{look_for_stall(suspects)}; find out which records are missing"
    return None


def _is_between(incident: Incident, kind: IncidentClass, suspects: tuple[int, ...]) -> bool:
    """Return whether a network split is one between these brokers, and not between them and others."""
    reports = [pair for pair in incident.departures if pair[0] != NO_LEADER]
    return kind is IncidentClass.NETWORK_SPLIT and all({*pair} <= {*suspects} for pair in reports)


_AWAY: Final = frozenset({
    IncidentClass.BROKER_LOSS,
    IncidentClass.RACK_LOSS,
    IncidentClass.CONTROLLED_SHUTDOWN,
    IncidentClass.UNSAFE_SHUTDOWN,
})  # fmt: skip
"""Classes in which brokers are to be started again, until they are up."""
_NOT_OVER: Final = frozenset({IncidentClass.CONTROLLER_STALL, IncidentClass.TWO_PROCESSES})
"""Classes whose reason is to be looked for when every replica is back, too: it comes again soon."""
_STOPS: Final = frozenset({
    IncidentClass.CONTROLLED_SHUTDOWN,
    IncidentClass.ROLLING_RESTART,
    IncidentClass.UNSAFE_SHUTDOWN,
})  # fmt: skip
"""Classes in which brokers were stopped, or announced to go down."""
_NEXT: Final = {
    IncidentClass.BROKER_LOSS: "start {brokers} again, and stop no other broker meanwhile",
    IncidentClass.RACK_LOSS: "check power and network of rack {rack}, then start its brokers",
    IncidentClass.CONTROLLED_SHUTDOWN: "start {brokers} again before any other broker is stopped",
    IncidentClass.ROLLING_RESTART: "wait until every ISR is full before the next broker is stopped",
    IncidentClass.UNSAFE_SHUTDOWN: "start {brokers} again, and stop only what is safe to stop",
    IncidentClass.SLOW_FOLLOWER: "check disk, load and network of {brokers}",
    IncidentClass.LEADER_STALL: "look for pauses of {brokers}; the followers that it removed are healthy",
    IncidentClass.NETWORK_SPLIT: "check the network between {brokers} and the others, and restart nothing meanwhile",
    IncidentClass.LINK_FAILURE: "check the network between {brokers}; both reach all others",
    IncidentClass.DISK_FAILURE: "replace the disk of {brokers}, or move its replicas to others",
    IncidentClass.REASSIGNMENT: "wait, or cancel what does not advance",
    IncidentClass.UNSAFE_REASSIGNMENT: "wait until the new replicas have caught up, or cancel the reassignment",
    IncidentClass.UNCLEAN_ELECTION: "copy the logs of {brokers} before they start: they may have what is missing",
    IncidentClass.CONTROLLER_STALL: "{stall}; restart no broker",
    IncidentClass.TWO_PROCESSES: "find both processes that run as {brokers}, on any machine, and stop the wrong one; "
    "then restart the other one",
    IncidentClass.CONTROLLER_FAILOVER: "find out why the controller stopped",
}


def _sentence(incident: Incident, kind: IncidentClass, suspects: tuple[int, ...]) -> str:
    """Return what happened, and the brokers concerned, without numbers of partitions."""
    stall = f" ({stalled(incident, tuple(sorted(incident.controllers)))})" if incident.silence else ""
    if (whole := _whole_sentence(incident, kind, suspects)) is not None:
        return whole if kind is IncidentClass.CONTROLLER_STALL else whole + stall
    what = _WHAT[kind].format(
        brokers=brokers_named(suspects), were="were" if len(suspects) > 1 else "was", rack=incident.rack
    )
    if kind is IncidentClass.BROKER_LOSS and _may_have_stopped(incident, suspects):
        what = f"{brokers_named(suspects)} {_were(suspects)} lost, or stopped cleanly{_ALIKE[incident.is_polled]}"
    if kind is IncidentClass.BROKER_LOSS and incident.is_none_left:
        what += ", or did not reach the controllers, as no other broker was left"
    if _is_between(incident, kind, suspects):
        what = f"the network between {brokers_named(suspects)} was cut"
    if incident.is_elected_by_stall:
        what = f"leaders were elected uncleanly, because {stalled(incident, suspects)}"
    if kind is IncidentClass.UNCLEAN_ELECTION and (others := tuple(sorted(incident.lost.difference(suspects)))):
        what += f" ({brokers_named(others)} {'was' if len(others) == 1 else 'were'} lost, too)"
    what += "" if incident.is_elected_by_stall else stall
    if lagging := _lagging_beside(incident, kind, suspects):
        what += f" (replication between {brokers_named(lagging)} lagged, too)"
    if kind is IncidentClass.SLOW_FOLLOWER and incident.only_report is not None:
        leader, follower = incident.only_report
        what = f"broker {follower} could not keep up with broker {leader}, and one of the two may be at fault"
    return what


def _may_have_stopped(incident: Incident, suspects: tuple[int, ...]) -> bool:
    """Return whether brokers that were fenced may have stopped cleanly: the log does not show of what leads nothing."""
    if not incident.is_polled:
        return incident.proven_lost.isdisjoint(suspects)
    return incident.fenced - incident.proven_lost >= {*suspects}


def _whole_sentence(incident: Incident, kind: IncidentClass, suspects: tuple[int, ...]) -> str | None:
    """Return the sentence of the classes that have one of their own; None for the others."""
    if kind is IncidentClass.REASSIGNMENT and not incident.moving:
        return "a reassignment ended"
    if kind in _STOPS:
        return stopped(incident, kind, suspects)
    if kind is IncidentClass.BROKER_LOSS and suspects and not incident.lost:
        return overdue(incident, suspects)
    if kind is IncidentClass.CONTROLLER_FAILOVER and len(same := incident.controllers | incident.elected) == 1:
        return f"controller {min(same)} was elected again: it restarted, or the quorum had lost touch with it"
    if kind is IncidentClass.CONTROLLER_STALL:
        return stalled(incident, suspects)
    return None


def _facts(incident: Incident, kind: IncidentClass, suspects: tuple[int, ...]) -> str:
    what = _sentence(incident, kind, suspects)
    partitions = sum(len(numbers) for numbers in incident.touched.values())
    if kind is IncidentClass.CONTROLLER_FAILOVER:
        return what
    if kind is IncidentClass.REASSIGNMENT:
        moving = f", {len(incident.moving)} still moving" if incident.moving else ""
        return f"{what}: {_count(partitions)}{moving}"
    under_replicated, under_min_isr, offline = incident.tallies
    parts = [_at_most(under_replicated, "partitions under-replicated"), _at_most(under_min_isr, "under min ISR")]
    if offline.peak:
        parts.append(_at_most(offline, "offline"))
    if incident.unclean:
        parts.append(f"{len(incident.unclean)} led by a replica that may lack acknowledged records")
    now = f", {under_replicated.now} still under-replicated" if under_replicated.now else ""
    return f"{what}: {', '.join(parts)}{now}"


def _lagging_beside(incident: Incident, kind: IncidentClass, suspects: tuple[int, ...]) -> tuple[int, ...]:
    """Return the brokers between which replication lagged for another reason than that of the class.

    Of a loss, where the follower was not lost: the leader may have been lost later, which does not say why its follower
    lagged before. Of a cut or a stall, where neither of the two is to blame for it.
    """
    reports = [pair for pair in incident.departures if pair[0] != NO_LEADER]
    if kind in (IncidentClass.BROKER_LOSS, IncidentClass.RACK_LOSS, IncidentClass.UNCLEAN_ELECTION):
        gone = {*incident.lost, *incident.planned, *incident.disks, *incident.unclean_left}
        reports = [pair for pair in reports if pair[1] not in gone]
    elif kind in (IncidentClass.NETWORK_SPLIT, IncidentClass.LEADER_STALL):
        reports = [pair for pair in reports if not {*pair} & {*suspects}]
    else:
        return ()
    return tuple(sorted({broker for pair in reports for broker in pair}))


_WHAT: Final = {
    IncidentClass.BROKER_LOSS: "{brokers} {were} lost",
    IncidentClass.RACK_LOSS: "rack {rack} with {brokers} was lost",
    IncidentClass.SLOW_FOLLOWER: "{brokers} could not keep up",
    IncidentClass.LEADER_STALL: "{brokers} stood still and expelled healthy followers",
    IncidentClass.NETWORK_SPLIT: "{brokers} {were} cut off from the other brokers",
    IncidentClass.LINK_FAILURE: "the link between {brokers} failed",
    IncidentClass.DISK_FAILURE: "a log directory of {brokers} failed",
    IncidentClass.REASSIGNMENT: "partitions are being reassigned",
    IncidentClass.UNSAFE_REASSIGNMENT: "a reassignment left too few replicas in sync",
    IncidentClass.UNCLEAN_ELECTION: "{brokers} {were} lost and leaders were elected uncleanly",
    IncidentClass.CONTROLLER_FAILOVER: "another controller took over",
    IncidentClass.TWO_PROCESSES: "two processes run as {brokers}, which leaves and joins ISRs by turns",
}


def _count(partitions: int) -> str:
    return f"{partitions} partition" if partitions == 1 else f"{partitions} partitions"


def _at_most(tally: DegradedCount, what: str) -> str:
    """Return the most at one time, and for how long there were any: not each was so all the time."""
    if tally.peak == 1:
        what = what.replace("partitions", "partition")
    lasted = f" ({tally.wall_micros / _MICROS:.3g} s in all)" if tally.wall_micros else ""
    return f"{'up to ' if tally.peak > 1 else ''}{tally.peak} {what}{lasted}"


# Sentences about a controller that stood still, and about the brokers that it fenced by that. Pure.
#
# No broker is called innocent before it is back, without a new registration.


def look_for_stall(controllers: tuple[int, ...]) -> str:
    """Say where to look for why a controller stood still."""
    return f"look for pauses of {_controllers(controllers)}: garbage collection, its disk, its machine"


def stalled(incident: Incident, controllers: tuple[int, ...]) -> str:
    """Say for how long the controller stood still, whom it fenced by that, and whether these are back."""
    said = f"{_controllers(controllers)} stood still for {incident.silence / _MICROS:.3g} s"
    away = tuple(sorted(broker for broker in incident.innocent if incident.down_now(broker) is not None))
    ran = tuple(sorted(incident.innocent.difference(away)))
    fenced = [f"{brokers_named(ran)}, back with the next heartbeat"] if ran else []
    fenced += [f"{brokers_named(away)}, which may run"] if away else []
    return f"{said}, and then fenced {' and '.join(fenced)}" if fenced else said


def _controllers(controllers: tuple[int, ...]) -> str:
    if len(controllers) == 1:
        return f"controller {controllers[0]}"
    return brokers_named(controllers).replace("brokers", "controllers") if controllers else "the controller"


# Sentences about brokers that were stopped, or went down while work on them was announced. Pure.
#
# A clean stop is only claimed where a controlled shutdown is proven, and announced work is named with its reason.


_ANNOUNCED_WORK: Final = "announced work"


def brokers_named(brokers: tuple[int, ...]) -> str:
    """Name brokers."""
    if len(brokers) == 1:
        return f"broker {brokers[0]}"
    return f"brokers {', '.join(map(str, brokers[:-1]))} and {brokers[-1]}" if brokers else "an unknown broker"


def stopped(incident: Incident, kind: IncidentClass, suspects: tuple[int, ...]) -> str:
    """Say of the brokers of planned work, or of an unsafe stop, who was stopped cleanly, and what others did."""
    crashed = _without_clean_stop(incident, suspects)
    clean = tuple(broker for broker in suspects if broker not in incident.announced)
    lagged = tuple(broker for broker in suspects if broker not in (*clean, *crashed))
    is_rolling, is_unsafe = kind is IncidentClass.ROLLING_RESTART, kind is IncidentClass.UNSAFE_SHUTDOWN
    did = (
        (() if is_rolling else clean, f"{_were(clean)} stopped" + " cleanly" * (not is_unsafe)),
        (crashed, f"went down during {_ANNOUNCED_WORK}"),
        (lagged, f"left ISRs during {_ANNOUNCED_WORK}"),
    )
    each = [f"{brokers_named(brokers)} {what}" for brokers, what in did if brokers]
    said = ", ".join([f"rolling restart of {brokers_named(suspects)}"] * is_rolling + each)
    return _with_reason(incident, f"{said} though partitions had no replica to spare" if is_unsafe else said)


def overdue(incident: Incident, suspects: tuple[int, ...]) -> str:
    """Say how brokers are late that were to come back, and whether the time of announced work is over."""
    is_away = any(incident.down_now(broker) is not None for broker in suspects)
    late = "came back late" if incident.is_recovered else "did not catch up after its return"
    if incident.announced.isdisjoint(suspects):
        said = f"{brokers_named(suspects)} {'did not come back' if is_away else late} from a clean stop"
    else:
        said = f"{brokers_named(suspects)} {_were(suspects)} lost" + f" and {late}" * (not is_away)
    if incident.overran_at:
        said += f", {_its(suspects)} {_ANNOUNCED_WORK} overran at {utc_text(Micros(incident.overran_at))}"
    return _with_reason(incident, said)


def waited_for_leaders(incident: Incident) -> str:
    """Say what a crash costs while work is announced: until it is noticed, clients reach no leader. Empty for none."""
    crashed = _without_clean_stop(incident, incident.announced)
    if not crashed:
        return ""
    led = f"any partition that {brokers_named(crashed)} led had no leader until {_its(crashed)}"
    if incident.causes[Cause.FENCED]:
        return f"{led} session{'s' * (len(crashed) > 1)} expired"
    return f"unless {'it' if len(crashed) == 1 else 'they'} {_were(crashed)} stopped cleanly, {led} end was noticed"


def _without_clean_stop(incident: Incident, brokers: Iterable[int]) -> tuple[int, ...]:
    """Return the brokers that went down while work on them was announced, without proof of a clean stop."""
    return tuple(sorted({down.broker for down in incident.downs} & incident.announced & {*brokers}))


def _with_reason(incident: Incident, said: str) -> str:
    """Add why work was announced, as it was given; it may have been announced without a reason."""
    reasons = "; ".join(sorted(filter(None, incident.work)))
    is_said = _ANNOUNCED_WORK in said
    if not incident.work or (is_said and not reasons):
        return said
    return f"{said} ({reasons if is_said else ': '.join(filter(None, ('announced', reasons)))})"


def _were(brokers: tuple[int, ...]) -> str:
    return "was" if len(brokers) == 1 else "were"


def _its(brokers: tuple[int, ...]) -> str:
    return "its" if len(brokers) == 1 else "their"
