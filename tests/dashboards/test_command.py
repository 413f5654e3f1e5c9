"""``isrwatch dashboards render``, as a user calls it."""

from __future__ import annotations

from pathlib import Path

from typer.testing import CliRunner

from dashboards.command import app
from streaming.errors import ConfigurationError


def test_render_writes_what_check_then_accepts(tmp_path: Path) -> None:
    output = tmp_path / "new" / "folder"
    written = CliRunner().invoke(app, ["render", "--output", str(output)])
    assert written.exit_code == 0, written.output
    assert {path.name for path in output.iterdir()} == {"alerts.yml", "replication-overview.json"}
    checked = CliRunner().invoke(app, ["render", "--check", "--output", str(output)])
    assert checked.exit_code == 0
    assert "up to date" in checked.output


def test_check_names_the_file_that_differs_and_the_command_that_helps(tmp_path: Path) -> None:
    CliRunner().invoke(app, ["render", "--output", str(tmp_path)])
    (tmp_path / "alerts.yml").write_text("groups: []\n")
    outcome = CliRunner().invoke(app, ["render", "--check", "--output", str(tmp_path)])
    assert isinstance(outcome.exception, ConfigurationError)
    assert str(outcome.exception).endswith("alerts.yml not up to date; run: isrwatch dashboards render")
    assert (tmp_path / "alerts.yml").read_text() == "groups: []\n", "check writes nothing"


def test_links_of_the_alerts_can_point_to_your_own_pages(tmp_path: Path) -> None:
    own = ["--runbook-url", "https://wiki.example/kafka", "--dashboard-url", "https://grafana.example/d/x"]
    CliRunner().invoke(app, ["render", "--output", str(tmp_path), *own])
    rules = (tmp_path / "alerts.yml").read_text()
    assert "runbook_url: https://wiki.example/kafka#kafkaunderminisr" in rules
    assert "dashboard_url: https://grafana.example/d/x?var-cluster=" in rules


def test_a_folder_that_cannot_be_made_is_named() -> None:
    outcome = CliRunner().invoke(app, ["render", "--output", "/proc/x"])
    assert isinstance(outcome.exception, ConfigurationError)
    assert str(outcome.exception).startswith("cannot write to --output /proc/x: No such file or directory; name")
