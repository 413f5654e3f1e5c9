"""Plays of many clusters behind one isrwatch, and of a second Watchdog: how many messages does one trouble send?

Each of 40 clusters is healthy for a minute. Then, of the programs that all of them share:

- ``dead job``: the job is killed, and stays away;
- ``dead exporter``: the exporter is killed, and stays away;
- ``lost bus``: the job runs, and cannot read what collectors send;
- ``restarted job``: the job is away for four minutes, as long as an upgrade of it takes.

By the judge's own rule (``tests/judge/harm.py``) somebody must be woken for the first three, within twenty minutes, and
once, however many clusters they hide; for the last nobody may be.

- ``second Watchdog``: another rule of an Alertmanager always fires, too, and is called Watchdog as that of
  kube-prometheus is. When our Prometheus dies, the messages to the receiver of heartbeats must end.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from enum import Enum
from pathlib import Path
from typing import Final, NamedTuple

from exporters.backtest.evaluation import ScrapedSeries, firings
from exporters.backtest.rule_files import RuleFile
from streaming.contracts.identifiers import BrokerId, ClusterId, Micros
from streaming.contracts.observations import Observation
from streaming.contracts.state import SourceState
from streaming.sources.simulated.scenario import Scenario, TopicPlan
from tests.judge.alert_results import TICK, opened
from tests.judge.alerts import RULES, SCRAPE_SECONDS, EveryRule, always_firing, fired_in
from tests.judge.first_message import without_texts
from tests.judge.harm import BLIND_WITHIN
from tests.judge.notifications import Notification, messages
from tests.judge.play import BATCH_SECONDS, SECOND, START, JobOfPlay, source_of
from tests.judge.severity import CRITICAL, WARNING
from tests.plugins.exposed_play import ExposedPlay

CLUSTERS: Final = 40
HEALTHY_SECONDS: Final = 60
PLAYED_SECONDS: Final = 1_560
_AWAY_SECONDS: Final = 240
_QUIET_SCRAPES: Final = 8
_NEVER_MOVES: Final = "kafka_replication_broker_isr_departures_total{"
"""Nobody leaves an ISR here, and of so many clusters these are more samples than promtool holds."""
_OURS_UNTIL: Final = 900.0
_THEIRS_UNTIL: Final = 2_700.0
_HEARTBEAT: Final = "heartbeat"
_LONGEST_REPEAT: Final = 420.0
"""The repeat of heartbeats, an interval of the group, and the end of an alert that is not sent any more."""


class Shared(NamedTuple):
    """What was sent when a program failed that all clusters share; ``woken``: after so many seconds, None: never."""

    what: str
    critical: int
    warnings: int
    messages: int
    woken: float | None
    is_right: bool


class _Fleet:
    """Many healthy clusters that one job follows, as one exporter shows them."""

    def __init__(self, names: frozenset[str], clusters: Sequence[str]) -> None:
        topic = TopicPlan(name="orders", partitions=1, replication_factor=3, min_insync_replicas=2)
        scenario = Scenario(name="fleet", brokers=tuple(map(BrokerId, (1, 2, 3))), duration=86_400.0, topics=(topic,))
        self._source, self._clusters = source_of(scenario, 1), clusters
        self._job, self._exposed = JobOfPlay(), ExposedPlay(names)
        self._applied: tuple[SourceState, ...] = ()

    def work(self, second: int) -> None:
        """Let the job apply everything that happened until a second."""
        seen = list(self._source.poll(Micros(START + second * SECOND)))
        of_all = [self._of(name, each) for name in self._clusters for each in seen]
        _, batch = self._job.batch(Micros(START + second * SECOND), of_all)
        self._exposed.commit(batch)
        self._exposed.sample(batch.now, batch.samples, batch.sources)
        self._applied = batch.sources

    def wait(self, second: int) -> None:
        """Let the job report that it cannot read the bus."""
        self._exposed.sample(START + second * SECOND, (), self._applied, is_query_up=False)

    def _of(self, name: str, observed: Observation) -> Observation:
        return replace(observed, cluster_id=ClusterId(f"id-of-{name}"), cluster=name, source="metadata_log:one")

    def scrape(self, second: int) -> str:
        lines = self._exposed.scrape(START + second * SECOND).splitlines(keepends=True)
        return "".join(line for line in lines if not line.startswith(_NEVER_MOVES))


def shared_played(clusters: int = CLUSTERS, seconds: int = PLAYED_SECONDS) -> Iterator[Shared]:
    """Play all of them, and count what was sent."""
    back = HEALTHY_SECONDS + _AWAY_SECONDS
    for what in (_Failing("dead job", _Program.JOB), _Failing("dead exporter", _Program.EXPORTER),
                 _Failing("lost bus", _Program.BUS), _Failing("restarted job", _Program.JOB, back)):  # fmt: skip
        yield _sent(what, clusters, seconds if what.must_wake else back + 600)


class _Program(Enum):
    """What all clusters share."""

    JOB, EXPORTER, BUS = range(3)


class _Failing(NamedTuple):
    """What fails, and until when."""

    what: str
    program: _Program
    until: float = math.inf

    @property
    def must_wake(self) -> bool:
        return math.isinf(self.until)

    def is_up(self, program: _Program, second: int) -> bool:
        return program is not self.program or not HEALTHY_SECONDS < second < self.until


def _sent(failing: _Failing, count: int, seconds: int) -> Shared:
    clusters = [f"cluster-{number:02}" for number in range(count)]
    with tempfile.TemporaryDirectory(prefix="isrwatch-judge-") as name:
        folder = Path(name)
        rules = RuleFile.read(RULES)
        judgement, series = EveryRule([rules]), ScrapedSeries()
        fleet = _Fleet(judgement.metrics, clusters)
        for second in range(BATCH_SECONDS, seconds, SCRAPE_SECONDS):
            job, exporter, bus = (failing.is_up(each, second) for each in _Program)
            if job and exporter:  # nobody sees what it does behind a dead exporter
                fleet.work(second) if bus else fleet.wait(second)
            text = fleet.scrape(second) if exporter else ""
            text += f'up{{job="isrwatch-job",instance="one"}} {int(job)}\n'
            text += f'up{{job="isrwatch-exporter",instance="one"}} {int(exporter)}\n'
            for _ in range(1 if series.scrapes else _QUIET_SCRAPES + 1):
                series.add(text)
        begin, step = START + (BATCH_SECONDS - _QUIET_SCRAPES * SCRAPE_SECONDS) * SECOND, SCRAPE_SECONDS * SECOND
        times = range(begin, begin + series.scrapes * step, step)
        found = firings([without_texts(rules)], judgement, series, times, folder)
        fired = [fired_in(each) for each in found if each.alert not in always_firing(rules)]
        (folder / "alertmanager").mkdir()
        told = [message for message, _ in messages(fired, folder / "alertmanager")]
    return _counted(failing.what, told, must_wake=failing.must_wake)


def _counted(what: str, told: Sequence[Notification], *, must_wake: bool) -> Shared:
    critical, warnings = opened(told, CRITICAL), opened(told, WARNING)
    woken = critical[0].second - HEALTHY_SECONDS if critical else None
    is_in_time = woken is not None and woken <= BLIND_WITHIN + TICK
    is_right = len(critical) == 1 and is_in_time if must_wake else not critical
    return Shared(what, len(critical), len(warnings), _different(told), woken, is_right)


def _different(told: Sequence[Notification]) -> int:
    """Count messages that say something else than the one before of their group: what comes again had been lost."""
    last, count = dict[str, tuple[str, ...]](), 0
    for each in told:
        if each.receiver in {CRITICAL, WARNING} and each.firing != last.get(each.group, ()):
            count += bool(each.firing)
            last[each.group] = each.firing
    return count


def heartbeats_after_our_death(folder: Path) -> int:
    """Count the messages of heartbeats that still come when our Prometheus is dead, and another Watchdog fires."""
    rules = RuleFile.read(RULES)
    ours = [rule for rule in rules.rules() if rule.get("alert") in always_firing(rules)]
    fired = [
        {"alert": rule["alert"], "labels": dict(rule["labels"]), "began": 0.0, "last": _OURS_UNTIL} for rule in ours
    ]
    theirs = {"alert": "Watchdog", "labels": {"severity": "none"}, "began": 0.0, "last": _THEIRS_UNTIL}
    told = [message for message, _ in messages([*fired, theirs], folder) if message.receiver == _HEARTBEAT]
    assert any(each.second <= _OURS_UNTIL for each in told), "no heartbeat ever came"
    return sum(each.second > _OURS_UNTIL + _LONGEST_REPEAT and bool(each.firing) for each in told)


def fleet_rendered() -> Iterator[str]:
    """Play all, and write what was sent as a table."""
    yield f"### One trouble of {CLUSTERS} clusters behind one job and one exporter"
    yield ""
    yield "| what | critical | warnings | messages in all | woken after, seconds | right |"
    yield "|---|---:|---:|---:|---:|---|"
    for each in shared_played():
        woken = "never" if each.woken is None else f"{each.woken:.0f}"
        cells = (each.what, each.critical, each.warnings, each.messages, woken, "yes" if each.is_right else "**no**")
        yield f"| {' | '.join(map(str, cells))} |"
    with tempfile.TemporaryDirectory(prefix="isrwatch-judge-") as folder:
        kept = heartbeats_after_our_death(Path(folder))
    yield ""
    right = f"**no**: {kept} heartbeats came without us" if kept else "yes"
    yield f"When our Prometheus is dead and another rule called Watchdog fires, heartbeats end: {right}."
