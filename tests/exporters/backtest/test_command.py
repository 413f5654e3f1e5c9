"""``isrwatch backtest`` on tables: what fired, what could not be judged, in words and as JSON."""

from __future__ import annotations

import datetime as dt
import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from exporters.backtest.command import scrape_times
from exporters.backtest.replay import begins_at
from streaming.commands import app
from streaming.errors import ConfigurationError

pytestmark = pytest.mark.prometheus

SECOND = 1_000_000
RULES = [
    {"alert": "Fenced", "expr": "kafka_replication_broker_fenced == 1", "labels": {"severity": "page"}},
    {"alert": "Lag", "expr": "kafka_consumergroup_lag > 100"},
]


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    path = tmp_path / "mine.yml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "g", "rules": RULES}]}))
    return path


def run(*arguments: object) -> Any:
    return CliRunner().invoke(app, ["backtest", *map(str, arguments)])


def test_it_says_what_fired_and_what_could_not_be_judged(busy_cluster: Any, rules: Path, tmp_path: Path) -> None:
    config = tmp_path / "isrwatch.toml"
    config.write_text('[export]\nstale_after = "3000d"\n')  # the observations are not of now
    options = (rules, "--since", "1m", "--step", "5s", "--tables", busy_cluster.directory, "--config", config)
    shown = run(*options).stdout
    assert "Fenced  page  " in shown
    assert "still fires  broker=3, cluster=main" in shown
    assert "not judged: Lag: reads kafka_consumergroup_lag, whose past no table keeps" in shown
    assert "1 of 1 alerts fired once, from " in shown
    (row,) = json.loads(run(*options, "-o", "json").stdout)["rows"]
    assert (row["alert"], row["severity"], row["ended"]) == ("Fenced", "page", None)
    assert row["labels"] == {"broker": "3", "cluster": "main"}


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--since", "1m", "--until", "2m"), "--since 1m is after --until 2m; swap them"),
        (("--since", "2d", "--until", "1d"), "; give a later --until"),
    ],
)
def test_a_range_that_makes_no_sense_is_refused(
    busy_cluster: Any, rules: Path, options: tuple[str, ...], sentence: str
) -> None:
    outcome = run(rules, "--tables", busy_cluster.directory, *options)
    assert outcome.exit_code != 0
    assert sentence in str(outcome.stderr or outcome.output)


def test_the_range_begins_where_the_tables_do_and_says_so(busy_cluster: Any, rules: Path) -> None:
    shown = run(rules, "--since", "3d", "--step", "1s", "--tables", busy_cluster.directory)
    began = dt.datetime.fromtimestamp(begins_at(busy_cluster.directory) // SECOND, dt.UTC)
    assert shown.exit_code == 0, shown.output
    assert f"the tables begin at {began:%Y-%m-%d %H:%M:%S}; before that nothing is recorded" in shown.stdout
    assert "alerts fired, from" in shown.stdout  # the observations are stale
    first = re.search(r", from ([-\d]+ [:\d]+) to ", shown.stdout)
    assert first is not None
    assert dt.timedelta() <= dt.datetime.fromisoformat(f"{first[1]}Z") - began <= dt.timedelta(seconds=2)
    assert "before that nothing" not in run(rules, "--since", "0s", "--tables", busy_cluster.directory).output


def test_too_many_scrapes_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="604,801 scrapes are too many; give --step 13s or a later --since"):
        scrape_times(0, 604_800 * SECOND, 1)
