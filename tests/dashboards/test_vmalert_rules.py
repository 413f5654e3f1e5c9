"""The tests of single rules once more, by vmalert's own tool: over a VictoriaMetrics, whose language is another one.

Not here: certificates, whose test needs a clock that begins at 1970, that tool's begins at 2000; and Grafana's rules.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from streaming.escapes import json_text
from tests.dashboards import promtool, test_alert_rules, test_links
from tests.dashboards.test_alert_rules import (  # noqa: F401 - they are collected here, too
    test_a_condition_fires_with_its_own_labels_through_the_gap_of_an_exporter,
    test_a_dead_exporter_or_an_empty_prometheus_is_one_alert,
    test_a_dead_job_is_one_alert_however_many_clusters_are_behind_it,
    test_a_part_that_fails_is_a_warning_that_names_it,
    test_a_planned_outage_is_a_warning_of_the_same_alert,
    test_an_upgrade_that_takes_some_minutes_wakes_nobody,
    test_blindness_that_turns_into_another_one_never_ends_in_between,
    test_changes_that_polling_misses_by_its_nature_are_no_failure,
    test_clusters_topics_and_groups_that_are_left_out_have_no_alert,
    test_one_of_two_exporters_that_dies_leaves_its_clusters_blind_and_a_rename_does_not,
    test_one_stale_cluster_next_to_fresh_ones_is_named,
    test_the_summary_is_that_of_the_incident_also_of_one_that_was_merged_into_it,
    test_the_watchdog_always_fires_under_a_name_of_its_own,
    test_without_an_open_incident_the_summary_is_that_of_the_alert,
)
from tests.dashboards.test_links import test_a_template_in_prometheus_writes_each_name_as_the_exporter_does  # noqa: F401
from tests.dashboards.test_opt_in_rules import test_a_rule_fires_when_it_ought_to_and_not_otherwise  # noqa: F401
from tests.stores.programs import of_victoria_metrics

pytestmark = [pytest.mark.prometheus, pytest.mark.long, pytest.mark.timeout(1500)]


def by_vmalert_tool(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a file of tests for promtool, without the label that vmalert adds."""
    _, _, file = map(Path, arguments)
    document = json.loads(file.read_text())
    for number, test in enumerate(document["tests"]):
        asked = test.pop("promql_expr_test", [])
        for each in asked:
            each["expr"] = f'label_del({each["expr"]}, "alertgroup")'
        test |= {"name": str(number), "metricsql_expr_test": asked}
    file.write_text(json_text(document))
    command = [of_victoria_metrics("vmalert-tool"), "unittest", "-disableAlertgroupLabel", "--files", file]
    return subprocess.run(command, cwd=file.parent, capture_output=True, text=True, check=False)


@pytest.fixture(autouse=True)
def _by_vmalert_tool(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (promtool, test_alert_rules, test_links):
        monkeypatch.setattr(module, "promtool", by_vmalert_tool)
