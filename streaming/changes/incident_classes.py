"""What kind of trouble an incident is, who is to blame, and one sentence that says it. Pure.

The class follows from everything seen so far, so it may become graver while the incident is open: a follower that
lagged turns out to be a broker that died; clean stops of several brokers in turn are one rolling restart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from streaming.changes.accusations import most_accused, smaller_side
from streaming.changes.incident_signals import Family
from streaming.changes.suspects import score
from streaming.contracts.identifiers import NO_LEADER
from streaming.contracts.incidents import IncidentClass

if TYPE_CHECKING:
    from streaming.changes.incident import Down, Incident

MICROS: int = 1_000_000
_LAG_CLASSES = frozenset({IncidentClass.SLOW_FOLLOWER, IncidentClass.LEADER_STALL, IncidentClass.NETWORK_SPLIT})


def class_of(incident: Incident) -> IncidentClass:
    """Give the class, the gravest evidence first."""
    if incident.unclean_left:
        return IncidentClass.UNCLEAN_ELECTION
    if incident.disks:
        return IncidentClass.DISK_FAILURE
    if is_rolling(incident):
        return IncidentClass.ROLLING_RESTART
    if incident.lost:
        return IncidentClass.BROKER_LOSS
    if incident.base is Family.LAG:
        return _verdict(incident)
    return {
        Family.PLANNED: IncidentClass.CONTROLLED_SHUTDOWN,
        Family.MOVE: IncidentClass.REASSIGNMENT,
        Family.CONTROLLER: IncidentClass.CONTROLLER_FAILOVER,
        Family.UNCLEAN: IncidentClass.UNCLEAN_ELECTION,
    }.get(incident.base, IncidentClass.BROKER_LOSS)


def _verdict(incident: Incident) -> IncidentClass:
    """Give what most of the accused time was; the slow follower where it was short."""
    weights = dict(incident.verdicts)
    if (episode := incident.episode) is not None:
        verdict = episode.verdict()
        weights[verdict] = weights.get(verdict, 0) + max(1, episode.seen - episode.began)
    gravest = max(weights.items(), key=lambda item: (item[1], item[0]), default=(IncidentClass.SLOW_FOLLOWER, 0))
    return IncidentClass(gravest[0])


def is_rolling(incident: Incident) -> bool:
    """Tell whether different brokers were restarted one after the other, and none is missing unplanned."""
    if any(down.back_at is None and not down.planned for down in incident.downs):
        return False
    turns = turns_of(incident)
    seen: set[int] = set()
    fresh = 0
    for turn in turns:
        fresh += not turn & seen
        seen |= turn
    return fresh > 1


def turns_of(incident: Incident) -> list[set[int]]:
    """Name the brokers of each turn: absences that overlap are one turn. A broker that only slept had no turn."""
    turns: list[set[int]] = []
    until: float = -1
    for down in sorted(incident.downs, key=_begin):
        if not down.restarted and not (down.planned and down.back_at is None):
            continue
        if turns and down.at < until:
            turns[-1].add(down.broker)
        else:
            turns.append({down.broker})
        until = max(until, float("inf") if down.back_at is None else down.back_at)
    return turns


def _begin(down: Down) -> tuple[int, int]:
    return down.at, down.broker


def suspects_of(incident: Incident, kind: IncidentClass) -> dict[int, float]:
    """Name who is to blame, each with a score from 0 to 1 (``suspects.score``)."""
    suspects = _suspects(incident, kind)
    total = sum(incident.departures.values())
    found: dict[int, float] = {}
    for broker in suspects:
        theirs = {word: count for word, count in incident.departures.items() if broker in _parties(word, kind)}
        alone = sum(count for word, count in theirs.items() if not set(_parties(word, kind)) & set(suspects) - {broker})
        found[broker] = score(sum(theirs.values()), alone, total)
    return found


def _parties(word: tuple[int, int], kind: IncidentClass) -> tuple[int, ...]:
    return word if kind in _LAG_CLASSES else word[1:]


def _suspects(incident: Incident, kind: IncidentClass) -> tuple[int, ...]:
    if kind in (IncidentClass.REASSIGNMENT, IncidentClass.CONTROLLER_FAILOVER):
        return ()
    if kind is IncidentClass.DISK_FAILURE:
        return tuple(sorted(incident.disks))
    if kind in _LAG_CLASSES:
        return _lag_suspects(incident, kind)
    away = incident.lost | incident.planned
    return tuple(sorted(away or incident.unclean_left))


def _lag_suspects(incident: Incident, kind: IncidentClass) -> tuple[int, ...]:
    if kind is IncidentClass.NETWORK_SPLIT:
        sides = incident.episode.sides() if incident.episode is not None else []
        return smaller_side(sides) if len(sides) > 1 else incident.cut
    return most_accused({word: count for word, count in incident.departures.items() if word[0] != NO_LEADER})


def summary_of(incident: Incident, kind: IncidentClass, suspects: tuple[int, ...]) -> str:
    """Say in one sentence what happened, to whom, how bad it is or was."""
    what = _WHAT[kind].format(brokers=_brokers(suspects), were="was" if len(suspects) == 1 else "were")
    partitions = sum(len(numbers) for numbers in incident.touched.values())
    if kind is IncidentClass.CONTROLLER_FAILOVER:
        return what
    if kind is IncidentClass.REASSIGNMENT:
        return f"{what}: {_count(partitions)}, {len(incident.moving)} still moving"
    under_replicated, under_min_isr, offline = incident.tallies
    parts = [
        f"{_count(under_replicated.peak)} under-replicated" + _lasted(under_replicated.wall_micros),
        f"{under_min_isr.peak} under min ISR" + _lasted(under_min_isr.wall_micros),
    ]
    if offline.peak:
        parts.append(f"{offline.peak} offline" + _lasted(offline.wall_micros))
    if unclean := incident.counts["unclean_elections"]:
        parts.append(f"{unclean} led by a replica that may lack acknowledged records")
    now = f", {under_replicated.now} still under-replicated" if under_replicated.now else ""
    return f"{what}: {', '.join(parts)}{now}"


_WHAT = {
    IncidentClass.BROKER_LOSS: "{brokers} {were} lost",
    IncidentClass.CONTROLLED_SHUTDOWN: "{brokers} {were} stopped cleanly",
    IncidentClass.ROLLING_RESTART: "rolling restart of {brokers}",
    IncidentClass.SLOW_FOLLOWER: "{brokers} could not keep up",
    IncidentClass.LEADER_STALL: "{brokers} stood still and expelled healthy followers",
    IncidentClass.NETWORK_SPLIT: "{brokers} {were} cut off from the other brokers",
    IncidentClass.DISK_FAILURE: "a log directory of {brokers} failed",
    IncidentClass.REASSIGNMENT: "partitions are being reassigned",
    IncidentClass.UNCLEAN_ELECTION: "{brokers} {were} lost and leaders were elected uncleanly",
    IncidentClass.CONTROLLER_FAILOVER: "another controller took over",
}


def _brokers(brokers: tuple[int, ...]) -> str:
    if len(brokers) == 1:
        return f"broker {brokers[0]}"
    return f"brokers {', '.join(map(str, brokers[:-1]))} and {brokers[-1]}" if brokers else "an unknown broker"


def _count(partitions: int) -> str:
    return f"{partitions} partition" if partitions == 1 else f"{partitions} partitions"


def _lasted(micros: int) -> str:
    return f" for {micros / MICROS:.3g} s" if micros else ""
