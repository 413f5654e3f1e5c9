"""Models of pages as pure functions: what is drawn, and what is said of a moment."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from exporters.answers import links
from exporters.answers.answer import Answer, Question
from exporters.answers.brokers import by_reason
from exporters.answers.event_text import CAUSES_EXPLAINED, causes_explained
from exporters.answers.incidents import suspects
from exporters.answers.subject import Limits
from exporters.answers.subject import Tables as AnswerTables
from exporters.answers.subjects import SUBJECTS
from exporters.read_model.cluster_health import partition_reasons
from exporters.read_model.conditions import ConditionSettings
from exporters.read_model.events import INCIDENT_COLUMNS
from exporters.read_model.incident_archive import Work
from exporters.read_model.incident_sentences import sentence_of
from exporters.read_model.reader import TablesReader
from exporters.read_model.snapshot import ClusterSnapshot, EventRow, ReplicationSnapshot
from exporters.web.pages.broker import broker_page
from exporters.web.pages.cluster import cluster_page, notice_of_age
from exporters.web.pages.drawing import Axis
from exporters.web.pages.fleet import fleet_page
from exporters.web.pages.group import PARTITIONS_SHOWN, groups_page
from exporters.web.pages.incident import IncidentHistory, handling_of, incident_page
from exporters.web.pages.incidents import lasted
from exporters.web.pages.page import Inputs, Level, PageSettings, PastMoment, lasting, words_of
from exporters.web.pages.timeline import absences, timeline
from exporters.web.pages.topic import topic_page
from exporters.web.runbook_commands import Installations
from streaming.changes.incidents.grouping import IncidentFold, IncidentGaps
from streaming.contracts.events import Cause, EventKind
from streaming.contracts.identifiers import ClusterId, Micros
from streaming.contracts.observations import Channel, SourceKind
from streaming.contracts.state import ClusterState
from streaming.delta.incidents.rows import incident_row
from tests.changes.conftest import rows_from
from tests.exporters.conftest import SECOND, START, Rows, Tables, write_live_cluster
from tests.plays import observations

CLOSED = {"opened_at": START, "updated_at": START + 60 * SECOND, "closed_at": START + 60 * SECOND, "recovered_at": None}
OPEN = {**CLOSED, "closed_at": None}
SUSPECT = {"suspects": [{"broker": 3, "score": 1.0}], "brokers": [3], "severity": "critical"}

UNCLEAN = "/runbook/IsrwatchUncleanElection"


def event(kind: EventKind, second: int, partition: int | None = None, **more: Any) -> EventRow:
    """Give an event of broker 3, or of a partition of the topic orders."""
    values = dict.fromkeys(EventRow._fields)
    at = START + second * SECOND
    times = {"occurred_not_before": at, "occurred_not_after": at}
    lists = {"candidates": (), "left_isr": (), "joined_isr": ()}
    about = {"event_broker": 3} if partition is None else {"topic": "orders", "partition": partition}
    return EventRow(**{**values, **times, **lists, **about, "event": kind, **more})


def answered(tables: Tables, of: str, now: int) -> Answer:
    """Give the answer of a subject as of a clock."""
    limits = Limits(stale_after=60.0, oldest_ages={}, poll_intervals={})
    return SUBJECTS[of].answer(AnswerTables(folder=tables.directory, limits=limits, now=now), Question())


def inputs_of(tables: Tables, **more: Any) -> Inputs:
    """Give what pages of the present are made of, a moment after START."""
    snapshot = TablesReader(tables.directory).refresh()
    return Inputs(snapshot=snapshot, now=START + SECOND, settings=PageSettings(stale_after=60.0), **more)


def labels(drawing: Any) -> list[str]:
    return [lane.label for lane in drawing.lanes]


def test_a_timeline_has_states_of_partitions_and_brokers_with_their_work() -> None:
    events = [
        event(EventKind.FENCED, 10),
        event(EventKind.ISR_SHRINK, 10, 0, left_isr=(3,)),
        event(EventKind.UNDER_MIN_ISR_BEGAN, 10, 0),
        event(EventKind.UNDER_MIN_ISR_BEGAN, 12, 1),
        event(EventKind.UNDER_MIN_ISR_ENDED, 20, 0),
        event(EventKind.UNDER_MIN_ISR_ENDED, 30, 1),
        event(EventKind.UNFENCED, 25),
        event(EventKind.ISR_EXPAND, 26, 0, joined_isr=(3,)),
    ]
    work = [Work(3, START - 100 * SECOND, START + 40 * SECOND, "new disk", has_overrun=False)]
    drawing = timeline({**CLOSED, **SUSPECT}, events, work, START + 600 * SECOND)
    under, broker = drawing.lanes
    assert under.label == "partitions of the cluster newly under min ISR, at most 2"
    assert broker.label == ("broker 3, work announced: new disk, down (bar), leaves ISRs (\u25b2) and is back (\u2714)")
    (band,) = under.bands
    announced, down = broker.bands
    assert (announced.left, announced.style, down.style) == (0, "work", "critical")
    assert band.left == pytest.approx(100 * 20 / 80)  # the axis begins and ends ten seconds apart from the incident
    assert band.width == pytest.approx(100 * 20 / 80)
    assert down.width == pytest.approx(100 * 15 / 80, abs=0.02)
    assert [mark.style for mark in broker.marks] == [Level.WARNING, Level.HEALTHY]
    assert [tick.anchor for tick in drawing.ticks] == ["start", "middle", "end"]


def test_a_timeline_says_of_no_broker_that_it_is_back_before_it_is() -> None:
    left = event(EventKind.ISR_SHRINK, 10, 0, left_isr=(3,))
    joined = event(EventKind.ISR_EXPAND, 30, 0, joined_isr=(3,))
    for events, said in (
        ([left], "leaves ISRs (\u25b2)"),
        ([joined], "is back (\u2714)"),
        ([left, joined], "leaves ISRs (\u25b2) and is back (\u2714)"),
    ):
        assert labels(timeline({**OPEN, **SUSPECT}, events, [], START + 60 * SECOND)) == [f"broker 3, {said}"]


def test_an_incident_of_days_has_dates_few_brokers_in_its_title_and_a_way_to_its_begin(
    tables: Tables, rows: Rows
) -> None:
    tables.commit(rows.cluster_row(START), rows.broker(3), rows.source(START))
    every = (*map(str, range(1, 40)),)
    said = f"rolling restart of brokers {', '.join(every)} and 40"
    row = {
        **dict.fromkeys(INCIDENT_COLUMNS), **rows.owner, **OPEN, "incident_id": "loss:1", "short_id": "main-1",
        "incident_class": "rolling_restart", "summary": f"{said}: up to 9 partitions under-replicated",
    }  # fmt: skip
    day = 86_400
    events = [
        event(EventKind.FENCED, 10, event_broker=3),
        event(EventKind.UNFENCED, 20, event_broker=3),
        event(EventKind.FENCED, day + 10, event_broker=3),
        event(EventKind.LEADER_CHANGE, 20, 0, event_broker=3, leader_before=2, leader_after=3, event_id="e1"),
        event(EventKind.ISR_SHRINK, day + 10, 1, event_broker=3, left_isr=(3,), event_id="e2"),
    ]
    suspect = {"suspects": [{"broker": 3, "score": 1.0}], "brokers": [3], "event_ids": ["e1"]}
    inputs = replace(inputs_of(tables, is_kept=lambda _: True), now=START + 2 * day * SECOND)
    page = incident_page(inputs, {**row, **suspect}, IncidentHistory(events), (None, None), ())
    assert page.title == (
        "\u25b2 main-1 open when last observed: rolling restart of 40 brokers (1, 2, 3, \u2026) - isrwatch"
    )
    assert page.headline == "rolling restart of 40 brokers (1, 2, 3, \u2026)"
    down = dict(page.facts)["down (UTC)"]
    assert down == "broker 3 from 14:13:30 to 14:13:40 and from 09-22 14:13:30"
    assert [(link.words, link.path) for link in page.ends[-1:]] == [
        ("this page when it began", links.incident("main-1", START + 10 * SECOND))
    ]
    (blamed,) = page.suspects
    assert [each.what.strip() for each in blamed.evidence] == ["fenced", "fenced", "broker 3 left the ISR"]


def test_a_timeline_until_a_moment_shows_nothing_later() -> None:
    later = Work(3, START + 40 * SECOND, None, "later", has_overrun=False)
    now = Work(3, START + 5 * SECOND, START + 50 * SECOND, "ends later", has_overrun=False)
    drawing = timeline({**CLOSED, **SUSPECT}, [event(EventKind.FENCED, 10)], [now, later], START + 20 * SECOND)
    (broker,) = drawing.lanes
    assert broker.label == "broker 3, work announced: ends later, down (bar)"
    assert [round(band.left + band.width) for band in broker.bands] == [100, 100]
    assert drawing.ticks[-1].text == "14:13:40"


def test_a_timeline_has_every_broker_that_fell_whichever_incident_that_is_of() -> None:
    events = [
        event(EventKind.FENCED, 10),
        event(EventKind.FENCED, 12, event_broker=2),
        event(EventKind.UNFENCED, 20, event_broker=2),
        event(EventKind.CONTROLLER_CHANGE, 25, event_broker=None),
        event(EventKind.FENCED, 30, event_broker=2),
        event(EventKind.LOG_DIR_OFFLINE, 40, event_broker=7),
    ]
    drawing = timeline({**CLOSED, **SUSPECT}, events, [], START + 600 * SECOND)
    assert labels(drawing) == [
        "broker 3, down (bar)",
        "broker 2, down (bar)",
        "broker 7, loses a log directory (\u2716)",
        "another controller takes over",
    ]
    assert [len(lane.bands) for lane in drawing.lanes] == [1, 2, 0, 0]
    assert absences(events) == {
        3: [(START + 10 * SECOND, None)],
        2: [(START + 12 * SECOND, START + 20 * SECOND), (START + 30 * SECOND, None)],
    }
    many = [event(EventKind.FENCED, 10, event_broker=number) for number in range(20)]
    assert labels(timeline({**CLOSED, **SUSPECT}, many, [], START + 600 * SECOND))[-1] == (
        "and 12 more brokers, which the lines below name"
    )


@pytest.mark.parametrize("name", ["unclean_election", "reassignment", "controller_failover"])
def test_a_headline_has_no_numbers_and_never_says_that_it_has_recovered(name: str) -> None:
    observed = [each for each in observations(name) if each.channel is Channel.REPLICATION]
    fold = IncidentFold(IncidentGaps())
    for row in rows_from(observed):
        for incident in fold.fold([row]):
            written = incident_row(incident, 1, may_go_on=True)
            said = sentence_of(written)
            assert written["summary"].startswith(said.what)
            assert not re.search(r"\d+ partition|recovered", said.brief)
            assert said.more == ""
            assert said.consequence in ("", written["consequence"])
            assert said.numbers or said.brief == written["summary"]


def test_a_sentence_whose_end_was_not_seen_says_so_without_what_to_do() -> None:
    told = {"consequence": "writes fail", "next_step": "start broker 3 again"}
    facts = "broker 3 was stopped (announced: 3 of 4: disk): up to 2 partitions under-replicated, 0 under min ISR"
    said = sentence_of({**told, "summary": f"{facts}; writes fail; start broker 3 again; its end was not seen"})
    assert said.brief == "broker 3 was stopped (announced: 3 of 4: disk); writes fail; its end was not seen"
    assert said.numbers == "up to 2 partitions under-replicated, 0 under min ISR"


def test_what_is_over_and_raised_for_a_while_longer_is_no_trouble_of_now(tables: Tables, rows: Rows) -> None:
    over = {"since": START - 400 * SECOND, "ended_at": START - 30 * SECOND, "short_id": "main-1"}
    again = {"since": START - 200 * SECOND, "subject": "4", "short_id": "main-2"}
    tables.commit(rows.cluster_row(START), rows.broker(1), rows.broker(4), rows.source(START))
    spells = (
        rows.spell("under_min_isr", START - 400 * SECOND, **over),
        rows.spell("broker_down", START - 40 * SECOND, **again),
    )
    tables.put("conditions", *spells, as_of=0)
    snapshot = TablesReader(tables.directory).refresh()
    inputs = Inputs(snapshot=snapshot, now=START, settings=PageSettings(stale_after=60.0))
    page = cluster_page(inputs, "main")
    (row,) = page.conditions
    assert (row.level, row.text, row.ended_at) == (Level.INFO, "under min ISR", START - 30 * SECOND)
    assert (page.level, page.sentence) == (Level.HEALTHY, "nothing is wrong")
    (row,) = broker_page(inputs, "main", 4).conditions
    assert (row.since, row.first_since) == (START - 40 * SECOND, START - 200 * SECOND)


def test_a_partition_is_in_its_worst_state_for_as_long_as_that_lasts(tables: Tables, rows: Rows) -> None:
    """Three days after it lost a follower it lost the next: the page, the command and the reason have one time."""
    ages = {"offline": 5, "under_min_isr": 30, "under_replicated": 259_200}
    since = {f"{state}_since": START - age * SECOND for state, age in ages.items()}
    states = (
        rows.state([1, 2, 3], [], -1, **since),
        rows.state([1, 2, 3], [1], 1, **{**since, "offline_since": None}),
        rows.state([1, 2, 3], [1, 2], 1, under_replicated_since=since["under_replicated_since"]),
    )
    partitions = [rows.partition("orders", number, state) for number, state in enumerate(states)]
    tables.commit(rows.cluster_row(START), rows.broker(1), *partitions, rows.source(START))
    tables.put("conditions", rows.spell("under_replicated", START - 9 * SECOND, "2"), as_of=0)
    snapshot = TablesReader(tables.directory).refresh()
    inputs = Inputs(snapshot=snapshot, now=START, settings=PageSettings(stale_after=60.0))
    page = topic_page(inputs, "main", "orders")
    assert [(START - (row.since or 0)) // SECOND for row in page.partitions] == [*ages.values()]
    assert page.sentence == "1 offline, 1 under min ISR, 1 at min ISR of 3 partitions", "each is counted once"
    (cluster,) = snapshot.clusters.values()
    assert [round(row["health_seconds"]) for row in answered(tables, "partitions", START).rows] == [*ages.values()]
    reasons = {each.condition: each.since for each in partition_reasons(cluster, START)}
    for condition, age in (("offline_partitions", 5), ("under_min_isr", 30), ("under_replicated", 259_200)):
        assert reasons[condition] == START - age * SECOND, "the oldest of them, whatever a row says of one broker"


def test_after_an_unclean_election_pages_say_what_to_do_though_all_is_in_sync(tables: Tables, rows: Rows) -> None:
    partition = rows.partition("orders", 0, rows.state([1, 4], [1, 4], 1))
    tables.commit(rows.cluster_row(START), rows.broker(1), rows.broker(4), partition, rows.source(START))
    at = START - 50 * SECOND
    spell = rows.spell("unclean_election", at, ended_at=at, short_id="main-1", incident_id="unclean:1")
    tables.put("conditions", spell, as_of=0)
    incident = {"short_id": "main-1", "recovered_at": at, "next_step": "find out which records are missing, and why"}
    tables.put(
        "incidents", rows.incident("unclean:1", "unclean_election", at, severity="critical", **incident), as_of=0
    )
    inputs = inputs_of(tables)
    assert cluster_page(inputs, "main").do_first == incident["next_step"]
    (row,) = fleet_page(inputs).rows
    assert (row.level, [name for name, _ in row.incidents]) == (Level.CRITICAL, ["main-1"])
    page = topic_page(inputs, "main", "orders")
    assert (page.level, page.sentence) == (
        Level.CRITICAL,
        "at 2026-09-21 14:12:30Z a leader was elected that may lack acknowledged records; every partition is in sync",
    )


@pytest.mark.parametrize("is_past", [False, True])
def test_the_sentence_of_a_cluster_is_about_its_trouble_and_only_what_has_recovered_has(
    tables: Tables, rows: Rows, *, is_past: bool
) -> None:
    """An unknown minimum hides no incident; in the past an open one that had not recovered is no recovered one."""
    lost = rows.partition("orders", 0, rows.state([1, 4], [1], 1, min_isr=None))
    away = rows.broker(4, is_fenced=True)
    tables.commit(rows.cluster_row(START), rows.broker(1), away, lost, rows.source(START))
    open_one = rows.incident("loss:1", "broker_loss", START - SECOND, short_id="main-1", severity="warning")
    tables.put("incidents", open_one, as_of=0)
    inputs = inputs_of(tables, past=PastMoment(START) if is_past else None)
    (row,) = fleet_page(inputs).rows
    assert row.level is Level.WARNING
    lacking = "partitions have fewer replicas in sync than assigned: orders-0"
    assert row.sentence == (lacking if is_past else "broker_loss in a test")

    well = rows.partition("orders", 0, rows.state([1, 4], [1, 4], 1), START + SECOND)
    tables.commit(rows.cluster_row(START + SECOND), rows.broker(4), well, rows.source(START + SECOND))
    inputs = inputs_of(tables, past=PastMoment(START) if is_past else None)
    (row,) = fleet_page(inputs).rows
    assert row.sentence == ("nothing is wrong" if is_past else "broker_loss in a test")
    tables.put("incidents", {**open_one, "recovered_at": START}, as_of=0)
    (row,) = fleet_page(inputs_of(tables)).rows
    assert row.sentence == "nothing is wrong; 1 incident recovered lately"


def test_of_a_cluster_that_is_not_observed_the_page_says_where_to_look(tables: Tables, rows: Rows) -> None:
    tables.commit(rows.cluster_row(START), rows.broker(1), rows.source(START))
    later = replace(inputs_of(tables), now=START + 600 * SECOND)
    do_first = cluster_page(later, "main").do_first
    assert do_first == "find out why nothing is observed any more: isrwatch doctor says what does not work"
    do_first = cluster_page(replace(later, past=PastMoment(later.now)), "main").do_first
    assert do_first is None, "of the past nothing can be done"


def test_the_incident_of_a_failed_disk_explains_that_its_directory_is_offline(tables: Tables, rows: Rows) -> None:
    tables.commit(rows.cluster_row(START), rows.broker(1), rows.source(START))
    tables.put(
        "sampled_conditions", *(rows.sampled_spell("log_directory_offline", f"{each}:/a", START) for each in (1, 9))
    )
    of_disk = rows.incident("disk:1", "disk_failure", START, short_id="main-1", brokers=[1])
    tables.put("incidents", of_disk, rows.incident("loss:1", "broker_loss", START, brokers=[9]), as_of=0)
    inputs = inputs_of(tables)
    for page in (cluster_page(inputs, "main"), broker_page(inputs, "main", 1)):
        (row,) = page.conditions
        assert [name for name, _ in row.incidents] == ["main-1"]


def test_a_condition_is_called_alike_wherever_it_is_and_what_is_not_sampled_is_unknown(
    tables: Tables, rows: Rows
) -> None:
    tables.commit(rows.cluster_row(START), rows.broker(1), rows.source(START))
    tables.put("sampled_conditions", rows.sampled_spell("disk_nearly_full", "1:/data-0", START))
    directory = {**rows.owner, "collected_at": START, "source": "samples:1", "broker": 1, "is_online": True}
    sizes = {"total_bytes": 100, "usable_bytes": 20}
    tables.put(
        "log_directories",
        {**directory, "log_dir": "/a"},
        {**directory, "log_dir": "/b", **sizes, "bytes_per_second": 0.0},
        {**directory, "log_dir": "/c", **sizes, "bytes_per_second": 9.0, "seconds_until_full": 75.0},
    )
    inputs = inputs_of(tables)
    page = cluster_page(inputs, "main")
    assert page.sentence == "disk nearly full: /data-0 of broker 1"
    assert [row.text for row in page.conditions] == [page.sentence]
    shown = broker_page(inputs, "main", 1)
    assert [row.full_in for row in shown.directories or ()] == [None, "not soon", "1 min 15 s"]
    (help_of_one,) = {row.runbook for row in (*page.conditions, *shown.conditions)}
    assert help_of_one == "/runbook/IsrwatchDiskFillsUp?cluster=main&broker=1"
    assert [words_of(each) for each in ("isr_flapping", "elr_election")] == ["ISR flapping", "ELR election"]


def test_groups_in_trouble_are_those_with_a_warning_and_wrong_partitions_are_the_first(
    tables: Tables, rows: Rows
) -> None:
    """A console consumer that ended is no trouble; of a thousand partitions the one beyond the end has no lag."""
    common = {**rows.owner, "collected_at": START, "source": "samples:1", "topic_id": "orders-1", "topic": "orders"}
    sums = {"group_state": "Empty", "members": 0, "committed_offset": 1, "lag": 4}
    described = {**rows.owner, "collected_at": START, "source": "samples:1", "group_protocol": "classic"}
    tables.put(
        "group_offsets",
        *({**common, **sums, "group": group, "partition": 0} for group in ("console-1", "console-2")),
        *({**common, **sums, "group": "wide", "partition": each} for each in range(PARTITIONS_SHOWN)),
        {**common, **sums, "group": "wide", "partition": PARTITIONS_SHOWN, "lag": 0, "beyond": 7},
    )
    tables.put("groups", {**described, "group": "unread", "group_state": "Stable", "coordinator": 2, "is_unread": True})
    tables.commit(rows.cluster_row(START), rows.source(START))
    snapshot = TablesReader(tables.directory).refresh()
    inputs = Inputs(snapshot=snapshot, now=START, settings=PageSettings(stale_after=60.0))
    page = groups_page(inputs, "main")
    assert page.title == "\u2716 1 of 4 groups in trouble, 1 unknown, main - isrwatch"
    late = "broker 2 did not say what it has committed"
    assert [(row.level, row.trouble) for row in page.rows if row.name == "unread"] == [(Level.UNKNOWN, late)]
    page = groups_page(replace(inputs, query={"name": ("unread",)}), "main")
    assert (page.troubles, page.empty) == (((Level.UNKNOWN, late),), "No position of it is known.")
    page = groups_page(replace(inputs, query={"name": ("wide",)}), "main")
    assert (page.positions[0].partition, page.positions[0].is_wrong) == (f"orders-{PARTITIONS_SHOWN}", True)
    assert page.left_out == 1


def test_a_reason_of_several_brokers_is_said_once() -> None:
    reasons = (1, "a partition is moved"), (2, None), (3, "a partition is moved"), (4, "not up")
    assert [*by_reason(reasons)] == [("brokers 1, 3", "a partition is moved"), ("broker 4", "not up")]


def test_every_cause_is_explained_to_who_reads_its_name() -> None:
    assert {*CAUSES_EXPLAINED} == {*Cause}
    assert causes_explained([Cause.ELR_ELECTION, None, "new", Cause.ELR_ELECTION]) == {
        "elr_election": CAUSES_EXPLAINED[Cause.ELR_ELECTION]
    }


def test_a_timeline_without_events_is_empty_but_drawn() -> None:
    drawing = timeline({**OPEN, **SUSPECT, "suspects": None, "brokers": None}, [], [], START + SECOND)
    assert (labels(drawing), drawing.height) == ([], 26)


def test_a_short_bar_of_a_month_can_be_seen_and_stays_inside() -> None:
    axis = Axis(START - 30 * 86_400 * SECOND, START)
    band = axis.band(START - SECOND, None, Level.WARNING)
    assert band.width > 0.1
    assert band.left + band.width <= 100
    assert axis.ticks()[0].text == "08-22"


def test_what_severities_are_called_in_alerts_changes_no_page(tables: Tables) -> None:
    write_live_cluster(tables, START)
    snapshot = TablesReader(tables.directory).refresh()
    other_words = ConditionSettings(severity_names={"critical": "page", "warning": "ticket"})
    inputs, renamed = (
        Inputs(snapshot=snapshot, now=START, settings=PageSettings(stale_after=60.0, conditions=each))
        for each in (ConditionSettings(), other_words)
    )
    assert inputs.raised["main"]
    assert inputs.raised == renamed.raised
    assert cluster_page(renamed, "main") == cluster_page(inputs, "main")


@pytest.mark.parametrize(
    ("row", "second", "said"),
    [
        (CLOSED, 90, "1 min"),
        (CLOSED, 30, "open for 30 s"),
        (OPEN, 90, "open for 1 min 30 s"),
        ({**OPEN, "recovered_at": START + 60 * SECOND}, 90, "recovered after 1 min"),
        ({**OPEN, "recovered_at": START + 60 * SECOND}, 30, "open for 30 s"),
    ],
)
def test_an_incident_lasts_as_of_the_moment_that_is_shown(row: dict[str, Any], second: int, said: str) -> None:
    assert lasted(row, START + second * SECOND) == said


def test_of_a_reassignment_no_broker_is_suspect(tables: Tables, rows: Rows) -> None:
    tables.commit(rows.cluster_row(START), rows.broker(3), rows.source(START))
    row = {**dict.fromkeys(INCIDENT_COLUMNS), **rows.owner, **CLOSED, "incident_id": "move:1", "suspects": []}
    for kind, said in (("reassignment", "none"), ("unsafe_reassignment", "none"), ("controller_failover", "?")):
        incident = {**row, "incident_class": kind, "summary": kind}
        assert suspects(incident) == said
        page = incident_page(inputs_of(tables), incident, IncidentHistory(), (None, None), ())
        assert page.is_blameless is (said == "none")


def test_of_a_cluster_that_is_not_observed_it_is_unknown_whether_an_incident_lasts() -> None:
    assert lasted(OPEN, START + 90 * SECOND, is_old=True) == "open when last observed"
    assert lasted(CLOSED, START + 90 * SECOND, is_old=True) == "1 min"


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (None, None),
        (-1, "0 s"),
        (59.9, "59 s"),
        (60, "1 min"),
        (3_600, "1 h"),
        (90_061, "1 d 1 h"),
        (1e9, "11574 d 1 h"),
    ],
)
def test_a_duration_has_its_two_largest_units(seconds: float | None, said: str | None) -> None:
    assert lasting(seconds) == said


@pytest.mark.parametrize(
    ("unclean", "section"), [(0, "/runbook/IsrwatchBrokerDown"), (None, "/runbook/IsrwatchBrokerDown"), (1, UNCLEAN)]
)
def test_where_records_may_be_lost_the_commands_save_them_before_any_broker_is_started(
    unclean: int | None, section: str
) -> None:
    row = {"incident_class": "broker_loss", "unclean_elections": unclean, "suspects": [], "brokers": [3]}
    closed = {"topics": ["orders"], "closed_at": 1, "short_id": "main-1"}
    handling = handling_of(Installations(), {**row, **closed}, "main", ())
    assert (handling.runbook_path or "").startswith(section)
    is_about_records = "unclean" in "".join(block.text for block in handling.commands[1:])
    assert is_about_records is (section == UNCLEAN)


def test_of_data_that_a_clock_which_was_ahead_has_dated_it_is_not_said_that_they_are_old() -> None:
    state = ClusterState(
        ClusterId("c"), "main", SourceKind.POLL, has_baseline=True, primary_watermark=Micros(START + 1_800 * SECOND)
    )
    one = ClusterSnapshot(cluster=state, watermark_read_at=START)
    now = START + 600 * SECOND
    inputs = Inputs(snapshot=ReplicationSnapshot(clusters={}), now=now, settings=PageSettings(stale_after=60.0))
    (notice,) = notice_of_age(inputs, one)
    assert notice.text.startswith("Stale: a clock was ahead, and has dated its data up to ")
    there = replace(inputs, snapshot=ReplicationSnapshot(clusters={"c": one}))
    assert cluster_page(there, "main").do_first is None, "it is observed"
