"""The responses of the JSON API about a snapshot: rows of a resource, a page at a time, and what these rest on.

Column names are those of the tables, times UTC microseconds. State that is too old for ``/metrics`` stays readable
here, marked ``is_stale``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from exporters.web.cluster_resources import BROKERS, CLUSTERS, FRESHNESS, MAINTENANCE
from exporters.web.group_resources import GROUP_RESOURCES
from exporters.web.history_resources import HISTORY_RESOURCES
from exporters.web.paging import Cursor, cursor_of, page_of, selection_of
from exporters.web.partition_resources import PARTITIONS, TOPICS
from exporters.web.row_schemas import row_schema
from streaming.contracts.columns import Column, required

if TYPE_CHECKING:
    from exporters.web.api_resource import ApiResource, View
    from exporters.web.parameters import Query
    from exporters.web.row_schemas import Schema

RESOURCES: Final[tuple[ApiResource, ...]] = (
    CLUSTERS,
    BROKERS,
    TOPICS,
    PARTITIONS,
    *GROUP_RESOURCES,
    *HISTORY_RESOURCES,
    MAINTENANCE,
)
VERSION_COLUMNS: Final = (
    required("table_version", "long", "version of partition_changes that the response shows"),
    required("read_at", "timestamp", "when the exporter last read the tables"),
)
_PAGE_COLUMNS: Final = (
    required("count", "long", "rows that the filters select, on all pages"),
    required("is_truncated", "boolean", "more rows follow behind those of this page"),
    Column("next_cursor", "string", "gives the next page; null on the last one"),
    required("has_changed", "boolean", "the change log has another version than at the first page"),
)


def page_response(resource: ApiResource, view: View, query: Query) -> dict[str, Any]:
    """Return one page of a resource.

    Raises:
        RequestRefused: the cursor is not of this request.
    """
    selection = selection_of(resource.name, query.values)
    cursor = None if query["cursor"] is None else cursor_of(query["cursor"], selection, resource.key_types)
    after = None if cursor is None else cursor.key
    page = page_of(resource.matching(view, query), resource.key, query["limit"], after)
    first_version = view.snapshot.version if cursor is None else cursor.version
    return {
        **envelope(view),
        "freshness": {
            name: {**view.freshness(cluster), **{flag: holds(cluster) for flag, holds in resource.available.items()}}
            for name, cluster in view.clusters.items()
        },
        **resource.remarks(view),
        "count": page.count,
        "is_truncated": page.has_more,
        "next_cursor": None if page.last is None else Cursor(first_version, page.last).encoded(selection),
        "has_changed": first_version != view.snapshot.version,
        resource.name: [resource.full_row(view, item) for item in page.rows],
    }


def envelope(view: View) -> dict[str, Any]:
    """Return what every response begins with: the version that it shows, and what is missing from it."""
    return {
        "table_version": view.snapshot.version,
        "read_at": view.snapshot.read_at,
        "unreadable_tables": dict(view.unreadable),
    }


def page_schema(resource: ApiResource, row: Schema) -> Schema:
    """Return the schema of a page, whose rows have a schema."""
    flags = (
        required(flag, "boolean", "the tables of these rows are there and can be read") for flag in resource.available
    )
    schema = row_schema((*VERSION_COLUMNS, *resource.remark_columns, *_PAGE_COLUMNS))
    more = {
        "unreadable_tables": UNREADABLE_SCHEMA,
        "freshness": {
            "type": "object",
            "description": "data age of each selected cluster",
            "additionalProperties": row_schema((*FRESHNESS, *flags)),
        },
        resource.name: {"type": "array", "items": row},
    }
    return {**schema, "properties": {**schema["properties"], **more}, "required": [*schema["required"], *more]}


UNREADABLE_SCHEMA: Final[Schema] = {
    "type": "object",
    "description": "tables that cannot be read, each with the reason: what comes from them is missing",
    "additionalProperties": {"type": "string"},
}
