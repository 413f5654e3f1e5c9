"""Dashboards and alerts of others, asked of a real Prometheus that scrapes the exporter as the documentation says.

Their files are not here: ``peer_boards.yml`` lists which series each panel reads, and where that was found. The table
in docs/how-it-compares.md is what this test finds; ``--rewrite-golden`` writes it.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from exporters.read_model.reader import TablesReader
from exporters.read_model.refresher import Refresher
from exporters.web.server import OPTION, Endpoints, application
from streaming.runtime.listening import address_of, listen
from streaming.web.server import WebServer, serving
from tests.exporters.conftest import SECOND, START, Tables
from tests.plugins.local_http import wait_until
from tests.plugins.prometheus import Prometheus, running_prometheus

pytestmark = pytest.mark.prometheus

BOARDS = yaml.safe_load((Path(__file__).parent / "peer_boards.yml").read_text())
PAGE = Path(__file__).parents[3] / "docs" / "how-it-compares.md"
HEADER = "| of | dashboard | panels | with data |\n|---|---|---|---|\n"
_SELECTOR = re.compile(r"(?:(rate|delta) )?(.+)\{(.*)\}(\[\w+\])?")
_OF_A_PROCESS = ("process_", "java_", "jvm_")


def queries(selector: str) -> Iterator[str]:
    """Spell a selector as PromQL, once for each of its metrics."""
    found = _SELECTOR.fullmatch(selector)
    assert found is not None, selector
    function, metrics, labels, window = found.groups(default="")
    matchers = ",".join(each if '"' in each else f'{each}=~".+"' for each in labels.split(", ") if each)
    for metric in metrics.split(" or "):
        yield f"{function}({metric}{{{matchers}}}{window})" if function else f"{metric}{{{matchers}}}"


def documented_jobs(address: str) -> dict[str, dict[str, Any]]:
    """Take the configuration of the documentation, for our address and cluster."""
    (block,) = re.findall(r"```yaml\n(scrape_configs:.*?)```", PAGE.read_text(), re.DOTALL)
    scrapes: list[dict[str, Any]] = yaml.safe_load(block.replace("exporter:9308", address).replace("demo", "main"))[
        "scrape_configs"
    ]
    return {each["job_name"]: each for each in scrapes}


@contextmanager
def served(directory: Path, now: int) -> Iterator[str]:
    """Serve tables over HTTP, as if it were always the same moment."""
    refresher = Refresher(TablesReader(directory), 0.1, "1.2.3")
    endpoints = Endpoints(refresher, 60.0, clock=lambda: now)
    opened = listen("127.0.0.1:0", OPTION)
    refresher.start()
    try:
        with serving(WebServer(application(endpoints), [opened])):
            yield address_of(opened)
    finally:
        refresher.stop()
        refresher.join()


@pytest.fixture(scope="module")
def asked(written_busy_cluster: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """A Prometheus that has scraped everything a few times, of a cluster whose brokers have no agents."""
    folder = tmp_path_factory.mktemp("asked")
    shutil.copytree(written_busy_cluster, folder / "tables")
    Tables(folder / "tables").put("broker_metrics")
    with served(folder / "tables", START + 31 * SECOND) as address:
        jobs = documented_jobs(address)
        with running_prometheus(folder, jobs) as prometheus:
            wait_until(lambda: prometheus.query(f"count(sum_over_time(up[1m]) >= 4) == {len(jobs)}"))
            yield prometheus


def has_data(prometheus: Prometheus, selectors: list[str]) -> bool:
    return any(prometheus.query(query) for selector in selectors for query in queries(selector))


def test_their_panels_and_alerts_have_the_data_that_the_documentation_says(
    asked: Prometheus, request: pytest.FixtureRequest
) -> None:
    lines = []
    for board in BOARDS:
        filled = sum(has_data(asked, *panel.values()) for panel in board["panels"])
        lines.append(f"| {board['of']} | {board['board']} | {len(board['panels'])} | {filled} |\n")
    table = HEADER + "".join(lines)
    text = PAGE.read_text()
    (documented,) = re.findall(rf"{re.escape(HEADER)}(?:\|.*\n)*", text)
    if request.config.getoption("--rewrite-golden"):
        PAGE.write_text(text.replace(documented, table))
    else:
        assert documented == table


def test_prometheus_sees_every_series_of_the_exporter(asked: Prometheus) -> None:
    assert asked.value('scrape_samples_scraped{job="isrwatch"}') == asked.value("kafka_replication_exporter_series")
    assert asked.value("kafka_replication_cluster_under_replicated_partitions") == 2


def test_no_panel_shows_the_figures_of_the_exporter_as_if_they_were_a_broker_s(asked: Prometheus) -> None:
    selectors = {each for board in BOARDS for panel in board["panels"] for each in next(iter(panel.values()))}
    of_processes = [
        query for each in selectors for query in queries(each) if any(name in query for name in _OF_A_PROCESS)
    ]
    assert len(of_processes) > 20
    assert [query for query in of_processes if asked.query(query)] == []


def test_no_series_of_kafka_exporter_or_an_agent_is_kept_of_two_jobs(asked: Prometheus) -> None:
    jobs = asked.query('count by (__name__) (count by (__name__, job) ({__name__=~"kafka_.+"}))')
    assert len(jobs) > 100
    assert [row["metric"]["__name__"] for row in jobs if row["value"][1] != "1"] == []


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board["board"])
def test_each_board_says_where_it_was_found(board: Mapping[str, Any]) -> None:
    assert re.search(r"\b[0-9a-f]{8}\b", board["source"])
    assert board["panels"]
    assert all(list(queries(each)) for panel in board["panels"] for each in next(iter(panel.values())))
