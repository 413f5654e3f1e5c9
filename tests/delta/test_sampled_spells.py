"""Spells of what samples show: the same however their log is cut, repeated after a kill, or late in part."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streaming.contracts.columns import Table
from streaming.contracts.conditions import HOUR
from streaming.contracts.identifiers import SECOND
from streaming.contracts.sample_tables import LOG_DIRECTORIES, QUORUM_MEMBERS, TRANSACTIONS
from streaming.contracts.sampled_conditions import GIVEN_UP, PACE, SampledSpell
from streaming.contracts.tables import SAMPLED_CONDITIONS
from streaming.delta.log.definitions import arrow_schema
from streaming.delta.log.queries import plain_type
from streaming.delta.samples.newest import Newest
from streaming.delta.samples.sampled_spells import SampledSpells, rounds, spells_in
from tests.examples import examples

Row = dict[str, Any]
START = 1_790_000_000 * SECOND // HOUR * HOUR
OWNER = {"cluster_id": "c", "cluster": "prod", "source": "samples:a"}


def plain_schema(table: Table) -> pa.Schema:
    return pa.schema([pa.field(item.name, plain_type(item.type)) for item in arrow_schema(table)])


class Stored:
    """What the tables of a job hold, and the job in memory."""

    def __init__(self, table: Table, days: int = 0) -> None:
        self.table, self.days = table, days
        self.rows = plain_schema(table).empty_table()
        self.spells = arrow_schema(SAMPLED_CONDITIONS).empty_table()
        self.start()

    def start(self) -> None:
        self.newest, self.held = Newest(self.table, self.rows), SampledSpells(self.spells, self.days)

    def apply(self, samples: list[Row], *, is_killed: bool = False) -> None:
        """Apply a batch: the spells are committed, and then the rows, unless the job is killed between the two."""
        if samples:
            columns = pa.Table.from_pylist([OWNER | each for each in samples], schema=plain_schema(self.table))
            self.held.take(self.newest, columns)
            self.spells = self.held.changed().get("c", self.spells)  # type: ignore[call-overload]
        if is_killed:
            self.start()
            return
        self.rows = self.newest.rows

    @property
    def found(self) -> set[SampledSpell]:
        return set(spells_in(self.spells))


def shown(stored: Stored) -> list[tuple[Any, ...]]:
    """Give condition, subject and part, and since when, from when and until when, in seconds."""
    spells = sorted(stored.found, key=lambda each: (each.condition, each.subject, each.part, each.began_at))
    return [(*each.key[1:], *map(seconds, (each.since, each.began_at, each.ended_at))) for each in spells]


def seconds(at: int | None) -> float | None:
    return None if at is None else (at - START) / SECOND


def directory(at: float, *, broker: int = 1, free: int | None = 50, is_online: bool = True, name: str = "/d") -> Row:
    return {
        "broker": broker, "log_dir": name, "is_online": is_online, "total_bytes": None if free is None else 100,
        "usable_bytes": free, "collected_at": START + round(at * SECOND),
    }  # fmt: skip


def voters(at: float, **behind: float | None) -> list[Row]:
    """Give the answer of the leader, node 1; by node how far it is behind, None if the leader does not know."""
    now = START + round(at * SECOND)
    rows = {"n1": 0.0, **behind}
    return [
        {
            "node": int(name[1:]), "is_voter": True, "controller": 1, "collected_at": now,
            "last_caught_up_at": None if lag is None else now - round(lag * SECOND),
        }
        for name, lag in rows.items()
    ]  # fmt: skip


def hanging(at: float, producer: int, *partitions: str, reporter: int | None = 1) -> Row:
    return {
        "producer_id": producer, "producer_epoch": 0, "transaction_state": "Unknown", "is_hanging": bool(partitions),
        "transaction_partitions": list(partitions), "reporter": reporter, "collected_at": START + round(at * SECOND),
    }  # fmt: skip


def reported(at: float, reporter: int) -> Row:
    """Give what says that a broker has reported all its transactions."""
    return {"reporter": reporter, "collected_at": START + round(at * SECOND)}


# Each rule.


def test_a_directory_is_in_trouble_from_the_first_sample_that_shows_it_to_the_first_that_shows_the_end() -> None:
    stored = Stored(LOG_DIRECTORIES)
    for at, free in ((0, 20), (30, 12), (60, 4), (90, 12), (120, 20), (150, 12)):
        stored.apply([directory(at, free=free)])
    assert shown(stored) == [
        ("disk_fills_up", "1:/d", "", 60, 60, 90),
        ("disk_nearly_full", "1:/d", "", 30, 30, 120),
        ("disk_nearly_full", "1:/d", "", 150, 150, None),
    ]


def test_a_directory_that_is_offline_says_nothing_about_its_volume() -> None:
    stored = Stored(LOG_DIRECTORIES)
    for at, free, is_online in ((0, 12, True), (30, None, False), (60, 12, True), (90, 50, True)):
        stored.apply([directory(at, free=free, is_online=is_online)])
    assert shown(stored) == [
        ("disk_nearly_full", "1:/d", "", 0, 0, 90), ("log_directory_offline", "1:/d", "", 30, 30, 60)
    ]  # fmt: skip


def test_the_pace_of_a_volume_is_a_part_of_its_own() -> None:
    stored = Stored(LOG_DIRECTORIES)
    for number in range(5):
        stored.apply([directory(600 * number, free=28 - 2 * number)])
    assert shown(stored) == [("disk_nearly_full", "1:/d", PACE, 600, 600, None)]


@pytest.mark.parametrize("restarts", [False, True])
def test_silence_of_a_reporter_neither_ends_nor_begins_anything_though_its_rows_are_forgotten(
    *, restarts: bool
) -> None:
    stored = Stored(LOG_DIRECTORIES)
    stored.apply([directory(0, free=1), directory(0, broker=2)])
    for at in range(30, 900, 30):
        stored.apply([directory(at, broker=2)])
        if restarts:
            stored.start()
    assert [row["broker"] for row in stored.rows.to_pylist()] == [2]
    stored.apply([directory(900, free=1), directory(900, broker=2)])
    lasts = [("disk_fills_up", "1:/d", "", 0, 0, None), ("disk_nearly_full", "1:/d", "", 0, 0, None)]
    assert shown(stored) == lasts
    stored.apply([directory(930), directory(930, broker=2)])
    assert shown(stored) == [(*each[:-1], 930) for each in lasts]


def test_what_an_answer_leaves_out_is_over_then_as_the_next_one_confirms() -> None:
    stored = Stored(LOG_DIRECTORIES)
    stored.apply([directory(0, is_online=False, name="/a"), directory(0, name="/b")])
    stored.apply([directory(30, name="/b")])
    assert shown(stored) == [("log_directory_offline", "1:/a", "", 0, 0, None)]
    stored.start()
    stored.apply([directory(60, name="/b")])
    assert shown(stored) == [("log_directory_offline", "1:/a", "", 0, 0, 30)]


def test_an_answer_of_which_a_batch_has_a_half_ends_nothing() -> None:
    stored = Stored(LOG_DIRECTORIES)
    for at in (0, 30, 60, 90):
        stored.apply([directory(at, name="/b")])
        stored.start()
        stored.apply([directory(at, is_online=False, name="/a")])
    assert shown(stored) == [("log_directory_offline", "1:/a", "", 0, 0, None)]


def test_what_nobody_answers_about_for_a_day_was_given_up() -> None:
    stored = Stored(LOG_DIRECTORIES)
    stored.apply([directory(0, is_online=False), directory(0, broker=2)])
    stored.apply([directory(86_400, broker=2)])
    assert shown(stored)[0][-1] is None
    stored.apply([directory(86_401, broker=2)])
    assert shown(stored) == [("log_directory_offline", "1:/d", "", 0, 0, GIVEN_UP / SECOND)]


def test_a_voter_whom_a_new_leader_has_not_heard_of_stays_behind() -> None:
    stored = Stored(QUORUM_MEMBERS)
    stored.apply(voters(0, n2=9, n3=11))
    stored.apply(voters(10, n2=1, n3=None))
    assert shown(stored) == [("quorum_voter_behind", "3", "", -11, 0, None)]
    stored.apply(voters(20, n2=1))
    stored.apply(voters(30, n2=1, n3=2))
    assert shown(stored) == [("quorum_voter_behind", "3", "", -11, 0, 20)]


def test_a_transaction_hangs_in_each_topic_until_whoever_reports_it_then_says_otherwise() -> None:
    stored = Stored(TRANSACTIONS)
    stored.apply([hanging(0, 7, "orders-0", "orders-1", "a-b-3"), reported(0, 1), hanging(0, 8, "orders-0")])
    stored.apply([hanging(30, 7, "a-b-3", reporter=2), reported(30, 2)])
    stored.apply([hanging(60, 7, reporter=2), reported(60, 1)])
    assert shown(stored) == [
        ("hanging_transaction", "a-b", "7/0", 0, 0, 60),
        ("hanging_transaction", "orders", "7/0", 0, 0, 30),
        ("hanging_transaction", "orders", "8/0", 0, 0, None),
    ]
    stored.apply([reported(90, 1)])
    assert shown(stored)[-1] == ("hanging_transaction", "orders", "8/0", 0, 0, 60)


def test_what_moves_to_another_reporter_lasts() -> None:
    stored = Stored(TRANSACTIONS)
    for reporter, other, at in ((1, 2, 0), (2, 1, 30), (1, 2, 60)):
        stored.apply(
            [reported(at, other), hanging(at + 5, 7, "orders-0", reporter=reporter), reported(at + 5, reporter)]
        )
        stored.start()
    assert shown(stored) == [("hanging_transaction", "orders", "7/0", 5, 5, None)]


def test_what_nobody_says_is_over_is_so_when_its_row_is_forgotten() -> None:
    stored = Stored(TRANSACTIONS)
    stored.apply([hanging(0, 7, "orders-0", reporter=None)])
    for at in (30, 60, 90):
        stored.apply([hanging(at, 8, reporter=None)])
    assert shown(stored) == [("hanging_transaction", "orders", "7/0", 0, 0, 60)]


def test_a_key_begins_at_its_first_bad_row_again_after_history_has_let_go_of_it() -> None:
    stored = Stored(LOG_DIRECTORIES, days=3)
    for day in range(6):
        for at, free in ((0, 1), (30, 50)):
            stored.apply([directory(day * 86_400 + at, free=free)])
        stored.start()
    begins = {begin for _, _, _, _, begin, _ in shown(stored)}
    assert begins == {day * 86_400 for day in (2, 3, 4, 5)}, "three days of history, and the day that counts"


def test_a_cluster_whose_times_are_ahead_ends_no_history_of_another_one() -> None:
    held, newest = SampledSpells(days=3), Newest(LOG_DIRECTORIES, plain_schema(LOG_DIRECTORIES).empty_table())
    rows = dict[str, pa.Table]()
    for day in range(3):
        for at, free in ((0, 1), (30, 50)):
            for cluster_id, ahead in (("c", 0), ("d", 365)):
                row = OWNER | directory((day + ahead) * 86_400 + at, free=free) | {"cluster_id": cluster_id}
                held.take(newest, pa.Table.from_pylist([row], schema=plain_schema(LOG_DIRECTORIES)))
                rows |= held.changed()  # type: ignore[arg-type]
    assert {cluster_id: len(spells_in(of_one)) for cluster_id, of_one in rows.items()} == {"c": 6, "d": 6}


# Any cut.


GAPS = st.sampled_from([1, 20, 20, 20, 50, 200, 4_000, 90_000])
"""No two answers of one source are of one moment: ``sources.samples.source``."""


def log_of(draw: st.DrawFn, answer: Callable[[float, int], list[Row]], reporters: int = 2) -> list[Row]:
    """Give answers of some reporters; some are silent for up to two days, and some parts of the log come twice."""
    at, log = 0.0, list[Row]()
    for gap in draw(st.lists(GAPS, min_size=1, max_size=8)):
        at += gap
        log += answer(at, draw(st.integers(1, reporters)))
        if draw(st.integers(0, 5)) == 0:
            log += log[-draw(st.integers(1, 8)) :]
    return log


@st.composite
def logs_of_directories(draw: st.DrawFn) -> list[Row]:
    def answer(at: float, broker: int) -> list[Row]:
        states = st.sampled_from(((50, True), (3, True), (None, False), (12, True)))
        rows = ((name, draw(states)) for name in draw(st.sampled_from(["a", "b", "ab", "ba"])))
        return [directory(at, broker=broker, free=free, is_online=online, name=name) for name, (free, online) in rows]

    return log_of(draw, answer)


@st.composite
def logs_of_voters(draw: st.DrawFn) -> list[Row]:
    def answer(at: float, _reporter: int) -> list[Row]:
        lags = st.sampled_from([0.0, 11.0, None])
        return voters(at, **{name: draw(lags) for name in draw(st.sampled_from([(), ("n2",), ("n2", "n3")]))})

    return log_of(draw, answer, reporters=1)


@st.composite
def logs_of_transactions(draw: st.DrawFn) -> list[Row]:
    """Transactions move from one of the brokers to the other."""
    partitions = st.sampled_from([(), ("orders-0",), ("orders-0", "tmp-1"), ("tmp-0",)])

    def answer(at: float, broker: int) -> list[Row]:
        producers = draw(st.sampled_from([(), (7,), (8,), (7, 8)]))
        return [*(hanging(at, each, *draw(partitions), reporter=broker) for each in producers), reported(at, broker)]

    return log_of(draw, answer)


LOGS = st.one_of(
    st.tuples(st.just(LOG_DIRECTORIES), logs_of_directories()),
    st.tuples(st.just(QUORUM_MEMBERS), logs_of_voters()),
    st.tuples(st.just(TRANSACTIONS), logs_of_transactions()),
)


@settings(max_examples=examples(30), deadline=None)
@given(
    kind_and_log=LOGS,
    cuts=st.sets(st.integers(0, 40)),
    killed=st.sets(st.integers(0, 40)),
    restarted=st.sets(st.integers(0, 40)),
    stored_at=st.sets(st.integers(0, 40)),
)
def test_any_cut_gives_the_same_spells(
    kind_and_log: tuple[Table, list[Row]], cuts: set[int], killed: set[int], restarted: set[int], stored_at: set[int]
) -> None:
    """Where the job is killed, the batch comes again, from the last place that was stored; a start reads its tables.

    But for the pace of a volume: where a batch ends within an answer, its table begins to measure it again.
    """
    table, log = kind_and_log
    singly = Stored(table)
    for sample in log:
        singly.apply([sample])

    stored, progress = Stored(table), 0
    for begin, end in pairwise(sorted({0, len(log), *(cut for cut in cuts if cut < len(log))})):
        if end in killed:
            stored.apply(log[begin:end], is_killed=True)
            stored.apply(log[progress:begin])
        stored.apply(log[begin:end])
        if end in restarted:
            stored.start()
            stored.apply(log[progress:end])
        progress = end if end in stored_at else progress
    assert without_pace(stored) == without_pace(singly)
    stored.apply(log)
    assert without_pace(stored) == without_pace(singly), "samples that come again change nothing"


def without_pace(stored: Stored) -> set[SampledSpell]:
    return {each for each in stored.found if each.part != PACE}


@settings(max_examples=examples(50), deadline=None)
@given(logs_of_transactions())
def test_rounds_are_pieces_of_the_log_with_one_answer_of_each_reporter(log: list[Row]) -> None:
    samples = pa.Table.from_pylist([OWNER | each for each in log], schema=plain_schema(TRANSACTIONS))
    pieces = list(rounds(samples, TRANSACTIONS))
    assert pa.concat_tables(pieces).equals(samples) if log else not pieces
    for piece in pieces:
        rows = piece.to_pylist()
        assert len({(row["reporter"], row["collected_at"]) for row in rows}) == len({row["reporter"] for row in rows})


def test_a_batch_of_one_round_is_not_cut() -> None:
    log = [directory(0, broker=broker, name=name) for broker in range(5) for name in "ab"]
    samples = pa.Table.from_pylist([OWNER | each for each in log], schema=plain_schema(LOG_DIRECTORIES))
    assert [len(piece) for piece in rounds(samples, LOG_DIRECTORIES)] == [10]


def test_a_spell_of_a_newer_job_is_left_alone() -> None:
    stored = Stored(LOG_DIRECTORIES)
    stored.apply([directory(0, free=1)])
    rows = stored.spells.to_pylist()
    rows[0] |= {"condition": "of_a_newer_job"}
    stored.spells = pa.Table.from_pylist(rows, schema=stored.spells.schema)
    stored.start()
    stored.apply([directory(30, free=50)])
    assert "of_a_newer_job" in {row["condition"] for row in stored.spells.to_pylist()}
