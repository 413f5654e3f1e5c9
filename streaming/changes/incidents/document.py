"""An open incident as JSON and back: the table holds it, so that the next start continues where this one stopped.

Keys are the names of the fields of ``Incident`` and ``LagEpisode``: renaming a field makes stored incidents unreadable.
Partitions are written as runs of numbers, so that a broker that led ten thousand of them takes a few kilobytes.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Final

from streaming.changes.incidents.context import Family
from streaming.changes.incidents.incident import DegradedCount, DegradedPartition, Incident, degraded
from streaming.changes.incidents.lag_attribution import BrokerAbsence, LagEpisode

if TYPE_CHECKING:
    from collections.abc import Iterable

_SETS: Final = frozenset({
    "lost", "planned", "announced", "disks", "unclean_left", "harmed_by", "overdue", "controllers", "elected",
    "refused", "leaderless", "unknown", "work", "innocent", "rejoined", "doubled", "fenced", "proven_lost",
})  # fmt: skip
_COUNTERS: Final = frozenset({"blamed", "verdicts", "causes", "counts"})


def encode_incident(incident: Incident) -> str:
    """Encode an incident."""
    values = {item.name: getattr(incident, item.name) for item in fields(incident)}
    del values["alike"]  # follows from those held
    document = {
        **values,
        **{name: sorted(values[name]) for name in _SETS},
        **{name: sorted(values[name].items()) for name in (*_COUNTERS, "departures")},
        "downs": [[down.broker, down.at, down.planned, down.back_at, down.by_stall] for down in incident.downs],
        "episode": _written_episode(incident.episode),
        "touched": {topic_id: _runs(numbers) for topic_id, numbers in incident.touched.items()},
        "held": _written_held(incident),
        "moving": sorted(incident.moving),
        "unclean": sorted(incident.unclean),
        "tallies": [[getattr(tally, item.name) for item in fields(tally)] for tally in incident.tallies],
    }
    return json.dumps(document, separators=(",", ":"))


def decode_incident(text: str) -> Incident:
    """Decode an incident: ``decode_incident(encode_incident(incident)) == incident``."""
    document: dict[str, Any] = json.loads(text)
    first, second, third = (DegradedCount(*numbers) for numbers in document["tallies"])
    held = _read_held(document["held"])
    return Incident(**{
        **document,
        **{name: set(document.get(name, ())) for name in _SETS},
        **{name: Counter(dict(document[name])) for name in _COUNTERS},
        "base": Family(document["base"]),
        "departures": Counter({tuple(pair): count for pair, count in document["departures"]}),
        "downs": [BrokerAbsence(*values) for values in document["downs"]],
        "episode": _read_episode(document["episode"]),
        "cut": tuple(document["cut"]),
        "stalled": tuple(document["stalled"]),
        "touched": {topic_id: set(_numbers(runs)) for topic_id, runs in document["touched"].items()},
        "held": held,
        "alike": Counter(held.values()),
        "moving": {(topic_id, number) for topic_id, number in document["moving"]},
        "unclean": {(topic_id, number) for topic_id, number in document.get("unclean", ())},
        "tallies": (first, second, third),
    })  # fmt: skip


def _written_episode(episode: LagEpisode | None) -> dict[str, Any] | None:
    if episode is None:
        return None
    values = {item.name: getattr(episode, item.name) for item in fields(episode)}
    return {
        **values,
        "spoken": [[*pair, *times] for pair, times in sorted(episode.spoken.items())],
        "kept": [[*pair, count] for pair, count in sorted(episode.kept.items())],
        "seen_stalled": sorted(episode.seen_stalled),
    }


def _read_episode(document: dict[str, Any] | None) -> LagEpisode | None:
    if document is None:
        return None
    spoken = {(reporter, follower): (first, last) for reporter, follower, first, last in document["spoken"]}
    kept = Counter({(one, other): count for one, other, count in document["kept"]})
    return LagEpisode(
        **{**document, "spoken": spoken, "kept": kept, "seen_stalled": set(document.get("seen_stalled", ()))}
    )


def _written_held(incident: Incident) -> list[list[Any]]:
    """Group degraded partitions by topic, missing brokers and states: the loss of a broker gives few groups."""
    groups: dict[tuple[str, DegradedPartition], list[int]] = {}
    for (topic_id, number), held in incident.held.items():
        groups.setdefault((topic_id, held), []).append(number)
    return [
        [topic_id, sorted(held.missing), held.states, held.needs_all, _runs(numbers)]
        for (topic_id, held), numbers in groups.items()
    ]


def _read_held(groups: list[list[Any]]) -> dict[tuple[str, int], DegradedPartition]:
    return {
        (topic_id, number): degraded(frozenset(missing), (states[0], states[1], states[2]), needs_all)
        for topic_id, missing, states, needs_all, runs in groups
        for number in _numbers(runs)
    }


def _runs(numbers: Iterable[int]) -> list[list[int]]:
    """Return numbers as runs: the first and the last of each."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return runs


def _numbers(runs: list[list[int]]) -> list[int]:
    return [number for first, last in runs for number in range(first, last + 1)]
