"""Prometheus' own engine evaluates the rules: what fires, from when to when."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest
import yaml

from exporters.backtest.evaluation import Firing, ScrapedSeries, firings
from exporters.backtest.rule_files import Judgement, RuleFile
from exporters.metrics.text import line
from streaming.errors import ConfigurationError
from tests.test_names import ODD

pytestmark = pytest.mark.prometheus

SECOND: Final = 1_000_000
START: Final = 1_790_000_000 * SECOND
STEP: Final = 15
OFFLINE: Final = "kafka_replication_cluster_offline_partitions"
AGE: Final = "kafka_replication_partition_offline_since_timestamp_seconds"


def fired(tmp_path: Path, scrapes: list[str], *rules: dict[str, str]) -> list[Firing]:
    path = tmp_path / "mine.yml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "g", "interval": "1m", "rules": list(rules)}]}))
    files = [RuleFile.read(path)]
    scraped = ScrapedSeries()
    for each in scrapes:
        scraped.add(each)
    times = range(START, START + len(scrapes) * STEP * SECOND, STEP * SECOND)
    (tmp_path / "scratch").mkdir()
    return firings(files, Judgement(files), scraped, times, tmp_path / "scratch")


def at(scrape: int) -> int:
    return START + scrape * STEP * SECOND


def offline(*values: int | None) -> list[str]:
    return ["" if value is None else f'{OFFLINE}{{cluster="main"}} {value}\n' for value in values]


MAIN: Final = (("cluster", "main"),)


def test_an_alert_fires_after_its_time_and_as_long_as_its_expression_holds(tmp_path: Path) -> None:
    rule = {"alert": "Offline", "expr": f"{OFFLINE} > 0", "for": "30s"}
    values = offline(0, 1, 1, 1, 0, 1, 0, 2, 2, 2, 2)
    assert fired(tmp_path, values, rule) == [
        Firing("Offline", MAIN, at(3), at(3)),
        Firing("Offline", MAIN, at(9), at(10)),
    ]


def test_names_of_every_kind_come_back_as_they_were(tmp_path: Path) -> None:
    rule = {"alert": "Offline", "expr": f"{OFFLINE} > 0"}
    scrape = "".join(line(OFFLINE, ("cluster",), (name,), 1) for name in ODD if name)
    found = {dict(each.labels)["cluster"] for each in fired(tmp_path, [scrape], rule)}
    assert found == {name for name in ODD if name}


def test_a_series_that_ends_ends_its_alert_at_once(tmp_path: Path) -> None:
    rule = {"alert": "Offline", "expr": f"{OFFLINE} > 0"}
    values = offline(1, 1, None, None, 1)
    assert fired(tmp_path, values, rule) == [
        Firing("Offline", MAIN, at(0), at(1)),
        Firing("Offline", MAIN, at(4), at(4)),
    ]


def test_the_clock_of_a_rule_is_the_one_of_the_past(tmp_path: Path) -> None:
    since = [f'{AGE}{{cluster="main",topic="a",partition="0"}} {START / SECOND}\n'] * 6
    rule = {"alert": "Long", "expr": f"time() - {AGE} >= 45"}
    assert [(each.began_at, each.last_at) for each in fired(tmp_path, since, rule)] == [(at(3), at(5))]


@pytest.mark.parametrize(
    "age",
    [
        "time() - ALERTS_FOR_STATE{alertname='Offline'}",
        "timestamp(ALERTS_FOR_STATE{alertname='Offline'}) - ALERTS_FOR_STATE{alertname='Offline'}",
        "time() - ALERTS_FOR_STATE{alertname='Offline'} offset 15s",
    ],
)
def test_the_age_of_an_alert_and_of_a_sample_are_those_of_the_past(tmp_path: Path, age: str) -> None:
    rules = (
        {"alert": "Offline", "expr": f"{OFFLINE} > 0", "for": "1s"},
        {"alert": "Long", "expr": f"{age} >= 30 and on (cluster) {OFFLINE} > 0"},
        {"alert": "Old", "expr": f"time() - timestamp({OFFLINE}) > 0"},
    )
    outcome = fired(tmp_path, offline(0, 1, 1, 1, 1, 0), *rules)
    assert [(each.began_at, each.last_at) for each in outcome if each.alert == "Long"] == [(at(3), at(4))]
    assert "Old" not in {each.alert for each in outcome}


def test_an_alert_may_read_alerts_and_recording_rules(tmp_path: Path) -> None:
    rules = (
        {"record": "cluster:offline", "expr": f"sum by (cluster) ({OFFLINE})"},
        {
            "alert": "Offline",
            "expr": "cluster:offline > 0 or "
            "(ALERTS{alertname='Offline', alertstate='firing'} unless on (cluster) cluster:offline == 0)",
        },
    )
    values = offline(0, 1, 1, 0, 0)
    assert ("Offline", at(1), at(2)) in [
        (each.alert, each.began_at, each.last_at) for each in fired(tmp_path, values, *rules)
    ]


def test_labels_are_read_whatever_is_in_them(tmp_path: Path) -> None:
    topic = 'odd "topic"\\ {a="b"}, x'
    line = 'kafka_replication_topic_offline_partitions{cluster="main",topic="odd \\"topic\\"\\\\ {a=\\"b\\"}, x"} 1\n'
    rule = {"alert": "Offline", "expr": "kafka_replication_topic_offline_partitions > 0"}
    (only,) = fired(tmp_path, [line, line], rule)
    assert dict(only.labels) == {"cluster": "main", "topic": topic}


def test_numbers_with_an_exponent_stay_what_they_are(tmp_path: Path) -> None:
    lines = [f'{OFFLINE}{{cluster="main"}} {value}\n' for value in ("1e-05", "1e-05", "2.5e+16", "2.5e+16")]
    rules = ({"alert": "Little", "expr": f"{OFFLINE} == 0.00001"}, {"alert": "Much", "expr": f"{OFFLINE} == 2.5e16"})
    assert [(each.alert, each.began_at, each.last_at) for each in fired(tmp_path, lines, *rules)] == [
        ("Little", at(0), at(1)),
        ("Much", at(2), at(3)),
    ]


def test_rules_that_promtool_refuses_are_refused_with_its_reason(tmp_path: Path) -> None:
    rule = {"alert": "Offline", "expr": f"{OFFLINE} >"}
    with pytest.raises(ConfigurationError, match="promtool cannot evaluate the rules"):
        fired(tmp_path, offline(1), rule)


def test_without_promtool_one_sentence_says_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ConfigurationError, match="needs promtool, which comes with Prometheus; put it on PATH"):
        fired(tmp_path, offline(1), {"alert": "Offline", "expr": f"{OFFLINE} > 0"})


def test_runs_of_equal_values_and_gaps_are_short() -> None:
    scraped = ScrapedSeries()
    for text in ("a 1\nb 2\n", "a 1\n", "# HELP a\na 1\nb 3\n", "", "c 5\n"):
        scraped.add(text)
    assert dict(scraped.written()) == {"a": "1x2 stale _x1", "b": "2 stale 3 stale _x1", "c": "_x4 5"}
