"""The one rule of health, case by case: what a snapshot shows, and what is said of it."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from exporters.read_model.cluster_health import IGNORABLE, HealthBasis, HealthStatus, health_of
from exporters.read_model.cluster_samples import ClusterSamples, LogDirectoryRow, QuorumMemberRow
from exporters.read_model.health_reasons import BLIND, EXAMPLES, SEVERITIES, SUMMARIES, HealthReason
from exporters.read_model.snapshot import ClusterIncidents, ClusterSnapshot, PartitionCounts, SourceProgress
from streaming.contracts import health
from streaming.contracts.conditions import Condition, Spell
from streaming.contracts.identifiers import ClusterId, Micros
from streaming.contracts.observations import SourceKind
from streaming.contracts.sampled_conditions import SampledSpell
from streaming.contracts.state import BrokerState, ClusterState, PartitionState, SourceLag, SourceState
from streaming.sources.simulated import SimulatedSource, load_scenario
from tests.exporters.conftest import restless
from tests.plugins.played import START, PlayedJob

SECOND = 1_000_000
NOW = 1_790_000_000 * SECOND
OBSERVED = NOW - 5 * SECOND
BASIS = HealthBasis(max_age_seconds=60.0)
CLUSTER: Any = ClusterState("id", "main", SourceKind.METADATA_LOG, 100, 3, has_baseline=True)
LOG = "metadata_log:collector-1"
OFFSETS = "offsets:collector-1"


def broker(number: int, **more: Any) -> BrokerState:
    return BrokerState("id", "main", number, is_fenced=False, **more)  # type: ignore[arg-type]  # ids are strings


def partition(number: int, isr: tuple[int, ...], leader: int = 1, min_isr: int | None = 2, **more: Any) -> Any:
    replicas = (1, 2, 3)
    return PartitionState(
        "id", "main", "t", "orders", number, replicas=replicas, isr=isr, leader=leader,
        min_isr_configured=min_isr, min_isr_effective=min_isr, is_offline=health.is_offline(leader),
        is_under_replicated=health.is_under_replicated(replicas, isr, ()),
        is_under_min_isr=health.is_under_min_isr(min_isr, isr),
        is_at_min_isr=health.is_at_min_isr(min_isr, isr, is_lacking=health.is_under_replicated(replicas, isr, ())),
        **{"under_replicated_since": NOW - 20 * SECOND, "offline_since": NOW - 9 * SECOND, **more},
    )  # type: ignore[call-arg]  # fmt: skip


def source(name: str, kind: SourceKind, until: int, channel: str = "replication", **lag: Any) -> Any:
    state: Any = SourceState("id", "main", name, kind, observed_until=until)  # type: ignore[arg-type]
    return (channel, name), SourceProgress(channel, state, SourceLag(**{"is_query_up": True, "behind_bytes": 0, **lag}))


def cluster(*unsettled: PartitionState, **more: Any) -> ClusterSnapshot:
    state = CLUSTER._replace(primary_watermark=OBSERVED, **more.pop("state", {}))
    brokers = {number: broker(number) for number in (1, 2, 3)} | more.pop("brokers", {})
    return ClusterSnapshot(
        cluster=state,
        unsettled={(each.topic_id, each.partition): each for each in unsettled},
        brokers=brokers,
        counts=PartitionCounts(hosted=dict.fromkeys((1, 2, 3), 10)),
        **more,
    )


def judged(one: ClusterSnapshot, basis: HealthBasis = BASIS, **unreadable: str) -> tuple[str, dict[str, HealthReason]]:
    result = health_of({"main": one}, unreadable, NOW, basis)
    (of_cluster,) = result.clusters
    assert result.status == of_cluster.status
    return result.status.value, {each.condition: each for each in of_cluster.reasons}


def kinds(one: ClusterSnapshot, basis: HealthBasis = BASIS, **unreadable: str) -> tuple[str, set[str]]:
    status, reasons = judged(one, basis, **unreadable)
    return status, set(reasons)


def spell(condition: str, since: int, subject: str = "", **more: Any) -> Spell:
    defaults = dict.fromkeys(Spell._fields) | {"cluster_id": "id", "cluster": "main", "partitions": 1, "topics": ()}
    names = {"condition_id": f"{condition}{subject}{since}", "condition": condition, "subject": subject}
    return Spell(**{**defaults, **names, "since": since, "began_at": since, "topic_count": 0, **more})  # type: ignore[arg-type]


def announced(number: int, until: int = NOW + SECOND) -> dict[int, BrokerState]:
    return {number: broker(number, maintenance_since=1, maintenance_until=until, maintenance_why="disk")}


def member(node: int, caught_up_at: int) -> QuorumMemberRow:
    return QuorumMemberRow(node, True, 100, 500, caught_up_at, NOW - 3 * SECOND)


def directory(*, is_online: bool) -> LogDirectoryRow:
    return LogDirectoryRow(2, "/data", is_online, None, None, None, None, None, NOW - 4 * SECOND)


def test_without_anything_wrong_and_with_fresh_data_a_cluster_is_healthy() -> None:
    assert kinds(cluster(samples=ClusterSamples(log_directories=(directory(is_online=True),)))) == ("healthy", set())


@pytest.mark.parametrize(
    ("one", "expected"),
    [
        (partition(0, (1, 2, 3), leader=-1), {"offline_partitions"}),
        (partition(0, (1,)), {"under_min_isr", "under_replicated"}),
        (partition(0, (1, 2)), {"under_replicated", "at_min_isr"}),
        (partition(0, (1, 2), min_isr=1), {"under_replicated"}),
        (partition(0, (1, 2), min_isr=None), {"under_replicated", "min_isr_unknown"}),
    ],
)
def test_each_state_of_a_partition_is_a_reason(one: PartitionState, expected: set[str]) -> None:
    assert kinds(cluster(one)) == ("unhealthy", expected)


def test_a_diskless_partition_is_no_reason_and_neither_is_one_that_moves() -> None:
    moving = partition(0, (1, 2, 3), adding_replicas=(4,))
    assert kinds(cluster(moving, partition(1, (1,), is_diskless=True))) == ("healthy", set())


def test_the_trouble_of_one_partition_hides_none_of_another() -> None:
    offline, diskless = partition(0, (1, 2, 3), leader=-1), partition(1, (1,), is_diskless=True)
    expected = ("unhealthy", {"offline_partitions", "under_replicated", "at_min_isr"})
    assert kinds(cluster(offline, diskless, partition(2, (1, 2)))) == expected


def test_an_unknown_minimum_of_what_lacks_replicas_leaves_the_rest_unknown() -> None:
    ignoring = replace(BASIS, ignored=frozenset({"under_replicated"}))
    assert kinds(cluster(partition(0, (1, 2), min_isr=None)), ignoring)[0] == "unknown"


def test_a_reason_has_its_first_examples_how_many_more_since_when_and_on_what_it_rests() -> None:
    many = [partition(n, (1, 2), under_replicated_since=NOW - n * SECOND) for n in range(EXAMPLES + 3, 0, -1)]
    _, reasons = judged(cluster(*many))
    reason = reasons["under_replicated"]
    assert (reason.count, reason.more) == (EXAMPLES + 3, 3)
    assert reason.examples == tuple(f"orders-{n}" for n in range(1, EXAMPLES + 1))
    assert (reason.since, reason.age_seconds) == (NOW - (EXAMPLES + 3) * SECOND, 5.0)


def test_what_announced_work_explains_is_planned_and_no_more_than_that() -> None:
    explained, other = partition(0, (1, 2)), partition(1, (1, 3))
    away = {3: announced(3)[3]._replace(is_fenced=True)}
    planned = {"planned_work"}
    assert kinds(cluster(explained, brokers=away)) == ("unhealthy", planned)
    allowing = replace(BASIS, allows_planned=True)
    assert kinds(cluster(explained, brokers=away), allowing) == ("healthy", planned)
    assert kinds(cluster(explained, other, brokers=away), allowing)[0] == "unhealthy"
    assert kinds(cluster(partition(0, (1,)), brokers=away), allowing)[0] == "unhealthy"
    assert kinds(cluster(partition(0, (), leader=-1), brokers=away), allowing)[0] == "unhealthy"
    two_away = partition(0, (1,), min_isr=1)
    expected = {"under_replicated", "at_min_isr", "planned_work"}
    assert kinds(cluster(two_away, brokers=away), allowing) == ("unhealthy", expected)


def test_work_whose_time_is_over_explains_nothing() -> None:
    away = {3: announced(3, until=NOW - 1)[3]._replace(is_fenced=True)}
    allowing = replace(BASIS, allows_planned=True)
    expected = {"under_replicated", "at_min_isr", "broker_down"}
    assert kinds(cluster(partition(0, (1, 2)), brokers=away), allowing) == ("unhealthy", expected)


def test_brokers_that_hold_replicas_and_are_not_there_are_missing() -> None:
    gone = broker(2)._replace(is_registered=False)
    status, reasons = judged(cluster(brokers={2: gone}))
    assert (status, reasons["broker_down"].examples) == ("unhealthy", ("broker 2",))
    empty = replace(cluster(brokers={2: gone}), counts=PartitionCounts(hosted={1: 10, 3: 10}))
    assert kinds(empty) == ("healthy", set())
    status, reasons = judged(cluster(brokers={2: broker(2)._replace(is_fenced=True)}))
    assert (status, reasons["broker_down"].examples) == ("unhealthy", ("broker 2",))


def sampled(condition: Condition, subject: str, since: int) -> SampledSpell:
    key = ("id", "main", condition, subject, "")
    return SampledSpell("/".join(key), *key, since, since, None, "2", since, None)  # type: ignore[arg-type]


def test_directories_and_voters_are_judged_by_spells_as_old_as_the_newest_sample_of_each() -> None:
    offline = sampled(Condition.LOG_DIRECTORY_OFFLINE, "2:/data", NOW - 900 * SECOND)
    late = sampled(Condition.QUORUM_VOTER_BEHIND, "101", NOW - 11 * SECOND)
    samples = ClusterSamples(log_directories=(directory(is_online=False),), quorum_members=(member(101, NOW),))
    status, reasons = judged(cluster(samples=samples, sampled_conditions=(offline, late)))
    assert (status, set(reasons)) == ("unhealthy", {"log_directory_offline", "quorum_voter_behind"})
    directories, voters = reasons["log_directory_offline"], reasons["quorum_voter_behind"]
    assert (directories.examples, directories.since, directories.age_seconds) == (
        ("/data of broker 2",), NOW - 900 * SECOND, 4.0
    )  # fmt: skip
    assert (voters.examples, voters.since, voters.age_seconds) == (("voter 101",), NOW - 11 * SECOND, 3.0)
    gone = member(101, NOW - 50 * SECOND)._replace(directory_id="old")
    alive = member(101, NOW)._replace(directory_id="new", is_voter=False)
    replaced = judged(cluster(samples=ClusterSamples(quorum_members=(gone, alive)), sampled_conditions=(late,)))[1]
    assert replaced["quorum_voter_behind"].examples == (
        "voter 101, whose directory is gone: it runs as an observer",
    )  # fmt: skip
    forgotten = judged(cluster(sampled_conditions=(offline,)))[1]["log_directory_offline"]
    assert forgotten.age_seconds == 900.0, "no row has it any more: its broker is silent"


def test_rows_say_since_when_it_lasts_and_which_incident_explains_it() -> None:
    away = {number: broker(number)._replace(is_fenced=True) for number in (2, 3)}
    rows = (
        spell("broker_down", NOW - 70 * SECOND, "3", short_id="main-1"),
        spell("broker_down", NOW - 90 * SECOND, "2", short_id="main-0"),
        spell("under_min_isr", NOW - 80 * SECOND, short_id="main-1"),
        spell("under_min_isr", NOW - 75 * SECOND, short_id="main-2"),
    )
    _, reasons = judged(cluster(partition(0, (1,)), brokers=away, conditions=rows))
    down, refusing = reasons["broker_down"], reasons["under_min_isr"]
    assert (down.examples, down.since, down.incidents) == (
        ("broker 2", "broker 3"),
        NOW - 90 * SECOND,
        ("main-0", "main-1"),
    )
    assert (refusing.since, refusing.incidents) == (NOW - 80 * SECOND, ("main-1", "main-2"))
    assert reasons["under_replicated"].since == NOW - 20 * SECOND, "as the snapshot shows, until there is a row"


def test_what_came_again_lasts_since_it_came_again_and_has_the_incident_of_now() -> None:
    away = {3: broker(3)._replace(is_fenced=True)}
    again = {"since": NOW - 300 * SECOND, "began_at": NOW - 20 * SECOND, "short_id": "main-1", "explained_by": "loss:2"}
    rows = (
        spell("at_min_isr", NOW - 300 * SECOND, ended_at=NOW - 200 * SECOND, short_id="main-1"),
        spell("at_min_isr", **again),
        spell("broker_down", subject="3", **{**again, "began_at": NOW - 15 * SECOND}),
    )
    incidents = ClusterIncidents(open=({"incident_id": "loss:2", "short_id": "main-2"},))
    _, reasons = judged(cluster(partition(0, (1, 2)), brokers=away, conditions=rows, incidents=incidents))
    assert reasons["at_min_isr"].since == NOW - 20 * SECOND, "as the page of the topic says"
    assert reasons["broker_down"].since == NOW - 15 * SECOND
    assert {each.incidents for each in reasons.values()} == {("main-2",)}
    _, reasons = judged(cluster(partition(0, (1, 2)), brokers=away, conditions=rows[2:]))
    assert reasons["under_replicated"].incidents == ("main-1",), "the broker that is missing is why"


def test_a_broker_that_is_back_is_down_until_it_has_caught_up() -> None:
    rows = (spell("broker_down", NOW - 70 * SECOND, "3"),)
    assert "broker_down" in kinds(cluster(partition(0, (1, 2)), conditions=rows))[1]
    assert kinds(cluster(conditions=rows)) == ("healthy", set())
    over = (spell("broker_down", NOW - 70 * SECOND, "3", ended_at=NOW - 9 * SECOND),)
    assert "broker_down" not in kinds(cluster(partition(0, (1, 2)), conditions=over))[1]


def test_what_fails_by_plan_is_planned_only_as_far_as_rows_and_snapshot_say_so() -> None:
    away = {3: broker(3)._replace(is_fenced=True)}
    alone = [partition(number, (3,), leader=-1, min_isr=1)._replace(replicas=(3,)) for number in (0, 1)]
    planned = spell("offline_partitions_planned", NOW - 70 * SECOND, short_id="main-1", partitions=1)

    def severity(*partitions: Any, rows: Any, away: Any = away) -> str:
        _, reasons = judged(cluster(*partitions, brokers=away, conditions=rows))
        return reasons["offline_partitions"].severity.value

    assert severity(alone[0], rows=(planned,)) == "planned"
    assert severity(*alone, rows=(planned,)) == "critical", "the second one is in no row yet"
    assert severity(alone[0], rows=()) == "critical"
    assert severity(alone[0], rows=(planned, spell("offline_partitions", NOW))) == "critical"
    assert severity(partition(0, (3,), leader=-1), rows=(planned,)) == "critical", "it has replicas to spare"
    assert severity(alone[0], rows=(planned,), away={}) == "critical", "its broker is there"
    full = partition(0, (1, 2), min_isr=3)
    rows = (spell("under_min_isr_planned", NOW - 70 * SECOND),)
    _, reasons = judged(cluster(full, brokers=away, conditions=rows))
    assert reasons["under_min_isr"].severity.value == "planned"


def test_an_unclean_election_counts_for_half_an_hour() -> None:
    for age, expected in ((1, {"unclean_election"}), (1_795, {"unclean_election"}), (1_806, set())):
        moment = OBSERVED - age * SECOND
        row = spell("unclean_election", moment, ended_at=moment, short_id="main-7")
        status, reasons = judged(cluster(conditions=(row,)))
        assert set(reasons) == expected
        assert status == ("unhealthy" if expected else "healthy")
        assert [each.incidents for each in reasons.values()] == [("main-7",)] * len(expected)


def test_without_data_nothing_is_healthy() -> None:
    assert health_of({}, {}, NOW, BASIS) == (HealthStatus.UNKNOWN, ())
    assert kinds(cluster(state={"has_baseline": False})) == ("unknown", {"no_data"})
    never = replace(cluster(), cluster=CLUSTER)
    assert kinds(never) == ("unknown", {"no_data"})


def test_data_that_are_too_old_say_nothing_whatever_they_say() -> None:
    last = OBSERVED + 60 * SECOND
    for one, status in ((cluster(partition(0, (1,))), "unhealthy"), (cluster(), "healthy")):
        assert [health_of({"main": one}, {}, now, BASIS).status for now in (last, last + 1)] == [status, "unknown"]


def test_data_from_before_a_moment_say_nothing_about_what_came_after_it() -> None:
    before, then = (replace(BASIS, newer_than=moment) for moment in (OBSERVED - 1, OBSERVED))
    for one, status in ((cluster(partition(0, (1,))), "unhealthy"), (cluster(), "healthy")):
        assert (judged(one, before)[0], judged(one, then)[0]) == (status, "unknown")


def test_a_clock_that_is_ahead_makes_no_data_newer_than_when_they_were_read() -> None:
    ahead = cluster(state={}, watermark_read_at=NOW - 2 * SECOND)
    ahead = replace(ahead, cluster=ahead.cluster._replace(primary_watermark=NOW + 3600 * SECOND))  # type: ignore[arg-type]
    assert judged(ahead, replace(BASIS, newer_than=NOW - 2 * SECOND))[0] == "unknown"
    assert judged(ahead, replace(BASIS, newer_than=NOW - 3 * SECOND))[0] == "healthy"
    (status, reasons) = judged(replace(ahead, watermark_read_at=NOW - 70 * SECOND))
    assert status == "unknown"
    (why,) = reasons["data_stale"].examples
    assert why.startswith("main: a clock was ahead, and has dated its data up to ")


def test_a_table_that_cannot_be_read_leaves_unknown_what_only_it_shows_and_what_is_wrong_stays_wrong() -> None:
    status, reasons = judged(cluster(), conditions="the table conditions is damaged")
    assert (status, reasons["table_unreadable"].examples) == ("unknown", ("the table conditions is damaged",))
    assert kinds(cluster(partition(0, (1,))), conditions="damaged")[0] == "unhealthy"
    assert kinds(cluster(), groups="damaged") == ("healthy", set())


def test_a_log_that_stands_still_while_its_collector_reads_brokers_has_no_controller() -> None:
    silent = NOW - 70 * SECOND
    log = source(LOG, SourceKind.METADATA_LOG, silent)
    samples = source(OFFSETS, SourceKind.NONE, NOW - SECOND, "samples")
    asked = {"is_quorum_led": False, "quorum_observed_at": NOW - 40 * SECOND}

    def with_sources(*sources: Any, **quorum: Any) -> ClusterSnapshot:
        one = cluster(sources=dict(sources))
        return replace(one, cluster=one.cluster._replace(primary_watermark=silent, **(quorum or asked)))  # type: ignore[arg-type]

    assert kinds(with_sources(log, samples)) == ("unhealthy", {"data_stale", "no_controller"})
    assert kinds(with_sources(log, samples, is_quorum_led=None)) == ("unknown", {"data_stale"}), "blind is not green"
    assert kinds(with_sources(log)) == ("unknown", {"data_stale"})
    behind = source(LOG, SourceKind.METADATA_LOG, silent, behind_bytes=3)
    assert kinds(with_sources(behind, samples)) == ("unknown", {"data_stale"})
    elsewhere = source("offsets:collector-2", SourceKind.NONE, NOW - SECOND, "samples")
    assert kinds(with_sources(log, elsewhere)) == ("unknown", {"data_stale"})


def test_polling_that_took_over_from_the_log_is_a_lost_primary_source_for_a_day() -> None:
    poll = source("admin:collector-1", SourceKind.POLL, NOW - SECOND)
    for silent, expected in ((70, {"primary_source_lost"}), (50, set()), (86_401, set())):
        log = source(LOG, SourceKind.METADATA_LOG, NOW - silent * SECOND)
        assert kinds(cluster(sources=dict([poll, log])))[1] == expected
        for reason in judged(cluster(sources=dict([poll, log])))[1].values():
            assert reason.examples == ("metadata_log:collector-1 (whether a controller leads is unknown)",)


def test_the_worst_cluster_gives_the_status() -> None:
    good, bad, blind = cluster(), cluster(partition(0, (1,))), cluster(state={"has_baseline": False})
    for clusters, expected in (
        ({"a": good, "b": good}, "healthy"),
        ({"a": good, "b": blind}, "unknown"),
        ({"a": blind, "b": bad}, "unhealthy"),
    ):
        assert health_of(clusters, {}, NOW, BASIS).status == expected


def test_every_reason_has_a_severity_and_words_and_only_those_without_data_cannot_be_ignored() -> None:
    assert set(SEVERITIES) == set(SUMMARIES)
    assert set(IGNORABLE) == set(SEVERITIES) - BLIND
    everything = replace(BASIS, ignored=frozenset(SEVERITIES))
    assert kinds(cluster(state={"has_baseline": False}), everything)[0] == "unknown"


def test_a_cluster_that_the_model_played_is_healthy_but_while_its_broker_is_lost(tmp_path: Path) -> None:
    """Broker 3 is killed after 3 s, and is back in every ISR before the end."""
    source = SimulatedSource(
        load_scenario("broker_loss"),
        seed=7,
        cluster_id=ClusterId("c"),
        cluster="c",
        name="metadata_log:c",
        epoch=Micros(START),
    )
    job, reader = PlayedJob(tmp_path), restless(tmp_path)
    for second, status in ((2, "healthy"), (16, "unhealthy"), (60, "healthy")):
        job.apply(START + second * SECOND, source)
        (one,) = reader.refresh().clusters.values()
        assert one.watermark is not None
        result = health_of({one.name: one}, {}, one.watermark + SECOND, BASIS)
        counted = {each.condition: each.count for each in result.clusters[0].reasons}
        states = Counter(state for each in one.partitions() for state in health.states_of(each))
        assert (second, result.status) == (second, status)
        for condition, state in (("offline_partitions", "offline"), ("under_min_isr",) * 2, ("under_replicated",) * 2):
            assert counted.get(condition, 0) == states[state]
        assert counted.get("broker_down", 0) == sum(bool(each.is_fenced) for each in one.brokers.values())
        assert bool(counted) == (status == "unhealthy")
