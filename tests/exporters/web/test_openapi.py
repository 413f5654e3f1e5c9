"""The description of the JSON API is one that tools for OpenAPI read."""

from __future__ import annotations

from typing import Any

import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator

from exporters.web.api import ENDPOINTS, document_of
from streaming.contracts.tables import PARTITION_STATE_TABLE


@pytest.fixture
def document() -> dict[str, Any]:
    return document_of(ENDPOINTS, "1.2.3")


def test_the_document_is_valid_openapi_3_1(document: dict[str, Any]) -> None:
    assert [error.message for error in OpenAPIV31SpecValidator(document).iter_errors()] == []


def test_every_column_of_a_row_has_its_meaning_from_the_definition_of_the_table(document: dict[str, Any]) -> None:
    row = document["components"]["schemas"]["PartitionsRow"]
    columns = {column.name: column for column in PARTITION_STATE_TABLE.columns}
    assert list(row["properties"]) == row["required"]
    for name, schema in row["properties"].items():
        assert schema["description"].removesuffix("; UTC microseconds") == columns[name].comment
    assert row["properties"]["isr"]["type"] == ["array", "null"]
    assert row["properties"]["topic"] == {"type": ["string", "null"], "description": "topic name"}
