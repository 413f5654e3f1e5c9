"""vmalert, built from its source, sends what Prometheus sends: the same alerts, texts and notifications, in this order.

It evaluates the shipped rules over the series of a Prometheus, and over those of a VictoriaMetrics, whose language is
another one. Both scrape one page. Only the waiting times are shortened; vmalert's own label ``alertgroup`` stays.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from dashboards.alerts import rule_file
from dashboards.render import as_yaml
from streaming.alert_settings import AlertsSettings
from streaming.contracts.alerts import OPT_IN
from streaming.settings import ExportSettings, Settings
from tests.dashboards.test_alert_delivery import OF_INCIDENT, SENTENCE, exposed, raised, routes, rules
from tests.plugins.local_http import (
    Exposition,
    Webhook,
    collecting_webhook,
    free_port,
    http_json,
    serving_exposition,
    wait_until,
)
from tests.plugins.prometheus import Alertmanager, running_alertmanager, running_prometheus, running_server
from tests.stores.programs import of_victoria_metrics

pytestmark = [pytest.mark.prometheus, pytest.mark.long, pytest.mark.timeout(3000)]

EVERY_RULE: Final = rule_file(
    Settings(alerts=AlertsSettings(packs=OPT_IN), export=ExportSettings(url="https://x.test"))
)
ENGINES: Final = ("Prometheus", "vmalert over Prometheus", "vmalert over VictoriaMetrics")
GROUP_LABEL: Final = "alertgroup"
DELAY: Final = "5s"
"""VictoriaMetrics finds a sample seconds after it took it, so vmalert asks for what was then; by default 30 seconds."""
WAIT: Final = "8s"
"""Longer than the delay: Alertmanager sends an alert at once that began longer ago than it waits for others."""
SHORT: Final = {"interval: 15s": "interval: 1s", "for: 15m": "for: 15s", "keep_firing_for: 15m": "keep_firing_for: 3s",
                "keep_firing_for: 5m": "keep_firing_for: 25s"}  # fmt: skip

OK, GONE = 200, 503

Group = tuple[tuple[str, str], ...]
Alert = tuple[str, dict[str, str], dict[str, str]]
Makes = Callable[[str], Path]


@dataclass
class Engine:
    """What evaluates rules, and the Alertmanager and the receiver of its alerts."""

    url: str
    source: str
    manager: Alertmanager
    webhook: Webhook

    def sent(self, since: datetime) -> dict[Group, list[tuple[str, list[Alert]]]]:
        """Give the notifications of each group in their order, without alerts that had begun before a time.

        All engines report for a quarter of an hour that an alert is over, Prometheus once a minute, vmalert more often:
        the next notification of its group says it once more.
        """
        by_group = defaultdict(list)
        for each in list(self.webhook.notifications):
            alerts = [
                (alert["status"], without_group(alert["labels"]), alert["annotations"])
                for alert in each["alerts"]
                if datetime.fromisoformat(alert["startsAt"]) >= since
            ]
            group = tuple(sorted(each["groupLabels"].items()))
            by_group[group].append((each["status"], sorted(alerts, key=repr)))
        return dict(by_group)

    def failing(self) -> list[tuple[str, str]]:
        """Give the error of each rule that cannot be evaluated, or whose text cannot be filled in."""
        groups = http_json(f"{self.url}/api/v1/rules")["data"]["groups"]
        evaluated = [rule for group in groups for rule in group["rules"]]
        return [(rule["name"], rule["lastError"]) for rule in evaluated if rule.get("lastError")]

    def scraped(self) -> bool:
        """Return whether the series that it reads say that the page could be read."""
        up = http_json(f"{self.source}/api/v1/query?query=up&nocache=1")["data"]["result"]
        return [each["value"][1] for each in up] == ["1"]


def without_group(labels: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in labels.items() if name != GROUP_LABEL}


@contextmanager
def running_vmalert(folder: Path, source: str, manager: Alertmanager, delay: str) -> Iterator[str]:
    """Run vmalert with the rules of a folder, and give its address."""
    url = f"http://127.0.0.1:{free_port()}"
    command = (
        str(of_victoria_metrics("vmalert")), "-rule=rules.yml", f"-datasource.url={source}",
        f"-notifier.url={manager.url}", f"-httpListenAddr={url.removeprefix('http://')}", "-evaluationInterval=1s",
        f"-rule.evalDelay={delay}",
    )  # fmt: skip
    with running_server(command, url, folder):
        yield url


@contextmanager
def running_victoria_metrics(folder: Path, target: str) -> Iterator[str]:
    """Run a VictoriaMetrics that scrapes a target every second, and give its address."""
    job = {"job_name": "isrwatch", "static_configs": [{"targets": [target]}]}
    scraped = {"global": {"scrape_interval": "1s", "scrape_timeout": "1s"}, "scrape_configs": [job]}
    (folder / "scrape.yml").write_text(yaml.safe_dump(scraped))
    url = f"http://127.0.0.1:{free_port()}"
    command = (
        str(of_victoria_metrics("victoria-metrics")), "-promscrape.config=scrape.yml", "-storageDataPath=data",
        f"-httpListenAddr={url.removeprefix('http://')}", f"-search.latencyOffset={DELAY}",
    )  # fmt: skip
    with running_server(command, url, folder):
        yield url


@contextmanager
def running_engines(
    make: Makes, page: Exposition, content: str, configuration: Callable[[str], dict[str, Any]] | None = None
) -> Iterator[dict[str, Engine]]:
    """Run every engine over one page, each with an Alertmanager of its own."""
    with ExitStack() as stack:
        opened = stack.enter_context
        hooks = [opened(collecting_webhook()) for _ in ENGINES]
        managers = [
            opened(running_alertmanager(make("alertmanager"), hook, configuration and configuration(hook.url)))
            for hook in hooks
        ]
        over, evaluating, storing = (make("engine") for _ in ENGINES)
        for folder in (evaluating, storing):
            (folder / "rules.yml").write_text(content)
        prometheus = opened(running_prometheus(over, {"isrwatch": page.address}, [content], managers[0]))
        store = opened(running_victoria_metrics(make("victoria_metrics"), page.address))
        over_prometheus = opened(running_vmalert(evaluating, prometheus.url, managers[1], "0s"))
        over_store = opened(running_vmalert(storing, store, managers[2], DELAY))
        addresses = ((prometheus.url, prometheus.url), (over_prometheus, prometheus.url), (over_store, store))
        yield {
            name: Engine(*address, manager, hook)
            for name, address, manager, hook in zip(ENGINES, addresses, managers, hooks, strict=True)
        }


@pytest.fixture(scope="module")
def make(tmp_path_factory: pytest.TempPathFactory) -> Makes:
    return tmp_path_factory.mktemp


# The rules as they come.


@pytest.fixture(scope="module")
def page() -> Iterator[Exposition]:
    with serving_exposition(exposed()) as served:
        yield served


@pytest.fixture(scope="module")
def engines(make: Makes, page: Exposition) -> Iterator[dict[str, Engine]]:
    with running_engines(make, page, rules(SHORT), patient) as running:
        for engine in running.values():
            wait_until(engine.scraped)
        yield running


def patient(url: str) -> dict[str, Any]:
    """Give the shipped routes, which wait for what begins or ends while vmalert is behind."""
    shipped = routes(url)
    for route in (shipped["route"], *shipped["route"]["routes"]):
        route |= {"group_wait": WAIT, "group_interval": WAIT}
    return shipped


@pytest.fixture
def play(engines: dict[str, Engine], page: Exposition) -> Iterator[Callable[..., dict[Group, Any]]]:
    """Show pages one after the other, each until every engine has sent so much; give what all of them sent."""

    def shown(engine: Engine, notifications: int) -> bool:
        return engine.scraped() == (page.status == OK) and len(engine.webhook.notifications) >= notifications

    def played(*steps: tuple[str | int, int]) -> dict[Group, Any]:
        begins = datetime.now(UTC)
        for engine in engines.values():
            engine.webhook.notifications.clear()
        for shows, notifications in steps:
            page.status, page.text = (shows, page.text) if isinstance(shows, int) else (OK, shows)
            for name, engine in engines.items():
                wait_until(partial(shown, engine, notifications), what=f"{name}: {shows}")
        sent = {name: engine.sent(begins) for name, engine in engines.items()}
        assert sent == dict.fromkeys(ENGINES, sent["Prometheus"])
        assert [error for engine in engines.values() for error in engine.failing()] == []
        return sent["Prometheus"]

    yield played
    page.status, page.text = OK, exposed()


def statuses(sent: Mapping[Group, Any]) -> set[tuple[str, ...]]:
    return {tuple(status for status, _ in notifications) for notifications in sent.values()}


def summaries(sent: Mapping[Group, Any]) -> dict[str, str]:
    """Give the summary of each alert that was sent, by its name."""
    alerts = [alert for notifications in sent.values() for _, those in notifications for alert in those]
    return {labels["alertname"]: annotations["summary"] for _, labels, annotations in alerts}


def test_an_incident_of_two_conditions_through_a_restart_of_the_exporter(play: Callable[..., dict[Group, Any]]) -> None:
    sent = play((exposed(*OF_INCIDENT), 2), (GONE, 2), (OK, 2), (exposed(), 4))
    assert len(sent) == 2
    assert statuses(sent) == {("firing", "resolved")}
    assert summaries(sent) == dict.fromkeys(
        ("IsrwatchOfflinePartitions", "IsrwatchUnderMinIsr", "IsrwatchBrokerDown"), SENTENCE
    )


def test_planned_work_that_no_incident_explains(play: Callable[..., dict[Group, Any]]) -> None:
    planned = raised("offline_partitions_planned", "warning", short_id="prod-18")
    sent = play((exposed(planned), 1), (exposed(), 2))
    assert statuses(sent) == {("firing", "resolved")}
    assert "(planned work)" in summaries(sent)["IsrwatchOfflinePartitions"]


def test_a_dead_job_is_one_alert_of_all_clusters(play: Callable[..., dict[Group, Any]]) -> None:
    sent = play((raised("job_down", "critical", short_id="", cluster=""), 1), (exposed(), 2))
    assert statuses(sent) == {("firing", "resolved")}
    assert summaries(sent)["IsrwatchBlind"].startswith("isrwatch is blind")


def test_one_cluster_without_fresh_data(play: Callable[..., dict[Group, Any]]) -> None:
    sent = play((exposed(raised("data_stale", "critical", short_id="", cluster="edge")), 1), (exposed(), 2))
    assert statuses(sent) == {("firing", "resolved")}
    assert summaries(sent)["IsrwatchBlind"].startswith("edge is not monitored")


def test_a_dead_exporter_is_one_alert_of_all_clusters(play: Callable[..., dict[Group, Any]]) -> None:
    sent = play((GONE, 1), (OK, 2))
    assert statuses(sent) == {("firing", "resolved")}
    assert summaries(sent)["IsrwatchBlind"].startswith("isrwatch is blind")


# Every rule of every pack.


def test_vmalert_takes_the_rules_of_every_pack(make: Makes) -> None:
    file = make("dry_run") / "alerts.yml"
    file.write_text(as_yaml(EVERY_RULE))
    command = [of_victoria_metrics("vmalert"), "-dryRun", f"-rule={file}"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr


def variants(text: str) -> Iterator[dict[str, str]]:
    """Give labels with which a text takes each of its turns, with odd names as well, and without any label."""
    labels = dict.fromkeys(re.findall(r"\$labels\.(\w+)", text), "x") | {"short_id": "prod-17"}
    yield {}
    yield labels | {"cluster": "prod"}
    yield labels | {"cluster": 'a"b', "short_id": 'a"b-1', "subject": "1:/var/lib/kafka data", "topic": "a&b=c+d"}
    for label, value in re.findall(r'eq \$labels\.(\w+) "([^"]+)"', text):
        yield labels | {"cluster": "prod", label: value, "short_id": "prod-18"}
    if '"_planned$"' in text:
        yield labels | {"cluster": "prod", "condition": "under_min_isr_planned", "short_id": "prod-18"}


def series(name: str, labels: Mapping[str, str], value: float) -> str:
    quoted = (f"{label}={json.dumps(text)}" for label, text in labels.items())
    return f"{name}{{{','.join(quoted)}}} {value}\n"


def test_the_texts_of_every_pack_are_the_same(make: Makes) -> None:
    every = [rule for group in EVERY_RULE["groups"] for rule in group["rules"]]
    shown = [
        series("shown", {"rule": rule["alert"], "variant": f"{number}{sign}", **labels}, value)
        for rule in every
        for number, labels in enumerate(variants(str(rule["annotations"])))
        for sign, value in (("+", 93_784.5), ("-", -5))
    ]
    texts = [
        {"alert": rule["alert"], "expr": f'shown{{rule="{rule["alert"]}"}}', "annotations": rule["annotations"]}
        for rule in every
    ]
    content = as_yaml({"groups": [{"name": "texts", "interval": "1s", "rules": texts}]})
    with serving_exposition(exposed(*shown)) as page, running_engines(make, page, content) as engines:
        for engine in engines.values():
            wait_until(lambda it=engine: len(it.manager.alerts()) >= len(shown), what="every alert")
        said = {name: alerts_of(engine) for name, engine in engines.items()}
        assert [error for engine in engines.values() for error in engine.failing()] == []
    for rule in every:
        for variant, text in said["Prometheus"][rule["alert"]].items():
            assert [said[name][rule["alert"]][variant] for name in ENGINES] == [text] * len(ENGINES)
            assert text.keys() == rule["annotations"].keys()
            assert "<error" not in str(text)


def alerts_of(engine: Engine) -> dict[str, dict[str, dict[str, str]]]:
    """Give the texts of the alerts that are firing, by the rule and the variant of their labels."""
    texts: dict[str, dict[str, dict[str, str]]] = defaultdict(dict)
    for alert in engine.manager.alerts():
        texts[alert["labels"]["rule"]][alert["labels"]["variant"]] = alert["annotations"]
    return texts
