"""Observation to bytes and back."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming.contracts.codec import FIELDS, KINDS, REQUIRED, decode, encode, from_fields, plain_types
from streaming.contracts.observations import SCHEMA_VERSION, Heartbeat, Observation, SourceKind
from streaming.errors import InvalidObservation, NewerFormat
from tests.strategies import observations, payloads

HEARTBEAT = Heartbeat(
    cluster_id="c", cluster="prod", source="poll:a", source_kind=SourceKind.POLL,
    occurred_not_before=1, occurred_not_after=2, collected_at=3,
)  # fmt: skip
PARTITION = {"topic_id": "t", "topic": "t", "partition": 0, "replicas": [1], "isr": [1], "leader": 1}


def changed(**values: Any) -> bytes:
    return json.dumps(json.loads(encode(HEARTBEAT)) | values).encode()


@given(observations())
def test_every_observation_survives_the_way_to_bytes_and_back(observation: Observation) -> None:
    assert observation == decode(encode(observation))


@given(observations())
def test_what_is_none_is_not_sent(observation: Observation) -> None:
    assert None not in json.loads(encode(observation)).values()


@given(observations())
def test_every_observation_carries_what_its_kind_requires(observation: Observation) -> None:
    assert set(REQUIRED[observation.kind]) <= set(json.loads(encode(observation)))


@given(observations(), st.text(), st.text())
def test_a_field_of_a_newer_program_is_ignored(observation: Observation, name: str, value: str) -> None:
    record = json.loads(encode(observation))
    name = f"newer {name}"
    assert observation == decode(json.dumps(record | {name: value}).encode())


@given(payloads() | st.binary())
def test_bytes_are_an_observation_or_quarantined_and_never_anything_else(payload: bytes) -> None:
    observation = None
    with suppress(InvalidObservation, NewerFormat):
        observation = decode(payload)
    assert observation is None or observation == decode(encode(observation))


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b"", "not JSON: Expecting value: line 1 column 1 (char 0)"),
        (b"\xff", "not JSON: 'utf-8' codec can't decode byte 0xff in position 0: invalid start byte"),
        (encode(HEARTBEAT)[:-1], "not JSON: Expecting ',' delimiter: line 1 column 176 (char 175)"),
        (b"[]", "not a JSON object"),
        (changed(v=0), "schema version 0, this program reads up to 4"),
        (changed(v=-7), "schema version -7, this program reads up to 4"),
        (changed(v=2.0), "schema version 2.0, this program reads up to 4"),
        (changed(v="2"), "schema version '2', this program reads up to 4"),
        (changed(v=[2]), "schema version [2], this program reads up to 4"),
        (changed(v=True), "schema version True, this program reads up to 4"),
        (changed(v=None), "schema version None, this program reads up to 4"),
        (changed(kind="weather"), "unknown kind 'weather'"),
        (changed(kind=["heartbeat"]), "unknown kind ['heartbeat']"),
        (changed(cluster=None), "heartbeat: cluster is missing"),
        (changed(cluster=7), "heartbeat: cluster is not string: 7"),
        (changed(cluster="\ud800"), "heartbeat: cluster is not string: '\\ud800'"),
        (changed(collected_at="now"), "heartbeat: collected_at is not long: 'now'"),
        (changed(collected_at=1.0), "heartbeat: collected_at is not long: 1.0"),
        (changed(collected_at=True), "heartbeat: collected_at is not long: True"),
        (changed(collected_at=2**63), "heartbeat: collected_at is not long: 9223372036854775808"),
        (changed(kind="controller", controller=2**31, controller_epoch=1),
         "controller: controller is not int: 2147483648"),
        (changed(kind="partition", **PARTITION | {"isr": [1, None]}), "partition: isr is not int[]: [1, None]"),
        (changed(kind="partition", **PARTITION | {"replicas": []}), "replicas is empty"),
        (changed(kind="partition", **PARTITION | {"replicas": [2, 1, 2]}), "replicas name a broker twice"),
        (changed(kind="partition", **PARTITION | {"partition": -1}), "partition is negative: -1"),
        (changed(kind="partition", **PARTITION, cause="lag"), "cause and evidence come together"),
        (changed(kind="partition", **PARTITION, candidates=["gremlins"]), "candidates has an unknown value 'gremlins'"),
        (changed(source_kind="rumour"), "source_kind has an unknown value 'rumour'"),
        (changed(cluster_id=""), "cluster_id is empty"),
        (changed(source=""), "source is empty"),
        (changed(occurred_not_before=9), "occurred_not_before is after occurred_not_after"),
        (changed(kind="broker_metric", broker=1, metric="m", metric_value=10**400),
         f"broker_metric: metric_value is not double: 1{'0' * 400}"[:200]),
    ],
)  # fmt: skip
def test_what_is_refused_is_told_in_words(payload: bytes, reason: str) -> None:
    with pytest.raises(InvalidObservation) as refused:
        decode(payload)
    assert reason == str(refused.value)


@given(observations(), st.integers(SCHEMA_VERSION + 1), st.dictionaries(st.text(), st.none() | st.integers()))
def test_a_record_of_a_newer_format_stops_its_reader_whatever_else_it_says(
    observation: Observation, version: int, fields: dict[str, Any]
) -> None:
    record = json.loads(encode(observation)) | fields | {"v": version, "kind": "news"}
    with pytest.raises(NewerFormat) as stopped:
        decode(json.dumps(record).encode())
    assert str(stopped.value) == (
        f"the bus holds records of format {version}, this program reads {SCHEMA_VERSION}; "
        "upgrade isrwatch job before the collector"
    )


def test_a_row_of_the_spark_schema_is_an_observation_too() -> None:
    row = dict.fromkeys(FIELDS) | json.loads(encode(HEARTBEAT))
    assert from_fields(row) == HEARTBEAT


def test_kinds_that_share_a_field_share_its_type() -> None:
    types = {(name, plain) for cls in KINDS.values() for name, plain in plain_types(cls).items()}
    assert sorted(FIELDS.items()) == sorted(types)
