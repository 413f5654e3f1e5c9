"""``isrwatch dashboards render``, as a user calls it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dashboards.boards import all_boards
from dashboards.command import app
from streaming.errors import ConfigurationError
from streaming.settings import NO_LINKS

LINKS = ["--url", "https://isrwatch.example", "--dashboard-url", "https://grafana.example/d/x"]


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
    assert "runbook_url: https://isrwatch.example/runbook/KafkaUnderMinIsr?cluster={{" in rules
    assert "dashboard_url: https://grafana.example/d/x?var-cluster=" in rules


def test_a_folder_that_cannot_be_made_is_named() -> None:
    outcome = CliRunner().invoke(app, ["render", "--output", "/proc/x", *LINKS])
    assert isinstance(outcome.exception, ConfigurationError)
    assert str(outcome.exception).startswith("cannot write to --output /proc/x: No such file or directory; name")


def test_links_begin_with_the_address_of_the_configuration(tmp_path: Path) -> None:
    config = tmp_path / "isrwatch.toml"
    config.write_text('[export]\nurl = "https://isrwatch.example/kafka/"\n')
    CliRunner().invoke(app, ["render", "--output", str(tmp_path), "--config", str(config)])
    rules = (tmp_path / "alerts.yml").read_text()
    assert "runbook_url: https://isrwatch.example/kafka/runbook/KafkaUnderMinIsr?cluster={{" in rules
    assert "dashboard_url" not in rules


def test_without_an_address_alerts_have_no_link_and_it_is_said_once(tmp_path: Path) -> None:
    outcome = CliRunner().invoke(app, ["render", "--output", str(tmp_path)])
    assert outcome.stderr == f"{NO_LINKS}\n"
    assert "_url" not in (tmp_path / "alerts.yml").read_text()


@pytest.mark.parametrize(
    ("links", "message"),
    [
        (["--url", "docs/runbook.md"], "--url is 'docs/runbook.md'; write an absolute address"),
        (["--dashboard-url", "http:///d/x"], "--dashboard-url is 'http:///d/x'; write an absolute address"),
        (["--url", "https://x/{{ $labels.a }}"], "--url is 'https://x/{{ $labels.a }}'; write an absolute address"),
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
