"""The columns of every table in Delta's protocol, which is how Spark sees them, and those of the bus; without Java."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import Schema

from streaming.contracts.tables import TABLES
from streaming.delta.log.definitions import arrow_schema
from streaming.jobs.streams.bus_source import bus_schema

if TYPE_CHECKING:
    from collections.abc import Callable


def spelled(schema: dict[str, Any]) -> str:
    return json.dumps(schema, indent=1) + "\n"


@pytest.mark.parametrize("name", TABLES)
def test_the_columns_of_a_table_are_as_agreed(name: str, golden: Callable[[str, str], None]) -> None:
    columns = Schema.from_arrow(arrow_schema(TABLES[name]))
    golden(f"schemas/{name}.json", spelled(json.loads(columns.to_json())))


def test_the_bus_in_spark_types_is_as_agreed(golden: Callable[[str, str], None]) -> None:
    golden("schemas/bus.json", spelled(bus_schema().jsonValue()))
