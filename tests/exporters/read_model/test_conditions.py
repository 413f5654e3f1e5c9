"""What is raised of a snapshot at a time, and that its labels never change while it is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import event, example, given, settings
from hypothesis import strategies as st

from exporters.read_model.cluster_health import HealthBasis, health_of
from exporters.read_model.cluster_samples import ClusterSamples, QuorumMemberRow, TransactionRow
from exporters.read_model.conditions import ConditionInputs, ConditionSettings, Raised, raised
from exporters.read_model.draft import SnapshotDraft
from exporters.read_model.snapshot import ClusterSnapshot, PartitionCounts, ReplicationSnapshot, SourceProgress
from exporters.read_model.spells import keep_conditions, put_conditions
from streaming.contracts.conditions import BOUND, KEPT, RULES, Condition, Spell
from streaming.contracts.observations import SourceKind
from streaming.contracts.sampled_conditions import OF_GROUPS, PACE, SAMPLED_RULES, SampledSpell
from streaming.contracts.state import BrokerState, ClusterState, PartitionState, SourceLag, SourceState
from streaming.contracts.tables import CONDITIONS
from streaming.delta.log.definitions import arrow_schema
from tests.examples import examples
from tests.exporters.conftest import Rows, Tables, restless

SECOND = 1_000_000
NOW = 1_790_000_000 * SECOND
OBSERVED = NOW - 5 * SECOND
LOG = "metadata_log:collector-1"


def cluster(**more: Any) -> ClusterSnapshot:
    """A healthy cluster, observed five seconds ago; the job has just reported."""
    until = more.pop("until", OBSERVED)
    state: Any = ClusterState("id", "main", SourceKind.METADATA_LOG, 100, 3, has_baseline=True, primary_watermark=until)
    brokers: Any = {number: BrokerState("id", "main", number, is_fenced=False) for number in (1, 2, 3)}  # type: ignore[arg-type]
    sources = more.pop("sources", dict([source(LOG, SourceKind.METADATA_LOG, until)]))
    parts = {"counts": PartitionCounts(hosted=dict.fromkeys(brokers, 10)), "brokers": brokers, **more}
    return ClusterSnapshot(cluster=state, sources=sources, **parts)


def source(name: str, kind: SourceKind, until: int, channel: str = "replication", **lag: Any) -> Any:
    state: Any = SourceState("id", "main", name, kind, observed_until=until)  # type: ignore[arg-type]
    told = {"is_query_up": True, "behind_bytes": 0, "reported_at": NOW - SECOND, **lag}
    return (channel, name), SourceProgress(channel, state, SourceLag(**told))


def every(*clusters: ClusterSnapshot, now: int = NOW, **more: Any) -> list[Raised]:
    named = {f"main{number or ''}": each for number, each in enumerate(clusters)}
    return raised(named, ConditionInputs(now=now, stale_after=60.0, **more))


def labels(*clusters: ClusterSnapshot, **more: Any) -> set[tuple[str, ...]]:
    """Give cluster, condition and subject of all that is raised."""
    return {each[:3] for each in every(*clusters, **more)}


def spell(condition: str, since: int, subject: str = "", **more: Any) -> Spell:
    empty: dict[str, Any] = dict.fromkeys(Spell._fields)
    names = {"condition_id": f"{condition}{subject}{since}", "condition": condition, "subject": subject}
    owner = {"cluster_id": "id", "cluster": "main", "partitions": 1, "topics": ("orders",), "topic_count": 1}
    return Spell(**{**empty, **owner, **names, "since": since, "began_at": since, **more})


# The rows.


@st.composite
def timelines(draw: st.DrawFn) -> list[dict[str, Any]]:
    """What the job writes of one key: spells in their order, some so near that they are one chain."""
    rows: list[dict[str, Any]] = []
    at, since, name = -KEPT, 0, None
    for number in range(draw(st.integers(1, 4))):
        is_chained = number > 0 and draw(st.booleans())
        gap = draw(st.integers(1, KEPT - 1)) if is_chained else KEPT + draw(st.integers(1, 2 * KEPT))
        at += gap
        if not is_chained:
            since, name = at, draw(st.sampled_from([None, f"main-{number}"]))
        named_at = since + draw(st.integers(0, BOUND - 1))
        ended = at + draw(st.integers(SECOND, 400 * SECOND))
        rows.append({"since": since, "began_at": at, "ended_at": ended, "short_id": name, "named_at": named_at})
        at = ended
    return rows


def table_at(rows: list[dict[str, Any]], moment: int) -> pa.Table:
    """Give the table of the job as it is after the rows of the change log up to a moment."""
    told = []
    for number, row in enumerate(rows):
        if row["began_at"] <= moment:
            is_named = row["named_at"] <= moment and row["short_id"] is not None
            told.append({
                "condition_id": str(number), "cluster_id": "id", "cluster": "old name",
                "condition": "offline_partitions", "subject": "", "since": row["since"], "began_at": row["began_at"],
                "ended_at": row["ended_at"] if row["ended_at"] <= moment else None,
                "incident_id": f"loss:{row['short_id']}" if is_named else None,
                "short_id": row["short_id"] if is_named else None,
                "partitions": 1, "topics": ["orders", "tmp"][: 1 + number], "topic_count": 1 + min(number, 1),
                "began_version": 1,
            })  # fmt: skip
    schema = arrow_schema(CONDITIONS)
    return pa.Table.from_pylist([{name: row.get(name) for name in schema.names} for row in told], schema=schema)


@settings(max_examples=examples(8), deadline=None)
@given(
    timelines(),
    st.integers(0, 9),
    st.lists(st.tuples(st.integers(1, 40), st.sampled_from(["follow", "behind", "unread"])), min_size=60, max_size=90),
)
@example([{"since": 0, "began_at": 0, "ended_at": 900 * SECOND, "short_id": "main-0", "named_at": 15 * SECOND}],
         0, [(10, "follow"), (40, "unread"), (40, "unread"), (10, "follow")])  # fmt: skip
def test_labels_never_change_while_a_condition_is_raised(
    rows: list[dict[str, Any]], lag: int, steps: list[tuple[int, str]]
) -> None:
    """Whatever a step skips: the job may be some seconds behind, and the table may not be readable for a while."""
    until, shown = 0, []
    last = ReplicationSnapshot(clusters={"id": cluster(until=0)})
    for seconds, how in steps:
        until += seconds * SECOND
        draft = SnapshotDraft(last)
        draft.put_cluster(last.clusters["id"].cluster._replace(primary_watermark=until), ())  # type: ignore[arg-type]
        if how == "unread":
            keep_conditions(draft)
        else:
            put_conditions(draft, table_at(rows, until - (lag * SECOND if how == "behind" else 0)))
        last = draft.finish(0, until, 0)
        found = raised({"main": last.clusters["id"]}, ConditionInputs(now=until, stale_after=60.0))
        shown.append({each for each in found if each.condition is Condition.OFFLINE})
    event(f"raised: {sum(map(bool, shown)) > 1}")
    for chain in {row["since"] for row in rows}:
        of_chain = [{each.labels for each in found if each.since == chain} for found in shown]
        assert len(set().union(*of_chain)) <= 1, "one condition has one set of labels"
        begins = [now and not before for before, now in zip([set(), *of_chain], of_chain, strict=False)]
        assert sum(map(bool, begins)) <= 1, "it is raised once"


def test_a_row_is_raised_at_the_time_of_the_data_however_late_it_is_asked() -> None:
    one = cluster(conditions=(spell("offline_partitions", OBSERVED - 60 * SECOND, short_id="main-7"),))
    expected = Raised("main", Condition.OFFLINE, "", "critical", "main-7", OBSERVED - 60 * SECOND)
    assert every(one) == [expected]
    assert expected in every(one, now=NOW + 3600 * SECOND, reported_at=NOW + 3600 * SECOND), "stale data ends nothing"
    young = cluster(conditions=(spell("offline_partitions", OBSERVED - 59 * SECOND),))
    assert every(young, now=NOW + 3600 * SECOND, reported_at=NOW + 3600 * SECOND)[0].condition is Condition.DATA_STALE


def test_two_chains_of_the_same_labels_are_one_series_since_the_first() -> None:
    moments = [OBSERVED - 900 * SECOND, OBSERVED - 300 * SECOND]
    one = cluster(conditions=tuple(spell("unclean_election", at, ended_at=at) for at in moments))
    assert [(each.short_id, each.since) for each in every(one)] == [("", moments[0])]


def test_what_concerns_topics_that_do_not_count_only_is_not_raised() -> None:
    began = OBSERVED - 3600 * SECOND
    chosen = ConditionSettings(topics=("!tmp*", "!scratch"))

    def is_raised(condition: str, *topics: str, count: int | None = None) -> bool:
        row = spell(condition, began, "3", topics=topics, topic_count=len(topics) if count is None else count)
        return bool(every(cluster(conditions=(row,)), settings=chosen))

    assert not is_raised("under_replicated", "tmp-1", "scratch")
    assert is_raised("under_replicated", "tmp-1", "orders")
    assert is_raised("under_replicated", "tmp-1", count=21), "the names of the others are unknown"
    assert is_raised("under_replicated", *(f"tmp-{number}" for number in range(20))), "others may have been left out"
    assert is_raised("broker_down", "tmp-1"), "a broker concerns everything"
    assert is_raised("offline_partitions")


def test_severities_are_those_of_the_rules_under_their_names_and_without_a_rule_nothing_is_raised() -> None:
    one = cluster(conditions=(spell("offline_partitions", OBSERVED - 60 * SECOND),))
    renamed = ConditionSettings(severity_names={"critical": "page"})
    assert [each.severity for each in every(one, settings=renamed)] == ["page"]
    without = {condition: rule for condition, rule in RULES.items() if condition is not Condition.OFFLINE}
    assert every(one, settings=ConditionSettings(rules=without)) == []


def test_rows_are_read_as_far_as_they_may_still_count_and_new_conditions_are_left_out(
    tables: Tables, rows: Rows
) -> None:
    hour = 3600 * SECOND
    tables.commit(rows.cluster_row(), rows.source(rows.start))
    reader = restless(tables.directory)
    old = rows.spell("broker_down", rows.start - 8 * hour, "1", ended_at=rows.start - 3 * hour)
    late = rows.spell("broker_down", rows.start - 9 * hour, "2", ended_at=rows.start - hour)
    lasts = rows.spell("broker_down", rows.start - 9 * hour, "3")
    tables.put("conditions", old, late, lasts, rows.spell("of_a_newer_job", rows.start), as_of=1)
    (one,) = reader.refresh().clusters.values()
    assert {each.subject for each in one.conditions} == {"2", "3"}
    (same,) = reader.refresh().clusters.values()
    assert same is one
    tables.put("conditions", lasts, as_of=2)
    assert [each.subject for each in next(iter(reader.refresh().clusters.values())).conditions] == ["3"]


def test_a_chain_that_goes_on_is_raised_though_the_spell_that_lasted_long_enough_is_over_for_hours(
    tables: Tables, rows: Rows
) -> None:
    minute = 60 * SECOND
    begin = rows.start - 600 * minute
    chain = [
        rows.spell("broker_down", begin + first * minute, "3", since=begin, ended_at=begin + last * minute)
        for first, last in ((0, 20), *((first, first + 9) for first in range(23, 590, 13)))
    ]
    tables.commit(rows.cluster_row(), rows.source(rows.start))
    tables.put("conditions", *chain, rows.spell("broker_down", begin + 594 * minute, "3", since=begin), as_of=1)
    (one,) = restless(tables.directory).refresh().clusters.values()
    assert [each[:3] for each in every(one, now=rows.start)] == [("main", "broker_down", "3")]
    assert len(one.conditions) < 20, "short ones are forgotten"


# The exporter's own.


def test_a_dead_job_is_one_condition_and_no_cluster_behind_it_is_stale() -> None:
    others = [cluster(), cluster()]
    assert labels(*others) == set()
    for silent, expected in (
        (61, {("", "job_down", "")}),
        (40, set()),
        (20, {("main", "data_stale", ""), ("main1", "data_stale", "")}),
    ):
        assert labels(*others, now=NOW + 120 * SECOND, reported_at=NOW + (120 - silent) * SECOND) == expected
    assert labels(*others, now=NOW + 120 * SECOND) == {("", "job_down", "")}
    unreported = replace(others[0], sources=dict([source(LOG, SourceKind.METADATA_LOG, OBSERVED, reported_at=None)]))
    assert labels(unreported, now=NOW + 120 * SECOND) == {("main", "data_stale", "")}, "whether a job runs is unknown"


def test_one_stale_cluster_is_stale_while_the_job_reports() -> None:
    stale = cluster(until=NOW - 61 * SECOND)
    assert every(stale, cluster()) == [Raised("main", Condition.DATA_STALE, "", "critical", "", NOW - 61 * SECOND)]


def test_a_cluster_without_data_tables_and_left_out_series_are_raised() -> None:
    empty = replace(cluster(), cluster=ClusterState("id", "main"))  # type: ignore[arg-type]
    assert labels(empty) == {("main", "no_data", "")}
    found = labels(cluster(), unreadable={"incidents": NOW}, left_out={"main": NOW})
    assert found == {("", "table_unreadable", "incidents"), ("main", "series_left_out", "")}


def member(
    node: int, caught_up_at: int, collected_at: int = NOW - 3 * SECOND, controller: int = 100
) -> QuorumMemberRow:
    return QuorumMemberRow(node, True, controller, 500, caught_up_at, collected_at)


@pytest.mark.parametrize("polled", [False, True])
@pytest.mark.parametrize(
    ("named", "is_led", "asked", "is_proven"),
    [
        (None, False, 40, True),
        (200, False, 40, True),
        (3, False, 40, False),
        (200, True, 40, False),
        (200, None, 40, False),
        (200, False, 200, False),
        (None, None, None, False),
    ],
)
def test_no_controller_needs_brokers_that_answer_and_name_none(
    *, polled: bool, named: int | None, is_led: bool | None, asked: int | None, is_proven: bool
) -> None:
    """The log stands still, its collector reads the brokers, and does not only fail to.

    ``named``: seconds since a sample named a leader; ``asked``: since it was said whether brokers name one.
    """
    expected = set() if polled else {"data_stale"}
    expected |= {"no_controller"} if is_proven else {"primary_source_lost"} if polled else set()
    silent = NOW - 70 * SECOND
    sources = [
        source(LOG, SourceKind.METADATA_LOG, silent),
        source("samples:collector-1", SourceKind.NONE, NOW - SECOND, "samples"),
    ]
    members = () if named is None else (member(100, NOW, NOW - named * SECOND), member(101, NOW, controller=-1))
    one = cluster(
        until=NOW - SECOND if polled else silent, sources=dict(sources), samples=ClusterSamples(quorum_members=members)
    )
    quorum = {"is_quorum_led": is_led, "quorum_observed_at": None if asked is None else NOW - asked * SECOND}
    one = replace(one, cluster=one.cluster._replace(**quorum))  # type: ignore[arg-type]
    assert {condition for _, condition, _ in labels(one)} == expected


@pytest.mark.parametrize(
    ("named", "is_led", "read", "since"),
    [(200, False, 1, 200), (None, False, 1, None), (200, True, 1, None), (3, False, 1, None), (200, False, 70, None)],
)
def test_brokers_of_a_cluster_without_a_log_name_no_controller(
    *, named: int | None, is_led: bool | None, read: int, since: int | None
) -> None:
    """``named``: seconds since they named one; None: a gateway may leave the question without an answer for ever.

    ``read``: seconds since a broker gave samples; ``since``: of what is raised, None for nothing.
    """
    sources = [
        source("admin:collector-1", SourceKind.POLL, NOW - SECOND),
        source("samples:collector-1", SourceKind.NONE, NOW - read * SECOND, "samples"),
    ]
    members = () if named is None else (member(100, NOW, NOW - named * SECOND),)
    one = cluster(sources=dict(sources), samples=ClusterSamples(quorum_members=members))
    quorum = {"is_quorum_led": is_led, "quorum_observed_at": NOW - 40 * SECOND}
    one = replace(one, cluster=one.cluster._replace(**quorum))  # type: ignore[arg-type]
    found = [each.since for each in every(one) if each.condition is Condition.NO_CONTROLLER]
    assert found == ([] if since is None else [NOW - since * SECOND])


@pytest.mark.parametrize("silent", [1, 45, 70, 3_600])
def test_what_was_wrong_with_sources_stays_so_while_the_job_is_silent(silent: int) -> None:
    """A dead job ends nothing: it is one condition more, and the quorum is as it was."""
    sources = [
        source("admin:collector-1", SourceKind.POLL, NOW - SECOND, reported_at=NOW),
        source("samples:collector-1", SourceKind.NONE, NOW - SECOND, "samples", reported_at=NOW),
    ]
    members = (member(100, NOW, NOW - 200 * SECOND),)
    one = cluster(sources=dict(sources), samples=ClusterSamples(quorum_members=members))
    quorum = {"is_quorum_led": False, "quorum_observed_at": NOW - 40 * SECOND}
    one = replace(one, cluster=one.cluster._replace(**quorum))  # type: ignore[arg-type]
    of_job = {("", "job_down", "")} if silent > 60 else set()
    assert labels(one, now=NOW + silent * SECOND) == {("main", "no_controller", ""), *of_job}


@pytest.mark.parametrize("ahead", [0, 600])
def test_a_collector_whose_clock_is_ahead_hides_no_loss_of_the_controller(ahead: int) -> None:
    """Its log and its answers are as old as its own clock says, which what it polls shows."""
    there = NOW + ahead * SECOND
    sources = dict([
        source(LOG, SourceKind.METADATA_LOG, there - 70 * SECOND),
        source("admin:collector-1", SourceKind.POLL, there),
        source("samples:collector-1", SourceKind.NONE, there, "samples"),
    ])  # fmt: skip
    sources = {
        key: each._replace(state=each.state._replace(collected_at=each.state.observed_until))
        for key, each in sources.items()
    }
    members = (member(100, there - 200 * SECOND, there - 200 * SECOND),)
    one = cluster(sources=sources, samples=ClusterSamples(quorum_members=members))
    one = replace(one, cluster=one.cluster._replace(is_quorum_led=False, quorum_observed_at=there - 40 * SECOND))
    assert labels(one) == {("main", "no_controller", "")}


def test_a_leader_that_was_named_by_a_clock_that_was_ahead_is_not_one_of_now() -> None:
    sources = dict([
        source(LOG, SourceKind.METADATA_LOG, NOW - 70 * SECOND),
        source("admin:collector-1", SourceKind.POLL, NOW - SECOND),
        source("samples:collector-1", SourceKind.NONE, NOW - SECOND, "samples"),
    ])  # fmt: skip
    members = (member(100, NOW, NOW + 1_200 * SECOND),)
    one = cluster(sources=sources, samples=ClusterSamples(quorum_members=members))
    one = replace(one, cluster=one.cluster._replace(is_quorum_led=False, quorum_observed_at=NOW - 40 * SECOND))
    assert labels(one) == {("main", "no_controller", "")}


def transaction(at: int) -> TransactionRow:
    return TransactionRow(7, 0, None, None, None, (), False, at)


def test_samples_are_old_only_while_partitions_are_observed_and_longer_than_their_interval() -> None:
    old = ClusterSamples(transactions=(transaction(NOW - 901 * SECOND),))
    assert labels(cluster(samples=old)) == {("main", "samples_stale", "")}
    assert labels(cluster(samples=old), oldest={"transactions": 1800.0}) == set()
    given_up = ClusterSamples(transactions=(transaction(NOW - 86_401 * SECOND),))
    assert labels(cluster(samples=given_up)) == set(), "agents that are asked no more are no fault for ever"
    assert labels(cluster(samples=old, until=NOW - 61 * SECOND)) == {("main", "data_stale", "")}


# What samples show.


def sampled(condition: Condition, subject: str, part: str = "", since: int = NOW - 4 * SECOND) -> SampledSpell:
    key = ("id", "main", condition, subject, part)
    return SampledSpell("/".join(key), *key, since, since, None, "2", since, None)  # type: ignore[arg-type]


def shown(*spells: SampledSpell, **more: Any) -> ClusterSnapshot:
    return cluster(sampled_conditions=spells, **more)


OFFLINE = sampled(Condition.LOG_DIRECTORY_OFFLINE, "2:/data")


def test_the_pace_does_not_count_while_a_reassignment_explains_it() -> None:
    fills = sampled(Condition.DISK_FILLS_UP, "2:/data", PACE)
    spells = (fills, sampled(Condition.DISK_NEARLY_FULL, "2:/data"))
    moving: Any = PartitionState(
        "id", "main", "t", "orders", 0, replicas=(1, 2, 3), isr=(1, 3), leader=1, adding_replicas=(2,)
    )  # type: ignore[arg-type]
    nearly = {("main", "disk_nearly_full", "2:/data")}
    both = nearly | {("main", "disk_fills_up", "2:/data")}
    assert labels(shown(*spells)) == both
    assert labels(shown(*spells, unsettled={("t", 0): moving})) == nearly
    for ended, expected in ((None, nearly), (OBSERVED - 1_799 * SECOND, nearly), (OBSERVED - 1_800 * SECOND, both)):
        row = spell("reassigning", OBSERVED - 3_600 * SECOND, ended_at=ended, progressed_at=OBSERVED)
        assert labels(shown(*spells, conditions=(row,))) == expected
    full = (fills._replace(part=""), *spells)
    assert labels(shown(*full, unsettled={("t", 0): moving})) == both


def test_a_volume_is_raised_once_by_its_space_and_its_pace_since_the_first_of_them() -> None:
    first, then = NOW - 900 * SECOND, NOW - 60 * SECOND
    full, fills = (sampled(Condition.DISK_FILLS_UP, "2:/data", *given) for given in (("", then), (PACE, first)))
    assert every(shown(full, fills)) == [Raised("main", Condition.DISK_FILLS_UP, "2:/data", "critical", "", first)]


def test_a_directory_is_offline_until_its_spell_ends_or_its_broker_is_gone_for_good() -> None:
    failed = shown(OFFLINE)
    assert labels(failed) == {("main", "log_directory_offline", "2:/data")}
    assert ("main", "log_directory_offline", "2:/data") in labels(failed, now=NOW + 900 * SECOND)
    gone = {**failed.brokers, 2: failed.brokers[2]._replace(is_registered=False)}
    assert labels(replace(failed, brokers=gone)) == {("main", "log_directory_offline", "2:/data")}
    assert labels(replace(failed, brokers=gone, counts=PartitionCounts(hosted={1: 10}))) == set()


def test_a_broker_without_a_log_directory_is_not_under_replicated_too() -> None:
    spells = tuple(spell("under_replicated", OBSERVED - 1_000 * SECOND, broker) for broker in ("2", "3"))
    failed = shown(OFFLINE, conditions=spells)
    assert labels(failed) == {("main", "log_directory_offline", "2:/data"), ("main", "under_replicated", "3")}


def test_a_voter_is_behind_unless_work_on_it_is_announced() -> None:
    one = shown(sampled(Condition.QUORUM_VOTER_BEHIND, "2", since=NOW - 11 * SECOND))
    assert every(one) == [Raised("main", Condition.QUORUM_VOTER_BEHIND, "2", "warning", "", NOW - 11 * SECOND)]
    work = one.brokers[2]._replace(maintenance_since=1, maintenance_until=NOW + SECOND)  # type: ignore[arg-type]
    assert labels(replace(one, brokers={**one.brokers, 2: work})) == set()


def test_a_hanging_transaction_is_raised_for_each_topic_that_counts() -> None:
    hanging = [sampled(Condition.HANGING_TRANSACTION, topic, "7/0") for topic in ("orders", "a-b", "tmp-1")]
    one = shown(*hanging, hanging[0]._replace(part="8/0"))
    found = labels(one, settings=ConditionSettings(topics=("!tmp-*",)))
    assert found == {("main", "hanging_transaction", topic) for topic in ("orders", "a-b")}


def test_a_group_is_raised_once_for_all_its_partitions_of_topics_that_count() -> None:
    """The labels of its series are the same whichever of its partitions are stuck; excluded names have no condition."""
    parts = (("g", "a-b-0", 60), ("g", "a-b-3", 90), ("g", "tmp-1", 99), ("", "a-0", 5), ("dev-1", "a-0", 5))
    stuck = [sampled(Condition.GROUP_STUCK, group, part, NOW - age * SECOND) for group, part, age in parts]
    chosen = ConditionSettings(topics=("!tmp",), groups=("!dev-*",))
    both = every(shown(*stuck), settings=chosen)
    assert both == [
        Raised("main", Condition.GROUP_STUCK, "", "warning", "", NOW - 5 * SECOND),
        Raised("main", Condition.GROUP_STUCK, "g", "warning", "", NOW - 90 * SECOND),
    ]
    assert [each.labels for each in every(shown(*stuck[:1], *stuck[2:]), settings=chosen)] == [
        each.labels for each in both
    ]
    assert every(shown(stuck[2]), settings=chosen) == []


def test_a_group_in_trouble_leaves_the_health_of_its_cluster_alone() -> None:
    stuck = shown(*(sampled(condition, "g", "orders-0") for condition in OF_GROUPS))
    assert len(every(stuck)) == len(OF_GROUPS)
    answers = [health_of({"main": each}, {}, NOW, HealthBasis(max_age_seconds=60.0)) for each in (stuck, shown())]
    assert answers[0] == answers[1]


# While the exporter runs.


def test_a_series_stays_while_its_table_is_gone_and_incidents_merge(tables: Tables, rows: Rows) -> None:
    """Names of incidents and clusters, and merges, are in other tables: the row keeps what it began with."""
    reader, began = restless(tables.directory), rows.start - 3600 * SECOND

    def shown() -> list[Raised]:
        (one,) = reader.refresh().clusters.values()
        found = raised({one.name: one}, ConditionInputs(now=rows.start + SECOND, stale_after=60.0))
        return [each for each in found if each.condition is Condition.BROKER_DOWN]

    tables.commit(rows.cluster_row(), rows.source(rows.start))
    tables.put("conditions", rows.spell("broker_down", began, "3", short_id="main-4"), as_of=1)
    tables.put("incidents", rows.incident("loss:1", "broker_loss", began, short_id="main-4"), as_of=1)
    expected = [Raised("main", Condition.BROKER_DOWN, "3", "warning", "main-4", began)]
    assert shown() == expected
    merged = rows.incident(
        "loss:1", "broker_loss", began, short_id="main-4", merged_into="loss:0", closed_at=rows.start
    )
    tables.put("incidents", merged, rows.incident("loss:0", "rack_loss", began, short_id="main-3"), as_of=1)
    assert shown() == expected
    log = tables.directory / "conditions" / "_delta_log"
    (log / f"{tables.open('conditions').version() + 1:020}.json").write_text("{ not a commit", encoding="utf-8")
    assert shown() == expected
    assert "conditions" in {status.table for status in reader.statuses if status.error}


def test_what_samples_show_is_since_then_for_every_exporter_and_stays_while_its_table_cannot_be_read(
    tables: Tables, rows: Rows
) -> None:
    """Two exporters, of which one starts in between, show the same; what they cannot read neither begins nor ends."""
    tables.commit(rows.cluster_row(), rows.source(rows.start))
    began = rows.start - 600 * SECOND
    full = rows.sampled_spell("disk_nearly_full", "1:/data", began)
    other, later = (rows.sampled_spell(name, "1:/data", rows.start) for name in ("disk_fills_up", "of_a_newer_job"))
    tables.put("sampled_conditions", full, {**other, "ended_at": rows.start + SECOND}, later)
    readers = [restless(tables.directory)]

    def since() -> list[list[tuple[str, int]]]:
        of_each = []
        for reader in readers:
            (one,) = reader.refresh().clusters.values()
            found = raised({one.name: one}, ConditionInputs(now=rows.start, stale_after=60.0))
            of_each.append([(each.condition, each.since) for each in found if each.condition in SAMPLED_RULES])
        return of_each

    assert since() == [[("disk_nearly_full", began)]]
    readers.append(restless(tables.directory))
    assert since() == [[("disk_nearly_full", began)]] * 2
    tables.put("sampled_conditions", {**full, "ended_at": rows.start})
    assert since() == [[]] * 2
    tables.put("sampled_conditions", full)
    assert since() == [[("disk_nearly_full", began)]] * 2
    log = tables.directory / "sampled_conditions" / "_delta_log"
    damaged = log / f"{tables.open('sampled_conditions').version() + 1:020}.json"
    damaged.write_text("{ not a commit", encoding="utf-8")
    assert since() == [[("disk_nearly_full", began)]] * 2
    assert "sampled_conditions" in {status.table for status in readers[0].statuses if status.error}
