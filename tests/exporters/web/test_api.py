"""The JSON API over real HTTP: each response fits what the API's own description says of it."""

from __future__ import annotations

import gzip
import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from jsonschema import Draft202012Validator
from openapi_spec_validator import OpenAPIV31SpecValidator
from starlette.routing import Mount

from exporters.read_model.reader import TablesReader, micros_now
from exporters.read_model.refresher import Refresher
from exporters.web.api import ENDPOINTS
from exporters.web.server import Endpoints, application, serving
from streaming.contracts.events import Cause, EventKind, IncidentClass
from streaming.contracts.tables import PARTITION_STATE_TABLE
from tests.exporters.conftest import SECOND, START
from tests.exporters.web.test_app import SETTINGS, ask, served
from tests.plugins.local_http import wait_until

PATHS = [endpoint.path for endpoint in ENDPOINTS]
HEALTH = "/api/v1/health"
ANSWERS = [path for path in PATHS if path.startswith("/api/v1/answers/")]
WITH_CLUSTER = [
    each.path
    for each in ENDPOINTS
    if each.name != "answers/events" and any(given.name == "cluster" for given in each.parameters)
]
"""Where a cluster that is not there is refused; events may be of one that had another name."""
ROWS_OF = {"clusters": 1, "brokers": 3, "topics": 2, "partitions": 3, "groups": 5, "group_offsets": 5, "events": 0,
           "incidents": 1, "incidents/main-4/changes": 0, "maintenance": 2}  # fmt: skip
"""Rows of each resource in the hand-made tables."""
BEGAN = START + 20 * SECOND
"""When the one open incident began."""
THEN = "2026-09-21T14:13:40Z"
"""The same, as people write it."""


def sent(path: str) -> str:
    """Fill in the parameters of a path."""
    return path.replace("{incident}", "main-4")


def rows_in(body: Any, name: str) -> list[Any]:
    return list(body[name.rpartition("/")[2]])


def json_at(address: str, path: str) -> tuple[int, Any]:
    status, headers, body = ask(address, path)
    assert headers["Content-Type"] == "application/json", body
    return status, json.loads(body)


def answer(address: str, path: str, **parameters: Any) -> Any:
    status, body = json_at(address, f"{path}?{urlencode(parameters, doseq=True)}")
    assert status == 200, body
    return body


def refusal(address: str, path: str, **parameters: Any) -> tuple[int, str]:
    status, body = json_at(address, f"{path}?{urlencode(parameters, doseq=True)}")
    assert list(body) == ["error"]
    return status, body["error"]


@pytest.fixture(scope="module")
def address(written_busy_cluster: Path) -> Iterator[str]:
    """A server of tables that nobody changes."""
    with served(written_busy_cluster) as address:
        yield address


@pytest.fixture
def own_address(busy_cluster: Any) -> Iterator[str]:
    """A server of the test's own copy of them."""
    with served(busy_cluster.directory) as address:
        yield address


@pytest.fixture(scope="module")
def document(address: str) -> Any:
    return answer(address, "/api/v1/openapi.json")


def response_schema(document: Any, path: str, status: int) -> Draft202012Validator:
    response = document["paths"][path]["get"]["responses"][str(status)]
    schema = response["content"]["application/json"]["schema"]
    return Draft202012Validator({**schema, "components": document["components"]})


def test_the_description_has_every_route_and_no_other(document: Any, written_busy_cluster: Path) -> None:
    endpoints = Endpoints(Refresher(TablesReader(written_busy_cluster), 1.0, "1.2.3"), 60.0)
    (mount,) = (route for route in application(endpoints).routes if isinstance(route, Mount))
    routes = {f"{mount.path}{route.path}".replace(":name_in_path", "") for route in mount.routes}  # type: ignore[attr-defined]
    assert set(document["paths"]) == routes - {"/api/v1/openapi.json"}


def test_every_response_is_as_described(address: str, document: Any) -> None:
    for path in PATHS:
        status, body = json_at(address, sent(path))
        assert (path, status) == (path, 503 if path == HEALTH else 200)  # the cluster is stale
        response_schema(document, path, status).validate(body)


def test_every_resource_has_the_rows_of_the_tables(address: str) -> None:
    for name, expected in ROWS_OF.items():
        body = answer(address, f"/api/v1/{name}")
        counted = expected if body["count"] is not None else None  # events are not counted
        assert (name, body["count"], len(rows_in(body, name))) == (name, counted, expected)


def values_of(schema: Any) -> list[Any]:
    """Values that a declared parameter accepts."""
    if schema["type"] == "array":
        return values_of(schema["items"])
    if "enum" in schema:
        return list(schema["enum"])
    if schema["type"] == "boolean":
        return ["true", "false"]
    if schema["type"] in {"integer", "number"}:
        return [schema["minimum"], schema["maximum"]]
    return schema.get("examples", ["main"])  # type: ignore[no-any-return]


def test_every_described_parameter_is_accepted_and_what_it_does_not_allow_is_refused(
    address: str, document: Any
) -> None:
    for path in PATHS:
        for parameter in document["paths"][path]["get"]["parameters"]:
            name, schema = parameter["name"], parameter["schema"]
            if name == "cursor" or parameter["in"] == "path":
                continue
            values = [THEN] if name == "at" else values_of(schema)
            for value in values:
                status, body = json_at(address, f"{sent(path)}?{urlencode({name: value})}")
                # What a filter of an answer may hold is not declared, and its refusal is a sentence.
                allowed = {200, 400, 404} if path in ANSWERS and name != "at" else {503 if path == HEALTH else 200}
                assert (path, name, status in allowed) == (path, name, True), body
                response_schema(document, path, status).validate(body)
            if schema["type"] == "integer":
                assert refusal(address, sent(path), **{name: "9" * 5000})[0] == 400
            if schema.get("items", schema) != {"type": "string"}:
                status, sentence = refusal(address, sent(path), **{name: "no such value"})
                assert (status, sentence.split(";")[0]) == (400, f"{name} is 'no such value'")
            twice = urlencode([(name, values[0])] * 2)
            allowed = {200, 503, *({400, 404} if path in ANSWERS else ())} if schema["type"] == "array" else {400}
            assert ask(address, f"{sent(path)}?{twice}")[0] in allowed


def test_an_unknown_parameter_is_refused_with_those_that_are_allowed(address: str, document: Any) -> None:
    for path in PATHS:
        described = document["paths"][path]["get"]["parameters"]
        allowed = ", ".join(each["name"] for each in described if each["in"] == "query") or "none"
        sentence = f"unknown parameter 'clusterr'; allowed: {allowed}"
        assert refusal(address, sent(path), clusterr="main") == (400, sentence)
    assert refusal(address, "/api/v1/openapi.json", x=1) == (400, "unknown parameter 'x'; allowed: none")


def test_an_unknown_cluster_is_not_an_empty_answer(address: str, document: Any) -> None:
    for path in WITH_CLUSTER:
        status, sentence = refusal(address, path, cluster="nobody")
        known = ("known: main", "known: id-of-main, main")
        assert (status, sentence.partition("; ")[2] in known) == (404, True), (path, sentence)
        by_name, by_id = (json_at(address, f"{path}?cluster={name}") for name in ("main", "id-of-main"))
        assert (by_name[0], by_name[1].get("count")) == (by_id[0], by_id[1].get("count"))
        _, body = json_at(address, f"{path}?cluster=nobody")
        response_schema(document, path, 404).validate(body)


def test_what_is_not_there_or_not_allowed_is_refused_as_json(address: str) -> None:
    status, body = json_at(address, "/api/v1/brokres")
    assert status == 404
    assert body["error"].startswith("Not Found: GET /api/v1/brokres; the paths are /api/v1/health,")
    assert json_at(address, "/api/v2/clusters")[0] == 404
    request = urllib.request.Request(f"http://{address}/api/v1/clusters", method="POST", data=b"")
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request, timeout=30)  # noqa: S310 - our own server
    assert (refused.value.code, set(refused.value.headers["Allow"].split(", "))) == (405, {"GET", "HEAD"})
    assert json.loads(refused.value.read()) == {"error": "Method Not Allowed: POST /api/v1/clusters; use GET or HEAD"}
    status, headers, body = ask(address, "/nothing")
    assert (status, headers["Content-Type"], body) == (404, "text/plain; charset=utf-8", b"Not Found\n")


def test_a_fault_of_our_own_is_json_too(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("exporters.web.api.page_response", lambda *_: 1 / 0)
    fault = {"error": "a fault of isrwatch export; its log has the traceback"}
    assert json_at(address, "/api/v1/clusters") == (500, fault)
    assert ask(address, "/metrics")[0] == 200


def test_before_the_tables_are_there_the_api_says_so(tables: Any) -> None:
    with serving(tables.directory, SETTINGS) as address:
        sentence = f"there are no tables in {tables.directory} yet; start isrwatch job"
        assert [refusal(address, sent(path)) for path in PATHS] == [(503, sentence)] * len(PATHS)
        assert answer(address, "/api/v1/openapi.json")["openapi"] == "3.1.0"


def test_pages_of_one_row_are_together_what_one_page_of_all_is(address: str) -> None:
    for name in ROWS_OF:
        whole = answer(address, f"/api/v1/{name}")
        rows: list[Any] = []
        parameters: dict[str, Any] = {"limit": 1}
        for left in range(len(rows_in(whole, name)), 0, -1):
            page = answer(address, f"/api/v1/{name}", **parameters)
            assert (page["count"], page["is_truncated"], page["has_changed"]) == (whole["count"], left > 1, False)
            rows += rows_in(page, name)
            parameters["cursor"] = page["next_cursor"]
        assert parameters.get("cursor") is None
        assert [_without_ages(row) for row in rows] == [_without_ages(row) for row in rows_in(whole, name)]


def _without_ages(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name != "age_seconds"}


def test_a_page_without_rows_says_that_there_are_some(address: str) -> None:
    page = answer(address, "/api/v1/partitions", limit=0)
    assert (page["partitions"], page["count"], page["is_truncated"], page["next_cursor"]) == ([], 3, True, None)


def test_a_cursor_goes_on_behind_its_row_whatever_has_come_and_gone(
    own_address: str, busy_cluster: Any, rows: Any
) -> None:
    first = answer(own_address, "/api/v1/partitions", limit=2)
    assert [(row["topic"], row["partition"]) for row in first["partitions"]] == [('odd "topic"\\', 0), ("orders", 0)]
    healthy = rows.state([1, 2, 3], [1, 2, 3], 1)
    gone = rows.state([1, 2, 3], [], -1, is_deleted=True)
    busy_cluster.commit(rows.partition("a-new-one", 0, healthy), rows.partition("orders", 0, gone))
    wait_until(lambda: answer(own_address, "/api/v1/topics")["count"] == 3)
    then = answer(own_address, "/api/v1/partitions", limit=2, cursor=first["next_cursor"])
    assert [(row["topic"], row["partition"]) for row in then["partitions"]] == [("orders", 1)]
    assert (then["has_changed"], then["is_truncated"], then["next_cursor"]) == (True, False, None)


@pytest.mark.parametrize("cursor", ["", "bm9uc2Vuc2U", "%%%", "W10", "a" * 3000])
def test_a_cursor_that_no_response_had_is_refused(address: str, cursor: str) -> None:
    status, sentence = refusal(address, "/api/v1/partitions", cursor=cursor)
    assert (status, sentence.partition(";")[0]) == (400, "the cursor is not one of this request")


def test_a_cursor_of_other_filters_is_refused(address: str) -> None:
    cursor = answer(address, "/api/v1/partitions", limit=1)["next_cursor"]
    assert refusal(address, "/api/v1/partitions", cursor=cursor, topic="orders")[0] == 400
    assert refusal(address, "/api/v1/topics", cursor=cursor)[0] == 400
    assert answer(address, "/api/v1/partitions", limit=7, cursor=cursor)["count"] == 3


@pytest.mark.parametrize(
    ("path", "parameters", "selected"),
    [
        ("partitions", {"topic": "orders"}, ["orders-0", "orders-1"]),
        ("partitions", {"topic": ["orders", 'odd "topic"\\'], "partition": 0}, ['odd "topic"\\-0', "orders-0"]),
        ("partitions", {"state": "under_replicated"}, ['odd "topic"\\-0', "orders-1"]),
        ("partitions", {"state": ["offline", "under_min_isr"]}, ['odd "topic"\\-0', "orders-1"]),
        ("partitions", {"state": "offline", "leader": 2}, []),
        ("partitions", {"broker": 2}, ["orders-0", "orders-1"]),
        ("partitions", {"leader": [1, 2]}, ["orders-0", "orders-1"]),
        ("topics", {"state": "offline"}, ['odd "topic"\\-None']),
        ("topics", {"topic": "gone"}, []),
        ("group_offsets", {"group": "payments", "partition": [1, 2]}, ["orders-1", "orders-2"]),
    ],
)
def test_filters_of_partitions_topics_and_offsets(
    address: str, path: str, parameters: dict[str, Any], selected: list[str]
) -> None:
    body = answer(address, f"/api/v1/{path}", **parameters)
    assert [f"{row['topic']}-{row.get('partition')}" for row in body[path]] == selected
    assert (body["count"], body["is_truncated"]) == (len(selected), False)


@pytest.mark.parametrize(
    ("path", "parameters", "selected"),
    [
        ("brokers", {"broker": [1, 3]}, [1, 3]),
        ("brokers", {"broker": 9}, []),
        ("incidents", {"class": "broker_loss", "broker": 3}, ["loss:e1"]),
        ("incidents", {"class": "slow_follower"}, []),
        ("incidents", {"broker": 1}, []),
        ("incidents", {"incident": "main-4"}, ["loss:e1"]),
        ("incidents", {"incident": ["main-3", "main-9"]}, ["loss:e1"]),  # merged into it
        ("incidents", {"incident": "lag:e3"}, ["loss:e1"]),
        ("incidents", {"incident": "loss:e1"}, ["loss:e1"]),
        ("incidents", {"incident": "main-1"}, ["lag:e0"]),  # it is closed
        ("incidents", {"incident": "main-1", "state": "open"}, []),
        ("incidents", {"incident": "main"}, []),
        ("incidents", {"state": "closed"}, ["lag:e0", "lag:e2"]),
        ("incidents", {"state": "all"}, ["loss:e1", "lag:e0", "lag:e2"]),
        ("incidents", {"since": BEGAN, "until": BEGAN}, ["loss:e1"]),
        ("incidents", {"since": BEGAN + 1}, ["loss:e1"]),  # it lasts
        ("incidents", {"until": BEGAN - 1}, ["lag:e0", "lag:e2"]),
        ("incidents", {"until": BEGAN - 1, "state": "open"}, []),
        ("incidents", {"at": BEGAN}, ["loss:e1"]),
    ],
)
def test_filters_of_brokers_and_incidents(
    address: str, path: str, parameters: dict[str, Any], selected: list[Any]
) -> None:
    body = answer(address, f"/api/v1/{path}", **parameters)
    assert [row.get("incident_id", row.get("broker")) for row in body[path]] == selected
    assert body["freshness"]["main"].get("incidents_available", True)


def test_a_group_has_the_sums_of_its_partitions_and_null_for_what_is_unknown(address: str) -> None:
    rows = {row["group"]: row for row in answer(address, "/api/v1/groups")["groups"]}
    payments = rows["payments"]
    assert (payments["members"], payments["partitions"], payments["lag"], payments["worst_lag"]) == (2, 3, None, 10)
    assert (payments["worst_partition"], payments["records_lost"]) == ("orders-0", 4)
    in_seconds = ("lag_seconds", "lag_seconds_at_least", "partitions_of_unknown_lag")
    shown = {group: tuple(row[name] for name in in_seconds) for group, row in rows.items()}
    none = dict.fromkeys(("idle", "undescribed", "etl"), (None, None, 0))
    assert shown == {"payments": (None, 61.0, 1), "other": (None, None, 1), **none}
    assert (rows["other"]["group_state"], rows["other"]["partitions"]) == (None, 2)
    assert rows["idle"]["lag"] is None
    by_state = answer(address, "/api/v1/groups", state="Empty")
    assert [row["group"] for row in by_state["groups"]] == ["idle"]
    by_broker = answer(address, "/api/v1/groups", broker=2)
    assert [row["group"] for row in by_broker["groups"]] == ["undescribed"]


def test_maintenance_is_listed_with_its_end_and_whether_it_overran(address: str, rows: Any) -> None:
    announced, overran = answer(address, "/api/v1/maintenance")["maintenance"]
    assert (announced["broker"], announced["maintenance_why"]) == (2, "new disk")
    assert announced["maintenance_until"] == rows.start + 600 * SECOND
    assert (overran["broker"], overran["maintenance_overran_at"], overran["is_active"]) == (3, rows.start, False)


def test_events_are_selected_by_time_kind_cause_and_broker(own_address: str, busy_cluster: Any, rows: Any) -> None:
    shrink = {"event_id": "e1", "event": "isr_shrink", "event_broker": None, "detail": None}
    ended = {"event_id": "e2", "event": "under_replicated_ended", "event_broker": None, "detail": None}
    state = rows.state([1, 2, 3], [1, 2], 1)
    at = rows.start + 40 * SECOND
    busy_cluster.commit(
        rows.partition("orders", 0, state, at, events=[shrink], left_isr=[3], cause="lag"),
        rows.partition("orders", 1, rows.state([2, 3, 1], [2, 3, 1], 2), at + SECOND, events=[ended]),
        rows.cluster_row(at + SECOND),
        rows.source(at + SECOND),
    )
    wait_until(lambda: len(answer(own_address, "/api/v1/events")["events"]) == 2)

    def selected(**parameters: Any) -> list[str]:
        return [event["event_id"] for event in answer(own_address, "/api/v1/events", **parameters)["events"]]

    assert selected() == ["e2", "e1"]
    assert selected(broker=3) == selected(cause="lag") == selected(event="isr_shrink") == selected(until=at) == ["e1"]
    assert selected(since=at + 1) == selected(partition=1) == ["e2"]
    assert selected(since="2026-09-21T14:14:01Z") == ["e2"]
    assert selected(since="2026-09-21T16:14:01+02:00") == ["e2"]
    assert selected(at=at) == ["e1"], "what had occurred by then"
    assert selected(topic="ord*", cluster="main") == ["e2", "e1"]
    first = answer(own_address, "/api/v1/events", limit=1)
    assert [event["event_id"] for event in first["events"]] == ["e2"]
    assert selected(limit=1, cursor=first["next_cursor"]) == ["e1"]


def test_of_a_cluster_that_was_not_there_yet_nothing_of_others_is_given(
    own_address: str, busy_cluster: Any, other_rows: Any
) -> None:
    at = START + 25 * SECOND
    shrink = {"event_id": "e9", "event": "isr_shrink", "event_broker": None, "detail": None}
    partition = other_rows.partition("orders", 0, other_rows.state([1, 2], [1], 1), at, events=[shrink])
    busy_cluster.commit(other_rows.cluster_row(at), other_rows.source(at), partition)
    wait_until(lambda: answer(own_address, "/api/v1/clusters")["count"] == 2)
    for path, before in (("events", {"at": BEGAN}), ("incidents", {"at": BEGAN}), ("brokers", {"at": BEGAN})):
        assert answer(own_address, f"/api/v1/{path}", cluster="other", **before)[path] == [], path
    assert [each["event_id"] for each in answer(own_address, "/api/v1/events", cluster="other")["events"]] == ["e9"]


def test_what_cannot_be_read_is_named(own_address: str, busy_cluster: Any) -> None:
    for file in (busy_cluster.directory / "groups").rglob("*.parquet"):
        file.unlink()
    log = busy_cluster.directory / "groups" / "_delta_log"
    newest = max(log.glob("*.json"))
    (log / f"{int(newest.stem) + 1:020}.json").write_text("{ not a commit", encoding="utf-8")
    body = wait_until(lambda: (body := answer(own_address, "/api/v1/groups"))["unreadable_tables"] and body)
    assert (list(body["unreadable_tables"]), body["freshness"]["main"]["groups_available"]) == (["groups"], False)
    assert "groups" in body["unreadable_tables"]["groups"]


def test_responses_are_compressed_where_that_is_accepted(address: str) -> None:
    path = "/api/v1/clusters"
    _, headers, plain = ask(address, path)
    assert "Content-Encoding" not in headers
    _, headers, zipped = ask(address, path, **{"Accept-Encoding": "gzip"})
    assert (headers["Content-Encoding"], headers["Vary"]) == ("gzip", "Accept-Encoding")
    assert list(json.loads(gzip.decompress(zipped))) == list(json.loads(plain))
    assert len(zipped) < len(plain) / 2


def test_health_is_unknown_while_the_data_is_stale_and_old_data_may_be_asked_about(address: str) -> None:
    status, body = json_at(address, "/api/v1/health")
    (cluster,) = body["clusters"]
    assert (status, body["status"], cluster["status"]) == (503, "unknown", "unknown")
    assert cluster["reasons"][0]["condition"] == "data_stale"
    status, body = json_at(address, f"/api/v1/health?max_age={2**31 - 1}")
    (cluster,) = body["clusters"]
    assert (status, body["status"], cluster["status"]) == (503, "unhealthy", "unhealthy")
    critical = {each["condition"]: each["examples"] for each in cluster["reasons"] if each["severity"] == "critical"}
    assert critical == {
        "offline_partitions": ['odd "topic"\\-0'],
        "under_min_isr": ["orders-1"],
        "unclean_election": ["orders"],
    }


def test_health_is_200_for_a_gate_only_when_all_is_well_and_newer_than_asked(tables: Any, rows: Any) -> None:
    now = micros_now()
    tables.commit(
        rows.cluster_row(now),
        *(rows.broker(number, now) for number in (1, 2)),
        rows.partition("orders", 0, rows.state([1, 2], [1, 2], 1), now, is_baseline=True),
        rows.source(now),
    )
    with served(tables.directory) as address:
        status, body = json_at(address, "/api/v1/health")
        assert (status, body["status"], body["clusters"][0]["reasons"]) == (200, "healthy", [])
        assert body["clusters"][0]["observed_until"] == now
        status, body = json_at(address, f"/api/v1/health?newer_than={now}")
        assert (status, body["status"]) == (503, "unknown")
        assert json_at(address, f"/api/v1/health?newer_than={now - 1}")[0] == 200
        tables.commit(rows.partition("orders", 0, rows.state([1, 2], [1], 1), now))
        wait_until(lambda: json_at(address, "/api/v1/health")[1]["status"] == "unhealthy")
        _, body = json_at(address, "/api/v1/health?ignore=under_replicated&ignore=under_min_isr")
        assert body["status"] == "healthy"
        assert [each["counts"] for each in body["clusters"][0]["reasons"]] == [False, False]
        status, sentence = refusal(address, "/api/v1/health", ignore="data_stale")
        assert (status, sentence.partition(";")[0]) == (400, "ignore is 'data_stale'")


def test_incidents_at_a_moment_have_the_state_of_then_and_are_filtered_as_others(tables: Any, rows: Any) -> None:
    now = micros_now()
    for seconds in (300, 5):
        at = now - seconds * SECOND
        tables.commit(rows.cluster_row(at), rows.broker(1, at), rows.source(at))
    first, second = now - 250 * SECOND, now - 150 * SECOND
    tables.put(
        "incidents",
        rows.incident("a", "broker_loss", first, short_id="main-1", closed_at=first + 20 * SECOND, carried=None),
        rows.incident("b", "broker_loss", second, short_id="main-2", closed_at=second + 90 * SECOND, carried=None),
        as_of=1,
    )
    with served(tables.directory) as address:
        wait_until(lambda: json_at(address, "/api/v1/clusters")[0] == 200)

        def shown(**given: Any) -> list[str]:
            body = answer(address, "/api/v1/incidents", at=second + SECOND, **given)
            return [row["short_id"] for row in body["incidents"]]

        assert shown() == shown(state="open") == ["main-2"]
        assert shown(state="closed") == ["main-1"]
        assert shown(state="all") == ["main-2", "main-1"]
        assert shown(state="all", until=first) == ["main-1"]
        moment, path = datetime.fromtimestamp(second // SECOND + 1, UTC).isoformat(), "/api/v1/answers/incidents"
        assert [row["short_id"] for row in answer(address, path, at=moment)["rows"]] == ["main-2"]
        assert answer(address, path, at=moment, until=moment)["rows"] != []
        assert answer(address, path, at=moment, until="200s")["rows"] == []
        for outside in ("2h", "2126-01-01T00:00:00Z"):
            assert refusal(address, path, at=outside)[0] == 400, "none is open of which nothing is recorded"


def test_health_at_a_moment_is_that_of_the_moment_by_the_clock_of_now(tables: Any, rows: Any) -> None:
    now = micros_now()
    for seconds, isr in ((60, [1, 2]), (30, [1]), (10, [1, 2])):
        at = now - seconds * SECOND
        brokers = (rows.broker(number, at) for number in (1, 2))
        state = rows.partition("orders", 0, rows.state([1, 2], isr, 1), at)
        tables.commit(rows.cluster_row(at), *brokers, state, rows.source(at))
    with served(tables.directory) as address:
        wait_until(lambda: json_at(address, "/api/v1/health")[1]["status"] == "healthy")
        for seconds, judged in ((45, (200, "healthy")), (20, (503, "unhealthy")), (10, (200, "healthy"))):
            status, body = json_at(address, f"/api/v1/health?at={now - seconds * SECOND}")
            assert (status, body["status"], body["read_at"]) == (*judged, now - seconds * SECOND)
            assert body["now"] >= now
        assert json_at(address, f"/api/v1/health?at={now - 3600 * SECOND}")[0] == 400


def test_the_filters_of_answers_have_the_types_of_their_values(document: dict[str, Any]) -> None:
    def schema(name: str, path: str) -> dict[str, Any]:
        parameters = document["paths"][f"/api/v1/answers/{path}"]["get"]["parameters"]
        (found,) = (each["schema"] for each in parameters if each["name"] == name)
        return dict(found["items"])

    assert schema("class", "incidents")["enum"] == [*IncidentClass]
    assert schema("cause", "events")["enum"] == [*Cause]
    assert schema("event", "events")["enum"] == [*EventKind]
    assert {schema(name, "events")["type"] for name in ("partition", "broker", "limit", "after")} == {"integer"}
    assert "ISO 8601" in schema("since", "events")["description"]
    assert schema("topic", "partitions") == {"type": "string"}


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
