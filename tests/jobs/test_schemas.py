"""Contracts spelled in Spark types, without Java."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from streaming.contracts.codec import FIELDS
from streaming.contracts.tables import TABLES
from streaming.jobs.schemas import PLAIN, bus_schema, observation_schema, table_schema

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql.types import StructType


def spelled(schema: StructType) -> str:
    return json.dumps(schema.jsonValue(), indent=1) + "\n"


@pytest.mark.parametrize("name", TABLES)
def test_a_table_in_spark_types_is_as_agreed(name: str, golden: Callable[[str, str], None]) -> None:
    golden(f"schemas/{name}.json", spelled(table_schema(name)))


def test_the_observation_in_spark_types_is_as_agreed(golden: Callable[[str, str], None]) -> None:
    golden("schemas/observation.json", spelled(observation_schema()))


def test_the_bus_in_spark_types_is_as_agreed(golden: Callable[[str, str], None]) -> None:
    golden("schemas/bus.json", spelled(bus_schema()))


def test_every_field_of_every_observation_is_there_once_and_may_be_null() -> None:
    schema = observation_schema()
    assert ["v", "kind", *FIELDS] == schema.names
    assert all(field.nullable for field in schema)


@pytest.mark.parametrize("name", TABLES)
def test_a_table_has_the_columns_of_its_definition_in_their_order(name: str) -> None:
    expected = [(column.name, column.nullable) for column in TABLES[name].columns]
    assert expected == [(field.name, field.nullable) for field in table_schema(name)]


def test_every_plain_type_has_a_spark_type() -> None:
    assert set(FIELDS.values()) <= set(PLAIN)
