"""``make judge ARGS=--quiet``: thirty days of a healthy cluster, of which nothing may fire that was not planted.

One cluster of the model lives through all of them: its brokers, its log, its topics; and so do the folds of the job and
the snapshot of the exporter. What happens is ``tests/judge/quiet_days.py``'s. Days are pieces: after each one all of it
is written to a file, so that a run that was stopped goes on with the next.

Rules are evaluated by promtool, a piece at a time, in a thread beside the next piece. Each piece begins with the last
``LEAD`` seconds of the one before, so that what fires across midnight goes on, and windows of hours are full. Rules
that look back further, or wait for longer, see less than they would: of these a piece can tell only that they are
silent for a day. Every pack is loaded.

Every alert that fires must have begun while a planted trouble lasted, or within ``AFTER`` seconds of its end; one that
is critical is wrong even then: no trouble that is planted harms clients. Groups live beside the model, at its brokers
(``tests/judge/groups``): alerts about them must have a reason in their truth, and what the rule there demands must be
told once.
"""

from __future__ import annotations

import copyreg
import json
import pickle
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from copy import copy
from dataclasses import replace
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple

import yaml
from pyspark import cloudpickle

from dashboards.alerts import rule_file
from dashboards.render import as_yaml
from exporters.backtest.evaluation import Firing, ScrapedSeries, firings
from exporters.backtest.rule_files import RuleFile
from streaming.alert_settings import AlertsSettings
from streaming.contracts.alerts import OPT_IN
from streaming.contracts.identifiers import BrokerId, Micros
from streaming.contracts.observations import Observation
from streaming.contracts.samples import BrokerSpeedObserved
from streaming.model.constants import NEWEST, PRESETS
from streaming.model.controller import registry
from streaming.model.controller.registry import Timeline
from streaming.settings import Settings
from streaming.sources.simulated.scenario import Scenario, TopicPlan
from tests.judge.alerts import RULES, EveryRule, always_firing
from tests.judge.first_message import without_texts
from tests.judge.groups.rule import Episode
from tests.judge.groups.verdicts import Tellings, belongs_to_group, is_of_group, judged_stories, stories_rendered
from tests.judge.groups.world import World
from tests.judge.play import SECOND, START, JobOfPlay, source_of
from tests.judge.quiet_days import DAY, HOUR, TOPICS, Day, Planted, nothing_announced
from tests.judge.severity import CRITICAL, SEVERITIES, severity
from tests.plugins.exposed_play import ExposedPlay

DAYS: Final = 30
SCRAPE_SECONDS: Final = 30
SAMPLE_SECONDS: Final = 60
LEAD: Final = 6 * 3_600
AFTER: Final = 3_600.0
_OFFSETS: Final = "__consumer_offsets"
_BROKERS: Final = tuple(map(BrokerId, (1, 2, 3, 4)))

Result = dict[str, Any]


class Life:
    """A cluster, and what isrwatch holds of it; can be written to a file between two pieces."""

    def __init__(self, seed: str, names: frozenset[str]) -> None:
        self.seed, self.piece = seed, 0
        constants = replace(
            PRESETS[NEWEST],
            controllers=3,
            # Nobody is in a hurry: less is asked where nothing happens, which is what most of a day is.
            replica_fetch_wait_max_ms=10_000,
            fetch_max_wait_ms=10_000,
            metadata_max_idle_interval_ms=5_000,
            group_heartbeat_interval_ms=10_000,
        )
        topics = tuple(
            TopicPlan(name=name, partitions=12, replication_factor=3, min_insync_replicas=2, records_per_second=rate)
            for name, rate in zip(TOPICS, (0.005, 0.0), strict=True)
        )
        scenario = Scenario(name="quiet", brokers=_BROKERS, duration=1e9, constants=constants, topics=topics)
        self.source = source_of(scenario, int.from_bytes(Random(f"{seed} quiet").randbytes(4), "big"))
        self.job, self.exposed = JobOfPlay(), ExposedPlay(names)
        self.world, self.told = World(seed), Tellings()
        self.scrapes: list[str] = []
        self.planted: list[Planted] = []
        self._samples: list[Observation] = []
        # Before the first group comes, as an operator would have made it: Kafka's own minimum would be 1.
        self.source.simulation.create(
            replace(topics[0], name=_OFFSETS, records_per_second=0.0, cleanup_policy="compact")
        )

    def live(self, seconds: int = DAY) -> Day:
        """Live through a piece; ``scrapes`` are those of the lead and of the piece then."""
        begin = self.piece * seconds
        day = Day(Random(f"{self.seed} quiet {self.piece}"), self.source, begin, max(1, seconds // HOUR))
        self.world.plan(begin, max(1, seconds // HOUR))
        self.planted += day.planted
        self.scrapes = self.scrapes[-LEAD // SCRAPE_SECONDS :]
        leases = sorted(day.leases, key=lambda lease: lease[0])
        for second in range(begin + SCRAPE_SECONDS, begin + seconds + SCRAPE_SECONDS, SCRAPE_SECONDS):
            now = Micros(START + second * SECOND)
            due = [lease for at, lease in leases if second - SCRAPE_SECONDS < at <= second]
            _, batch = self.job.batch(now, [*due, nothing_announced(second), *self.source.poll(now)])
            self.exposed.commit(batch)
            self._samples += batch.samples
            groups = self.world.live(second - SCRAPE_SECONDS, second, self.source.simulation)
            samples = []
            if second % SAMPLE_SECONDS == 0:
                samples = _newest(self._samples)
                self._samples.clear()
            self.exposed.sample(now, [*samples, *groups], batch.sources)
            self.told.take(self.exposed.sampled_conditions())
            self.scrapes.append(self.exposed.scrape(now))
        self.piece += 1
        return day


def _newest(samples: Sequence[Observation]) -> list[Observation]:
    """Keep of each kind the last round before a scrape; of response times all, as each is remembered."""
    last: dict[type[Observation], int] = {}
    for each in samples:
        last[type(each)] = max(each.collected_at, last.get(type(each), 0))
    return [each for each in samples if each.collected_at == last[type(each)] or _is_remembered(each)]


def _is_remembered(sample: Observation) -> bool:
    return getattr(sample, "sample", type(sample)) is BrokerSpeedObserved


@cache
def quiet_rules() -> RuleFile:
    """Give the rules of every pack."""
    document = yaml.safe_load(as_yaml(rule_file(Settings(alerts=AlertsSettings(packs=tuple(OPT_IN))))))
    return RuleFile(RULES, document["groups"])


def evaluated(scrapes: Sequence[str], end: int, piece: int) -> list[Firing]:
    """Give what fires in a piece that ends at a second, of which these are the scrapes, with those before it."""
    rules = quiet_rules()
    series = ScrapedSeries()
    for text in scrapes:
        series.add(text)
    step = SCRAPE_SECONDS * SECOND
    first = START + end * SECOND - (len(scrapes) - 1) * step
    times = range(first, first + len(scrapes) * step, step)
    with tempfile.TemporaryDirectory(prefix="isrwatch-judge-") as folder:
        fired = firings([without_texts(rules)], EveryRule([rules]), series, times, Path(folder))
    begin = START + (end - piece) * SECOND
    return [each for each in fired if each.last_at > begin and each.alert not in always_firing(rules)]


def belongs(fired: Firing, planted: Iterable[Planted]) -> str:
    """Give the kind of the trouble that an alert belongs to; "" if to none."""
    began = (fired.began_at - START) / SECOND
    return next((one.kind for one in planted if one.begin <= began <= one.end + AFTER), "")


class Lived(NamedTuple):
    """A day that is over, as it is judged.

    Attributes:
        piece: its number.
        episodes: what was wrong with groups.
        more: of its result.
    """

    piece: int
    planted: tuple[Planted, ...]
    scrapes: tuple[str, ...]
    episodes: Sequence[Episode]
    told: Tellings
    more: Result


def _lived(life: Life) -> Lived:
    """Live through a day."""
    began = time.process_time()
    day = life.live()
    end = life.piece * DAY
    more = {
        "planted": [each._asdict() for each in day.planted],
        "done": day.done,
        "groups_planted": [{"group": group, **each._asdict()} for group, each in life.world.plans.planted],
        "groups_done": [*life.world.plans.done],
        "cpu": round(time.process_time() - began, 1),
    }
    told = copy(life.told)
    life.told.forget(end - LEAD)
    return Lived(life.piece - 1, tuple(life.planted), tuple(life.scrapes), tuple(life.world.episodes(end)), told, more)


def _judged(lived: Lived) -> Result:
    """Evaluate the rules over a day."""
    end = (lived.piece + 1) * DAY
    fired = [
        {
            "alert": each.alert,
            "severity": severity(dict(each.labels)["severity"]),
            "labels": dict(each.labels),
            "began": (each.began_at - START) // SECOND,
            "last": (each.last_at - START) // SECOND,
            "belongs": "" if is_of_group(each.alert) else belongs(each, lived.planted),
        }
        for each in evaluated(lived.scrapes, end, DAY)
    ]
    for each in fired:
        if is_of_group(each["alert"]):
            each["belongs"] = belongs_to_group(each, lived.episodes)
    judged = judged_stories(lived.episodes, fired, lived.told, end - DAY, end)
    return {"piece": lived.piece, **lived.more, "firings": fired, "stories": list(judged)}


def lived(folder: Path, name: str, seed: str, days: int, *, resume: bool) -> list[Result]:
    """Live through so many days, or through the rest of them; print what fires of each, and the seed."""
    folder.mkdir(parents=True, exist_ok=True)
    results_file = folder / f"{name}.jsonl"
    results = _read(results_file) if resume else []
    life = _life(folder, name, seed, len(results))
    if not life.piece:
        results = []
    results_file.write_text("".join(json.dumps(each) + "\n" for each in results), encoding="utf-8")
    print(f"seed {seed}, {days - len(results)} of {days} days to go; {results_file}", file=sys.stderr, flush=True)
    judging: list[Future[None]] = []
    with ThreadPoolExecutor(1) as pool:
        while life.piece < days:
            day = _lived(life)
            written_life(folder / f"{name}-{life.piece}.state", life)
            judging.append(pool.submit(_judge, day, results, results_file))
            for each in judging[:-1]:
                each.result()
    for each in judging:
        each.result()
    return results


def _judge(day: Lived, results: list[Result], file: Path) -> None:
    """Judge a day, and write its result at once: who stops the run loses a day that was not lived to its end."""
    _take(_judged(day), results, file)


def _take(result: Result, results: list[Result], file: Path) -> None:
    results.append(result)
    with file.open("a", encoding="utf-8") as opened:
        opened.write(json.dumps(result) + "\n")
    (file.parent / f"{file.stem}-{result['piece']}.state").unlink(missing_ok=True)
    print(f"{len(results)} days, {sum(map(errors, results))} with an error", file=sys.stderr, flush=True)


def errors(result: Result) -> bool:
    """Return whether something fired on a day that must not."""
    return any(not each["belongs"] or each["severity"] == CRITICAL for each in result["firings"])


def _life(folder: Path, name: str, seed: str, piece: int) -> Life:
    """Go on with the cluster as it stood before a piece; if that is not known any more, with a new one."""
    state = folder / f"{name}-{piece}.state"
    if piece and state.exists():
        return read_life(state)
    return Life(seed, EveryRule([quiet_rules()]).metrics)


_NO_VALUE: Final = next(each for each in vars(registry).values() if type(each) is object)
"""What a journal of the model says of a key that had no value: told by its identity."""


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc] - untyped
    """Writes a cluster of the model, whose agenda is made of functions."""

    def persistent_id(self, written: object) -> str | None:
        """Write what is told by its identity by a name."""
        return "absent" if written is _NO_VALUE else None


class _Unpickler(pickle.Unpickler):
    """Reads what :class:`_Pickler` wrote."""

    def persistent_load(self, _: object) -> object:
        """Give what has a name."""
        return _NO_VALUE


def _reduced(timeline: Timeline[Any, Any]) -> tuple[Any, ...]:
    state = dict(timeline), timeline.__dict__
    return copyreg.__newobj__, (Timeline,), state, None, None, _restored  # type: ignore[attr-defined] - of pickle


def _restored(timeline: Timeline[Any, Any], state: tuple[dict[Any, Any], dict[str, Any]]) -> None:
    """Put the values back without its journal, which may not be there yet."""
    dict.update(timeline, state[0])
    timeline.__dict__.update(state[1])


copyreg.pickle(Timeline, _reduced)


def written_life(state: Path, life: Life) -> None:
    """Write a cluster as it stands between two pieces."""
    unfinished = state.with_suffix(".new")
    with unfinished.open("wb") as file:
        _Pickler(file).dump(life)
    unfinished.replace(state)


def read_life(state: Path) -> Life:
    """Read a cluster as it stood between two pieces."""
    with state.open("rb") as file:
        life: Life = _Unpickler(file).load()
        return life


def _read(file: Path) -> list[Result]:
    """Read the pieces that follow each other; the last line may have been cut off."""
    results: list[Result] = []
    for line in file.read_text(encoding="utf-8").splitlines() if file.exists() else ():
        try:
            results.append(json.loads(line))
        except ValueError:
            break
    return results


def quiet_rendered(results: Sequence[Result], heading: str) -> str:
    """Write what fired as tables, as Markdown."""
    fired = [each for result in results for each in result["firings"]]
    wrong = [each for each in fired if not each["belongs"] or each["severity"] == CRITICAL]
    done = [what for result in results for what in result["done"]]
    planted = [each["kind"] for result in results for each in result["planted"]]
    lines = [heading, "| what | aim | found |", "|---|---|---:|"]
    lines.append(
        f"| alerts that belong to nothing that was planted | 0 | {sum(not each['belongs'] for each in fired)} |"
    )
    lines.append(f"| critical ones | 0 | {sum(each['severity'] == CRITICAL for each in fired)} |")
    lines += [f"| planted: {kind} | | {planted.count(kind)} |" for kind in sorted(set(planted))]
    lines += [f"| done: {what} | | {done.count(what)} |" for what in sorted(set(done) - set(planted))]
    lines += ["", "| alert | severity | of what was planted | of nothing |", "|---|---|---:|---:|"]
    for of in SEVERITIES:
        for name in sorted({each["alert"] for each in fired if each["severity"] == of}):
            theirs = [bool(each["belongs"]) for each in fired if each["alert"] == name]
            lines.append(f"| {name} | {of} | {sum(theirs) or ''} | {len(theirs) - sum(theirs) or ''} |")
    lines += stories_rendered(results)
    if wrong:
        lines += ["", "| day | second | alert | labels | lasted, seconds |", "|---:|---:|---|---|---:|"]
    for each in wrong[:50]:
        day, second = divmod(each["began"], DAY)
        labels = ", ".join(f"{name}={value}" for name, value in each["labels"].items() if name != "cluster")
        lines.append(f"| {day} | {second} | {each['alert']} | {labels} | {each['last'] - each['began']} |")
    return "\n".join([*lines, ""])


def quiet_heading(days: int, commit: str, date: str, seed: str) -> str:
    return f"""## Quiet days

{days} day{"s" * (days != 1)} of a healthy cluster, of commit `{commit}` of {date}, drawn from `{seed}`. One cluster of
the model with four brokers and three controllers lives through all of them. Every pack is loaded. An alert must have
begun while a planted trouble lasted or within {AFTER / 60:.0f} minutes of its end, and none may be critical. Groups of
every kind, at the brokers of the model, have troubles of their own: an alert about one must have a reason in the truth,
by a rule that says what must be reported, too. Scrapes and evaluations are {SCRAPE_SECONDS} seconds apart. Rules that
wait for longer than a day, or look back further, are judged by what a day and the {LEAD // 3_600} hours before it show.
"""
