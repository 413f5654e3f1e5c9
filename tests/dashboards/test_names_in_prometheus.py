"""Names of every kind in Prometheus itself: what boards select, what alerts say, and the commands to copy from them."""

from __future__ import annotations

import re
import shlex
import unicodedata
from pathlib import Path
from typing import Any

import pytest

from dashboards.alerts import texts
from dashboards.promql import of_variable, quoted
from dashboards.render import as_yaml
from streaming.escapes import HEAD, LONGEST, TAIL, yaml_text
from tests.dashboards.promtool import promtool
from tests.test_names import ODD, grafana

pytestmark = pytest.mark.prometheus

NAMES = [name for name in ODD if name]
SENTENCE = "Group {{ $labels.group }} of {{ $labels.cluster }} is late{{ with $labels.cluster }} in {{ . }}{{ end }}"
COMMAND = "isrwatch state --cluster {{ $labels.group }}"


def plain(name: str) -> str:
    """Write a name as a sentence of an alert does."""
    clean = "".join("?" if unicodedata.category(char) in {"Cc", "Cf", "Co", "Zl", "Zp"} else char for char in name)
    return clean if len(clean) <= LONGEST else f"{clean[:HEAD]}…{clean[-TAIL:]}"


def pattern(name: str) -> str:
    """Write a name as an argument of a command of an alert is."""
    return re.sub(r"[\\|\[\]]", "?", "".join("?" if plain(char) == "?" else char for char in name))


def command(name: str) -> str:
    argument = pattern(name).replace("'", "'\\''")
    return f"isrwatch state --cluster '{argument}'"


def outcome(folder: Path, rules: list[dict[str, Any]], test: dict[str, Any]) -> None:
    (folder / "rules.yml").write_text(as_yaml({"groups": [{"name": "names", "rules": rules}]}))
    series = [{"series": f'lag{{group={quoted(name)}, cluster="a"}}', "values": str(n)} for n, name in enumerate(NAMES)]
    document = {"rule_files": ["rules.yml"], "tests": [{"interval": "1m", "input_series": series, **test}]}
    (folder / "test.yml").write_text(yaml_text(document))
    done = promtool("test", "rules", folder / "test.yml")
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_variable_and_a_quoted_name_select_just_the_series_of_the_name(tmp_path: Path) -> None:
    def selects(selector: str, number: int) -> dict[str, Any]:
        return {
            "expr": f"sum(lag{{{selector}}})",
            "eval_time": "0m",
            "exp_samples": [{"labels": "{}", "value": number}],
        }

    chosen = of_variable("group")
    asked = [selects(f"group={quoted(name)}", n) for n, name in enumerate(NAMES)]
    asked += [
        selects(chosen.replace("${group:regex}", grafana(name)), n) for n, name in enumerate(NAMES) if "`" not in name
    ]
    first_two = chosen.replace("${group:regex}", f"({grafana(NAMES[0])}|{grafana(NAMES[1])})")
    outcome(tmp_path, [], {"promql_expr_test": [*asked, selects(first_two, 1)]})


def test_a_sentence_is_one_line_and_a_command_has_the_name_as_one_argument(tmp_path: Path) -> None:
    annotations = {"summary": texts.sentence(SENTENCE), "command": texts.command(COMMAND)}
    expected = [
        {
            "exp_labels": {"group": name, "cluster": "a"},
            "exp_annotations": {"summary": f"Group {plain(name)} of a is late in a", "command": command(name)},
        }
        for name in NAMES
    ]
    rule = {"alert": "Late", "expr": "lag >= 0", "annotations": annotations}
    outcome(tmp_path, [rule], {"alert_rule_test": [{"eval_time": "0m", "alertname": "Late", "exp_alerts": expected}]})
    for name in NAMES:
        assert shlex.split(command(name)) == ["isrwatch", "state", "--cluster", pattern(name)]
