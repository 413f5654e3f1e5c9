"""Short ids in the tables: one name in several shards, kills, and tables that are brought back from an older copy."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from streaming.bus.directory import DirectoryReader
from streaming.bus.kafka.records import partition_of
from streaming.contracts.codec import decode, encode
from streaming.contracts.identifiers import ClusterId
from streaming.contracts.observations import Channel, Observation
from streaming.contracts.tables import PARTITION_CHANGES
from streaming.delta.changes.reader import ChangeReader
from streaming.delta.incidents.table import IncidentsTable
from streaming.delta.log.maintenance import RetentionPolicy
from streaming.jobs.queries import JobLocations
from tests.changes.conftest import EXPAND, FENCED, LAG, START, Story
from tests.jobs.shards.test_shards import GAPS, PARTITIONS, batches, of_cluster, renamed, run, shipped, topics
from tests.jobs.test_replaced_log import applied, publish
from tests.plugins.pipeline import rows_of

__all__ = ["topics"]
DAY = 86_400_000_000


Incident = tuple[str, object]
"""Its long id, and when it was opened: after a restore a long id may come again, since change numbers do."""


def short_ids(tables: Path) -> dict[Incident, str]:
    return {(row["incident_id"], row["opened_at"]): row["short_id"] for row in rows_of(tables, "incidents")}


def follow(tables: Path, policy: RetentionPolicy | None = None) -> dict[Incident, str]:
    """Start the query of incidents, and let it follow the change log; give the short ids."""
    incidents = IncidentsTable(tables, GAPS) if policy is None else IncidentsTable(tables, GAPS, policy)
    incidents.apply(ChangeReader(tables / PARTITION_CHANGES.name, incidents.version).poll())
    return short_ids(tables)


def of_one_name(told: Sequence[Observation], number: int) -> list[Observation]:
    names = {f'"cluster":"prod-{number}"'.encode(): b'"cluster":"prod"'}
    return [decode(renamed(encode(each), names)) for each in of_cluster(told, number)]


def troubled(seed: int, rounds: int = 5) -> list[Observation]:
    """Tell rounds of trouble: brokers lag, or are lost, one or several at once; some incidents turn out to be one."""
    dice, story, epochs = random.Random(seed), Story(), [0] * 6
    leaders = [number % 3 + 1 for number in range(6)]
    story.config("2")
    story.snapshot([{"leader": leader} for leader in leaders])
    for _ in range(rounds):
        lost = dice.choice((None, 1, 2, 3))
        hit = dice.sample(range(6), dice.randint(1, 5))
        for number in hit:
            slow = dice.choice([each for each in (1, 2, 3) if each != leaders[number]])
            gone, why = (lost, FENCED) if lost not in (None, leaders[number]) else (slow, LAG)
            epochs[number] += 1
            isr = tuple(each for each in (1, 2, 3) if each != gone)
            story.later(2 * dice.random()).partition(
                number, isr=isr, leader=leaders[number], **{**why, "partition_epoch": epochs[number]}
            )
        if lost is not None:
            story.broker(lost, fenced=True)
            story.later(5).broker(lost)
        for number in hit:
            epochs[number] += 1
            story.later().partition(number, leader=leaders[number], **{**EXPAND, "partition_epoch": epochs[number]})
        story.later(dice.choice((5, 100))).heartbeat()
    return story.seen


@pytest.mark.parametrize("seed", [2, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(10, 30))])
def test_clusters_of_one_name_in_several_shards_get_the_numbers_that_the_change_log_gives(
    seed: int, tmp_path: Path
) -> None:
    """Executors fold them; the job is killed between commits, and batches come again."""
    assert partition_of(ClusterId("cluster/0"), PARTITIONS) != partition_of(ClusterId("cluster/1"), PARTITIONS)
    chance = random.Random(seed)
    logs = shipped([of_one_name(troubled(seed + number), number) for number in range(2)])
    run(tmp_path / "sharded", batches(logs, chance), chance)
    given_ids = short_ids(tmp_path / "sharded")
    numbers = sorted(int(each.removeprefix("prod-")) for each in given_ids.values())
    assert numbers == list(range(1, len(given_ids) + 1))
    (tmp_path / "again").mkdir()
    (tmp_path / "again" / PARTITION_CHANGES.name).symlink_to(tmp_path / "sharded" / PARTITION_CHANGES.name)
    assert follow(tmp_path / "again") == given_ids


# A copy of the tables is brought back.


class Losses(Story):
    """Broker 3 is lost again and again; each time is an incident of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.epoch = 0
        self.report()

    def report(self) -> None:
        self.snapshot([{"partition_epoch": self.epoch}])

    def lose(self, times: int) -> list[Observation]:
        """Tell so many losses; give what was told since the last call."""
        for _ in range(times):
            self.later(120).broker(3, fenced=True, broker_epoch=5 + self.epoch)
            self.partition(isr=(1, 2), **{**FENCED, "partition_epoch": self.epoch + 1})
            self.later(10).broker(3, broker_epoch=6 + self.epoch)
            self.later().partition(**{**EXPAND, "partition_epoch": self.epoch + 2})
            self.epoch += 2
        seen, self.seen = self.seen, []
        return seen


def seen_after(places: JobLocations, told: list[Observation]) -> dict[Incident, str]:
    """Publish, let the job start, apply it and end; give the short ids."""
    publish(places, told)
    applied(places)
    return follow(places.tables)


def prune(places: JobLocations) -> None:
    """Delete of the bus what the job has applied, as it does once the tables are flushed."""
    bus = DirectoryReader(places.bus)
    for source, end in bus.end_positions(Channel.REPLICATION).items():
        bus.delete_below(Channel.REPLICATION, source, end)


@pytest.mark.parametrize("bus", ["whole", "pruned", "lost"])
def test_after_tables_were_restored_no_number_is_given_to_another_incident(places: JobLocations, bus: str) -> None:
    story = Losses()
    before = seen_after(places, story.lose(3))
    copy = places.tables.with_name("copy of tables")
    shutil.copytree(places.tables, copy)
    lost = seen_after(places, story.lose(2))
    assert sorted(lost.values()) == [f"orders-eu-{number}" for number in range(1, 6)]

    shutil.rmtree(places.tables)
    copy.rename(places.tables)
    if bus == "pruned":
        publish(places, story.lose(1))  # in a segment of its own, which stays
        prune(places)
    elif bus == "lost":  # with the machine of the collector, which begins with a full report
        shutil.rmtree(places.bus)
        story.report()
    now = seen_after(places, story.lose(2))

    assert before.items() <= now.items()
    incidents = Counter(short_id for _, short_id in lost.items() | now.items())
    assert set(incidents.values()) == {1}, "two incidents had one number, one of them before the restore"
    new = [int(now[each].rpartition("-")[2]) for each in now.keys() - lost.keys()]
    assert sorted(new) == {"whole": [6, 7], "pruned": [1001, 1002, 1003], "lost": [1001, 1002]}[bus]
    if bus == "whole":
        assert lost.items() <= now.items(), "what is applied again has its number again"


def test_numbers_go_on_though_every_incident_has_expired(places: JobLocations) -> None:
    story, now = Losses(), START
    policy = RetentionPolicy(days=1, clock=lambda: now)
    publish(places, story.lose(3))
    applied(places)
    assert len(follow(places.tables, policy)) == 3
    now += 10 * DAY
    story.later(2_000).heartbeat()  # longer than any of them may still continue
    publish(places, story.lose(1))
    applied(places)
    assert [*follow(places.tables, policy).values()] == ["orders-eu-4"]
