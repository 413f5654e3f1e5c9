"""What each scenario says of alerts is what fires: played in the model, folded, exposed, and evaluated by promtool.

Twenty minutes of the scenario, scraped every fifteen seconds, under the rules as they are committed. The table in
docs/scenario_alerts.md is what this test finds; ``--rewrite-golden`` writes it.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from exporters.backtest.evaluation import firings
from exporters.backtest.rule_files import RuleFile
from exporters.backtest.series import ScrapedSeries
from streaming.changes.fold import fold
from streaming.changes.state import ReplicationState
from streaming.contracts.identifiers import ClusterId, Micros
from streaming.delta.change_rows import changes_to_arrow
from streaming.sources.simulated import SimulatedSource, load_scenario
from tests.judge.alerts import RULES, EveryRule
from tests.plugins.exposed_play import ExposedPlay

if TYPE_CHECKING:
    from exporters.backtest.evaluation import Firing
    from streaming.sources.simulated.scenario import Scenario

pytestmark = [pytest.mark.prometheus, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
SCENARIOS = sorted(path.stem for path in (ROOT / "conf" / "scenarios").glob("*.toml"))
PAGE = ROOT / "docs" / "scenario_alerts.md"
SECOND = 1_000_000
START = 1_700_000_000 * SECOND
STEP = 15
TIMES = range(START, START + 20 * 60 * SECOND, STEP * SECOND)
HEADER = "| scenario | page | ticket | info |\n|---|---|---|---|\n"


def scraped(scenario: Scenario, names: frozenset[str]) -> ScrapedSeries:
    """Scrape the exporter while the scenario is played."""
    source = SimulatedSource(
        scenario, seed=1, cluster_id=ClusterId("c"), cluster="c", name="metadata_log:c1", epoch=Micros(START)
    )
    state, exposed, series = ReplicationState(), ExposedPlay(names), ScrapedSeries()
    for version, now in enumerate(TIMES):
        folded = fold(state, source.poll(Micros(now)))
        state.apply(folded.touched)
        exposed.commit(version, now, changes_to_arrow(folded.changes), state.clusters.values())
        series.add(exposed.scrape(now))
    return series


def row(name: str, fired: list[Firing]) -> str:
    """Write which alerts fired, and how long after the begin of the scenario, as a row of the table."""
    first: dict[tuple[str, str], int] = {}
    for each in fired:
        first.setdefault((dict(each.labels)["severity"], each.alert), (each.began_at - START) // SECOND)
    cells = (
        ", ".join(
            f"`{alert}` {second // 60}:{second % 60:02}" for (of, alert), second in first.items() if of == severity
        )
        for severity in ("page", "ticket", "info")
    )
    return f"| `{name}` | {' | '.join(cell or '-' for cell in cells)} |\n"


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_alerts_that_fire_are_those_that_the_scenario_calls_for(
    name: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    scenario, rules = load_scenario(name), RuleFile.read(RULES)
    judgement = EveryRule([rules])
    fired = firings([rules], judgement, scraped(scenario, judgement.metrics), TIMES, tmp_path)
    fired = [each for each in fired if each.alert != "Watchdog"]
    assert {each.alert for each in fired} == set(scenario.truth.alerts)
    text = PAGE.read_text()
    documented = re.search(rf"^\| `{name}` .*\n", text, re.MULTILINE)
    if request.config.getoption("--rewrite-golden"):
        old = documented[0] if documented else ""
        PAGE.write_text(text.replace(old, row(name, fired)) if old else text + row(name, fired))
    else:
        assert documented is not None
        assert documented[0] == row(name, fired)


def test_every_scenario_is_in_the_table() -> None:
    _, _, table = PAGE.read_text().partition(HEADER)
    assert re.findall(r"^\| `(\w+)`", table, re.MULTILINE) == SCENARIOS
