"""Samples as columns: they must say what each observation says, singly or in blocks, decoded by worker or driver."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import fields, replace
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
from hypothesis import example, given, settings
from hypothesis import strategies as st

from streaming.bus.frames import BusFrame, DamagedRange
from streaming.contracts.codec import encode
from streaming.contracts.group_positions import DEAD
from streaming.contracts.identifiers import Offset
from streaming.contracts.observations import END_OF_TIME, Channel, Observation, SourceKind
from streaming.contracts.sample_blocks import (
    BrokerGroupOffsetsObserved,
    BrokerGroupsObserved,
    BrokerMetricsObserved,
    BrokerOffsetsObserved,
    BrokerSpeedsObserved,
    SamplesBlock,
    TopicsSettingsObserved,
    TransactionsReported,
    offsets_in_blocks,
)
from streaming.contracts.sample_tables import TABLE_OF
from streaming.contracts.samples import BrokerMetricObserved, ReplicaOffsetsObserved
from streaming.errors import InvalidObservation
from streaming.jobs.shards.decoded_batch import decode_row
from streaming.jobs.shards.samples import Samples, read_samples
from streaming.jobs.streams.bus_source import SCHEMA, arrow_batches
from streaming.jobs.streams.sample_columns import in_columns
from tests.blocks import singly
from tests.examples import examples
from tests.strategies import damaged_bytes, damaged_records, generated, is_not_newer, observations_of, payloads

ENVELOPE: dict[str, Any] = {
    "cluster_id": "c", "cluster": "prod", "source": "admin:a", "source_kind": SourceKind.NONE, "sequence": 7,
    "occurred_not_before": 1, "occurred_not_after": 2, "collected_at": 3,
}  # fmt: skip
BLOCKS = (
    BrokerOffsetsObserved,
    BrokerMetricsObserved,
    BrokerGroupsObserved,
    BrokerGroupOffsetsObserved,
    TopicsSettingsObserved,
    TransactionsReported,
    BrokerSpeedsObserved,
)
METRIC = BrokerMetricObserved(**ENVELOPE, broker=1, metric="m", metric_value=1.5)
OFFSETS = ReplicaOffsetsObserved(**ENVELOPE, topic_id="t", topic="ö", partition=0, broker=1, log_end_offset=4)


def batch(values: Sequence[bytes], damage: Sequence[str | None] = ()) -> pa.Table:
    return pa.Table.from_pylist([
        {"source": "s", "position": number, "payload": value, "damage": dict(enumerate(damage)).get(number)}
        for number, value in enumerate(values)
    ], schema=SCHEMA)  # fmt: skip


def exactly(rows: pa.Table) -> tuple[dict[type[Observation], list[Any]], list[Any]]:
    found: dict[type[Observation], list[Any]] = {kind: [] for kind in TABLE_OF}
    refused = []
    for row in rows.to_pylist():
        try:
            observed = decode_row(row["payload"], row["damage"], Channel.SAMPLES)
            if isinstance(observed, SamplesBlock) and not len(observed):
                nothing = dict.fromkeys(item.name for item in fields(observed.sample))
                found[observed.sample].append(SimpleNamespace(**nothing | observed.shared()))
            for sample in singly([observed]):
                found[type(sample)].append(sample)
            marks = [{"group": name} for name in getattr(observed, "kept", ())]
            marks += [{"group": name, "group_state": DEAD} for name in getattr(observed, "ended", ())]
            for mark in marks:
                nothing = dict.fromkeys(item.name for item in fields(observed.sample))
                found[observed.sample].append(SimpleNamespace(**nothing | observed.shared() | mark))
        except InvalidObservation as reason:
            refused.append((row["position"], str(reason), row["payload"]))
    return found, refused


def from_workers(rows: pa.Table) -> pa.Table:
    """Give the rows as Spark's workers send them: blocks as columns."""
    items = [
        BusFrame(row["position"], row["payload"])
        if row["damage"] is None
        else DamagedRange(row["position"], row["payload"], row["damage"], row["position"] + 1)
        for row in rows.to_pylist()
    ]
    return pa.Table.from_batches(arrow_batches("s", in_columns(items)), schema=SCHEMA)


def assert_equal(rows: pa.Table) -> Samples:
    samples = assert_equal_to_observations(rows, rows)
    assert_equal_to_observations(from_workers(rows), rows)
    return samples


def assert_equal_to_observations(read: pa.Table, rows: pa.Table) -> Samples:
    samples = read_samples(read)
    found, refused = exactly(rows)
    for kind, table in samples.columns.items():
        plain = [{name: _plain(getattr(it, name)) for name in table.column_names} for it in found[kind]]
        assert [repr(row) for row in table.to_pylist()] == [repr(row) for row in plain]
    assert [(it.position, it.reason, it.raw) for it in samples.refused] == refused
    return samples


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


SAMPLED = st.one_of([observations_of(kind) for kind in (*TABLE_OF, *BLOCKS)]).map(encode)
ANYTHING = st.one_of(SAMPLED, SAMPLED, SAMPLED, damaged_bytes(), damaged_records(), payloads())


@settings(max_examples=examples(20))
@example(values=[encode(METRIC)[:-1] + b"}{", encode(METRIC), b" ", encode(OFFSETS) + b"\n"])
@example(values=[encode(METRIC)[:-2], b"}" + encode(METRIC), encode(METRIC) + encode(METRIC)])
@given(values=st.lists(ANYTHING, max_size=12))
def test_columns_say_what_observations_say_of_any_payloads(values: list[bytes]) -> None:
    assert_equal(batch(values))


def test_columns_say_what_observations_say_of_hundreds_of_payloads() -> None:
    assert_equal(batch(generated(ANYTHING, 400)))


@st.composite
def near_misses(draw: st.DrawFn) -> bytes:
    """Canonical spelling, with one value at or beyond an edge."""
    observed = draw(st.sampled_from([METRIC, OFFSETS, *offsets_in_blocks([OFFSETS])]))
    record = json.loads(encode(observed))
    edges = [0, -1, 1, 2**31 - 1, 2**31, 2**63 - 1, 2**63, END_OF_TIME, END_OF_TIME - 1, 10**17, 10**17 - 1, -0.0,
             0.1, 1e22, 5e-324, 1.7976931348623157e308, "", "x", "\u00e9", "\U0001f600", "\x7f", "\n", '"', "\\",
             "metadata_log", True, None, [], float("inf")]  # fmt: skip
    name, edge = draw(st.sampled_from(list(record))), draw(st.sampled_from(edges) | st.floats() | st.text(max_size=3))
    record[name] = [edge] if isinstance(record[name], list) else edge
    return json.dumps(record, separators=(",", ":"), ensure_ascii=draw(st.booleans())).encode(errors="surrogatepass")


def test_columns_say_what_observations_say_at_every_edge() -> None:
    assert_equal(batch(generated(near_misses().filter(is_not_newer), 800)))


def test_a_number_is_read_to_the_last_bit() -> None:
    floats = generated(st.floats(allow_nan=False, allow_infinity=False), 400)
    assert_equal(batch([encode(replace(METRIC, metric_value=value)) for value in floats]))


def test_a_damaged_record_is_refused_even_where_its_bytes_look_well() -> None:
    samples = assert_equal(batch([encode(METRIC), encode(METRIC)], [None, "checksum"]))
    assert [it.reason for it in samples.refused] == ["checksum"]


def test_samples_in_blocks_and_singly_stay_in_the_order_of_the_log() -> None:
    def block(*ends: int) -> bytes:
        samples = [replace(OFFSETS, partition=end, log_end_offset=Offset(end)) for end in ends]
        (made,) = offsets_in_blocks(samples)
        return encode(made)

    samples = assert_equal(batch([block(1, 2), encode(OFFSETS), block(3), block(5, 6)]))
    assert samples.columns[ReplicaOffsetsObserved]["log_end_offset"].to_pylist() == [1, 2, 4, 3, 5, 6]


def test_a_block_without_samples_is_one_row_of_who_has_none() -> None:
    empty: Any = BrokerGroupOffsetsObserved(**ENVELOPE, broker=4, samples_by_topic=())
    rows = batch([encode(empty)])
    for read in (rows, from_workers(rows)):
        (row,) = read_samples(read).columns[empty.sample].to_pylist()
        assert {name: value for name, value in row.items() if value is not None} == {
            "cluster_id": "c", "cluster": "prod", "source": "admin:a", "collected_at": 3, "coordinator": 4,
        }  # fmt: skip


def test_a_group_that_a_block_keeps_is_a_row_of_its_name_alone() -> None:
    empty: Any = BrokerGroupOffsetsObserved(**ENVELOPE, broker=4, samples_by_topic=(), kept=("g", ""))
    rows = batch([encode(empty)])
    for read in (rows, from_workers(rows)):
        _, *kept = read_samples(read).columns[empty.sample].to_pylist()
        assert [(row["group"], row["coordinator"], row["partition"]) for row in kept] == [("g", 4, None), ("", 4, None)]


def test_workers_decode_every_block_and_nothing_else() -> None:
    (block,) = offsets_in_blocks([OFFSETS])
    rows = batch([encode(block), encode(OFFSETS), encode(block).replace(b'"v":', b'"v": ')])
    decoded = from_workers(rows)["samples"]
    assert [each.is_valid for each in decoded.combine_chunks()] == [True, False, False]


def test_a_worker_decodes_without_delta_rs() -> None:
    """It takes 30 MB of memory in each worker."""
    script = "import sys, streaming.jobs.streams.bus_source; sys.exit('deltalake' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
