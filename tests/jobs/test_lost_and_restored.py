"""Bus and tables that are lost, or restored from copies, in any order, with kills in between: each counts once."""

from __future__ import annotations

import datetime as dt
import random
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import pytest

from streaming.contracts.observations import Channel
from streaming.delta.backup import back_up, restore
from tests.changes.conftest import Story
from tests.end_to_end.stories import expected_changes, long_story
from tests.jobs.shards.test_batch import offsets_sample, rows
from tests.jobs.shards.test_short_ids import Incident, follow
from tests.jobs.test_replaced_log import applied, essence_without_loss, publish, refuse

if TYPE_CHECKING:
    from pathlib import Path

    from streaming.contracts.observations import Observation
    from streaming.jobs.queries import JobLocations

QUERY_OF = {Channel.REPLICATION: "replication", Channel.SAMPLES: "samples"}
SOURCE_OF = {Channel.REPLICATION: "metadata_log:a", Channel.SAMPLES: "admin:a"}
SAMPLES = 40
NOW = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)
Refused = dict[Channel, frozenset[bytes]]
NOTHING: Refused = dict.fromkeys(Channel, frozenset())

# What happens around a copy and before it is brought back; the steps of a piece are repeated or left out.
PIECES = (
    ("publish refuse apply kill",),
    ("refuse publish", "=copy_bus", "publish refuse", "apply kill", "=restore_bus", "publish apply kill"),
    ("refuse publish apply", "=copy_tables", "publish refuse", "apply kill", "=restore_tables", "publish apply kill"),
    ("=lose_bus", "publish refuse apply kill"),
    ("=copy_bus", "publish refuse", "=copy_tables", "apply", "=restore_bus", "publish kill", "=restore_tables"),
)


class Installation:
    """A bus, its tables, and what each of them must hold. A source reports again what its restored bus lacks."""

    def __init__(self, places: JobLocations, seed: int) -> None:
        story, self.places, self.dice = Story("admin:a"), places, random.Random(seed)
        samples = [offsets_sample(number, story=story.later()) for number in range(1, SAMPLES + 1)]
        self.observed: dict[Channel, Sequence[Observation]] = {
            Channel.REPLICATION: long_story(seed, steps=150),
            Channel.SAMPLES: samples,
        }
        self.published, self.on_bus, self.in_tables = dict.fromkeys(Channel, 0), NOTHING, NOTHING
        self.copied_bus, self.copied_tables = (self.published, NOTHING), NOTHING
        self.short_ids = set[tuple[str, Incident]]()
        self._number = 0

    def publish(self, least: int = 1) -> None:
        for channel, observed in self.observed.items():
            begin = self.published[channel]
            end = min(begin + max(self.dice.randint(1, 12), least), len(observed))
            if begin < end:
                publish(self.places, observed[begin:end], pieces=2)
            self.published = {**self.published, channel: end}

    def refuse(self) -> None:
        channel, self._number = self.dice.choice(list(Channel)), self._number + 1
        mark, count = f"odd {self._number}/".encode(), self.dice.randint(1, 3)
        refuse(self.places, channel, SOURCE_OF[channel], count, mark)
        self.on_bus = _with(self.on_bus, channel, {mark + str(each).encode() for each in range(count)})

    def apply(self, *, is_killed: bool = False) -> None:
        for channel, query in QUERY_OF.items():
            applied(self.places, channel, query, is_killed=is_killed)
            self.in_tables = _with(self.in_tables, channel, self.on_bus[channel])

    def kill(self) -> None:
        self.apply(is_killed=True)

    def lose_bus(self) -> None:
        shutil.rmtree(self.places.bus, ignore_errors=True)
        self.published, self.on_bus = dict.fromkeys(Channel, 0), NOTHING

    def copy_bus(self) -> None:
        _replace(self.places.bus, self.places.bus.with_name("copy of bus"))
        self.copied_bus = self.published, self.on_bus

    def restore_bus(self) -> None:
        _replace(self.places.bus.with_name("copy of bus"), self.places.bus)
        self.published, self.on_bus = self.copied_bus

    def copy_tables(self) -> None:
        taken = self.places.bus.with_name("copy of tables")
        shutil.rmtree(taken, ignore_errors=True)
        if _tables(self.places).exists():
            back_up(_tables(self.places), taken, NOW)
        self.copied_tables = self.in_tables

    def restore_tables(self) -> None:
        self.follow()
        taken = self.places.bus.with_name("copy of tables")
        shutil.rmtree(_tables(self.places), ignore_errors=True)
        if taken.exists():
            restore(taken, _tables(self.places))
        self.in_tables = self.copied_tables

    def follow(self) -> None:
        """Let the incidents follow, and remember their short ids."""
        if _tables(self.places).exists():
            self.short_ids |= {(short_id, each) for each, short_id in follow(_tables(self.places)).items()}

    def play(self) -> None:
        for piece in self.dice.choices(PIECES, k=self.dice.randint(2, 4)):
            for steps in piece:
                chosen = [steps[1:]] if steps[0] == "=" else self.dice.choices(steps.split(), k=self.dice.randint(0, 3))
                for step in chosen:
                    act: Callable[[], None] = getattr(self, step)
                    act()
        self.publish(least=1_000)
        self.apply()
        self.apply()
        self.follow()


def _with(refused: Refused, channel: Channel, more: set[bytes] | frozenset[bytes]) -> Refused:
    return {**refused, channel: refused[channel] | more}


def _replace(source: Path, target: Path) -> None:
    shutil.rmtree(target, ignore_errors=True)
    if source.exists():
        shutil.copytree(source, target)


def _tables(places: JobLocations) -> Path:
    return places.bus.with_name("tables")


@pytest.mark.parametrize("seed", [101, 123, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(124, 180))])
def test_each_change_and_each_refused_record_counts_once(places: JobLocations, seed: int) -> None:
    played = Installation(places, seed)
    played.play()
    assert essence_without_loss(places) == expected_changes(played.observed[Channel.REPLICATION])
    (sample,) = rows(_tables(places), "replica_offsets")
    assert sample["high_watermark"] == SAMPLES, "the newest sample"
    twice = [short_id for short_id, count in Counter(each for each, _ in played.short_ids).items() if count > 1]
    assert twice == []
    whole, counted = Counter[tuple[str, bytes]](), Counter[str]()
    for row in rows(_tables(places), "quarantine"):
        whole[row["channel"], row["raw"]] += row["raw"] is not None
        counted[row["channel"]] += row["records"]
    assert set(whole.values()) <= {0, 1}
    expected = {channel.value: len(records) for channel, records in played.in_tables.items()}
    assert counted == Counter(expected)
    reported = {row["channel"]: row["quarantined"] for row in rows(_tables(places), "source_progress")}
    assert reported == expected
