"""Prometheus' own rule engine over series that a test writes: ``promtool test rules``."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dashboards.render import as_yaml


def promtool(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["promtool", *map(str, arguments)], capture_output=True, text=True, check=False)


def only(rules: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Give the rules of one alert alone: those of all take most of the time."""
    groups = [
        {**group, "interval": "1m", "rules": [rule for rule in group["rules"] if rule["alert"] == name]}
        for group in rules["groups"]
    ]
    return {"groups": [group for group in groups if group["rules"]]}


def without_texts(rules: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "groups": [
            {**group, "rules": [{**rule, "annotations": {}} for rule in group["rules"]]} for group in rules["groups"]
        ]
    }


def played(
    folder: Path,
    rules: Mapping[str, Any],
    series: Mapping[str, str],
    firing: Mapping[int, set[str]],
    *,
    minutes: int = 1,
) -> None:
    """Fail unless exactly these alerts fire at these minutes.

    Args:
        folder: an empty one.
        rules: what is evaluated.
        series: values by series, as promtool writes them.
        firing: labels of all that fires, by the minute: ``alertname="A", cluster="prod"``.
        minutes: between two scrapes, and two evaluations.
    """
    steps = f"{minutes}m"
    groups = [{**group, "interval": steps} for group in without_texts(rules)["groups"]]
    (folder / "rules.yml").write_text(as_yaml({"groups": groups}))
    asked = [
        {
            "expr": 'ALERTS{alertstate="firing"}',
            "eval_time": f"{minute}m",
            "exp_samples": [
                {"labels": f'ALERTS{{alertstate="firing", {labels}}}', "value": 1} for labels in sorted(alerts)
            ],
        }
        for minute, alerts in firing.items()
    ]
    case = {
        "interval": steps,
        "input_series": [{"series": key, "values": values} for key, values in series.items()],
        "promql_expr_test": asked,
    }
    document = {"rule_files": ["rules.yml"], "evaluation_interval": steps, "tests": [case]}
    (folder / "test.yml").write_text(json.dumps(document))
    outcome = promtool("test", "rules", folder / "test.yml")
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr
