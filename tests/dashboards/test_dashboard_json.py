"""What Grafana would read: the schema of what we write, Grafana's own types, and the rules of a good dashboard.

There is no Grafana here. The rules are those of Grafana's dashboard linter, restated.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models import dashboard as grafana
from grafanalib import core
from jsonschema import Draft202012Validator

from dashboards.alerts import AlertSettings
from dashboards.normalise import normalised
from dashboards.render import as_json, rendered

GRID_WIDTH = 24


def lost(before: Any, after: Any, path: str = "") -> list[str]:
    """Tell what ``after`` lacks or says otherwise; additions are allowed."""
    if isinstance(before, dict) and isinstance(after, dict):
        return [loss for key in before for loss in lost(before[key], after.get(key, "lost"), f"{path}/{key}")]
    if isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        return [loss for i, (b, a) in enumerate(zip(before, after, strict=True)) for loss in lost(b, a, f"{path}/{i}")]
    return [] if before == after else [f"{path}: {before!r} became {after!r}"]


def expressions(panels: list[dict[str, Any]]) -> list[tuple[str, dict[str, Any]]]:
    return [(panel["title"], target) for panel in panels for target in panel["targets"]]


def test_the_dashboard_is_valid_by_the_schema_of_what_we_write(overview: dict[str, Any]) -> None:
    schema = json.loads((Path(__file__).parent / "dashboard.schema.json").read_text())
    Draft202012Validator.check_schema(schema)
    found = Draft202012Validator(schema).iter_errors(overview)
    assert [f"{'/'.join(map(str, error.absolute_path))}: {error.message}" for error in found] == []


@pytest.mark.filterwarnings("ignore:Prefer using dashboardv2:DeprecationWarning")
def test_grafanas_own_types_lose_nothing_of_it(overview: dict[str, Any]) -> None:
    register_default_plugins()
    decoded = grafana.Dashboard.from_json(json.loads(json.dumps(overview)))
    assert lost(overview, json.loads(JSONEncoder().encode(decoded))) == []


def test_the_base_of_every_threshold_is_null_and_the_others_grow(files: dict[str, str]) -> None:
    found = [
        [step["value"] for step in steps] for steps in _every("steps", json.loads(files["replication-overview.json"]))
    ]
    assert len(found) > 10
    for base, *others in found:
        assert base is None
        assert others == sorted(others)


def _every(key: str, value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [item for name, item in value.items() if name == key] + [
            hit for item in value.values() for hit in _every(key, item)
        ]
    return [hit for item in value for hit in _every(key, item)] if isinstance(value, list) else []


def test_the_same_code_gives_the_same_bytes(files: dict[str, str]) -> None:
    assert files == rendered(AlertSettings())


def test_what_is_committed_is_what_the_code_renders(files: dict[str, str], repository: Path) -> None:
    generated = repository / "dashboards/generated"
    assert files == {path.name: path.read_text() for path in sorted(generated.iterdir())}


def test_every_panel_explains_itself(panels: list[dict[str, Any]]) -> None:
    titles = [panel["title"] for panel in panels]
    assert len(set(titles)) == len(titles), titles
    for panel in panels:
        assert panel["title"], panel["id"]
        assert len(panel["description"]) > 40, panel["title"]
        assert panel["description"].endswith((".", "?")), panel["title"]


def test_every_panel_has_a_unit_a_query_and_the_chosen_data_source(panels: list[dict[str, Any]]) -> None:
    for panel in panels:
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
        assert panel["targets"], panel["title"]
        sources = {json.dumps(one["datasource"], sort_keys=True) for one in (panel, *panel["targets"])}
        assert sources == {'{"type": "prometheus", "uid": "${datasource}"}'}


def test_a_course_over_time_uses_the_rate_interval_and_a_sum_the_whole_range(panels: list[dict[str, Any]]) -> None:
    for title, target in expressions(panels):
        windows = set(re.findall(r"\[([^\]]+)\]", target["expr"]))
        assert windows <= {"$__rate_interval", "$__range"}, title
        if "rate(" in target["expr"]:
            assert windows == {"$__rate_interval"}, title
        if "increase(" in target["expr"]:
            assert windows == {"$__range"}, title


def test_a_counter_stands_only_under_a_rate_or_an_increase(panels: list[dict[str, Any]]) -> None:
    for title, target in expressions(panels):
        counters = re.findall(r"\w+_total\b", target["expr"])
        counted = re.findall(r"(?:rate|increase)\((\w+_total)\b", target["expr"])
        assert counters == counted, title


def test_every_expression_obeys_the_chosen_cluster_and_topic(panels: list[dict[str, Any]]) -> None:
    for title, target in expressions(panels):
        for name, selector in re.findall(r"(kafka_replication_\w+)(\{[^}]*\})?", target["expr"]):
            assert 'cluster=~"$cluster"' in selector, (title, name)
            if name.startswith(("kafka_replication_partition_", "kafka_replication_replica_")):
                assert 'topic=~"$topic"' in selector, (title, name)


def test_the_variables_follow_each_other_and_the_time_range(overview: dict[str, Any]) -> None:
    datasource, cluster, topic = overview["templating"]["list"]
    assert [datasource["name"], datasource["label"], datasource["type"]] == ["datasource", "Data source", "datasource"]
    assert "kafka_replication_cluster_state_age_seconds" in cluster["query"], "a stale cluster can be selected"
    assert "$cluster" in topic["query"]
    for variable in (cluster, topic):
        assert variable["refresh"] == 2
        assert variable["includeAll"]
        assert variable["multi"]
        assert variable["allValue"] == ".+"


def test_panels_fill_the_grid_without_overlap(overview: dict[str, Any]) -> None:
    taken: dict[tuple[int, int], str] = {}
    for panel in overview["panels"]:
        place = panel["gridPos"]
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                assert x < GRID_WIDTH, panel["title"]
                assert (x, y) not in taken, f"{panel['title']} over {taken.get((x, y))}"
                taken[x, y] = panel["title"]
    height = max(y for _, y in taken) + 1
    assert len(taken) == GRID_WIDTH * height, "a hole in the grid"


def test_the_first_row_answers_whether_data_is_at_risk(overview: dict[str, Any]) -> None:
    headings = [panel["title"] for panel in overview["panels"] if panel["type"] == "row"]
    assert headings == [
        "Is data at risk now?",
        "Which incidents are open, and which brokers are safe to stop?",
        "Which brokers left in-sync replicas, why, since when?",
        "Which topics?",
        "What changed?",
        "The brokers",
        "Can this dashboard be trusted?",
    ]
    ids = [panel["id"] for panel in overview["panels"]]
    assert ids == list(range(1, len(ids) + 1))


def test_a_number_without_fresh_data_is_never_shown_as_zero(panels: list[dict[str, Any]]) -> None:
    for panel in panels:
        assert "or vector(0)" not in str(panel["targets"]), panel["title"]
        if panel["type"] == "stat":
            assert panel["fieldConfig"]["defaults"]["noValue"] == "no fresh data", panel["title"]


def test_an_empty_cell_is_called_unknown_and_has_no_colour(panels: list[dict[str, Any]]) -> None:
    unknown = {"match": "null", "result": {"text": "unknown", "color": "transparent", "index": 0}}
    columns = [
        {each["id"]: each["value"] for each in column["properties"]}
        for panel in panels
        if panel["type"] == "table"
        for column in panel["fieldConfig"]["overrides"]
    ]
    assert columns
    assert all(column["mappings"] == [{"type": "special", "options": unknown}] for column in columns)


def test_links_of_alerts_lead_to_the_dashboard(files: dict[str, str], overview: dict[str, Any]) -> None:
    links = set(re.findall(r"dashboard_url: (\S+)", files["alerts.yml"]))
    assert {re.sub(r".*/d/([^?]+)\?.*", r"\1", link) for link in links} == {overview["uid"]}


@pytest.mark.parametrize(
    "relic", ["intervalFactor", "sharedCrosshair", "gnetId", "useTags", "displayMode", "maxDataPoints"]
)
def test_relics_of_grafanalib_do_not_come_back(
    relic: str, overview: dict[str, Any], panels: list[dict[str, Any]]
) -> None:
    without_legends = [
        {**panel, "options": {name: value for name, value in panel["options"].items() if name != "legend"}}
        for panel in panels
    ]
    assert _every(relic, without_legends) == [], "only a legend still has a displayMode"
    assert _every(relic, {**overview, "panels": []}) == []


def test_a_threshold_written_the_way_of_grafanalib_gets_its_null_back() -> None:
    stat = core.Stat(
        title="x",
        dataSource={},
        thresholds=[core.Threshold("red", 1, 5.0), core.Threshold("green", 0, 0.0)],
        targets=[core.Target(expr="up", refId="A")],
    )
    clean = normalised(core.Dashboard(title="t", panels=[stat]))
    steps = clean["panels"][0]["fieldConfig"]["defaults"]["thresholds"]["steps"]
    assert [step["value"] for step in steps] == [None, 5.0]
    assert [step["color"] for step in steps] == ["green", "red"]
    assert clean["panels"][0]["id"] == 1
    assert '"schemaVersion": 42' in as_json(clean)
