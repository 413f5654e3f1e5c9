"""What each scenario says of alerts is what fires: played in the model, folded, exposed, and evaluated by promtool.

Twenty minutes of the scenario, scraped every fifteen seconds, under the rules of every pack but that of groups. The
table in docs/quality.md is what the long test finds; ``--rewrite-golden`` writes it. Two of its rows are compared with
the first eight and a half minutes: what fires first after that does because a scenario is played over and over.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dashboards.alerts import rule_file
from dashboards.render import as_yaml
from docs.builder.quality import QUALITY, Section, section_of, write_section
from exporters.backtest.evaluation import Firing, ScrapedSeries, firings
from exporters.backtest.rule_files import RuleFile
from streaming.alert_settings import AlertsSettings
from streaming.settings import Settings
from streaming.sources.simulated import load_scenario
from tests.judge.alerts import EveryRule
from tests.judge.play import JobOfPlay
from tests.plays import SCENARIOS, SECOND, START, polled
from tests.plugins.exposed_play import ExposedPlay

pytestmark = [pytest.mark.prometheus]

ROOT = Path(__file__).parents[2]
PAGE = ROOT / QUALITY
PACKS = Settings(alerts=AlertsSettings(packs=("hygiene", "slo", "speed", "events")))
STEP = 15
WHOLE, SHORT = 20 * 60, 510  # seconds
DIFFERENT = ("hanging_transaction", "rolling_restart")
"""In one a warning fires, and in planned work nothing that wakes anybody."""
HEADER = "| scenario | critical | warning | info |\n|---|---|---|---|\n"


def scraped(name: str, seconds: range, names: frozenset[str]) -> ScrapedSeries:
    """Scrape the exporter while the scenario is played."""
    job, exposed, series = JobOfPlay(), ExposedPlay(names), ScrapedSeries()
    for second, observed in zip(seconds, polled(name, seconds), strict=True):
        now = START + second * SECOND
        _, batch = job.batch(now, observed)
        exposed.commit(batch)
        exposed.sample(now, batch.samples, batch.sources)
        series.add(exposed.scrape(now))
    return series


def fired_in(name: str, seconds: int, folder: Path) -> list[Firing]:
    """Play the scenario for so long, and give what fires."""
    path = folder / "packs.yml"
    path.write_text(as_yaml(rule_file(PACKS)))
    rules, scrapes = RuleFile.read(path), range(0, seconds, STEP)
    judgement = EveryRule([rules])
    times = range(START, START + seconds * SECOND, STEP * SECOND)
    fired = firings([rules], judgement, scraped(name, scrapes, judgement.metrics), times, folder)
    return [each for each in fired if each.alert != "IsrwatchWatchdog"]


def row(name: str, fired: list[Firing]) -> str:
    """Write which alerts fired, and how long after the begin of the scenario, as a row of the table."""
    first: dict[tuple[str, str], int] = {}
    for each in fired:
        first.setdefault((dict(each.labels)["severity"], each.alert), (each.began_at - START) // SECOND)
    cells = (
        ", ".join(
            f"`{alert}` {second // 60}:{second % 60:02}" for (of, alert), second in first.items() if of == severity
        )
        for severity in ("critical", "warning", "info")
    )
    return f"| `{name}` | {' | '.join(cell or '-' for cell in cells)} |\n"


def documented(name: str) -> str:
    """Give the row of a scenario."""
    found = re.search(rf"^\| `{name}` .*\n", documented_rows(), re.MULTILINE)
    return found[0] if found else ""


def documented_rows() -> str:
    """Give the section of the page, with a line end behind each row."""
    return section_of(PAGE.read_text(), Section.SCENARIOS) + "\n"


def up_to(seconds: int, written: str) -> str:
    """Leave of a row what fired before a second."""
    name, *cells = written.removesuffix(" |\n").split(" | ")
    fired = [re.finditer(r"`\w+` (\d+):(\d\d)", cell) for cell in cells]
    left = (", ".join(one[0] for one in cell if int(one[1]) * 60 + int(one[2]) < seconds) for cell in fired)
    return " | ".join([name, *(cell or "-" for cell in left)]) + " |\n"


@pytest.mark.parametrize("name", DIFFERENT)
def test_the_alerts_that_fire_first_are_those_of_the_table(name: str, tmp_path: Path) -> None:
    assert row(name, fired_in(name, SHORT, tmp_path)) == up_to(SHORT, documented(name))


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_alerts_of_the_table_are_those_that_the_scenario_calls_for(name: str) -> None:
    assert set(re.findall(r"`(Isrwatch\w+)`", documented(name))) == set(load_scenario(name).truth.alerts)


@pytest.mark.long
@pytest.mark.parametrize("name", SCENARIOS)
def test_the_alerts_that_fire_are_those_of_the_table(name: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    found = row(name, fired_in(name, WHOLE, tmp_path))
    if request.config.getoption("--rewrite-golden"):
        text, old = documented_rows(), documented(name)
        write_section(Section.SCENARIOS, text.replace(old, found) if old else text + found)
    else:
        assert found == documented(name)


def test_every_scenario_is_in_the_table() -> None:
    _, _, table = documented_rows().partition(HEADER)
    assert re.findall(r"^\| `(\w+)`", table, re.MULTILINE) == SCENARIOS
