"""Two incidents that turned out to be one. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from streaming.changes.degraded import HEALTHY
from streaming.changes.incident import EVIDENCE_KEPT
from streaming.changes.incident_signals import Family
from streaming.changes.lag_attribution import merged_episode

if TYPE_CHECKING:
    from streaming.changes.incident import Incident


def absorb(incident: Incident, other: Incident) -> None:
    """Merge another incident into this one: they turned out to be the same.

    Partitions degraded by both count once, so what is degraded now is counted again; peaks and times add up as in
    ``DegradedCount.add``.
    """
    for each in (incident, other):
        each.skip_unobserved(max(incident.unobserved or 0, other.unobserved or 0))
    incident.base = other.base if incident.base is Family.CONTROLLER else incident.base
    incident.opened_at = min(incident.opened_at, other.opened_at)
    incident.updated_at = max(incident.updated_at, other.updated_at)
    incident.version, incident.lost_at = max(incident.version, other.version), max(incident.lost_at, other.lost_at)
    for name in ("skipped_at", "overran_at"):
        setattr(incident, name, max(getattr(incident, name), getattr(other, name)))
    for name in ("blamed", "departures", "verdicts", "causes", "counts"):
        getattr(incident, name).update(getattr(other, name))
    sets = "lost planned announced work disks unclean_left harmed_by overdue controllers refused leaderless unknown"
    for name in (*sets.split(), "moving"):
        getattr(incident, name).update(getattr(other, name))
    incident.downs = sorted((*incident.downs, *other.downs), key=lambda down: (down.at, down.broker))
    incident.episode = merged_episode(incident.episode, other.episode)
    incident.cut = incident.cut or other.cut
    incident.stalled = tuple(sorted({*incident.stalled, *other.stalled}))
    for topic_id, numbers in other.touched.items():
        incident.touched.setdefault(topic_id, set()).update(numbers)
    incident.topics.update(other.topics)
    for key, held in other.held.items():
        ours = incident.held.get(key, HEALTHY)
        incident.held[key] = replace(held, missing=held.missing | ours.missing)
    for tally, taken in zip(incident.tallies, other.tallies, strict=True):
        tally.advance(incident.updated_at)
        taken.advance(incident.updated_at)
        tally.add(taken)
    for number, tally in enumerate(incident.tallies):
        tally.now = sum(held.states[number] for held in incident.held.values())
        tally.peak = max(tally.peak, tally.now)
    incident.evidence = (incident.evidence + other.evidence)[:EVIDENCE_KEPT]
    incident.evidence_count += other.evidence_count
