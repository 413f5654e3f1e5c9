"""The two ways of reading samples: the fast one must say what the exact one says."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from streaming.contracts.codec import encode
from streaming.contracts.fields import plain_types
from streaming.contracts.observations import END_OF_TIME, Authority, Channel, Observation
from streaming.contracts.samples import BrokerMetricObserved, ReplicaOffsetsObserved
from streaming.errors import Quarantined
from streaming.jobs import samples as samples_module
from streaming.jobs.newest import TABLE_OF
from streaming.jobs.samples import Samples, canonical_pattern, read_samples
from streaming.jobs.understood import observation_of
from tests.strategies import damaged_bytes, damaged_records, generated, observations_of, payloads

if TYPE_CHECKING:
    from collections.abc import Sequence

BUS = pa.schema([("source", pa.string()), ("position", pa.int64()), ("payload", pa.binary()), ("damage", pa.string())])
ENVELOPE: dict[str, Any] = {
    "cluster_id": "c", "cluster": "prod", "source": "admin:a", "authority": Authority.NONE, "sequence": 7,
    "occurred_not_before": 1, "occurred_not_after": 2, "collected_at": 3,
}  # fmt: skip
METRIC = BrokerMetricObserved(**ENVELOPE, broker=1, metric="m", metric_value=1.5)
OFFSETS = ReplicaOffsetsObserved(**ENVELOPE, topic_id="t", topic="ö", partition=0, broker=1, log_end_offset=4)


def batch(values: Sequence[bytes], damage: Sequence[str | None] = ()) -> pa.Table:
    return pa.Table.from_pylist([
        {"source": "s", "position": number, "payload": value, "damage": dict(enumerate(damage)).get(number)}
        for number, value in enumerate(values)
    ], schema=BUS)  # fmt: skip


def kinds_of(channel: Channel) -> list[type[Observation]]:
    return [kind for kind in TABLE_OF if kind.channel is channel]


def exactly(rows: pa.Table, channel: Channel) -> tuple[dict[type[Observation], list[Any]], list[Any]]:
    found: dict[type[Observation], list[Any]] = {kind: [] for kind in kinds_of(channel)}
    refused = []
    for row in rows.to_pylist():
        try:
            observed = observation_of(row["payload"], row["damage"], channel)
            found[type(observed)].append(observed)
        except Quarantined as reason:
            refused.append((row["position"], str(reason), row["payload"]))
    return found, refused


def assert_equal(rows: pa.Table, channel: Channel) -> Samples:
    samples = read_samples(rows, kinds_of(channel), channel)
    found, refused = exactly(rows, channel)
    for kind, table in samples.columns.items():
        plain = [{name: _plain(getattr(it, name)) for name in table.column_names} for it in found[kind]]
        assert [repr(row) for row in table.to_pylist()] == [repr(row) for row in plain]
    assert [(it.position, it.reason, it.raw) for it in samples.refused] == refused
    return samples


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


SAMPLED = st.one_of([observations_of(kind) for kind in TABLE_OF]).map(encode)
ANYTHING = st.one_of(SAMPLED, SAMPLED, SAMPLED, damaged_bytes(), damaged_records(), payloads())


@pytest.mark.parametrize("channel", [Channel.OFFSETS, Channel.METRICS])
@settings(max_examples=25, deadline=None)
@example(values=[encode(METRIC)[:-1] + b"}{", encode(METRIC), b" ", encode(OFFSETS) + b"\n"])
@example(values=[encode(METRIC)[:-2], b"}" + encode(METRIC), encode(METRIC) + encode(METRIC)])
@given(values=st.lists(ANYTHING, max_size=12))
def test_both_ways_say_the_same_of_any_payloads(channel: Channel, values: list[bytes]) -> None:
    assert_equal(batch(values), channel)


@pytest.mark.parametrize("channel", [Channel.OFFSETS, Channel.METRICS])
def test_both_ways_say_the_same_of_hundreds_of_payloads_at_once(channel: Channel) -> None:
    assert_equal(batch(generated(ANYTHING, 400)), channel)


@st.composite
def near_misses(draw: st.DrawFn) -> bytes:
    """Canonical spelling, with one value at or beyond an edge."""
    observed = draw(st.sampled_from([METRIC, OFFSETS]))
    record = json.loads(encode(observed))
    edges = [0, -1, 1, 2**31 - 1, 2**31, 2**63 - 1, 2**63, END_OF_TIME, END_OF_TIME - 1, 10**17, 10**17 - 1, -0.0,
             0.1, 1e22, 5e-324, 1.7976931348623157e308, "", "x", "\u00e9", "\U0001f600", "\x7f", "\n", '"', "\\",
             "metadata_log", True, None, [], float("inf")]  # fmt: skip
    record[draw(st.sampled_from(list(record)))] = draw(st.sampled_from(edges) | st.floats() | st.text(max_size=3))
    return json.dumps(record, separators=(",", ":"), ensure_ascii=draw(st.booleans())).encode(errors="surrogatepass")


@pytest.mark.parametrize("channel", [Channel.OFFSETS, Channel.METRICS])
def test_both_ways_say_the_same_at_every_edge(channel: Channel) -> None:
    assert_equal(batch(generated(near_misses(), 800)), channel)


def test_a_number_is_read_to_the_last_bit() -> None:
    floats = generated(st.floats(allow_nan=False, allow_infinity=False), 400)

    assert_equal(batch([encode(replace(METRIC, metric_value=value)) for value in floats]), Channel.METRICS)


def test_a_damaged_record_is_refused_even_where_its_bytes_look_well() -> None:
    samples = assert_equal(batch([encode(METRIC), encode(METRIC)], [None, "checksum"]), Channel.METRICS)

    assert [it.reason for it in samples.refused] == ["checksum"]


def test_pieces_are_put_together_in_the_order_in_which_they_came(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(samples_module, "_ROWS_PER_PIECE", 3)
    odd = json.dumps(json.loads(encode(OFFSETS)) | {"log_end_offset": 1}).encode()  # another spelling: spaces
    values = [odd if number % 4 == 0 else encode(OFFSETS).replace(b":4}", b":%d}" % number) for number in range(20)]

    samples = assert_equal(batch(values), Channel.OFFSETS)

    told = samples.columns[ReplicaOffsetsObserved]["log_end_offset"].to_pylist()
    assert told == [1 if number % 4 == 0 else number for number in range(20)]


@pytest.mark.parametrize("kind", TABLE_OF)
def test_what_sources_usually_write_takes_the_fast_way(kind: type[Observation]) -> None:
    """A field that the pattern forgets would make every payload take the slow way, and only benchmarks would tell."""
    usual = {
        "string": "name", "int": 3, "long": 1_700_000_000_000_000, "double": 4.25, "boolean": False,
        "string[]": ("a-0", "b-1"),
    }  # fmt: skip
    values = {name: usual[plain] for name, plain in plain_types(kind).items()} | {"authority": Authority.NONE}

    assert re.fullmatch(canonical_pattern(kind).encode(), encode(kind(**values)))
