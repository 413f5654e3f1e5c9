"""A short form of ``make chaos-kafka``, which draws from all faults: three brokers, a controller, no Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos_kafka.run import Verdict, played
from tests.chaos_kafka.schedule import SMALL, drawn

HARMS = ("kill", "pause", "recreate", "min_isr", "reassign", "cancel", "add_partitions")


@pytest.mark.long
@pytest.mark.kafka
def test_the_tables_have_what_the_log_of_a_cluster_under_faults_has(tmp_path: Path) -> None:
    schedule = drawn(1, len(HARMS), HARMS, SMALL, longest=7.0)
    assert any(act.own for act in schedule.acts)
    outcome = played(schedule, tmp_path, spark=False)
    assert outcome.verdict is Verdict.EQUAL, f"{schedule}\n{outcome.text}"
    assert "a KRaft snapshot before" in outcome.text
