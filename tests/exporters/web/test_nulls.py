"""A null in any column that may be null: nothing that is asked for is answered with 500."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import NoneType
from typing import Any, get_args, get_type_hints
from urllib.parse import urlencode

import pytest
from starlette.requests import Request

from exporters.answers.links import PageKind, Target
from exporters.read_model.reader import TablesReader
from exporters.read_model.refresher import Refresher
from exporters.read_model.side_tables import SIDE_CONTENTS
from exporters.web.api import ENDPOINTS, Endpoint
from exporters.web.pages.page import Inputs, PageSettings, rendered
from exporters.web.pages.routes import MODELS
from exporters.web.server import Endpoints
from streaming.contracts.state import BrokerState, ClusterState, PartitionState, SourceState
from streaming.contracts.tables import TABLES
from tests.exporters.conftest import SECOND, START, Tables, write_live_cluster

NOW = START + 30 * SECOND
IN_PATHS = {"incident": "main-4"}
READ = (*(content.definition.name for content in SIDE_CONTENTS), "partition_state")
STATES: dict[str, Any] = {
    "partition_state": PartitionState,
    "broker_state": BrokerState,
    "cluster_state": ClusterState,
    "source_progress": SourceState,
}


def is_required(table: str, column: str) -> bool:
    """Whether no state can be read of a row that has null in a column."""
    state = STATES.get(table)
    if state is None or column not in state._fields or column in state._field_defaults:
        return False
    return NoneType not in get_args(get_type_hints(state)[column])


NULLABLE = [(name, column.name) for name in READ for column in TABLES[name].columns if column.nullable]
ALWAYS_THERE = ("group_offsets", "topic")
"""A label of every series of a group; the job writes no sample without."""
MAY_BE_NULL = [each for each in NULLABLE if each != ALWAYS_THERE and not is_required(*each)]
REQUIRED = {table: column for table, column in NULLABLE if is_required(table, column)}
"""Of each table of states one column without which a row is none."""


def request(path_params: dict[str, str] | None = None, **parameters: Any) -> Request:
    query = urlencode(parameters).encode()
    return Request({"type": "http", "query_string": query, "headers": [], "path_params": path_params or {}})


def of_another_cluster(row: dict[str, Any], cluster: str) -> dict[str, Any]:
    owner = {"cluster_id": f"id-of-{cluster}", "cluster": cluster}
    incident = {"incident_id": f"{row['incident_id']}:{cluster}"} if "incident_id" in row else {}
    return {**row, **owner, **incident}


def write_clusters_with_a_null_each(one: Tables, tables: Tables) -> list[str]:
    """Write the cluster again for each of the columns, with null in that; give the names."""
    clusters = {f"{table} {column}": (table, column) for table, column in MAY_BE_NULL}
    for name in ("partition_changes", *READ):
        rows = one.open(name).to_pyarrow_table().to_pylist()
        assert rows, f"{name} is empty"
        many = [
            {**of_another_cluster(row, cluster), **({column: None} if table == name else {})}
            for cluster, (table, column) in clusters.items()
            for row in rows
        ]
        if name == "partition_changes":
            tables.commit(*many)
        else:
            tables.put(name, *many, as_of=0)
    return list(clusters)


def all_of(endpoint: Endpoint) -> Request:
    """Ask for as many rows as one may."""
    limits = {each.name: each.schema.get("maximum", 1) for each in endpoint.parameters if each.name == "limit"}
    return request({each.name: IN_PATHS.get(each.name, "main") for each in endpoint.of_path}, **limits)


def check_pages(endpoints: Endpoints) -> None:
    """Render every page of every cluster; a null is unknown there."""
    inputs = Inputs(
        snapshot=endpoints._refresher.snapshot,
        now=NOW,
        settings=PageSettings(stale_after=60.0),
        archive=endpoints.archive,
    )
    targets = [Target(PageKind.FLEET), Target(PageKind.INCIDENTS)]
    for name, cluster in inputs.clusters.items():
        targets += [Target(PageKind.CLUSTER, name), Target(PageKind.GROUPS, name)]
        targets += [Target(PageKind.BROKER, name, str(each)) for each in cluster.known_brokers()[:1]]
        targets += [Target(PageKind.TOPIC, name, each.topic) for each in [*cluster.topics.values()][:1]]
    for target in targets:
        assert rendered(MODELS[target.kind](inputs, target)).endswith("</html>")


def check_no_500(endpoints: Endpoints, clusters: list[str]) -> None:
    check_pages(endpoints)
    for respond in (endpoints.ready, endpoints.jmx_metrics):
        assert respond(request()).status_code == 200
    assert asyncio.run(endpoints.metrics(request())).status_code == 200
    for cluster in clusters:
        assert endpoints.drop_in_metrics(request({"cluster": cluster})).status_code == 200
    for endpoint in ENDPOINTS:
        response = endpoints.api.respond(endpoint, all_of(endpoint))
        unknown = {404} if endpoint.of_path else set()
        assert response.status_code in {*endpoint.statuses} | unknown, (endpoint.path, response.body)


def test_a_null_in_any_column_that_may_be_null_gives_no_500_while_it_is_ready(tmp_path: Path) -> None:
    one, tables = Tables(tmp_path / "one"), Tables(tmp_path / "tables")
    write_live_cluster(one, NOW)
    clusters = write_clusters_with_a_null_each(one, tables)
    refresher = Refresher(TablesReader(tables.directory), 60.0, "1.2.3")
    refresher.refresh_once()
    assert refresher.unreadable == {}
    assert len(refresher.snapshot.clusters) == len(clusters) > 200
    check_no_500(Endpoints(refresher, 60.0, clock=lambda: NOW), clusters)


@pytest.mark.parametrize(("name", "column"), REQUIRED.items())
def test_a_null_without_which_a_row_is_no_state_costs_its_table_and_gives_no_500(
    name: str, column: str, tables: Tables
) -> None:
    write_live_cluster(tables, NOW)
    tables.put(name, *({**row, column: None} for row in tables.open(name).to_pyarrow_table().to_pylist()), as_of=1)
    refresher = Refresher(TablesReader(tables.directory), 60.0, "1.2.3")
    refresher.refresh_once()
    check_no_500(Endpoints(refresher, 60.0, clock=lambda: NOW), ["main"])
    assert all(f"it has no {column}" in why for why in refresher.unreadable.values())
