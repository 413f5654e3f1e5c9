"""The alerts of the page about fail-over fire when no job is active and when there is no standby, and only then."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.dashboards.promtool import promtool

pytestmark = pytest.mark.prometheus
PAGE = Path(__file__).parents[2] / "docs" / "fail-over.md"
NO_ACTIVE, NO_STANDBY = ["NoActiveJob"], ["NoStandby"]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"a": "1x9", "b": "0x9"}, []),
        ({"a": "1x9"}, NO_STANDBY),
        ({"a": "1x9", "b": "1x9"}, NO_STANDBY),
        ({"b": "0x9"}, NO_ACTIVE),
        ({}, [*NO_ACTIVE, *NO_STANDBY]),
    ],
    ids=["a pair", "the active job alone", "two without --standby", "a standby alone", "neither"],
)
def test_an_expression_of_the_page_fires_when_a_job_of_the_pair_is_missing(
    values: dict[str, str], expected: list[str], tmp_path: Path
) -> None:
    expressions = re.findall(r"^\| `(absent\(.*\))` \|", PAGE.read_text(), re.MULTILINE)
    rules = [{"alert": name, "expr": each} for name, each in zip((*NO_ACTIVE, *NO_STANDBY), expressions, strict=True)]
    (tmp_path / "rules.json").write_text(json.dumps({"groups": [{"name": "pair", "rules": rules}]}))
    series = [
        {"series": f'isrwatch_job_active{{instance="{instance}"}}', "values": each} for instance, each in values.items()
    ]
    asked = [
        {"eval_time": "5m", "alertname": name, "exp_alerts": [{}] if name in expected else []}
        for name in (*NO_ACTIVE, *NO_STANDBY)
    ]
    case = {"interval": "1m", "input_series": series, "alert_rule_test": asked}
    (tmp_path / "test.json").write_text(json.dumps({"rule_files": ["rules.json"], "tests": [case]}))
    done = promtool("test", "rules", tmp_path / "test.json")
    assert done.returncode == 0, done.stdout + done.stderr
