from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streaming.bus.directory import DirectoryPublisher, DirectoryReader
from streaming.changes.fold import UnchangedRun, fold
from streaming.changes.state import ReplicationState
from streaming.contracts.blocks import PartitionsObserved, cut_block
from streaming.contracts.codec import decode, encode, envelope_of
from streaming.contracts.identifiers import LogPosition
from streaming.contracts.observations import Channel, Heartbeat, Observation, SourceKind
from streaming.delta.changes.log import changes_to_arrow
from streaming.jobs.shards.decoded_batch import DecodedBatch, ReadLog, RepeatedBlocks, decode_batch, with_digest
from streaming.jobs.streams.bus_source import SCHEMA, arrow_batches
from streaming.jobs.streams.left_out_blocks import PublishedDigests, new_run, published_digests
from tests.changes.conftest import LAG, Story
from tests.examples import examples
from tests.strategies import damaged_bytes, observations, streams


@pytest.fixture
def story() -> Story:
    return Story()


class BlockJob:
    """What the replication query does with a batch, without tables; with a bus it skips what it has applied."""

    def __init__(self, repeats: RepeatedBlocks | None, read: ReadLog | None = None) -> None:
        self.state, self.repeats, self.read = ReplicationState(), repeats, read
        self.changes: list[dict[str, Any]] = []
        self.refused: list[Any] = []
        self.positions: list[Any] = []
        self.batches: list[DecodedBatch] = []
        self.applied: dict[str, int] = {}

    def apply(self, rows: pa.Table) -> None:
        applied = {source: LogPosition(position, None) for source, position in self.applied.items()}
        understood = decode_batch(rows, applied, self.repeats, self.read)
        self.applied |= {} if self.read is None else understood.positions
        folded = fold(self.state, understood.observations)
        self.state.apply(folded.touched)
        if self.repeats is not None:
            self.repeats.learn(understood.blocks, folded.touched, self.state)
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
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def respelled(payload: bytes) -> st.SearchStrategy[bytes]:
    """The same record in other words, or with a field that stands twice."""
    record = json.loads(payload)
    twice = payload[:-1] + b',"sequence":1}'
    flipped = payload[:-1] + b',"isr":[1],"isr_by_partition":[[1]]}'
    early = payload.replace(b',"topic_id":', b',"elr_by_partition":[[1]],"topic_id":', 1)
    return st.sampled_from([json.dumps(record).encode(), json.dumps(dict(reversed(record.items()))).encode(), twice,
                            flipped, early, payload[:-1], payload + b" "])  # fmt: skip


@settings(max_examples=examples(10))
@given(told=streams(), data=st.data())
def test_what_is_skipped_as_repeated_changes_nothing(told: list[Observation], data: st.DataObject) -> None:
    odd = data.draw(st.sets(st.integers(0, max(0, len(told) - 1)), max_size=3))
    sent = [
        (item.source, data.draw(respelled(encode(item)) | damaged_bytes()) if number in odd else encode(item))
        for number, item in enumerate(told)
    ]
    cuts = sorted({0, len(sent), *data.draw(st.lists(st.integers(0, len(sent)), max_size=4))})
    exact, quick = BlockJob(None), BlockJob(RepeatedBlocks())

    for job in (exact, quick):
        for start, end in itertools.pairwise(cuts):
            job.apply(table(sent[start:end]))

    assert exact.changes == quick.changes
    assert exact.state == quick.state
    assert exact.refused == quick.refused
    assert exact.positions == quick.positions
    assert [batch.count for batch in exact.batches] == [batch.count for batch in quick.batches]


class Workers:
    """What Spark's workers do with a bus: read a range of each log, and leave published blocks out."""

    def __init__(self, directory: Path, observed: Iterable[Observation]) -> None:
        self.published, bus = directory / "digests", DirectoryReader(directory / "bus")
        self.read = partial(bus.read, Channel.REPLICATION)
        self.ends: list[dict[str, int]] = [{}]
        with closing(DirectoryPublisher(directory / "bus", segment_bytes=1 << 20, fsync=False)) as publisher:
            for item in observed:
                publisher.publish([item])
                self.ends.append(bus.end_positions(Channel.REPLICATION))

    def batch(self, start: int, end: int, published: PublishedDigests | None) -> pa.Table:
        """Read the observations from one to another, by the order in which they were published."""
        batches = []
        for source, last in self.ends[end].items():
            items = self.read(source, self.ends[start].get(source, 0), last)
            batches += arrow_batches(source, published.leave_out(items) if published else items)
        return pa.Table.from_batches(batches) if batches else table(())


@settings(max_examples=examples(10))
@given(told=streams(), data=st.data())
def test_what_workers_leave_out_changes_nothing(told: list[Observation], data: st.DataObject) -> None:
    """Even if a batch comes again with other boundaries, or the workers have read digests that are not the newest."""
    with TemporaryDirectory() as folder:
        workers = Workers(Path(folder), [*told, *told])
        exact, quick = BlockJob(None, workers.read), BlockJob(RepeatedBlocks(workers.published), workers.read)
        cuts = sorted({0, 2 * len(told), *data.draw(st.lists(st.integers(0, 2 * len(told)), max_size=6))})
        published = None
        for begin, end in itertools.pairwise(cuts):
            start = data.draw(st.integers(0, begin)) if data.draw(st.booleans()) else begin
            if data.draw(st.booleans()):
                published = published_digests(workers.published)
            exact.apply(workers.batch(start, end, None))
            quick.apply(workers.batch(start, end, published))

        assert exact.changes == quick.changes
        assert exact.state == quick.state
        assert exact.positions == quick.positions
        assert [batch.count for batch in exact.batches] == [batch.count for batch in quick.batches]


def test_of_a_report_that_repeats_the_state_workers_send_a_row_that_is_small(story: Story, tmp_path: Path) -> None:
    for _ in range(3):
        story.later(300)
        for topic in range(100):
            story.block([{"topic_id": f"topic-{topic}"}] * 12)
    workers = Workers(tmp_path, story.seen)
    job = BlockJob(RepeatedBlocks(workers.published), workers.read)
    sizes = []
    for number in range(3):
        rows = workers.batch(number * 100, number * 100 + 100, published_digests(workers.published))
        job.apply(rows)
        sizes.append((len(rows), job.batches[-1].count, decoded(job)))
        whole = workers.batch(number * 100, number * 100 + 100, None)

    assert sizes == [(100, 100, 100), (1, 100, 0), (1, 100, 0)]
    assert rows.nbytes < whole.nbytes / 50


def test_blocks_that_were_left_out_are_read_when_the_state_has_changed_since(story: Story, tmp_path: Path) -> None:
    for _ in range(2):
        story.later(300)
        for topic in range(5):
            story.block([{"topic_id": f"topic-{topic}"}])
    story.later().partition(0, topic_id="topic-3", isr=(1, 2), partition_epoch=1, **LAG)
    story.later(300).block([{"topic_id": "topic-3", "partition_epoch": 2}])
    workers = Workers(tmp_path, story.seen)
    job = BlockJob(RepeatedBlocks(workers.published), workers.read)
    job.apply(workers.batch(0, 5, None))
    published = published_digests(workers.published)
    job.apply(workers.batch(5, 10, published))
    assert decoded(job) == 0

    job.apply(workers.batch(10, 12, published))
    job.apply(workers.batch(4, 12, published))  # again, from within what was left out
    assert [row["after"]["isr"] for row in job.changes if row["before"]] == [[1, 2], [1, 2, 3]]


def test_digests_of_an_earlier_run_only_cost_a_second_reading(story: Story, tmp_path: Path) -> None:
    for _ in range(4):
        story.later(300)
        for topic in range(3):
            story.block([{"topic_id": f"topic-{topic}"}] * 2)
    workers = Workers(tmp_path, story.seen)
    exact, job = BlockJob(None, workers.read), BlockJob(RepeatedBlocks(workers.published), workers.read)
    exact.apply(workers.batch(0, 12, None))
    job.apply(workers.batch(0, 9, None))
    published = published_digests(workers.published)
    assert published is not None
    restarted = BlockJob(RepeatedBlocks(workers.published), workers.read)
    assert published_digests(workers.published) is None
    restarted.apply(workers.batch(0, 9, published))
    restarted.apply(workers.batch(9, 12, None))
    assert (restarted.state, restarted.refused) == (exact.state, [])


def test_digests_that_the_disk_refused_are_published_with_the_next_batch(story: Story, tmp_path: Path) -> None:
    for _ in range(2):
        story.later(300).block([{}, {}])
    workers = Workers(tmp_path / "bus", story.seen)
    published = tmp_path / "folder" / "digests"
    published.parent.write_text("a file where the folder should be")
    job, half = BlockJob(RepeatedBlocks(published), workers.read), len(story.seen) // 2
    job.apply(workers.batch(0, half, None))
    published.parent.unlink()
    job.apply(workers.batch(half, 2 * half, None))
    assert published_digests(published) is not None


def sent(stories: Sequence[Story]) -> pa.Table:
    """Give what stories told since the last call."""
    rows = table((item.source, encode(item)) for story in stories for item in story.seen)
    for story in stories:
        story.seen = []
    return rows


def decoded(job: BlockJob) -> int:
    """Count the blocks that the last batch had to decode."""
    return sum(isinstance(item, PartitionsObserved) for item in job.batches[-1].observations)


def test_blocks_that_repeat_are_one_run(story: Story) -> None:
    job = BlockJob(RepeatedBlocks())
    for _ in range(2):
        story.later(300)
        story.heartbeat()
        for topic in range(20):
            story.block([{"topic_id": f"topic-{topic}"}] * 5)
        job.apply(sent([story]))
    (run,) = [item for item in job.batches[-1].observations if isinstance(item, UnchangedRun)]
    assert (decoded(job), run.sequence - run.first_sequence + 1) == (0, 20)
    assert job.batches[-1].count == 21


def test_of_a_topic_that_changed_only_its_own_block_is_decoded_and_known_again(story: Story) -> None:
    job = BlockJob(RepeatedBlocks())
    counts = []
    for isr in ((1, 2, 3), (1, 2), (1, 2), (1, 2)):
        story.later(300)
        for topic in range(3):
            changed = {"isr": isr, "partition_epoch": int(len(isr) < 3)} if topic == 1 else {}
            story.block([{"topic_id": f"topic-{topic}", **changed}, {"topic_id": f"topic-{topic}"}])
        job.apply(sent([story]))
        counts.append(decoded(job))
    assert counts == [3, 1, 0, 0]
    assert [row["after"]["isr"] for row in job.changes if row["before"]] == [[1, 2]]


def test_an_isr_that_flips_back_between_polls_is_told() -> None:
    poll = Story("admin:a", SourceKind.POLL)
    job = BlockJob(RepeatedBlocks())
    for isr in ((1, 2, 3), (1, 2), (1, 2, 3), (1, 2, 3)):
        poll.later(30)
        poll.snapshot([{"isr": (1, 2, 3), "partition_epoch": None}, {"isr": isr, "partition_epoch": None}])
        job.apply(sent([poll]))
    shrinks = [row["after"]["isr"] for row in job.changes if row["before"]]
    assert shrinks == [[1, 2], [1, 2, 3]]
    assert decoded(job) == 0


def test_two_sources_that_spell_a_partition_in_their_own_ways_are_both_skipped() -> None:
    story, poll = Story(), Story("admin:a", SourceKind.POLL)
    job = BlockJob(RepeatedBlocks())
    for _ in range(3):
        for source, epoch in ((story, 0), (poll, None)):
            source.later(30)
            source.snapshot([{"partition_epoch": epoch}] * 10)
            job.apply(sent([source]))
    assert decoded(job) == 0


@given(observed=observations())
def test_only_blocks_are_cut_and_the_envelope_is_read_as_it_is(observed: Observation) -> None:
    cut = cut_block(encode(observed))
    assert (cut is not None) == isinstance(observed, PartitionsObserved)
    if cut is not None:
        envelope = envelope_of(cut[0])
        names = (item.name for item in fields(Heartbeat))
        assert envelope == Heartbeat(**{name: getattr(observed, name) for name in names})


@pytest.mark.parametrize("extra", [b',"sequence":9}', b',"source":"another"}', b',"topic":"x"}', b',"newer":1}', b"} "])
def test_a_block_that_our_own_codec_would_not_write_is_not_remembered(story: Story, extra: bytes) -> None:
    plain = encode(story.block([{}, {}]))
    odd = plain[:-1] + extra
    assert with_digest(block_in(plain), plain) is not None
    assert with_digest(block_in(odd), odd) is None


def block_in(payload: bytes) -> PartitionsObserved:
    observed = decode(payload)
    assert isinstance(observed, PartitionsObserved)
    return observed


@pytest.mark.parametrize(
    "head",
    [
        b"",
        b"{",
        b"[]",
        b'{"v":2',
        b'{"v":2,"kind":"partitions","elr_by_partition":[[1]],"sequence":1',
        b'{"sequence":"1"',
    ],
)
def test_an_envelope_with_anything_else_in_it_is_none(head: bytes) -> None:
    assert envelope_of(head) is None


@pytest.mark.parametrize(
    ("plain", "odd"),
    [
        (b',"sequence":', b', "sequence":'),
        (b',"sequence":', b',"\\u0073equence":'),
        (b',"sequence":', b',"sequence":null,"sequence":'),
        (b',"sequence":%d,', b',"sequence":%d ,'),
    ],
)
def test_an_envelope_in_another_spelling_is_decoded_and_ends_no_query(story: Story, plain: bytes, odd: bytes) -> None:
    job = BlockJob(RepeatedBlocks())
    story.block([{}, {}])
    job.apply(sent([story]))
    story.later(300).block([{}, {}])
    (observed,) = story.seen
    numbered = [text % observed.sequence if b"%d" in text else text for text in (plain, odd)]
    payload = encode(observed).replace(*numbered)
    assert payload != encode(observed)
    job.apply(table([(observed.source, payload)]))
    assert [item.sequence for item in job.batches[-1].observations] == [observed.sequence]
    assert not job.refused


def test_a_number_after_which_none_is_a_64_bit_integer_begins_no_run(story: Story) -> None:
    story.block([{}, {}])
    head, _ = cut_block(encode(replace(story.seen[0], sequence=2**63 - 1))) or (b"", b"")
    assert new_run(head) is None
