"""A real Prometheus and a real Alertmanager for tests, on free ports of 127.0.0.1, stopped when the test ends.

``running_prometheus`` and ``running_alertmanager`` are for files whose tests share a server: until it scrapes it needs
five seconds. Fixtures:

- ``prometheus_server(targets={job: "host:port"}, rules=[path or text], alertmanager=..., interval="1s")``
- ``eventually(condition)``  waits for a condition and returns what it gave; never sleeps longer than needed
"""

from __future__ import annotations

import subprocess
import urllib.parse
import urllib.request
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.plugins.local_http import Webhook, free_port, http_json, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence


@dataclass
class Prometheus:
    """A running Prometheus."""

    url: str
    directory: Path

    def query(self, expression: str, at: float | None = None) -> list[dict[str, Any]]:
        """Evaluate an expression at one moment: a list of {metric, value}. Fails on errors and on warnings."""
        return self._result("query", {"query": expression} | ({} if at is None else {"time": at}))

    def query_range(self, expression: str, start: float, end: float, step: float = 1) -> list[dict[str, Any]]:
        """Evaluate an expression over time: a list of {metric, values}. Fails on errors and on warnings."""
        return self._result("query_range", {"query": expression, "start": start, "end": end, "step": step})

    def value(self, expression: str) -> float | None:
        """Give the only number of an instant query, None for an empty answer."""
        rows = self.query(expression)
        assert len(rows) <= 1, f"{expression} gives {len(rows)} rows: {rows}"
        return float(rows[0]["value"][1]) if rows else None

    def alerts(self, name: str | None = None) -> list[dict[str, Any]]:
        """List pending and firing alerts."""
        alerts = http_json(f"{self.url}/api/v1/alerts")["data"]["alerts"]
        return [alert for alert in alerts if name in {None, alert["labels"]["alertname"]}]

    def targets(self) -> list[dict[str, Any]]:
        """List scrape targets with their health and last error."""
        return http_json(f"{self.url}/api/v1/targets")["data"]["activeTargets"]

    def _result(self, endpoint: str, parameters: Mapping[str, Any]) -> list[dict[str, Any]]:
        answer = http_json(f"{self.url}/api/v1/{endpoint}?{urllib.parse.urlencode(parameters)}")
        assert answer.get("warnings", []) + answer.get("infos", []) == [], parameters["query"]
        return answer["data"]["result"]


@dataclass
class Alertmanager:
    """A running Alertmanager."""

    url: str

    @property
    def address(self) -> str:
        """Host and port."""
        return self.url.removeprefix("http://")

    def alerts(self) -> list[dict[str, Any]]:
        """List what it holds."""
        return http_json(f"{self.url}/api/v2/alerts")


@contextmanager
def running_server(command: Sequence[str], url: str, directory: Path) -> Iterator[None]:
    """Run a server until it is ready, and stop it afterwards; its log is part of a failure."""
    log = directory / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(command, cwd=directory, stdout=output, stderr=subprocess.STDOUT)
    try:
        wait_until(lambda: _is_ready(process, url), what=f"{command[0]} ready, see {log}")
        assert process.poll() is None, log.read_text()[-3000:]
        yield
    finally:
        process.terminate()
        try:
            process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _is_ready(process: subprocess.Popen[bytes], url: str) -> bool:
    if process.poll() is not None:
        return True  # it is over: the caller shows the log
    try:
        with urllib.request.urlopen(f"{url}/-/ready", timeout=5) as answer:  # noqa: S310 - our own 127.0.0.1
            return bool(answer.status == 200)
    except OSError:
        return False


@contextmanager
def running_alertmanager(
    directory: Path, webhook: Webhook, configuration: Mapping[str, Any] | None = None, port: int | None = None
) -> Iterator[Alertmanager]:
    """Run an Alertmanager; without a configuration it tells the webhook at once, resolved alerts included."""
    receiver = {"name": "webhook", "webhook_configs": [{"url": webhook.url, "send_resolved": True}]}
    route = {"receiver": "webhook", "group_by": ["..."], "group_wait": "0s", "group_interval": "1s"}
    configuration = configuration or {"route": route, "receivers": [receiver]}
    (directory / "alertmanager.yml").write_text(yaml.safe_dump(dict(configuration)))
    url = f"http://127.0.0.1:{port or free_port()}"
    command = (
        "prometheus-alertmanager",
        "--config.file=alertmanager.yml",
        f"--storage.path={directory / 'data'}",
        f"--web.listen-address={url.removeprefix('http://')}",
        "--cluster.listen-address=",
    )
    with running_server(command, url, directory):
        yield Alertmanager(url)


@contextmanager
def running_prometheus(
    directory: Path,
    targets: Mapping[str, str | Mapping[str, Any]],
    rules: Sequence[Path | str] = (),
    alertmanager: Alertmanager | None = None,
    interval: str = "1s",
) -> Iterator[Prometheus]:
    """Run a Prometheus that scrapes and evaluates at an interval; a rule file is a path, or its text.

    The target of a job is its address, or a whole scrape configuration.
    """
    for index, rule in enumerate(rules):
        text = rule.read_text() if isinstance(rule, Path) else rule
        (directory / f"rules-{index}.yml").write_text(text)
    config: dict[str, Any] = {
        "global": {"scrape_interval": interval, "scrape_timeout": interval, "evaluation_interval": interval},
        "rule_files": ["rules-*.yml"],
        "scrape_configs": [
            {"job_name": job, **({"static_configs": [{"targets": [target]}]} if isinstance(target, str) else target)}
            for job, target in targets.items()
        ],
    }
    if alertmanager:
        managers = [{"static_configs": [{"targets": [alertmanager.address]}]}]
        config["alerting"] = {"alertmanagers": managers}
    (directory / "prometheus.yml").write_text(yaml.safe_dump(config))
    url = f"http://127.0.0.1:{free_port()}"
    command = (
        "prometheus",
        "--config.file=prometheus.yml",
        f"--storage.tsdb.path={directory / 'data'}",
        f"--web.listen-address={url.removeprefix('http://')}",
        "--web.enable-lifecycle",
    )
    with running_server(command, url, directory):
        yield Prometheus(url, directory)


@pytest.fixture
def eventually() -> Callable[..., Any]:
    """Wait for a condition: ``eventually(lambda: server.alerts("IsrwatchUnderMinIsr"))``."""
    return wait_until


@pytest.fixture
def prometheus_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Prometheus]]:
    """Start Prometheus servers: ``prometheus_server(targets={...}, rules=[...], alertmanager=..., interval="1s")``."""
    with ExitStack() as stack:

        def start(
            *,
            targets: Mapping[str, str],
            rules: Sequence[Path | str] = (),
            alertmanager: Alertmanager | None = None,
            interval: str = "1s",
        ) -> Prometheus:
            directory = tmp_path_factory.mktemp("prometheus")
            return stack.enter_context(running_prometheus(directory, targets, rules, alertmanager, interval))

        yield start
