from __future__ import annotations

import itertools
import json
from collections import Counter
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streaming.changes.confirmed import Confirmed
from streaming.changes.fold import fold
from streaming.changes.state import ReplicationState
from streaming.contracts.codec import decode, encode, halves
from streaming.contracts.observations import Authority, Channel, Observation, PartitionObserved
from streaming.delta.rows import changes_to_arrow
from streaming.jobs.repeats import Repeats
from streaming.jobs.understood import Understood, understand
from tests.changes.conftest import Story
from tests.strategies import damaged_bytes, observations, streams

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

BUS = pa.schema([("source", pa.string()), ("position", pa.int64()), ("payload", pa.binary()), ("damage", pa.string())])


class NothingApplied:
    def position(self, source: str) -> int:  # noqa: ARG002 - any source
        return -1


class Job:
    """What the replication query does with a batch, without tables."""

    def __init__(self, repeats: Repeats | None) -> None:
        self.state, self.repeats = ReplicationState(), repeats
        self.changes: list[dict[str, Any]] = []
        self.refused: list[Any] = []
        self.positions: list[Any] = []
        self.batches: list[Understood] = []

    def apply(self, rows: pa.Table) -> None:
        understood = understand(rows, NothingApplied(), Channel.REPLICATION, self.repeats)
        folded = fold(self.state, understood.observations)
        self.state.apply(folded.touched)
        if self.repeats is not None:
            self.repeats.learn(understood.snapshots, folded.touched, self.state)
        self.changes += changes_to_arrow(folded.changes).to_pylist()
        self.refused += understood.refused
        self.positions.append(understood.positions)
        self.batches.append(understood)


def table(payloads: Iterable[tuple[str, bytes]]) -> pa.Table:
    """Spell payloads as rows of the bus; each source numbers its own positions."""
    ends: Counter[str] = Counter()
    rows = []
    for source, payload in payloads:
        ends[source] += 1
        rows.append({"source": source, "position": ends[source], "payload": payload, "damage": None})
    return pa.Table.from_pylist(rows, schema=BUS)


def respelled(payload: bytes) -> st.SearchStrategy[bytes]:
    """The same record in other words, or with a field that stands twice."""
    record = json.loads(payload)
    twice = payload[:-1] + b',"sequence":1}'
    flipped = payload[:-1] + b',"isr":[1]}'
    return st.sampled_from([json.dumps(record).encode(), json.dumps(dict(reversed(record.items()))).encode(), twice,
                            flipped, payload[:-1], payload + b" "])  # fmt: skip


@settings(max_examples=100, deadline=None)
@given(told=streams(), data=st.data())
def test_what_is_skipped_by_its_bytes_changes_nothing_of_what_a_batch_does(
    told: list[Observation], data: st.DataObject
) -> None:
    odd = data.draw(st.sets(st.integers(0, max(0, len(told) - 1)), max_size=3))
    sent = [
        (item.source, data.draw(respelled(encode(item)) | damaged_bytes()) if number in odd else encode(item))
        for number, item in enumerate(told)
    ]
    cuts = sorted({0, len(sent), *data.draw(st.lists(st.integers(0, len(sent)), max_size=4))})
    exact, quick = Job(None), Job(Repeats())

    for job in (exact, quick):
        for start, end in itertools.pairwise(cuts):
            job.apply(table(sent[start:end]))

    assert exact.changes == quick.changes
    assert exact.state == quick.state
    assert exact.refused == quick.refused
    assert exact.positions == quick.positions
    assert [batch.count for batch in exact.batches] == [batch.count for batch in quick.batches]


def sent(stories: Sequence[Story]) -> pa.Table:
    """Give what stories told since the last call."""
    rows = table((item.source, encode(item)) for story in stories for item in story.seen)
    for story in stories:
        story.seen = []
    return rows


def decoded(job: Job) -> int:
    """Count the partitions that the last batch had to decode."""
    return sum(isinstance(item, PartitionObserved) for item in job.batches[-1].observations)


def test_a_snapshot_that_repeats_is_one_run_behind_its_first_partition() -> None:
    story = Story()
    job = Job(Repeats())
    for _ in range(2):
        story.later(300)
        story.snapshot([{}] * 100)
        job.apply(sent([story]))

    (run,) = [item for item in job.batches[-1].observations if isinstance(item, Confirmed)]
    assert (decoded(job), run.sequence - run.first_sequence + 1) == (1, 99)
    assert job.batches[-1].count == 105


def test_an_isr_that_flips_back_between_polls_is_told() -> None:
    poll = Story("admin:a", Authority.POLL)
    job = Job(Repeats())
    for isr in ((1, 2, 3), (1, 2), (1, 2, 3), (1, 2, 3)):
        poll.later(30)
        poll.snapshot([{"isr": (1, 2, 3), "partition_epoch": None}, {"isr": isr, "partition_epoch": None}])
        job.apply(sent([poll]))

    shrinks = [row["after"]["isr"] for row in job.changes if row["before"]]
    assert shrinks == [[1, 2], [1, 2, 3]]
    assert decoded(job) == 1


def test_two_sources_that_spell_a_partition_in_their_own_ways_are_both_skipped() -> None:
    story, poll = Story(), Story("admin:a", Authority.POLL)
    job = Job(Repeats())
    for _ in range(3):
        for source, epoch in ((story, 0), (poll, None)):
            source.later(30)
            source.snapshot([{"partition_epoch": epoch}] * 10)
            job.apply(sent([source]))

    assert decoded(job) == 1


def test_an_old_body_in_the_same_batch_as_a_change_is_decoded() -> None:
    poll = Story("admin:a", Authority.POLL)
    job = Job(Repeats())
    poll.snapshot([{"partition_epoch": None}] * 3)
    job.apply(sent([poll]))
    poll.later(30)
    poll.partition(2, isr=(1,), partition_epoch=None)
    poll.later(30)
    poll.snapshot([{"partition_epoch": None}] * 3)
    job.apply(sent([poll]))

    assert [row["after"]["isr"] for row in job.changes if row["before"]] == [[1], [1, 2, 3]]


@given(observed=observations())
def test_only_partitions_within_snapshots_are_cut_and_the_parts_make_the_whole(observed: Observation) -> None:
    payload = encode(observed)
    cut = halves(payload)

    if cut is None:
        assert not (isinstance(observed, PartitionObserved) and observed.in_snapshot and observed.sequence >= 0)
    else:
        assert b"%b%d%b%b" % (cut[0], observed.sequence, cut[1], cut[2]) == payload


@pytest.mark.parametrize("payload", [b"", b'"in_snapshot":true', b'{"sequence":,"in_snapshot":true,"a":1}'])
def test_bytes_without_a_number_are_not_cut(payload: bytes) -> None:
    assert halves(payload) is None


@pytest.mark.parametrize("extra", [b',"sequence":9}', b',"source":"another"}', b',"isr":[1]}', b',"newer":1}', b"} "])
def test_nothing_follows_bytes_that_our_own_codec_would_not_write(extra: bytes) -> None:
    story = Story()
    plain = encode(story.partition(in_snapshot=True))
    odd = plain[:-1] + extra
    repeats = Repeats()

    assert repeats.run_after(decode(plain), plain, set()) is not None
    assert repeats.run_after(decode(odd), odd, set()) is None
