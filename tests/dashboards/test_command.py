"""``isrwatch dashboards render``, as a user calls it."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from dashboards.boards import all_boards
from dashboards.command import app
from exporters.read_model.conditions import ConditionSettings
from streaming.contracts.conditions import Condition
from streaming.errors import ConfigurationError
from streaming.settings import NO_LINKS, load

LINKS = ["--url", "https://isrwatch.example"]


def test_render_writes_what_check_then_accepts(tmp_path: Path) -> None:
    output = tmp_path / "new" / "folder"
    written = CliRunner().invoke(app, ["render", "--output", str(output), *LINKS])
    assert written.exit_code == 0, written.output
    assert {path.name for path in output.iterdir()} == {
        "alerts.yml",
        "grafana-alerts.yaml",
        "mixin.libsonnet",
        "prometheus-rule.yaml",
        *(f"{name}.json" for name in all_boards()),
    }
    checked = CliRunner().invoke(app, ["render", "--check", "--output", str(output), *LINKS])
    assert checked.exit_code == 0
    assert "up to date" in checked.output


def test_check_names_the_file_that_differs_and_the_command_that_helps(tmp_path: Path) -> None:
    CliRunner().invoke(app, ["render", "--output", str(tmp_path), *LINKS])
    (tmp_path / "alerts.yml").write_text("groups: []\n")
    outcome = CliRunner().invoke(app, ["render", "--check", "--output", str(tmp_path), *LINKS])
    assert isinstance(outcome.exception, ConfigurationError)
    assert str(outcome.exception).endswith("alerts.yml not up to date; run: isrwatch dashboards render")
    assert (tmp_path / "alerts.yml").read_text() == "groups: []\n", "check writes nothing"


def test_links_of_the_alerts_can_point_to_your_own_pages(tmp_path: Path) -> None:
    CliRunner().invoke(app, ["render", "--output", str(tmp_path), *LINKS])
    rules = (tmp_path / "alerts.yml").read_text()
    assert "runbook_url: https://isrwatch.example/runbook/IsrwatchUnderMinIsr?{{ if " in rules


def test_a_folder_that_cannot_be_made_is_named() -> None:
    outcome = CliRunner().invoke(app, ["render", "--output", "/proc/x", *LINKS])
    assert isinstance(outcome.exception, ConfigurationError)
    assert str(outcome.exception).startswith("cannot write to --output /proc/x: No such file or directory; name")


def test_links_begin_with_the_address_of_the_configuration(tmp_path: Path) -> None:
    config = tmp_path / "isrwatch.toml"
    config.write_text('[export]\nurl = "https://isrwatch.example/kafka/"\n')
    CliRunner().invoke(app, ["render", "--output", str(tmp_path), "--config", str(config)])
    rules = (tmp_path / "alerts.yml").read_text()
    assert "runbook_url: https://isrwatch.example/kafka/runbook/IsrwatchUnderMinIsr?{{ if " in rules


def test_without_an_address_alerts_have_no_link_and_it_is_said_once(tmp_path: Path) -> None:
    outcome = CliRunner().invoke(app, ["render", "--output", str(tmp_path)])
    assert outcome.stderr == f"{NO_LINKS}\n"
    assert "_url" not in (tmp_path / "alerts.yml").read_text()


@pytest.mark.parametrize(
    ("links", "message"),
    [
        (["--url", "docs/runbook.md"], "--url is 'docs/runbook.md'; write an absolute address"),
        (["--url", "https://x/{{ $labels.a }}"], "--url is 'https://x/{{ $labels.a }}'; write an absolute address"),
    ],
)
def test_links_that_whoever_is_woken_cannot_open_are_refused(links: list[str], message: str, tmp_path: Path) -> None:
    outcome = CliRunner().invoke(app, ["render", "--output", str(tmp_path), *links])
    assert isinstance(outcome.exception, ConfigurationError)
    assert str(outcome.exception).startswith(message)
    assert list(tmp_path.iterdir()) == []


CONFIGURED = """
[alerts]
packs = ["groups", "hygiene"]
clusters = ["!test-*"]
[alerts.labels]
"release" = "kube-prometheus-stack"
[alerts.severity_names]
"critical" = "page"
[alerts.rules.IsrwatchHangingTransaction]
off = true
[alerts.rules.IsrwatchGroupLosesRecords]
severity = "critical"
for = "1h"
"""


def test_the_configuration_chooses_packs_names_and_times_in_every_format(tmp_path: Path) -> None:
    config = tmp_path / "isrwatch.toml"
    config.write_text(CONFIGURED)
    written = CliRunner().invoke(app, ["render", "--output", str(tmp_path), "--config", str(config)])
    assert written.exit_code == 0, written.output
    for name in ("alerts.yml", "prometheus-rule.yaml", "grafana-alerts.yaml", "mixin.libsonnet"):
        text = (tmp_path / name).read_text()
        assert "IsrwatchThrottleLeft" in text
        assert "IsrwatchHangingTransaction" not in text
        assert "severity: critical" not in text
        assert "test" in text
    assert "release: kube-prometheus-stack" in (tmp_path / "prometheus-rule.yaml").read_text()
    rules = yaml.safe_load((tmp_path / "alerts.yml").read_text())["groups"]
    (losing,) = (rule for group in rules for rule in group["rules"] if rule["alert"] == "IsrwatchGroupLosesRecords")
    assert (losing["for"], losing.get("labels")) == ("1h", None)
    raised = ConditionSettings.of(load(config).alerts)
    assert raised.severity(raised.rules[Condition.GROUP_LOSING].severity) == "page", "which its series has"


def test_a_configuration_with_a_wrong_alert_is_refused_with_the_right_name(tmp_path: Path) -> None:
    config = tmp_path / "isrwatch.toml"
    config.write_text("[alerts.rules.BrokerDown]\noff = true\n")
    outcome = CliRunner().invoke(app, ["render", "--output", str(tmp_path), "--config", str(config)])
    assert "did you mean IsrwatchBrokerDown?" in str(outcome.exception)
