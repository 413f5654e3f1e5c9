"""What Grafana would read: the schema of what we write, Grafana's own types, and the rules of a good dashboard.

There is no Grafana here. The rules are those of Grafana's dashboard linter, restated.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models import dashboard as grafana
from grafanalib import core
from jsonschema import Draft202012Validator

from dashboards.board import FRESH
from dashboards.boards import all_boards
from dashboards.boards.fleet import RAISED, STATES
from dashboards.promql import EVERYTHING, of_variable
from dashboards.render import as_json, rendered
from dashboards.style import normalised
from exporters.metrics.catalogue import CATALOGUE
from exporters.read_model.conditions import ALL_RULES
from exporters.read_model.health_reasons import NOT_YET_OBSERVED, SEVERITIES, HealthSeverity
from streaming.alert_settings import AlertsSettings
from streaming.contracts.conditions import Condition
from streaming.contracts.sampled_conditions import OF_GROUPS
from streaming.settings import ExportSettings, Settings

GRID_WIDTH = 24
LABELS = {metric.name: metric.labels for metric in CATALOGUE}


def lost(before: Any, after: Any, path: str = "") -> list[str]:
    """Tell what ``after`` lacks or says otherwise; additions are allowed."""
    if isinstance(before, dict) and isinstance(after, dict):
        return [loss for key in before for loss in lost(before[key], after.get(key, "lost"), f"{path}/{key}")]
    if isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        return [loss for i, (b, a) in enumerate(zip(before, after, strict=True)) for loss in lost(b, a, f"{path}/{i}")]
    return [] if before == after else [f"{path}: {before!r} became {after!r}"]


def tables(panels: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    return [panel for panel in panels if panel["type"] == "table"]


def looks(panel: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Give how each column of a table looks: heading, then property to value."""
    columns = panel["fieldConfig"].get("overrides", [])
    return {each["matcher"]["options"]: {one["id"]: one["value"] for one in each["properties"]} for each in columns}


def titles_of(panel: dict[str, Any]) -> dict[str, str]:
    """Give the heading of each column of a table."""
    (titles,) = _every("renameByName", panel["transformations"])
    return dict(titles)


@pytest.fixture
def everything(boards: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """Give the panels of all boards."""
    return [panel for each in boards.values() for panel in each["panels"]]


def expressions(panels: list[dict[str, Any]]) -> list[tuple[str, dict[str, Any]]]:
    return [(panel["title"], target) for panel in panels for target in panel["targets"]]


def test_every_board_is_valid_by_the_schema_of_what_we_write(board: dict[str, Any]) -> None:
    schema = json.loads((Path(__file__).parent / "dashboard.schema.json").read_text())
    Draft202012Validator.check_schema(schema)
    found = Draft202012Validator(schema).iter_errors(board)
    assert [f"{'/'.join(map(str, error.absolute_path))}: {error.message}" for error in found] == []


@pytest.mark.filterwarnings("ignore:Prefer using dashboardv2:DeprecationWarning")
def test_grafanas_own_types_lose_nothing_of_it(board: dict[str, Any]) -> None:
    register_default_plugins()
    decoded = grafana.Dashboard.from_json(json.loads(json.dumps(board)))
    assert lost(board, json.loads(JSONEncoder().encode(decoded))) == []


def test_the_base_of_every_threshold_is_null_and_the_others_grow(board: dict[str, Any]) -> None:
    found = [[step["value"] for step in steps] for steps in _every("steps", board)]
    assert len(found) > 3
    for base, *others in found:
        assert base is None
        assert others == sorted(others)


def _every(key: str, value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [item for name, item in value.items() if name == key] + [
            hit for item in value.values() for hit in _every(key, item)
        ]
    return [hit for item in value for hit in _every(key, item)] if isinstance(value, list) else []


def test_what_is_committed_is_what_the_code_renders(files: dict[str, str], repository: Path) -> None:
    generated = repository / "dashboards/generated"
    assert files == {path.name: path.read_text() for path in sorted(generated.iterdir())}


def test_one_subject_is_one_panel_on_one_board(everything: list[dict[str, Any]]) -> None:
    titles = [panel["title"] for panel in everything if panel["type"] != "row"]
    asked = [str([target["expr"] for target in panel["targets"]]) for panel in everything if "targets" in panel]
    assert len(titles) > 80
    assert [each for each in titles if titles.count(each) > 1] == []
    assert [each for each in asked if asked.count(each) > 1] == []


def test_every_panel_explains_itself(panels: list[dict[str, Any]]) -> None:
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


BURN_RATES = {"5m", "1h", "6h"}
"""The windows of burn rates, which are fixed: an objective does not depend on the range of a board."""


LOOKING_BACK = {"In-sync replicas of each broker", "Missing replicas"}
"""They ask what a broker or replica was some minutes ago."""


def test_a_course_over_time_uses_the_rate_interval_and_a_sum_the_whole_range(panels: list[dict[str, Any]]) -> None:
    for title, target in expressions(panels):
        windows = set(re.findall(r"\}\[([^\]]+)\]", target["expr"]))
        assert windows <= {"$__rate_interval", "$__interval", "$__range", *BURN_RATES}, title
        if title == "Burn rate":
            assert windows <= BURN_RATES
        elif "rate(" in target["expr"]:
            assert windows == {"$__rate_interval"}, title
        if "max_over_time(" in target["expr"] and title not in LOOKING_BACK:
            assert windows == {"$__interval"}, "a longer window stretches what is over to its length"
        if "increase(" in target["expr"] and title not in LOOKING_BACK:
            assert windows == {"$__range"}, title


def test_a_counter_stands_only_under_a_rate_or_an_increase(panels: list[dict[str, Any]]) -> None:
    for title, target in expressions(panels):
        counters = re.findall(r"\w+_total\b", target["expr"])
        counted = re.findall(r"(?:rate|increase)\((\w+_total)\b", target["expr"])
        assert counters == counted, title


FLEET = "isrwatch-fleet"
"""The board that is about all clusters."""


def test_every_expression_obeys_what_is_chosen(board: dict[str, Any], panels: list[dict[str, Any]]) -> None:
    several = {one["name"] for one in board["templating"]["list"] if one["type"] == "query"} - {"cluster"}
    used = set()
    for title, target in expressions(panels):
        for name, selector in re.findall(r"(kafka_replication_\w+)(\{(?:[^}`]|`[^`]*`)*\})?", target["expr"]):
            if "cluster" in LABELS[name]:
                assert (of_variable("cluster") in selector) == (board["uid"] != FLEET), (title, name)
            used |= {variable for variable in several if of_variable(variable) in selector}
    assert used == several, "a variable that nothing obeys"


def test_the_variables_follow_each_other_and_the_time_range(board: dict[str, Any]) -> None:
    datasource, *chosen = board["templating"]["list"]
    assert [datasource["name"], datasource["label"], datasource["type"]] == ["datasource", "Data source", "datasource"]
    if board["uid"] == FLEET:
        assert chosen == [], "all clusters"
        return
    cluster, *others = chosen
    assert "kafka_replication_cluster_state_age_seconds" in cluster["query"], "a stale cluster can be selected"
    assert (cluster["refresh"], cluster["multi"], cluster["includeAll"]) == (2, False, False)
    for variable in others:
        if variable["type"] == "query":
            assert of_variable("cluster") in variable["query"]
            assert (variable["refresh"], variable["multi"], variable["includeAll"]) == (2, True, True)
            assert variable["allValue"] == EVERYTHING


def test_boards_lead_to_each_other_with_the_cluster_and_the_time_range(
    board: dict[str, Any], boards: dict[str, dict[str, Any]]
) -> None:
    (menu,) = board["links"]
    assert (menu["type"], menu["keepTime"], menu["includeVars"]) == ("dashboards", True, True)
    assert set(menu["tags"]) <= set(board["tags"])
    variables = {each["uid"]: {one["name"] for one in each["templating"]["list"]} for each in boards.values()}
    for url in _every("url", board["panels"]):
        uid, chosen = re.fullmatch(r"/d/([a-z-]+)\?(.*)", url).groups()  # type: ignore[union-attr]
        assert chosen.startswith("${datasource:queryparam}&")
        assert chosen.endswith("&${__url_time_range}")
        assert "${cluster:queryparam}" in chosen or "var-cluster=" in chosen
        assert set(re.findall(r"var-(\w+)=", chosen)) <= variables[uid], url


def test_a_table_that_lists_nothing_says_so_in_its_first_cell_which_leads_to_everything(
    panels: list[dict[str, Any]],
) -> None:
    for panel in tables(panels):
        columns, titles = looks(panel), titles_of(panel)
        for _, target in expressions([panel]):
            _, is_there, row = target["expr"].rpartition(f" + 0 * {FRESH} unless")
            first, *others = re.findall(r'"(\w+)", "([^"]*)", "", ""\)', row if is_there else "") or [("", "")]
            for label, value in [first, *others] if first[0] else []:
                look = columns.get(titles[label], {})
                leads = label in {"broker", "topic", "group"}
                assert (value == "$$__all") == leads, (panel["title"], label)
                said = look["mappings"][0]["options"]["$__all"]["text"] if leads else value
                assert (said == "-") == (label != first[0]), (panel["title"], label)
                assert said == "-" or re.match(r"(no|none|nothing) |none is|nothing:", said), (panel["title"], said)


def test_no_tooltip_explains_what_the_cell_says(panels: list[dict[str, Any]]) -> None:
    assert [panel["title"] for panel in panels if "The row" in panel["description"]] == []


NARROWED_BY = {
    "isrwatch-brokers.json": ["broker"],
    "isrwatch-topics.json": ["topic"],
    "isrwatch-groups.json": ["group", "topic"],
}


def test_boards_are_narrowed_to_brokers_topics_and_groups_and_cells_lead_there(
    boards: dict[str, dict[str, Any]],
) -> None:
    for name, each in boards.items():
        several = [one["name"] for one in each["templating"]["list"] if one.get("multi")]
        assert several == NARROWED_BY.get(name, []), name
        for panel in tables(each["panels"]):
            keys = {title for label, title in titles_of(panel).items() if label in {"broker", "topic", "group"}}
            linked = {heading for heading, look in looks(panel).items() if "links" in look}
            assert keys <= linked, (name, panel["title"])


PIXELS_OF_A_COLUMN = 65
"""Of the grid's 24, in a window of 1,600 pixels without Grafana's menu."""


def test_the_columns_of_every_table_fit_a_window_of_1600_pixels(panels: list[dict[str, Any]]) -> None:
    for panel in tables(panels):
        left, growing = panel["gridPos"]["w"] * PIXELS_OF_A_COLUMN - 26, []
        for heading, look in looks(panel).items():
            width, least = look.get("custom.width"), look.get("custom.minWidth")
            assert (width or least) >= 8 * len(heading), (panel["title"], heading)
            left -= width or 0
            growing += [] if least is None else [least]
        # Grafana shares what is left evenly among the columns without a width, whatever their least widths are.
        assert growing, panel["title"]
        assert left / len(growing) >= max(growing), (panel["title"], left, growing)


def test_the_title_of_every_stat_fits_above_it(panels: list[dict[str, Any]]) -> None:
    for panel in panels:
        if panel["type"] == "stat":
            assert 7.5 * len(panel["title"]) + 24 <= panel["gridPos"]["w"] * PIXELS_OF_A_COLUMN, panel["title"]


FLAGS = {metric.name for metric in CATALOGUE if metric.help.startswith("1 ")}
_FIRST_VALUE = re.compile(r"(?:2 \* .* or )?(?:max|min) by \([^)]*\) \((kafka_replication_\w+)[^)]*\)(?! ==)")


def test_a_yes_or_no_is_not_shown_as_a_number(everything: list[dict[str, Any]]) -> None:
    checked = set()
    for panel in tables(everything):
        titles = titles_of(panel)
        for target in panel["targets"]:
            metric = _FIRST_VALUE.match(target["expr"])
            if metric and metric[1] in FLAGS:
                title = titles.get(f"Value #{target['refId']}") or titles["Value"]
                words = _every("text", looks(panel)[title]["mappings"])
                assert {"yes", "no"} <= set(words), (panel["title"], title)
                checked.add(metric[1].removeprefix("kafka_replication_"))
    assert len(checked) >= 10
    assert {"broker_safe_to_stop", "replica_elr_member", "broker_maintenance_overrun"} <= checked


def test_what_is_over_before_the_next_step_is_drawn(everything: list[dict[str, Any]]) -> None:
    risk = [panel for panel in everything if panel["title"] == "Risk over time"]
    assert len(risk) == 1
    for target in (each for panel in risk for each in panel["targets"]):
        assert re.match(r"max by \(cluster\) \(max_over_time\((.*)\[\$__interval\]\) or \1\)$", target["expr"])


def test_numbers_and_tables_are_asked_at_one_moment_so_they_agree(panels: list[dict[str, Any]]) -> None:
    for panel in panels:
        asked = {target["instant"] for target in panel["targets"]}
        assert asked == {panel["type"] in {"stat", "table"}}, panel["title"]


OF_CLUSTERS = {"Every cluster", "When each cluster was in trouble"}


def test_a_legend_has_one_entry_by_broker_cause_or_the_like_and_never_the_cluster(panels: list[dict[str, Any]]) -> None:
    for panel in panels:
        if panel["type"] == "timeseries":
            for title, target in expressions([panel]):
                labels = re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])
                assert labels in ([], ["broker"], ["cause"], ["node"], ["group"], ["topic"], ["source", "channel"]), (
                    title
                )
                if labels in (["group"], ["topic"]):
                    assert target["expr"].startswith("topk(10, "), title
        for _, target in expressions([panel]):
            assert target["legendFormat"], panel["title"]
            assert ("cluster" in target["legendFormat"]) == (panel["title"] in OF_CLUSTERS), panel["title"]


def test_at_min_isr_is_a_colour_only_where_a_replica_is_missing(panels: list[dict[str, Any]]) -> None:
    """A topic with as many replicas as min ISR is at min ISR for ever."""
    for panel in panels:
        if panel["type"] == "stat":
            assert "at_min_isr_partitions" not in str(panel["targets"]), panel["title"]
        if panel["type"] == "table" and "topic_at_min_isr_partitions" in str(panel["targets"]):
            assert "thresholds" not in looks(panel)["At min ISR"], panel["title"]


def test_incidents_are_listed_with_what_to_do_first_above_everything_but_numbers(
    boards: dict[str, dict[str, Any]],
) -> None:
    panels = boards["isrwatch-cluster.json"]["panels"]
    (listed,) = [panel for panel in panels if panel["title"] == "Open incidents"]
    titles = {"class": "Incident", "consequence": "Consequence", "next_step": "Do first", "suspects": "Suspects"}
    assert titles.items() <= titles_of(listed).items()
    above = [panel for panel in panels if panel["gridPos"]["y"] < listed["gridPos"]["y"]]
    assert {panel["type"] for panel in above} == {"row", "stat"}


WORST_FIRST = {
    "Clusters": "State",
    "Open incidents": "Severity",
    "What is wrong?": "Severity",
    "Topics at risk": "State",
}


@pytest.mark.parametrize(("title", "column"), WORST_FIRST.items())
def test_the_worst_is_first_however_few_there_are(title: str, column: str, everything: list[dict[str, Any]]) -> None:
    """By number, thirty partitions that lack a replica would stand above two without a leader."""
    (panel,) = [panel for panel in everything if panel["title"] == title]
    assert panel["options"]["sortBy"] == [{"displayName": column, "desc": True}]
    words = looks(panel)[column]["mappings"][1]["options"]
    assert len(words) >= 3


@pytest.mark.parametrize(("title", "first"), [("Missing replicas", "In sync"), ("Log directories", "Online")])
def test_an_old_trouble_is_not_above_a_worse_one(title: str, first: str, everything: list[dict[str, Any]]) -> None:
    """By duration, a topic that lacks a replica for ever would hide partitions that have just gone offline."""
    (panel,) = [panel for panel in everything if panel["title"] == title]
    assert panel["options"]["sortBy"] == [{"displayName": first, "desc": False}]


def test_offline_is_dark_red_and_thick_and_purple_is_for_what_is_not_known(everything: list[dict[str, Any]]) -> None:
    for title in ("Risk over time", "Average unavailable and under-replicated partitions"):
        (panel,) = [panel for panel in everything if panel["title"] == title]
        (offline,) = [target["refId"] for target in panel["targets"] if target["legendFormat"] == "offline"]
        look = looks(panel)[offline]
        assert (look["color"]["fixedColor"], look["custom.lineWidth"]) == ("dark-red", 3)
        assert [one["color"]["fixedColor"] for name, one in looks(panel).items() if name != offline].count(
            "dark-red"
        ) == 0
    stats = {panel["title"]: panel["fieldConfig"]["defaults"] for panel in everything if panel["type"] == "stat"}
    assert [step["color"] for step in stats["Offline partitions"]["thresholds"]["steps"]] == ["green", "dark-red"]
    purple = {panel["title"] for panel in everything if '"purple"' in json.dumps(panel)}
    assert purple == {
        "Clusters not monitored", "Every cluster", "Clusters", "When each cluster was in trouble", "Data age",
        "What is wrong?", "Not observed", "Job's report age", "Sources",
    }  # fmt: skip


def test_a_lasting_state_is_told_in_minutes_and_hours_and_not_in_decimals_of_them(
    everything: list[dict[str, Any]],
) -> None:
    """Grafana writes 6.72 mins for seconds; only what takes less than a minute may have them."""
    in_seconds = {
        heading if panel["type"] == "table" else panel["title"]
        for panel in everything
        if panel["type"] != "row"
        for heading, unit in [
            *[(heading, look.get("unit")) for heading, look in looks(panel).items()],
            ("", panel["fieldConfig"]["defaults"]["unit"]),
        ]
        if unit == "s"
    }
    assert in_seconds == {"Response time", "Append time", "Response time of each broker", "Last read", "Reading took"}


def test_a_number_leads_to_the_board_that_says_more(boards: dict[str, dict[str, Any]]) -> None:
    stats = [panel for panel in boards["isrwatch-cluster.json"]["panels"] if panel["type"] == "stat"]
    led = {
        panel["title"]: panel["fieldConfig"]["defaults"]["links"][0]["url"].split("?")[0]
        for panel in stats
        if "links" in panel["fieldConfig"]["defaults"]
    }
    assert led == {
        **dict.fromkeys(
            (
                "Offline partitions", "Under min ISR", "At min ISR: one failure from rejecting writes",
                "Under-replicated", "Unclean elections",
            ),
            "/d/isrwatch-topics",
        ),
        "Fenced brokers": "/d/isrwatch-brokers",
        "Data age": "/d/isrwatch-health",
    }  # fmt: skip


def test_an_incident_leads_to_its_section_of_the_runbook_that_the_exporter_serves() -> None:
    assert "runbook" not in json.dumps(all_boards())
    settings = Settings(export=ExportSettings(url="https://isrwatch.example"))
    board = json.loads(rendered(settings)["isrwatch-cluster.json"])
    (listed,) = [panel for panel in board["panels"] if panel["title"] == "Open incidents"]
    (link,) = looks(listed)["Incident"]["links"]
    assert link["url"] == "https://isrwatch.example/runbook/${__value.raw:percentencode}"


def test_what_is_critical_is_marked_on_boards_whatever_their_severity_is_called() -> None:
    files = rendered(Settings(alerts=AlertsSettings(severity_names={"critical": "page"})))
    for name, content in files.items():
        if name.endswith(".json") and FLEET not in name:
            (pages,) = [
                one for one in json.loads(content)["annotations"]["list"] if one["name"] == "Critical conditions"
            ]
            assert 'severity="page"' in pages["expr"], name
            assert "ALERTS" not in content, "which Mimir and Grafana's own alerting do not have"


def test_what_is_not_monitored_is_marked_in_every_graph_of_a_cluster(boards: dict[str, dict[str, Any]]) -> None:
    for each in boards.values():
        named = {one["name"] for one in each["annotations"]["list"]}
        assert ("Not monitored" in named) == (each["uid"] != FLEET)


def test_every_condition_of_health_has_a_state_in_words_and_the_graver_one_is_the_worse() -> None:
    assert STATES.keys() == SEVERITIES.keys() - {NOT_YET_OBSERVED}
    ranks = {
        kind: {state.rank for key, state in STATES.items() if SEVERITIES[key][0] is kind} for kind in HealthSeverity
    }
    order = (HealthSeverity.CRITICAL, HealthSeverity.UNKNOWN, HealthSeverity.WARNING, HealthSeverity.PLANNED)
    for worse, better in pairwise(order):
        assert min(ranks[worse]) > max(ranks[better])
    broken = {STATES[key].color for key, kinds in SEVERITIES.items() if kinds[0] is HealthSeverity.CRITICAL}
    blind = {STATES[key].color for key in STATES if SEVERITIES[key][0] is HealthSeverity.UNKNOWN}
    assert (broken, blind) == ({"dark-red", "red"}, {"purple"})


def test_every_other_condition_that_is_raised_of_a_cluster_has_a_state_of_a_rank_of_its_own() -> None:
    planned = {Condition.OFFLINE_PLANNED, Condition.UNDER_MIN_ISR_PLANNED}  # of health: offline_partitions, by plan
    of_applications = {*OF_GROUPS}
    assert RAISED.keys() == ALL_RULES.keys() - STATES.keys() - planned - {Condition.JOB_DOWN} - of_applications
    assert not {state.rank for state in RAISED.values()} & {state.rank for state in STATES.values()}


def test_panels_fill_the_grid_without_overlap(board: dict[str, Any]) -> None:
    taken: dict[tuple[int, int], str] = {}
    for panel in board["panels"]:
        place = panel["gridPos"]
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                assert x < GRID_WIDTH, panel["title"]
                assert (x, y) not in taken, f"{panel['title']} over {taken.get((x, y))}"
                taken[x, y] = panel["title"]
    height = max(y for _, y in taken) + 1
    assert len(taken) == GRID_WIDTH * height, "a hole in the grid"


def test_every_row_is_a_question(board: dict[str, Any]) -> None:
    headings = [panel["title"] for panel in board["panels"] if panel["type"] == "row"]
    assert all(heading.endswith("?") for heading in headings), headings
    ids = [panel["id"] for panel in board["panels"]]
    assert ids == list(range(1, len(ids) + 1))


def test_a_number_without_fresh_data_is_never_shown_as_zero(panels: list[dict[str, Any]]) -> None:
    for panel in panels:
        assert "or vector(0)" not in str(panel["targets"]), panel["title"]
        if panel["type"] == "stat":
            empty = "not reported" if panel["title"] in NOT_OF_EVERY_SOURCE else "no fresh data"
            assert panel["fieldConfig"]["defaults"]["noValue"] == empty, panel["title"]


def test_what_is_left_over_of_the_width_is_the_topics_not_a_number_s(everything: list[dict[str, Any]]) -> None:
    checked = set()
    for panel in tables(everything):
        columns = looks(panel)
        if "Topic" in columns:
            growing = {title for title, look in columns.items() if "custom.minWidth" in look}
            assert growing == {"Topic"}, panel["title"]
            checked.add(panel["title"])
    assert {"Missing replicas", "Where groups are behind", "Replicas that are behind"} <= checked


NOT_OF_EVERY_SOURCE = {"Brokers of an older version", "Upgrade not finished"}


def test_a_rate_ends_while_nothing_is_observed_and_does_not_fall_to_zero(everything: list[dict[str, Any]]) -> None:
    drawn = expressions([each for each in everything if each["type"] == "timeseries"])
    rates = [one["expr"] for _, one in drawn if "rate(" in one["expr"] and "> 0" not in one["expr"]]
    assert len(rates) >= 10
    assert [rate for rate in rates if "kafka_replication_cluster_state_age_seconds" not in rate] == []


def test_an_empty_cell_says_what_it_means_and_has_no_colour_of_a_threshold(panels: list[dict[str, Any]]) -> None:
    for panel in tables(panels):
        for look in looks(panel).values():
            if "unit" in look:
                empty = look["mappings"][0]["options"]
                assert empty["match"] == "null", panel["title"]
                assert empty["result"]["text"] in EMPTY, (panel["title"], empty)
                assert empty["result"]["color"] in {"text", "transparent"}, panel["title"]
                if look.get("custom.cellOptions", {}).get("type") == "color-background":
                    assert "text" not in _every("color", look["mappings"]), "a cell filled with white"


EMPTY = {"unknown", "-", "none", "not filling", "not shrinking"}


@pytest.mark.parametrize(
    "relic", ["intervalFactor", "sharedCrosshair", "gnetId", "useTags", "displayMode", "maxDataPoints"]
)
def test_relics_of_grafanalib_do_not_come_back(relic: str, board: dict[str, Any], panels: list[dict[str, Any]]) -> None:
    without_legends = [
        {**panel, "options": {name: value for name, value in panel["options"].items() if name != "legend"}}
        for panel in panels
    ]
    assert _every(relic, without_legends) == [], "only a legend still has a displayMode"
    assert _every(relic, {**board, "panels": []}) == []


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
