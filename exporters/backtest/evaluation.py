"""Prometheus' own rule engine, by ``promtool test rules``, evaluates rules over series of the past.

Each scrape is a test that expects no firing alert; what promtool prints of those that fail is what fired. A first test
that always fails shows that the print-out is read rightly.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from ast import literal_eval
from collections import defaultdict
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import yaml

from exporters.backtest.rule_files import at_another_time
from exporters.read_model.snapshot import SECOND
from streaming.errors import ConfigurationError
from streaming.escapes import yaml_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from exporters.backtest.rule_files import Judgement, RuleFile


@dataclass(slots=True)
class _Values:
    """One series: what is written, and the open run of one value; "_" is no value."""

    written: list[str] = field(default_factory=list)
    value: str = "_"
    count: int = 0

    def add(self, value: str, count: int = 1) -> None:
        if value == self.value:
            self.count += count
            return
        self.end()
        self.value, self.count = value, count

    def end(self) -> None:
        """Write the run; a scrape without a series that was there before marks it as ended, as Prometheus does."""
        value, count = self.value, self.count
        if value == "_" and self.written and count:
            self.written.append("stale")
            count -= 1
        if value == "_":
            self.written += [f"_x{count}"] if count else []
        else:
            self.written.append(value if count == 1 else f"{value}x{count - 1}")


class ScrapedSeries:
    """The series of scrapes that follow each other at equal distances."""

    def __init__(self) -> None:
        """Start without a scrape."""
        self.scrapes = 0
        self._series: dict[str, _Values] = {}
        self._last: dict[str, int] = {}

    def __len__(self) -> int:
        """Return the number of series."""
        return len(self._series)

    def add(self, exposition: str) -> None:
        """Add the next scrape: lines of the text format."""
        for line in exposition.removesuffix("\n").split("\n"):
            if not line or line.startswith("#"):
                continue
            key, _, value = line.rpartition(" ")
            values = self._series.setdefault(key, _Values())
            missed = self.scrapes - self._last.get(key, -1) - 1
            if missed:
                values.add("_", missed)
            values.add(_plain(value))
            self._last[key] = self.scrapes
        self.scrapes += 1

    def written(self) -> Iterator[tuple[str, str]]:
        """Yield each series with its values; no scrape may be added after."""
        for key, values in self._series.items():
            if missed := self.scrapes - self._last[key] - 1:
                values.add("_", missed)
            values.end()
            yield key, " ".join(values.written)


def _plain(number: str) -> str:
    """Write a number without an exponent, behind which promtool would read a count."""
    return format(Decimal(number), "f") if "e" in number else number


_FIRING: Final = 'ALERTS{alertstate="firing"}'
_CANARY: Final = 'label_replace(vector(7), "canary", "a \\"b\\", {c}", "", "")'
_CANARY_LABELS: Final = (("canary", 'a "b", {c}'),)
_TEST: Final = re.compile(r'^\s*expr: "(?:[^"\\]|\\.)*", time: (\S+),?\s*\n\s*exp:.*\n\s*got:(.*)$', re.MULTILINE)
_SAMPLE: Final = re.compile(r'\{((?:[^"{}]|"(?:[^"\\]|\\.)*")*)\}')
_LABEL: Final = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_DURATION: Final = re.compile(r"(\d+)(ms|[smhdwy])")
_UNITS: Final = {"ms": 0.001, "s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800, "y": 31_536_000}

Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Firing:
    """One alert that fired: its labels, and the first and last scrape at which it did, UTC microseconds."""

    alert: str
    labels: Labels
    began_at: int
    last_at: int


def firings(
    files: Sequence[RuleFile], judgement: Judgement, scraped: ScrapedSeries, times: range, folder: Path
) -> list[Firing]:
    """Evaluate rules at every scrape, in an empty folder; return what fired, by time.

    Raises:
        ConfigurationError: promtool is missing, or refuses the rules.
    """
    seconds = times.step // SECOND
    names = [_write_rules(folder, number, file, judgement, times[0]) for number, file in enumerate(files)]
    expected_nothing = [{"expr": _FIRING, "eval_time": f"{place * seconds}s"} for place in range(len(times))]
    test = {
        "interval": f"{seconds}s",
        "input_series": [{"series": key, "values": values} for key, values in scraped.written()],
        "promql_expr_test": [{"expr": _CANARY, "eval_time": "0s"}, *expected_nothing],
    }
    # Without an order promtool draws one, and an alert that reads a recording rule fires a scrape earlier or later.
    order = list(dict.fromkeys(str(group.get("name", "")) for file in files for group in file.groups))
    document = {"rule_files": names, "evaluation_interval": f"{seconds}s", "group_eval_order": order, "tests": [test]}
    (folder / "tests.yml").write_text(yaml_text(document), encoding="utf-8")
    (canary, *fired) = _failed(_promtool(folder / "tests.yml"))
    if canary != (0.0, [_CANARY_LABELS]):
        raise ConfigurationError(
            "this promtool prints the outcome of tests in another way; use one of Prometheus 2.42 to 3"
        )
    return _joined(fired, times)


def _write_rules(folder: Path, number: int, file: RuleFile, judgement: Judgement, begin: int) -> str:
    """Write the rules that are evaluated, on a clock that begins at the first scrape; return the file's name."""
    groups = []
    for group in file.groups:
        rules = [
            {**rule, "expr": at_another_time(str(rule["expr"]), begin / SECOND)}
            for rule in group["rules"]
            if judgement.is_needed(rule)
        ]
        groups.append({**{key: value for key, value in group.items() if key != "interval"}, "rules": rules})
    name = f"rules-{number}.yml"
    (folder / name).write_text(yaml.safe_dump({"groups": groups}, sort_keys=False), encoding="utf-8")
    return name


def _promtool(tests: Path) -> str:
    program = shutil.which("promtool")
    if program is None:
        raise ConfigurationError("backtest needs promtool, which comes with Prometheus; put it on PATH")
    command = [program, "test", "rules", str(tests)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - Prometheus' own tool
    text = done.stdout + done.stderr
    if not _TEST.search(text):
        raise ConfigurationError("promtool cannot evaluate the rules:", text.strip())
    return text


def _failed(text: str) -> Iterator[tuple[float, list[Labels]]]:
    """Yield the time of each test that failed, in seconds, and the labels of the samples that it got."""
    for time, got in _TEST.findall(text):
        samples = [
            tuple(sorted((name, literal_eval(f'"{value}"')) for name, value in _LABEL.findall(labels)))
            for labels in _SAMPLE.findall(got)
        ]
        yield sum(int(count) * _UNITS[unit] for count, unit in _DURATION.findall(time)), samples


def _joined(fired: Iterable[tuple[float, list[Labels]]], times: range) -> list[Firing]:
    """Join scrapes that follow each other."""
    at: Mapping[Labels, list[int]] = defaultdict(list)
    for seconds, samples in fired:
        for labels in samples:
            at[labels].append(times[0] + round(seconds * SECOND))
    joined = [_firing(labels, run) for labels, moments in at.items() for run in _runs(sorted(moments), times.step)]
    return sorted(joined, key=lambda each: (each.began_at, each.alert, each.labels))


def _runs(moments: list[int], step: int) -> list[list[int]]:
    runs: list[list[int]] = []
    for moment in moments:
        if runs and moment - runs[-1][-1] <= step:
            runs[-1].append(moment)
        else:
            runs.append([moment])
    return runs


def _firing(labels: Labels, run: list[int]) -> Firing:
    hidden: Any = {"__name__", "alertname", "alertstate"}
    return Firing(dict(labels)["alertname"], tuple(each for each in labels if each[0] not in hidden), run[0], run[-1])
