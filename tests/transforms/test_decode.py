"""Decoding a DataFrame gives what the codec gives, for good and for damaged payloads."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from streaming.contracts.codec import _CHECKS, decode, encode, from_fields
from streaming.contracts.fields import KINDS, REQUIRED, plain_types
from streaming.contracts.observations import (
    SCHEMA_VERSION,
)
from streaming.errors import Quarantined
from streaming.schemas import bus_schema, observation_schema
from streaming.transforms.decode import decode as decode_frame
from tests.strategies import generated, observations, payloads

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession


pytestmark = pytest.mark.spark


def bus(spark: SparkSession, records: list[bytes], damage: str | None = None) -> DataFrame:
    rows = [("poll:a", number, bytearray(record), damage) for number, record in enumerate(records)]
    return spark.createDataFrame(rows, bus_schema())


def decoded(spark: SparkSession, records: list[bytes]) -> list[Row]:
    return decode_frame(bus(spark, records)).orderBy("position").collect()


def structural_fault(payload: bytes) -> str | None:
    """Say why the codec refuses a payload before it looks at what the values mean, up to the value itself."""
    try:
        record = json.loads(payload.decode())
    except ValueError:
        return "not JSON"
    if not isinstance(record, dict):
        return "not a JSON object"
    if type(record.get("v")) is not int or record["v"] != SCHEMA_VERSION:
        return "schema version"
    kind = record.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        return "unknown kind"
    return field_fault(kind, record)


def field_fault(kind: str, record: dict[str, Any]) -> str | None:
    for name, plain in plain_types(KINDS[kind]).items():
        if record.get(name) is None:
            if name in REQUIRED[kind]:
                return f"{kind}: {name} is missing"
        elif not _CHECKS[plain](record[name]):
            return f"{kind}: {name} is not {plain}"
    return None


def test_every_observation_is_valid_and_comes_back_whole(spark: SparkSession) -> None:
    expected = generated(observations(), 200)
    rows = decoded(spark, [encode(observation) for observation in expected])

    assert {None} == {row["reason"] for row in rows}
    assert {None} == {row["raw"] for row in rows}
    assert expected == [from_fields(row["observation"].asDict()) for row in rows]


def test_what_the_codec_refuses_is_refused_with_its_reason(spark: SparkSession) -> None:
    cases = [b"?", b"[]", b"{}", b'{"v":1}', *generated(payloads(), 800)]
    faults = [structural_fault(case) for case in cases]
    rows = decoded(spark, cases)

    assert {"not JSON", "not a JSON object", "schema version", "unknown kind"} <= set(faults)
    for case, fault, row in zip(cases, faults, rows, strict=True):
        assert (fault is None) == (row["reason"] is None), (case, fault, row["reason"])
        assert fault is None or row["reason"].startswith(fault), (case, fault, row["reason"])
        assert (row["raw"], row["observation"] is None) == ((case, True) if fault else (None, False))


def test_what_the_codec_understands_has_the_same_values(spark: SparkSession) -> None:
    cases = [case for case in generated(payloads(), 300) if structural_fault(case) is None]

    for case, row in zip(cases, decoded(spark, cases), strict=True):
        assert outcome(lambda case=case: decode(case)) == outcome(
            lambda row=row: from_fields(row["observation"].asDict())
        )


def outcome(attempt: Any) -> str:
    """Spell an observation or a refusal; NaN equals itself that way."""
    try:
        return repr(attempt())
    except Quarantined as reason:
        return str(reason)


def test_damage_on_the_bus_is_its_own_reason(spark: SparkSession) -> None:
    (row,) = decode_frame(bus(spark, [b"\xf5IS"], damage="incomplete frame")).collect()

    assert tuple(row) == ("poll:a", 0, "incomplete frame", b"\xf5IS", None)


def test_the_reason_says_what_is_wrong(spark: SparkSession) -> None:
    reasons = {
        b"": "not JSON",
        b'{"v":1}{"v":1}': "not JSON",
        b'{"v":1},{"v":1}': "not JSON",
        b'{"v":1}]': "not JSON",
        b"{'v':1}": "not JSON",
        b'\xef\xbb\xbf{"v":1}': "not JSON",
        b"null": "not a JSON object",
        b'{"v":"1"}': 'schema version "1", this program reads 1',
        b'{"v":2}': "schema version 2, this program reads 1",
        b"{}": "schema version null, this program reads 1",
        b'{"v":1,"kind":{"a":1}}': 'unknown kind {"a":1}',
        b'{"v":1,"kind":"heartbeat","cluster_id":"c"}': "heartbeat: cluster is missing",
        b'{"v":1,"kind":"heartbeat","cluster_id":7}': "heartbeat: cluster_id is not string",
    }

    assert list(reasons.values()) == [row["reason"] for row in decoded(spark, list(reasons))]


def test_the_columns_are_as_agreed_in_their_order(spark: SparkSession) -> None:
    schema = decode_frame(bus(spark, [])).schema

    assert schema.names == ["source", "position", "reason", "raw", "observation"]
    assert observation_schema() == schema["observation"].dataType
