"""What each scenario says of alerts is what fires: played in the model, folded, exposed, and evaluated by promtool.

Twenty minutes of the scenario, scraped every fifteen seconds, under the rules as they are committed.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from prometheus_client.parser import text_string_to_metric_families

from exporters.metrics.compression import plain
from exporters.metrics.exposition import Exposition, ScrapeRequest
from exporters.read_model.draft import SnapshotDraft
from exporters.read_model.refresher import ExporterHealth
from exporters.read_model.snapshot import ReplicationSnapshot
from streaming.changes.fold import fold
from streaming.changes.state import ReplicationState
from streaming.contracts.identifiers import ClusterId, Micros
from streaming.delta.change_rows import changes_to_arrow, in_commit
from streaming.delta.state_reader import AsOf, apply_changes, count_isr_removals
from streaming.sources.simulated import SimulatedSource, load_scenario
from tests.dashboards.scenes import ORDER, without_texts

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.prometheus, pytest.mark.slow]

SCENARIOS = sorted(path.stem for path in (Path(__file__).parents[2] / "conf" / "scenarios").glob("*.toml"))
SECOND = 1_000_000
START = 1_700_000_000 * SECOND
STEP = 15
SCRAPES = 20 * 60 // STEP
FIRED = 'group by (alertname) (max_over_time(ALERTS{alertname!="Watchdog", alertstate="firing"}[20m]))'


def scrapes(name: str) -> Iterator[str]:
    """The exposition of each scrape, while the scenario is played."""
    source = SimulatedSource(
        load_scenario(name), seed=1, cluster_id=ClusterId("c"), cluster="c", name="metadata_log:c1", epoch=Micros(START)
    )
    state, snapshot, exposition = ReplicationState(), ReplicationSnapshot(), Exposition(60.0)
    for version in range(SCRAPES):
        now = START + version * STEP * SECOND
        folded = fold(state, source.poll(Micros(now)))
        state.apply(folded.touched)
        rows = in_commit(changes_to_arrow(folded.changes), version, now)
        draft = SnapshotDraft(snapshot)
        apply_changes(draft, rows)
        count_isr_removals(draft, rows, AsOf())
        for cluster in state.clusters.values():  # the job stores how far its sources came, with each commit
            draft.put_cluster(cluster, ())
        snapshot = draft.finish(version, now, 0)
        health = ExporterHealth("1", version, 0.0, 0)
        yield plain(exposition.render(snapshot, health, now, ScrapeRequest())).decode()


def series(name: str, rules: str) -> dict[str, list[str]]:
    """The values of each series that a rule reads; "_" where it is absent."""
    read = set(re.findall(r"kafka_replication_\w+", rules))
    values: dict[str, list[str]] = defaultdict(lambda: ["_"] * SCRAPES)
    for number, text in enumerate(scrapes(name)):
        # Parsed is what is read: all of it takes most of the test's time.
        lines = (line for line in text.splitlines(keepends=True) if re.match(r"\w*", line)[0] in read)
        for family in text_string_to_metric_families("".join(lines)):
            for sample in family.samples:
                labels = ", ".join(f'{label}="{value}"' for label, value in sample.labels.items())
                values[f"{sample.name}{{{labels}}}"][number] = repr(sample.value)
    return values


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_alerts_that_fire_are_those_that_the_scenario_calls_for(
    name: str, files: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "alerts.yml").write_text(without_texts(files["alerts.yml"]))
    right = sorted(load_scenario(name).truth.alerts)
    test = {
        "interval": f"{STEP}s",
        "input_series": [
            {"series": key, "values": " ".join(values)} for key, values in series(name, files["alerts.yml"]).items()
        ],
        "promql_expr_test": [
            {
                "expr": FIRED,
                "eval_time": f"{(SCRAPES - 1) * STEP}s",
                "exp_samples": [{"labels": f'{{alertname="{alert}"}}', "value": 1} for alert in right],
            }
        ],
    }
    document = {
        "rule_files": ["alerts.yml"],
        "evaluation_interval": f"{STEP}s",
        "group_eval_order": ORDER,
        "tests": [test],
    }
    (tmp_path / "scene.yml").write_text(json.dumps(document))
    command = ["promtool", "test", "rules", str(tmp_path / "scene.yml")]
    outcome = subprocess.run(command, capture_output=True, text=True, check=False)
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr
