"""What leaves a real Alertmanager with the routes as they are shipped, for alerts that fired in many plays at once.

All waiting times of the configuration are divided by ``SPEED``, and so is the time of the plays. Few plays are sent at
once: Alertmanager and the webhook would be late by more than an evaluation at this speed.
"""

from __future__ import annotations

import datetime as dt
import json
import re
import time
import urllib.request
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml

from tests.judge.severity import severity
from tests.plugins.local_http import collecting_webhook
from tests.plugins.prometheus import running_alertmanager

CONFIGURATION: Final = Path(__file__).parents[2] / "deploy" / "alertmanager" / "alertmanager.yml"
SPEED: Final = 30
_PLAY: Final = "play"
_AT_ONCE: Final = 250
_TICK: Final = 15.0
_TAIL: Final = 120.0
_DURATION: Final = re.compile(r"(\d+)(s|m|h)")
_SECONDS: Final = {"s": 1, "m": 60, "h": 3_600}


class Notification(NamedTuple):
    """One message: when and whom it reaches, of which group, the alerts that it says are firing; none: all is over.

    ``receiver`` has the one name of its severity. ``second`` is of the play, as exact as the scrapes are apart.
    """

    second: float
    receiver: str
    group: str
    firing: tuple[str, ...]


def notified(plays: Mapping[str, Sequence[Mapping[str, Any]]], folder: Path) -> dict[str, list[Notification]]:
    """Send what fired to Alertmanager, in its time; each play has an isrwatch of its own.

    Args:
        plays: by name, each alert with its labels, and the first and last second at which it fired.
        folder: an empty one, for Alertmanager.

    Returns:
        what was sent of each play, in order.
    """
    sent, firing = defaultdict(list), [name for name, fired in plays.items() if fired]
    for first in range(0, len(firing), _AT_ONCE):
        lot = [
            {**alert, "labels": {**alert["labels"], _PLAY: name}}
            for name in firing[first : first + _AT_ONCE]
            for alert in plays[name]
        ]
        own = folder / f"lot-{first}"
        own.mkdir()
        for message, play in messages(lot, own):
            sent[play].append(message)
    return sent


def messages(fired: Sequence[Mapping[str, Any]], folder: Path) -> list[tuple[Notification, str]]:
    """Send alerts to Alertmanager, in their time; give what it sent, each with the play of its group, if any."""
    sent, seen = list[tuple[Notification, str]](), 0
    with collecting_webhook() as webhook, running_alertmanager(folder, webhook, hastened(webhook.url)) as manager:
        for second in _ticks(max((alert["last"] for alert in fired), default=0.0) + _TAIL):
            new, seen = webhook.notifications[seen:], len(webhook.notifications)
            sent += (_notification(message, second) for message in new)
            _post(f"{manager.url}/api/v2/alerts", [each for alert in fired if (each := _posted(alert, second))])
        sent += (_notification(message, second) for message in webhook.notifications[seen:])
    return sent


def _notification(message: Mapping[str, Any], second: float) -> tuple[Notification, str]:
    firing = sorted(each["labels"]["alertname"] for each in message["alerts"] if each["status"] == "firing")
    told = Notification(second, severity(message["receiver"]), message["groupKey"], tuple(firing))
    return told, message["groupLabels"].get(_PLAY, "")


def hastened(url: str) -> dict[str, Any]:
    """Shorten the times of the configuration that is shipped, and keep plays apart."""
    configuration = shipped(url)
    for route in _routes(configuration["route"]):
        if "group_by" in route:
            route["group_by"].append(_PLAY)
        for key in ("group_wait", "group_interval", "repeat_interval"):
            if key in route:
                route[key] = _shorter(route[key])
    return configuration


def shipped(url: str) -> dict[str, Any]:
    """Read the configuration that is shipped, with a webhook for each receiver."""
    configuration: dict[str, Any] = yaml.safe_load(CONFIGURATION.read_text(encoding="utf-8"))
    for receiver in configuration["receivers"]:
        receiver["webhook_configs"] = [{"url": url, "send_resolved": True}]
    return configuration


def _routes(route: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield route
    for child in route.get("routes", ()):
        yield from _routes(child)


def _shorter(duration: str) -> str:
    count, unit = _DURATION.fullmatch(duration).groups()  # type: ignore[union-attr] - Alertmanager would refuse others
    return f"{int(count) * _SECONDS[unit] * 1_000 // SPEED}ms"


def _ticks(until: float) -> Iterator[float]:
    """Yield the second of the plays, when it is time for it."""
    began, second = time.monotonic(), 0.0
    while second <= until:
        time.sleep(max(0.0, began + second / SPEED - time.monotonic()))
        yield second
        second += _TICK


def _posted(alert: Mapping[str, Any], second: float) -> dict[str, Any] | None:
    """Write an alert as Prometheus posts it while it fires, and for a while after."""
    if not alert["began"] <= second <= alert["last"] + 4 * _TICK:
        return None
    now = dt.datetime.now(dt.UTC)
    since = dt.timedelta(seconds=(second - alert["began"]) / SPEED)
    is_over = second > alert["last"]
    ends = now - dt.timedelta(seconds=(second - alert["last"] - _TICK) / SPEED) if is_over else now + dt.timedelta(60)
    labels = {**alert["labels"], "alertname": alert["alert"]}
    return {"labels": labels, "startsAt": (now - since).isoformat(), "endsAt": ends.isoformat()}


def _post(url: str, alerts: list[dict[str, Any]]) -> None:
    request = urllib.request.Request(  # noqa: S310 - our own 127.0.0.1
        url, json.dumps(alerts).encode(), {"Content-Type": "application/json"}, method="POST"
    )
    with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310
        assert answer.status == 200
