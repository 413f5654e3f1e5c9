"""What vmalert makes of a play: the alerts of Prometheus, at the same evaluations, with the same labels and texts.

Both engines say of every evaluation what fires and what it says: Prometheus' by promtool over its own storage, that of
vmalert by the tool for tests of its Go module, over a VictoriaMetrics inside it. That takes half a second per play.
``vmalert -replay`` is another engine: it leaves out ``keep_firing_for`` and the queries of texts. How vmalert as a
program sends to Alertmanager is shown by ``tests/dashboards/test_vmalert.py``.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml

from exporters.backtest.rule_files import CONDITION, RuleFile, at_another_time
from tests.judge.first_message import Answers, answers, promtool, shown
from tests.judge.notifications import Notification
from tests.judge.play import SECOND, START
from tests.stores.programs import of_victoria_metrics

VMALERT: Final = "vmalert"
"""The key of the result of a play."""
_ENGINES: Final = ("Prometheus", VMALERT)
_BEGINS: Final = {"Prometheus": 0, VMALERT: 946_684_800}
"""The clock of each tool begins in 1970 and in 2000."""
STEP: Final = 15.0
_AFTER: Final = 68
"""Scrapes after the play: no alert is kept firing for longer than a quarter of an hour."""
_NEAR: Final = 2 * STEP
"""Messages are seen to a tick, and an alert may begin an evaluation later."""
_LISTED: Final = 50

_HEADING: Final = """
The engine of vmalert evaluates the same scrapes over a VictoriaMetrics, and what fires goes through Alertmanager as
above. After a play all its conditions end, so that each alert ends, too. A group is equal if it was opened and closed
within 30 s, with the same alerts.

| what | aim | |
|---|---|---|"""

Result = dict[str, Any]


def both_engines(folder: Path, rules: RuleFile, first: int, left_out: frozenset[str]) -> Result:
    """Evaluate a play by both engines, in a folder in which ``firings`` evaluated the rules.

    Args:
        folder: has the series.
        rules: all are asked for.
        first: time of the first scrape, UTC microseconds.
        left_out: alerts that always fire, and show that both engines evaluated the rules.

    Returns:
        what fired by each engine, in seconds of the play; the number of texts that were compared, and those that
        differ.
    """
    document = json.loads((folder / "tests.yml").read_text(encoding="utf-8"))
    said = {}
    for engine in _ENGINES:
        path = _written(folder, engine, document, rules, first)
        tool = of_victoria_metrics("vmalert-tool")
        command = {
            "Prometheus": [promtool(), "test", "rules", path],
            VMALERT: [tool, "unittest", "-disableAlertgroupLabel", "--files", path],
        }
        fires = answers(command[engine])
        assert left_out <= {alert for alert, _ in fires}, f"{engine} did not evaluate the rules"
        of_interest = {key: each for key, each in fires.items() if key[0] not in left_out}
        said[engine] = _by_labels(of_interest, (first - START) / SECOND)
    prometheus, vmalert = said.values()
    both = [(key, prometheus[key], text) for key, text in vmalert.items() if key in prometheus]
    return {
        "firings": {engine: _runs(those) for engine, those in said.items()},
        "texts": len(both),
        "differ": [[*_where(key), *texts] for key, *texts in both if texts[0] != texts[1]],
    }


def _written(folder: Path, engine: str, document: Mapping[str, Any], rules: RuleFile, first: int) -> Path:
    """Write rules and a test that asks for every alert at every scrape."""
    ahead = first / SECOND - _BEGINS[engine]
    groups = [
        {**group, "rules": [{**rule, "expr": at_another_time(str(rule["expr"]), ahead)} for rule in group["rules"]]}
        for group in rules.groups
    ]
    rule_file = folder / f"{engine}-rules.yml"
    rule_file.write_text(yaml.safe_dump({"groups": groups}, sort_keys=False), encoding="utf-8")
    (test,) = document["tests"]
    scrapes = len(test["promql_expr_test"]) - 1
    times = [f"{scrape * STEP:.0f}s" for scrape in range(scrapes + _AFTER)]
    names = dict.fromkeys(str(rule["alert"]) for rule in rules.rules() if "alert" in rule)
    asked = {
        "interval": test["interval"],
        "input_series": [_until_all_ends(**each) for each in test["input_series"]],
        "alert_rule_test": [{"alertname": name, "eval_time": time} for time in times for name in names],
    }
    path = folder / f"{engine}.yml"
    path.write_text(json.dumps({**document, "rule_files": [rule_file.name], "tests": [asked]}), encoding="utf-8")
    return path


def _until_all_ends(series: str, values: str) -> dict[str, str]:
    """Add scrapes in which every condition is over, and all else is as it was."""
    last = values.rsplit(" ", 1)[-1].split("x", maxsplit=1)[0]
    if series.startswith(CONDITION) and last not in {"_", "stale"}:
        more = f"stale _x{_AFTER - 1}"
    else:
        more = f"_x{_AFTER}" if last in {"_", "stale"} else f"{last}x{_AFTER - 1}"
    return {"series": series, "values": f"{values} {more}"}


_Key = tuple[tuple[tuple[str, str], ...], float]
"""The labels of an alert, its name among them, and the second of the play."""


def _by_labels(said: Answers, begin: float) -> dict[_Key, str]:
    return {
        (tuple(sorted({**labels, "alertname": name}.items())), begin + second): shown(annotations)
        for (name, second), fired in said.items()
        for labels, annotations in fired
    }


def _where(key: _Key) -> tuple[dict[str, str], float]:
    return dict(key[0]), key[1]


def _runs(fired: Iterable[_Key]) -> list[Result]:
    """Join evaluations that follow each other."""
    runs: dict[Any, list[Result]] = defaultdict(list)
    for key in sorted(fired, key=lambda each: each[1]):
        labels, second = _where(key)
        of = runs[key[0]]
        if of and second - of[-1]["last"] <= STEP:
            of[-1]["last"] = second
        else:
            name = labels.pop("alertname")
            of.append({"alert": name, "labels": labels, "began": second, "last": second})
    return [run for of in runs.values() for run in of]


# ------------------------------------------------------------------------------------------------ comparison


def posted(results: Sequence[Result]) -> dict[str, list[Result]]:
    """Give what fired by each engine, under a name for Alertmanager."""
    return {_name(engine, result): fired for result in results for engine, fired in result[VMALERT]["firings"].items()}


def _name(engine: str, result: Result) -> str:
    return f"{engine}-{result['seed']}"


class Compared(NamedTuple):
    """What differs in one play, in words; ``shifted``: by one evaluation, ``other``: by more, or it did not fire."""

    shifted: tuple[str, ...]
    other: tuple[str, ...]
    texts: tuple[str, ...]
    notified: tuple[str, ...]

    def lines(self) -> Iterator[str]:
        for each in self:
            yield from each


def compared(result: Result, sent: Mapping[str, Sequence[Notification]]) -> Compared:
    """Compare the engines in one play, and what Alertmanager sent of each."""
    runs = {engine: _sorted(fired) for engine, fired in result[VMALERT]["firings"].items()}
    prometheus, vmalert = runs.values()
    shifted, other = list[str](), list[str]()
    for key in dict.fromkeys([*prometheus, *vmalert]):
        spans = prometheus.get(key, []), vmalert.get(key, [])
        if spans[0] == spans[1]:
            continue
        is_near = len(spans[0]) == len(spans[1]) and all(
            abs(one - another) <= STEP for pair in zip(*spans, strict=True) for one, another in zip(*pair, strict=True)
        )
        said = ", ".join(f"{engine} {_spans(of)}" for engine, of in zip(_ENGINES, spans, strict=True))
        (shifted if is_near else other).append(f"{dict(key)['alertname']}: {said}")
    texts = [
        f"{labels['alertname']} at {second:.0f}: {one!r}, {another!r}"
        for labels, second, one, another in result[VMALERT]["differ"]
    ]
    messages = [_episodes(sent.get(_name(engine, result), ())) for engine in _ENGINES]
    return Compared(tuple(shifted), tuple(other), tuple(texts), tuple(_unequal(*messages)))


def _sorted(fired: Sequence[Result]) -> dict[Any, list[tuple[float, float]]]:
    runs = defaultdict(list)
    for each in fired:
        runs[tuple(sorted({**each["labels"], "alertname": each["alert"]}.items()))].append(
            (each["began"], each["last"])
        )
    return runs


def _spans(of: Sequence[tuple[float, float]]) -> str:
    return " and ".join(f"{began:.0f} to {last:.0f}" for began, last in of) or "never"


class Episode(NamedTuple):
    """A group of alerts, from its first message to the one that says that all is over (infinite: none was sent)."""

    receiver: str
    alerts: frozenset[str]
    opened: float
    closed: float

    def is_like(self, other: Episode) -> bool:
        """Compare, to what times are exact to."""
        near = all(
            one == another or abs(one - another) <= _NEAR
            for one, another in ((self.opened, other.opened), (self.closed, other.closed))
        )
        return near and self[:2] == other[:2]

    def __str__(self) -> str:
        return f"{self.receiver} {' + '.join(sorted(self.alerts))} {self.opened:.0f} to {self.closed:.0f}"


def _episodes(sent: Sequence[Notification]) -> list[Episode]:
    open_now, over = dict[tuple[str, str], Episode](), list[Episode]()
    for each in sent:
        key = each.receiver, each.group
        episode = open_now.pop(key, Episode(each.receiver, frozenset(), each.second, float("inf")))
        episode = episode._replace(alerts=episode.alerts | set(each.firing))
        if each.firing:
            open_now[key] = episode
        elif episode.alerts:
            over.append(episode._replace(closed=each.second))
    return sorted([*over, *open_now.values()], key=lambda each: (each.receiver, sorted(each.alerts), each.opened))


def _unequal(prometheus: Sequence[Episode], vmalert: Sequence[Episode]) -> Iterator[str]:
    if len(prometheus) != len(vmalert) or not all(
        one.is_like(another) for one, another in zip(prometheus, vmalert, strict=True)
    ):
        said = zip(_ENGINES, (prometheus, vmalert), strict=True)
        yield "; ".join(f"notified by {engine}: {', '.join(map(str, of)) or 'nothing'}" for engine, of in said)


# ---------------------------------------------------------------------------------------------------- tables


def vmalert_rendered(results: Sequence[Result], sent: Mapping[str, Sequence[Notification]]) -> Iterator[str]:
    """Write the comparison of all plays."""
    every = {result["seed"]: compared(result, sent) for result in results}
    fired = [[run for result in results for run in result[VMALERT]["firings"][engine]] for engine in _ENGINES]
    groups = [sum(len(_episodes(sent.get(_name(engine, result), ()))) for result in results) for engine in _ENGINES]
    texts = sum(result[VMALERT]["texts"] for result in results)
    wrong = Compared(*(tuple(line for of in part for line in of) for part in zip(*every.values(), strict=True)))
    yield f"### The same by vmalert: {len(results)} plays"
    yield from _HEADING.splitlines()
    yield f"| alerts that fired, by Prometheus and by vmalert | equal | {len(fired[0])} and {len(fired[1])} |"
    yield f"| - that began or ended one evaluation apart | | {len(wrong.shifted)} |"
    yield f"| - that did so by more, or fired by one alone | 0 | {len(wrong.other)} |"
    yield f"| evaluations at which they say something else | 0 | {len(wrong.texts)} of {texts} |"
    yield f"| groups that were notified | equal | {groups[0]} and {groups[1]} |"
    yield f"| plays of which something else was notified | 0 | {len(wrong.notified)} of {len(results)} |"
    lines = [f"| {seed} | {line} |" for seed, each in every.items() for line in each.lines()]
    if lines:
        yield from ("", "| seed | what differs |", "|---:|---|", *lines[:_LISTED])
