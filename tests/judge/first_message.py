"""What the first message says to whoever is woken: is its class right, its broker, and what it says to do next?

The message is read as a person reads it: the summary and description of the alerts that fire, as Prometheus' own engine
writes them. It is compared with the incidents that the model's truth calls for (``tests/judge/expected.py``):

- its *class* is right if it has a word of ``WORDS`` for a class that is right, or the name of the class;
- its *broker* is right if the first broker that it names is one that may be blamed, or if nobody is to be blamed;
- its *next step* is right if it says to do what ``WORDS`` has for that class. "Run this command" is none. While no
  partition lacks a broker that may be blamed, all that is left to do is to find out why, or what is missing.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml

from exporters.backtest.rule_files import RuleFile
from streaming.contracts.identifiers import NO_LEADER, BrokerId
from tests.judge.expected import ExpectedIncident
from tests.judge.play import Play
from tests.judge.steps import START_MICROS

WORDS: Final = {
    "broker_loss": (
        r"\blost\b|\bdown\b|\bdied\b|crash|\bgone\b|\bfenced\b|did not come back",
        r"\bstart (broker|it|them)|bring .* back|why .* did not come back|wait until .* caught up",
    ),
    "rack_loss": (r"\brack\b", r"power|network|start (its|the) brokers|wait until .* caught up"),
    "unclean_election": (r"unclean|may be lost|may lack", r"copy the logs|which records are missing|producers.*again"),
    "unsafe_shutdown": (r"stopped|shut ?down", r"\bstart (broker|it|them)|wait until .* caught up"),
    "unsafe_reassignment": (r"reassign|moved", r"cancel|wait until .* caught up"),
    "slow_follower": (r"keep up|slow|\blag", r"disk|load|network"),
    "leader_stall": (r"stood still|stall|paus", r"paus|garbage|healthy"),
    "controller_stall": (r"controller \d+ stood still", r"pauses of controller"),
    "network_split": (r"cut off|network|split", r"network"),
    "link_failure": (r"\blink\b|network", r"network"),
    "disk_failure": (r"log directory|disk", r"replace|move"),
}
_BROKER: Final = re.compile(r"(?:\b[Bb]rokers?\b|\b[Ss]uspects now:)[^.;\d]{0,40}?(\d+)")
_LABELS: Final = re.compile(r"Labels:\{(.*)\}")
_GOT: Final = re.compile(r"Annotations:\{(.*)\}")
_ANNOTATION: Final = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_ASKED: Final = re.compile(r"alertname: (\w+), time: (\S+?),(.*?)(?=alertname: |\Z)", re.DOTALL)
_DURATION: Final = re.compile(r"(\d+)([hms])")
_UNITS: Final = {"h": 3_600, "m": 60, "s": 1}
_SHOWN: Final = ("summary", "description")


_WHY: Final = "find out why|which records are missing"


class Reading(NamedTuple):
    """Which parts of a message are right."""

    kind: bool
    broker: bool
    step: bool


def read(text: str, right: Iterable[ExpectedIncident], missing: frozenset[BrokerId] | None = None) -> Reading:
    """Read a message as one about an incident that is right: the one that it fits best.

    Args:
        text: of the message.
        right: what it may be about.
        missing: brokers that partitions lack when it is written; None: that is not known.
    """
    named = _BROKER.search(text)
    readings = [
        _of_kind(text, kind, None if named is None else int(named[1]), each, missing)
        for each in right
        for kind in each.kinds
    ]
    return max(readings, key=sum, default=Reading(kind=False, broker=False, step=False))


def _of_kind(
    text: str, kind: str, broker: int | None, right: ExpectedIncident, missing: frozenset[BrokerId] | None
) -> Reading:
    words, step = WORDS.get(kind, (r"(?!)", r"(?!)"))
    if missing is not None and missing.isdisjoint(right.may):
        step = f"{step}|{_WHY}"
    return Reading(
        kind=kind in text or re.search(words, text, re.IGNORECASE) is not None,
        broker=broker in right.may if right.must else True,
        step=re.search(step, text, re.IGNORECASE) is not None,
    )


def missing_at(play: Play, second: float) -> frozenset[BrokerId]:
    """Give the brokers that partitions of the model lack at a moment."""
    states: dict[tuple[str, int], Any] = {(key.topic_id, key.partition): each for key, each in play.before.items()}
    for entry in play.trace:
        if (entry.time - START_MICROS) / 1e6 <= second:
            states[entry.topic_id, entry.partition] = None if entry.deleted else entry
    lacking = (
        set(each.replicas) - (set(each.isr) if each.leader != NO_LEADER else set()) for each in states.values() if each
    )
    return frozenset().union(*lacking)


class Wanted(NamedTuple):
    """An alert whose text is asked for: its second since the first scrape, and its labels."""

    alert: str
    second: int
    labels: Mapping[str, str]


def without_texts(rules: RuleFile) -> RuleFile:
    """Leave out what alerts say: their queries take most of the time of an evaluation."""
    groups = [{**group, "rules": [_silent(rule) for rule in group["rules"]]} for group in rules.groups]
    return RuleFile(rules.path, groups)


def _silent(rule: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in rule.items() if key != "annotations"}


def texts(folder: Path, rules: RuleFile, wanted: Sequence[Wanted]) -> list[str]:
    """Write summary and description of alerts, in a folder in which ``firings`` evaluated the rules without texts."""
    if not wanted:
        return []
    said = {str(rule.get("alert")): rule.get("annotations", {}) for rule in rules.rules()}
    names = {each.alert for each in wanted}
    document = json.loads((folder / "tests.yml").read_text(encoding="utf-8"))
    evaluated = yaml.safe_load((folder / document["rule_files"][0]).read_text(encoding="utf-8"))
    for rule in (rule for group in evaluated["groups"] for rule in group["rules"] if rule.get("alert") in names):
        rule["annotations"] = said[rule["alert"]]
    (folder / "texts-rules.yml").write_text(yaml.safe_dump(evaluated, sort_keys=False), encoding="utf-8")
    (test,) = document["tests"]
    test = {key: value for key, value in test.items() if key != "promql_expr_test"}
    asked = {(each.alert, each.second): {"alertname": each.alert, "eval_time": f"{each.second}s"} for each in wanted}
    test["alert_rule_test"] = list(asked.values())
    path = folder / "texts.yml"
    path.write_text(json.dumps({**document, "rule_files": ["texts-rules.yml"], "tests": [test]}), encoding="utf-8")
    said_by_prometheus = answers([promtool(), "test", "rules", path])
    return [_text(said_by_prometheus, each) for each in wanted]


def promtool() -> str:
    program = shutil.which("promtool")
    assert program is not None
    return program


Answers = dict[tuple[str, int], list[tuple[dict[str, str], dict[str, str]]]]
"""Labels and annotations of what fires, by its name and its second."""


def answers(command: Sequence[str | Path]) -> Answers:
    """Run a test that expects no alert by promtool or by vmalert-tool, and give what fires instead."""
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    given: Answers = {}
    for name, second, said in _ASKED.findall(ran.stdout + ran.stderr):
        pairs = zip(_LABELS.findall(said), _GOT.findall(said), strict=True)
        told = [(_unquoted(labels), _unquoted(texts)) for labels, texts in pairs]
        given[name, sum(int(count) * _UNITS[unit] for count, unit in _DURATION.findall(second))] = told
    return given


def _unquoted(pairs: str) -> dict[str, str]:
    return {name: json.loads(f'"{value}"') for name, value in _ANNOTATION.findall(pairs)}


def shown(annotations: Mapping[str, str]) -> str:
    """Give what a person reads of the annotations of an alert."""
    return " ".join(annotations[key] for key in _SHOWN if key in annotations)


def _text(given: Answers, wanted: Wanted) -> str:
    for labels, said in given.get((wanted.alert, wanted.second), ()):
        if labels.items() >= wanted.labels.items():
            return shown(said)
    raise AssertionError(f"{wanted} does not fire: {given}")
