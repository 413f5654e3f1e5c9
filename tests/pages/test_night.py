"""The check of a night against Kafka's log: what it takes for right, and that it sees each kind of fault."""

from __future__ import annotations

import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from deploy.sandbox.dump import DumpedRecord
from tests.chaos_kafka.compare import Facts
from tests.chaos_kafka.kept import kept_folders, kept_night, records_kept
from tests.pages.kafkas_log import Counts, KafkasLog, Moment
from tests.pages.night import Pages, Walk, differences, drawn, wrong_walk
from tests.pages.reading import Read, read_page

SECOND = 1_000_000
TOPIC = "aaa"


def partition(number: int, isr: tuple[int, ...], leader: int) -> dict[str, Any]:
    return {"topicId": TOPIC, "partitionId": number, "replicas": [1, 2, 3], "isr": list(isr), "leader": leader,
            "leaderEpoch": 0, "partitionEpoch": 0, "removingReplicas": [], "addingReplicas": []}  # fmt: skip


STEPS: tuple[tuple[int, str, dict[str, Any]], ...] = (
    *((1, "REGISTER_BROKER_RECORD", {"brokerId": broker, "fenced": True}) for broker in (1, 2, 3)),
    *((2, "UNFENCE_BROKER_RECORD", {"id": broker, "epoch": 1}) for broker in (1, 2, 3)),
    (3, "TOPIC_RECORD", {"topicId": TOPIC, "name": "orders"}),
    (3, "CONFIG_RECORD", {"resourceType": 2, "resourceName": "orders", "name": "min.insync.replicas", "value": "2"}),
    (3, "PARTITION_RECORD", partition(0, (1, 2, 3), 1)),
    (3, "PARTITION_RECORD", partition(1, (2, 3), 2)),
    (5, "BROKER_REGISTRATION_CHANGE_RECORD", {"brokerId": 3, "brokerEpoch": 1, "fenced": 1}),
    (5, "PARTITION_CHANGE_RECORD", {"topicId": TOPIC, "partitionId": 0, "isr": [1, 2]}),
    (5, "PARTITION_CHANGE_RECORD", {"topicId": TOPIC, "partitionId": 1, "isr": [2]}),
    (7, "PARTITION_CHANGE_RECORD", {"topicId": TOPIC, "partitionId": 1, "leader": -1}),
    (9, "NO_OP_RECORD", {}),
)
RECORDS = [
    DumpedRecord(offset=offset, timestamp=seconds * SECOND, kind=kind, version=0, data=data)
    for offset, (seconds, kind, data) in enumerate(STEPS)
]
KAFKAS = KafkasLog(RECORDS)


def test_the_log_says_the_state_of_each_moment() -> None:
    counts = {second: KAFKAS.at(second * SECOND).counts() for second in (1, 2, 3, 4, 5, 6, 7, 9)}
    assert counts == {
        1: Counts(0, 0, 0, 3),
        2: Counts(0, 0, 0, 0),
        3: Counts(0, 0, 1, 0),
        4: Counts(0, 0, 1, 0),
        5: Counts(0, 1, 1, 1),
        6: Counts(0, 1, 1, 1),
        7: Counts(1, 1, 1, 1),
        9: Counts(1, 1, 1, 1),
    }
    assert KAFKAS.at(5 * SECOND - 1).counts() == counts[4]
    assert KAFKAS.changes() == [each * SECOND for each in (1, 2, 3, 5, 7)]
    assert KAFKAS.changes("orders") == [each * SECOND for each in (3, 5, 7)]
    assert KAFKAS.end == 9 * SECOND


def table(headings: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    def line(cells: Iterable[object], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{cell}</{tag}>" for cell in cells) + "</tr>"

    return (
        f"<table><thead>{line(headings, 'th')}</thead><tbody>{''.join(line(row, 'td') for row in rows)}</tbody></table>"
    )


def isr_of(facts: Facts) -> str:
    return ", ".join(map(str, facts.isr))


def pages_of(moment: Moment, fault: str = "") -> Pages:
    """Serve the pages of one moment as they should be, but for one fault."""

    def html(url: str) -> str:
        path = "/" + url.split("/", 3)[3].partition("?")[0]
        if path == "/":
            counts = moment.counts()._replace(fenced=7) if fault == "count" else moment.counts()
            return table(["cluster", "offline", "under min ISR", "at min ISR", "fenced brokers"],
                         [["chaos", f"({counts[0]})", *counts[1:]]])  # fmt: skip
        parts = [facts for _, facts in sorted(moment.partitions.items())]
        if path.endswith("/topics/orders"):
            rows = [[f"orders-{n}", "none" if facts.leader < 0 else facts.leader, ", ".join(map(str, facts.isr)),
                     ", ".join(str(each) for each in facts.replicas if each not in facts.isr) or "none"]
                    for n, facts in enumerate(parts)]  # fmt: skip
            if fault == "leader":
                rows[1][1] = 3
            return table(["partition", "leader", "ISR", "not in sync"], rows[: 1 if fault == "partition" else 2])
        if "/brokers/" in path:
            number = int(path.rpartition("/")[2])
            led, in_sync = (sum(facts.leader == number for facts in parts), sum(number in facts.isr for facts in parts))
            held = sum(number in facts.replicas for facts in parts)
            at_risk = [[f"orders-{n}", facts.leader, "7" if fault == "of broker" and not n else isr_of(facts), ""]
                       for n, facts in enumerate(parts) if number in facts.replicas and number == 1]  # fmt: skip
            return (f"<dl><dt>leads</dt><dd>{led + (fault == 'leads')} partitions</dd><dt>in sync</dt>"
                    f"<dd>{in_sync} of {held} replicas</dd></dl>"
                    + table(["partition", "leader", "ISR", "not in sync"], at_risk))  # fmt: skip
        if path.startswith("/incidents/"):
            state = "fenced" if moment.brokers[3] and fault != "of incident" else "active"
            return table(["broker", "state then", "explains", "evidence"], [["broker 3", state, "100 %", ""]])
        rows = [
            [f"broker {broker}", "fenced" if is_fenced else "active", sum(facts.leader == broker for facts in parts),
             f"{sum(broker in facts.isr for facts in parts)} of {len(parts)}"]
            for broker, is_fenced in moment.brokers.items()
        ]  # fmt: skip
        incidents = table(["incident", "what happened", "lasted"], [["chaos-1", "broker 3 was lost", "open"]])
        return table(["broker", "state", "leads", "in sync"], rows[: 2 if fault == "broker" else 3]) + incidents

    return Pages("127.0.0.1:1", lambda url: read_page(200, url, html(url)))


@pytest.mark.parametrize("second", [3, 5, 7])
def test_pages_that_show_what_the_log_had_are_right(second: int) -> None:
    assert list(differences(pages_of(KAFKAS.at(second * SECOND)), KAFKAS, second * SECOND)) == []


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("count", "the page of all clusters has"),
        ("leader", "orders-1 is shown with leader"),
        ("partition", "topic orders (200) has partitions"),
        ("broker", "the cluster (200) has brokers"),
        ("of broker", "the page of broker 1 has"),
        ("of incident", "the page of chaos-1 has broker 3 active, fenced: True"),
    ],
)
def test_each_kind_of_fault_is_seen(fault: str, said: str) -> None:
    (sentence,) = differences(pages_of(KAFKAS.at(7 * SECOND), fault), KAFKAS, 7 * SECOND)
    assert sentence.startswith("at 1970-01-01T00:00:07Z ")
    assert said in sentence


def test_the_state_of_another_moment_is_seen() -> None:
    sentences = list(differences(pages_of(KAFKAS.at(4 * SECOND)), KAFKAS, 5 * SECOND))
    assert {each.split(" ")[2] for each in sentences} == {"the", "broker", "orders-0", "orders-1"}


def test_a_refused_page_is_no_right_one() -> None:
    refused = Pages("127.0.0.1:1", lambda url: Read(404, url))
    assert len(list(differences(refused, KAFKAS, 3 * SECOND))) == 3 + 3, "of the brokers"


def walked(moments: list[int], *, skipped: int | None = None) -> Walk:
    """Walk over pages that link to these moments."""

    def get(url: str) -> Read:
        at = int(url.partition("=")[2].partition(":00Z")[0].rpartition(":")[2])
        before = [each for each in moments if each < at and each != skipped]
        after = [each for each in moments if each > at]
        read = Read(200, url)
        if before:
            read.links["prev"] = f"http://x/?at=1970-01-01T00:{before[-1]:02}:00Z"
        if after:
            read.links["next"] = f"http://x/?at=1970-01-01T00:{after[0]:02}:00Z"
        return read

    pages = Pages("x", get)
    return pages.walk(lambda at: f"/?at=1970-01-01T00:{at // 60 // SECOND:02}:00Z", 30 * 60 * SECOND)


def test_a_walk_meets_each_change_once_both_ways() -> None:
    minute = 60 * SECOND
    right = walked([1, 5, 9])
    assert right == Walk([9 * minute, 5 * minute, minute], [5 * minute, 9 * minute])
    assert list(wrong_walk("x", right, [minute, 5 * minute, 9 * minute], 30 * minute)) == []
    assert list(wrong_walk("x", right, [7 * minute], 30 * minute)) == [
        "x: 1 changes of the log are never met: 1970-01-01T00:07:00Z"
    ]
    one_way = walked([1, 5, 9], skipped=5)
    assert list(wrong_walk("x", one_way, [5 * minute], 30 * minute)) == [
        "x: next does not lead back over the changes that previous led to"
    ]
    assert list(wrong_walk("x", Walk([], []), [], 1)) == ["x: no change before the end"]
    assert "previous does not lead back" in next(wrong_walk("x", Walk([3, 3], [3]), [], 5))


def test_a_moment_is_drawn_at_a_change_or_before_one_or_anywhere_and_never_before_the_first() -> None:
    moments = {drawn(random.Random(seed), [10, 20], 10, 40) for seed in range(99)}
    assert {10, 19, 20} < moments
    assert len(moments) > 5
    assert (min(moments), max(moments) <= 40) == (10, True)


def test_what_is_kept_of_a_run_is_read_back_and_half_a_copy_is_none(tmp_path: Path) -> None:
    tables = tmp_path / "from"
    tables.mkdir()
    (tables / "a").write_text("x")
    kept_night(tables, RECORDS, tmp_path / "night" / "seed-1")
    (tmp_path / "night" / "seed-2" / "tables").mkdir(parents=True)
    (kept,) = kept_folders(tmp_path / "night")
    assert records_kept(kept) == RECORDS
    assert (kept / "tables" / "a").read_text() == "x"
