"""One row per alert: the series that it reads, a value with which it fires, one just below, and its boundary."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

BEGIN = 40  # steps that are calm
SLACK = 4  # steps after the alert is due
PROD = 'cluster="prod"'
ALWAYS = {"cluster_offline_partitions{" + PROD + "}": 0, "cluster_state_age_seconds{" + PROD + "}": 2}
DAY = 86_400

Value = float | str
"""Of the series that the alert reads; a text is a whole series in promtool's notation."""


class AlertCase(NamedTuple):
    """How one alert is tested.

    Attributes:
        alert: severity, name and labels of what fires; without braces it is of the cluster.
        series: what it reads.
        calm: value of these series before, or "_" for none.
        fires: a value with which it fires.
        below: the nearest one with which it does not.
        boundary: the threshold itself, and whether it fires with it.
        lasting: the minutes of its ``for``.
        after: the minutes until its condition holds, where it looks back.
        beside: further series, constant.
        slope: a value is what the series grows by in a step.
        step: seconds.
        goes_on: whether it continues while the data is withdrawn; None where what it reads is not withdrawn.
        missing_fires: whether it fires without the series.
    """

    alert: str
    series: tuple[str, ...]
    fires: Value
    below: Value
    boundary: tuple[Value, bool]
    lasting: float = 0
    after: float = 0
    calm: Value = 0
    beside: Mapping[str, Value] = {}
    slope: bool = False
    step: int = 30
    goes_on: bool | None = True
    missing_fires: bool = False

    @property
    def name(self) -> str:
        return self.alert.split()[1].partition("{")[0]

    @property
    def labels(self) -> str:
        severity, _, rest = self.alert.partition(" ")
        name, _, more = rest.rstrip("}").partition("{")
        of = more if "{" in self.alert else PROD
        return "{" + ", ".join(filter(None, (f'alertname="{name}"', f'severity="{severity}"', of))) + "}"

    @property
    def broker(self) -> str:
        """Whom it is about: a label of what fires, or of what it reads."""
        found = re.search(r'(?:broker|node)="(\d+)"', self.alert + "".join(self.series))
        return found[1] if found else ""

    @property
    def due(self) -> int:
        """The step at which it fires."""
        return BEGIN + int((self.after + self.lasting) * 60 / self.step)

    @property
    def end(self) -> int:
        return self.due + SLACK

    def tests(self) -> list[dict[str, Any]]:
        """Give promtool's tests."""
        boundary, at_boundary = self.boundary
        last = self.end
        before = {BEGIN - 1: False} | ({self.due - 2: False} if self.lasting else {})
        tests = [
            self._test("fires", self._values(self.fires), {**before, last: True}),
            self._test("just below", self._values(self.below), {self.due: False, last: False}),
            self._test("boundary", self._values(boundary), {last: at_boundary}),
            self._test("missing series", {}, {self.due: self.missing_fires, last: self.missing_fires}),
        ]
        if counters := [series for series in self.series if "_total{" in series]:
            reset = dict.fromkeys(counters, f"1000000x{BEGIN - 1} 0x{self.end - BEGIN}")
            tests.append(self._test("counter reset", reset, {self.due: False, last: False}))
        else:
            lost = {series: f"{values} _x2 {values.split()[-1]}" for series, values in self._values(self.fires).items()}
            tests.append(self._test("a scrape is lost", lost, {last: True}))
        if self.goes_on is not None:
            tests.append(self._blind(goes_on=self.goes_on))
        return tests

    def _values(self, value: Value) -> dict[str, str]:
        if isinstance(value, str):
            return dict.fromkeys(self.series, value)
        after = f"{self.calm}+{value}x{self.end - BEGIN}" if self.slope else f"{value}x{self.end - BEGIN}"
        return dict.fromkeys(self.series, f"{self.calm}x{BEGIN - 1} {after}")

    def _blind(self, *, goes_on: bool) -> dict[str, Any]:
        """Withdraw every gauge but the data age, once it fires."""
        beside = {**ALWAYS, **self.beside}
        values = {
            **{series: f"{value}x{self.end}" for series, value in beside.items() if "_total{" not in series},
            **self._values(self.fires),
        }
        age = next(iter(series for series in ALWAYS if "age" in series))
        withdrawn = {series: f"{text} stale" for series, text in values.items() if series != age}
        withdrawn |= {age: f"2x{self.end} 62+30x60"}
        return self._test("blind", withdrawn, {self.end: True, self.end + 30: goes_on})

    def _test(self, name: str, values: Mapping[str, str], firing: Mapping[int, bool]) -> dict[str, Any]:
        beside = {**ALWAYS, **self.beside}
        constant = {
            series: str(value) if isinstance(value, str) else f"{value}x{self.end + 60}"
            for series, value in beside.items()
        }
        every = {series: text for series, text in {**constant, **values}.items() if series not in self.series or values}
        alerts = f'ALERTS{{alertname="{self.name}", alertstate="firing"}}'
        return {
            "name": f"{self.name}: {name}",
            "interval": f"{self.step}s",
            "input_series": [{"series": _full(series), "values": text} for series, text in every.items()],
            "promql_expr_test": [
                {
                    "expr": f"count without (alertstate) ({alerts}) # {name}",
                    "eval_time": f"{at * self.step}s",
                    "exp_samples": [{"labels": self.labels, "value": 1}] if fires else [],
                }
                for at, fires in firing.items()
            ],
        }


def _full(series: str) -> str:
    own = series.startswith(("isrwatch_", "kafka_", "up{"))
    return series if own else f"kafka_replication_{series}"


def cluster(name: str) -> str:
    return f"cluster_{name}{{{PROD}}}"


def broker(name: str, number: int = 3) -> str:
    return f'broker_{name}{{{PROD}, broker="{number}"}}'


def agent(name: str) -> str:
    return f'kafka_{name}{{{PROD}, broker="3"}}'


def directory(name: str) -> str:
    return f'log_directory_{name}{{{PROD}, broker="3", log_dir="/data"}}'


def group(name: str, more: str = "") -> str:
    return f'group_{name}{{{PROD}, group="billing"{more}}}'


UP = {broker("maintenance"): 0, broker("shutting_down"): 0, broker("hosted_partitions"): 100}
READ = {group("members"): 2, group("info", ', protocol="classic", state="Stable", coordinator="1"'): 1}
NOT_READ = {**READ, group("members"): 0}
ON_TOPIC = ', topic="orders"'
DISK = {directory("total_bytes"): 100, directory("online"): 1}
LOG = 'channel="replication", source="metadata_log:c1"'
LISTENER = 'role="broker", node="3", address="broker-3:9092"'
LEFT = f'broker_isr_departures_total{{{PROD}, broker="3", cause="lag"}}'
OF_BROKER = f'{{{PROD}, broker="3"}}'
OF_GROUP = f'{{{PROD}, group="billing"}}'
Judged = tuple[float, float, tuple[float, bool]]
"""A value with which an alert fires, one with which it does not, and its boundary."""
COUNT: Judged = (400, 0, (1, True))
FLAG: Judged = (1, 0, (1, True))
DOWN: Judged = (0, 1, (0, True))


def over(limit: float) -> Judged:
    return limit + 1, limit - 1, (limit, False)


def under(limit: float) -> Judged:
    return limit - 1, limit + 1, (limit, False)


def removals(times: int) -> str:
    """One ISR removal in each of so many spells of five minutes, then none."""
    return f"0x{BEGIN - 1} " + " ".join(f"{number}x9" for number in range(1, times + 1)) + f" {times}x30"


def turns(changes: int) -> str:
    """Fenced and back again, so many changes."""
    return f"0x{BEGIN - 1} " + " ".join(str(number % 2) for number in range(1, changes + 1)) + f" {changes % 2}x60"


def starts(times: int) -> str:
    """Registered anew so often, at later and later offsets."""
    return (
        f"7x{BEGIN - 1} " + " ".join(str(7 + 100 * number) for number in range(1, times + 1)) + f" {7 + 100 * times}x60"
    )
