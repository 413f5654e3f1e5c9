"""``isrwatch dashboards render``, as a user calls it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dashboards.boards import all_boards
from dashboards.command import app
from streaming.errors import ConfigurationError

LINKS = ["--runbook-url", "https://wiki.example/kafka", "--dashboard-url", "https://grafana.example/d/x"]


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
    assert "runbook_url: https://wiki.example/kafka#kafkaunderminisr" in rules
    assert "dashboard_url: https://grafana.example/d/x?var-cluster=" in rules


def test_a_folder_that_cannot_be_made_is_named() -> None:
    outcome = CliRunner().invoke(app, ["render", "--output", "/proc/x", *LINKS])
    assert isinstance(outcome.exception, ConfigurationError)
    assert str(outcome.exception).startswith("cannot write to --output /proc/x: No such file or directory; name")


@pytest.mark.parametrize(
    ("links", "message"),
    [
        ([], "--runbook-url is required with --output: the alerts link to it, so name it with https://"),
        (["--runbook-url", "docs/runbook.md"], "--runbook-url docs/runbook.md is not absolute: the alerts link to it"),
        (LINKS[:2], "--dashboard-url is required with --output"),
        ([*LINKS[:2], "--dashboard-url", "http:///d/x"], "--dashboard-url http:///d/x is not absolute"),
    ],
)
def test_links_that_whoever_is_woken_cannot_open_are_refused(links: list[str], message: str, tmp_path: Path) -> None:
    outcome = CliRunner().invoke(app, ["render", "--output", str(tmp_path), *links])
    assert isinstance(outcome.exception, ConfigurationError)
    assert str(outcome.exception).startswith(message)
    assert list(tmp_path.iterdir()) == []


def test_severities_can_have_the_names_of_others(tmp_path: Path) -> None:
    names = ["--severity", "page=critical", "--severity", "ticket=warning"]
    CliRunner().invoke(app, ["render", "--output", str(tmp_path), *LINKS, *names])
    rules = (tmp_path / "alerts.yml").read_text()
    assert set(re.findall(r"severity: (\w+)", rules)) == {"critical", "warning", "info"}
    outcome = CliRunner().invoke(app, ["render", "--output", str(tmp_path), *LINKS, "--severity", "wake=critical"])
    assert str(outcome.exception) == "--severity wake=critical: write NAME=LABEL with a name of page, ticket, info"
