"""Whom scenarios wake in real time, through every program as it is shipped; written to docs/quality.md.

    python -m tests.judge.real_time [--minutes 15] [--write] [SCENARIO...]

Each scenario is a cluster that a collector simulates second by second. One job with Spark, one exporter, Prometheus
with the committed rules and Alertmanager with the shipped routes follow all of them; no time is shortened, and what
leaves Alertmanager is counted. Exits with 1 if a cluster wakes somebody who need not be woken, nobody who must be, or
more than once for the alerts that the scenario calls for.
"""

from __future__ import annotations

import argparse
import datetime as dt
import signal
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final, NamedTuple

from docs.builder.quality import Section, write_section
from streaming.contracts.alerts import ALERTS, Pack
from streaming.contracts.events import Severity
from streaming.sources.simulated import load_scenario
from tests.judge.alerts import RULES
from tests.judge.notifications import shipped
from tests.judge.severity import CRITICAL, WARNING, severity
from tests.plugins.local_http import Webhook, collecting_webhook
from tests.plugins.pipeline import Pipeline
from tests.plugins.prometheus import running_alertmanager, running_prometheus

SCENARIOS: Final = ("under_min_isr", "unclean_election", "network_split", "rolling_restart", "flapping_follower")
INTERVAL: Final = "15s"  # as deploy/prometheus has it
HEADER: Final = """## Alerts in real time

{count} scenarios of the model, each for {minutes:g} minutes of real time, on {day}: collectors, one job with Spark, one
exporter, Prometheus with the committed rules, Alertmanager with the shipped routes. Times are minutes and seconds from
the start of the collector to the message that left Alertmanager. A scenario that is over begins again: that is why
brokers go down again and again here.

| scenario | critical | warning |
|---|---|---|
"""


class Message(NamedTuple):
    """What left Alertmanager about one cluster: when, to whom, and the alerts that it says fire; none: all is over."""

    second: float
    receiver: str
    cluster: str
    alerts: tuple[str, ...]
    summaries: tuple[str, ...]


class Clock:
    """Notes when each message came."""

    def __init__(self, webhook: Webhook) -> None:
        self._webhook, self._began = webhook, time.monotonic()
        self.messages: list[Message] = []
        self._seen = 0

    @property
    def second(self) -> float:
        return time.monotonic() - self._began

    def take(self) -> Iterator[Message]:
        """Take over what came since the last time."""
        came = self._webhook.notifications[self._seen :]
        self._seen += len(came)
        for each in came:
            firing = [alert for alert in each["alerts"] if alert["status"] == "firing"]
            message = Message(
                self.second,
                severity(each["receiver"]),
                each["groupLabels"].get("cluster", ""),
                tuple(alert["labels"]["alertname"] for alert in firing),
                tuple(alert["annotations"]["summary"] for alert in firing),
            )
            self.messages.append(message)
            yield message


def followed(scenarios: Sequence[str], minutes: float) -> list[Message]:
    """Run everything; give what left Alertmanager."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="isrwatch-real-time-")))
        for name in ("pipeline", "prometheus", "alertmanager"):
            (folder / name).mkdir()
        pipeline = Pipeline(folder / "pipeline")
        stack.callback(pipeline.close)
        webhook = stack.enter_context(collecting_webhook())
        manager = stack.enter_context(running_alertmanager(folder / "alertmanager", webhook, shipped(webhook.url)))
        pipeline.job()
        clock = Clock(webhook)
        for name in scenarios:
            _simulate(name, pipeline)
        pipeline.export()
        target = {"isrwatch": f"127.0.0.1:{pipeline.port}"}
        stack.enter_context(running_prometheus(folder / "prometheus", target, [RULES], manager, INTERVAL))
        while clock.second < 60 * minutes:
            time.sleep(0.5)
            for message in clock.take():
                if message.receiver in {CRITICAL, WARNING}:
                    _say(message)
        return clock.messages


def _simulate(scenario: str, pipeline: Pipeline) -> None:
    config = pipeline.directory / f"{scenario}.toml"
    config.write_text(f'[cluster]\nname = "{scenario}"\n[collect]\ncollector = "{scenario}"\nlisten = ""\n')
    bus = ("--bus", str(pipeline.bus))
    pipeline.start(f"collect-{scenario}", "collect", "--config", str(config), "--simulate", scenario, *bus)


def _say(message: Message) -> None:
    what = "; ".join(message.summaries) or "over"
    print(f"{_minutes(message.second)} {message.receiver:8} {message.cluster:20} {what}", flush=True)


def _minutes(second: float) -> str:
    return f"{int(second) // 60}:{int(second) % 60:02}"


def row(scenario: str, messages: Sequence[Message]) -> str:
    """Write what was sent of a scenario as a row of the table."""
    cells = (
        "; ".join(_cell(each) for each in messages if each.receiver == receiver) or "-"
        for receiver in (CRITICAL, WARNING)
    )
    return f"| `{scenario}` | {' | '.join(cells)} |\n"


def _cell(message: Message) -> str:
    alerts = ", ".join(f"`{alert}`: {text}" for alert, text in zip(message.alerts, message.summaries, strict=True))
    return f"{_minutes(message.second)} {alerts or 'over'}"


def wrong(scenario: str, messages: Sequence[Message], pages: frozenset[str]) -> str:
    """Say what is wrong with the pages of a scenario; "" if nothing is."""
    expected = pages & set(load_scenario(scenario).truth.alerts)
    sent: dict[str, int] = defaultdict(int)
    for each in messages:
        if each.receiver == CRITICAL:
            for alert in set(each.alerts):
                sent[alert] += 1
    if sent and not expected:
        return f"nobody need be woken, and was: {', '.join(sent)}"
    if expected and not sent:
        return f"somebody must be woken, and was not: {', '.join(sorted(expected))}"
    return "" if sent.keys() <= expected else f"another page than {', '.join(sorted(expected))}: {', '.join(sent)}"


def page_alerts() -> frozenset[str]:
    of_pack = ((name, alert) for name, alert in ALERTS.items() if alert.pack is Pack.ALERTS)
    return frozenset(name for name, alert in of_pack if alert.severity is Severity.CRITICAL)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("scenarios", nargs="*", default=SCENARIOS)
    options.add_argument("--minutes", type=float, default=15)
    options.add_argument("--write", action="store_true")
    given = options.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # no process stays behind
    messages, pages = followed(given.scenarios, given.minutes), page_alerts()
    of = {name: [each for each in messages if each.cluster == name] for name in given.scenarios}
    table = "".join(row(name, of[name]) for name in given.scenarios)
    sys.stdout.write(table)
    if given.write:
        day = dt.datetime.now(dt.UTC).date()
        heading = HEADER.format(count=len(of), minutes=given.minutes, day=day)
        write_section(Section.REAL_TIME, heading + table)
    if errors := [f"{name}: {what}" for name in of if (what := wrong(name, of[name], pages))]:
        sys.exit("\n".join(errors))


if __name__ == "__main__":
    main()
