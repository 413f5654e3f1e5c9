"""Alerts about groups in the past: the recorded conditions of groups under the shipped rules, evaluated by promtool."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from dashboards.alerts import rule_file
from dashboards.render import as_yaml
from exporters.backtest.evaluation import ScrapedSeries, firings
from exporters.backtest.replay import replayed
from exporters.backtest.rule_files import Judgement, RuleFile
from exporters.read_model.conditions import ConditionSettings
from exporters.read_model.reader import micros_now
from streaming.alert_settings import AlertsSettings
from streaming.contracts.alerts import Pack
from streaming.settings import Settings
from tests.exporters.backtest.test_replay import SECOND, SETTINGS

pytestmark = [pytest.mark.prometheus]


def test_alerts_about_groups_fire_while_a_group_was_in_trouble_whose_topics_and_groups_count(
    busy_cluster: Any, rows: Any, tmp_path: Path
) -> None:
    """A group that is stuck in one partition, then in another, has one alert; a short stay beyond the end has none."""
    now = micros_now()

    def spell(condition: str, group: str, part: str, began: int, ended: int | None) -> dict[str, Any]:
        end = None if ended is None else now + ended * SECOND
        return {**rows.sampled_spell(condition, group, now + began * SECOND, part=part, ended_at=end), "spell_id": part}

    busy_cluster.put(
        "sampled_conditions",
        spell("group_stuck", "billing", "orders-0", 60, 180),
        spell("group_stuck", "billing", "orders-1", 150, 300),
        spell("group_losing", "search", "orders-2", 120, None),
        spell("group_beyond_end", "search", "orders-3", 60, 90),
        spell("group_beyond_end", "mail", "orders-4", 30, 600),
        spell("group_stuck", "search", "audit-0", 60, 300),
        spell("group_stuck", "test-1", "orders-5", 60, 300),
    )
    settings = AlertsSettings(packs=(Pack.GROUPS,), groups=("!test-*",), topics=("!audit",))
    file = RuleFile(tmp_path / "rules.yml", yaml.safe_load(as_yaml(rule_file(Settings(alerts=settings))))["groups"])
    judgement, times, scraped = Judgement([file]), range(now, now + 900 * SECOND + 1, 15 * SECOND), ScrapedSeries()
    for page in replayed(busy_cluster.directory, times, judgement.metrics, SETTINGS, ConditionSettings.of(settings)):
        scraped.add(page)
    kept_firing = 300
    fired = {
        (each.alert, dict(each.labels)["subject"], (each.began_at - now) // SECOND, (each.last_at - now) // SECOND)
        for each in firings([file], judgement, scraped, times, tmp_path)
        if each.alert.startswith("IsrwatchGroup")
    }
    assert fired == {
        ("IsrwatchGroupStuck", "billing", 60, 285 + kept_firing),
        ("IsrwatchGroupLosesRecords", "search", 120, 900),
        ("IsrwatchGroupBeyondEnd", "mail", 150, 585 + kept_firing),
    }
    assert {"IsrwatchGroupLagGrows", "IsrwatchGroupNearRetention"} <= judgement.not_judged.keys()
