"""An open incident as text and back: what the table carries so that the next start goes on where this one stopped.

Partitions are written as runs of numbers, so that a broker that led ten thousand of them takes a few kilobytes.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Final

from streaming.changes.accusations import Episode
from streaming.changes.incident import Down, Held, Incident, Tally
from streaming.changes.incident_signals import Family

if TYPE_CHECKING:
    from collections.abc import Iterable

_SETS: Final = frozenset({"lost", "planned", "disks", "unclean_left"})
_COUNTERS: Final = frozenset({"blamed", "verdicts", "causes", "counts"})


def written(incident: Incident) -> str:
    """Write an incident down."""
    found = {item.name: getattr(incident, item.name) for item in fields(incident)}
    document = {
        **found,
        **{name: sorted(found[name]) for name in _SETS},
        **{name: sorted(found[name].items()) for name in (*_COUNTERS, "departures")},
        "downs": [[down.broker, down.at, down.planned, down.back_at, down.restarted] for down in incident.downs],
        "episode": _written_episode(incident.episode),
        "touched": {topic_id: _runs(numbers) for topic_id, numbers in incident.touched.items()},
        "held": _written_held(incident),
        "moving": sorted(incident.moving),
        "tallies": [[getattr(it, item.name) for item in fields(it)] for it in incident.tallies],
    }
    return json.dumps(document, separators=(",", ":"))


def read(text: str) -> Incident:
    """Read an incident back: ``read(written(incident)) == incident``."""
    document: dict[str, Any] = json.loads(text)
    first, second, third = (Tally(*numbers) for numbers in document["tallies"])
    return Incident(**{
        **document,
        **{name: set(document[name]) for name in _SETS},
        **{name: Counter(dict(document[name])) for name in _COUNTERS},
        "base": Family(document["base"]),
        "departures": Counter({tuple(word): count for word, count in document["departures"]}),
        "downs": [Down(*values) for values in document["downs"]],
        "episode": _read_episode(document["episode"]),
        "cut": tuple(document["cut"]),
        "touched": {topic_id: set(_numbers(runs)) for topic_id, runs in document["touched"].items()},
        "held": _read_held(document["held"]),
        "moving": {(topic_id, number) for topic_id, number in document["moving"]},
        "tallies": (first, second, third),
    })  # fmt: skip


def _written_episode(episode: Episode | None) -> dict[str, Any] | None:
    if episode is None:
        return None
    found = {item.name: getattr(episode, item.name) for item in fields(episode)}
    spoken = [[*word, *times] for word, times in sorted(episode.spoken.items())]
    return {**found, "spoken": spoken, "kept": sorted(episode.kept)}


def _read_episode(document: dict[str, Any] | None) -> Episode | None:
    if document is None:
        return None
    spoken = {(accuser, accused): (first, last) for accuser, accused, first, last in document["spoken"]}
    return Episode(**{**document, "spoken": spoken, "kept": {(one, other) for one, other in document["kept"]}})


def _written_held(incident: Incident) -> list[list[Any]]:
    """Group held partitions by topic and by what ails them: a broker's loss gives few groups."""
    groups: dict[tuple[str, tuple[int, ...], tuple[bool, ...]], list[int]] = {}
    for (topic_id, number), held in incident.held.items():
        groups.setdefault((topic_id, tuple(sorted(held.missing)), held.states), []).append(number)
    return [[topic_id, missing, states, _runs(numbers)] for (topic_id, missing, states), numbers in groups.items()]


def _read_held(groups: list[list[Any]]) -> dict[tuple[str, int], Held]:
    return {
        (topic_id, number): Held(frozenset(missing), (states[0], states[1], states[2]))
        for topic_id, missing, states, runs in groups
        for number in _numbers(runs)
    }


def _runs(numbers: Iterable[int]) -> list[list[int]]:
    """Write numbers as runs: the first and the last of each."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return runs


def _numbers(runs: list[list[int]]) -> list[int]:
    return [number for first, last in runs for number in range(first, last + 1)]
