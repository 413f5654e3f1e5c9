"""Which alerts a play fires under the committed rules, what they say, and what the judge's own rule says of it.

A play is folded as by the job, its samples are taken over as the job keeps them, the exporter renders both at scrapes
that are 15 seconds apart, and promtool evaluates every rule. Whether somebody had to be woken is said by
``tests/judge/harm.py``.

One play in eight is one of ``tests/judge/false_wakers.py``.
"""

from __future__ import annotations

import os
import re
import tempfile
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any, Final

from exporters.backtest.evaluation import Firing, ScrapedSeries, firings
from exporters.backtest.rule_files import Judgement, RuleFile
from exporters.metrics.catalogue import CATALOGUE
from streaming.contracts.events import Cause
from streaming.contracts.observations import Observation
from tests.judge import false_wakers
from tests.judge.constancy import Constancy, fired_again
from tests.judge.expected import expectations
from tests.judge.first_message import Wanted, missing_at, read, texts, without_texts
from tests.judge.harm import MAY, MUST, REDUNDANCY_LOST, WAKE_WITHIN, Judged, Span, judged_harm
from tests.judge.play import BATCH_SECONDS, SECOND, START, Batch, Play, played
from tests.judge.polls.strata import polled
from tests.judge.polls.verdicts import unclean_elections
from tests.judge.severity import CRITICAL, severity
from tests.judge.steps import Effect
from tests.judge.vmalert import VMALERT, both_engines
from tests.plugins.exposed_play import ExposedPlay

RULES: Final = Path(__file__).parents[2] / "dashboards" / "generated" / "alerts.yml"
SCRAPE_SECONDS: Final = 15
QUIET_SCRAPES: Final = 40
"""Before the play: a monitor has been there for a while."""
TAIL: Final = WAKE_WITHIN + 90.0
"""After the last act: harm that lasts is told, or is late."""
LONG_TAIL: Final = REDUNDANCY_LOST + TAIL
"""The same of lost redundancy, for one play in six."""
_LONG_SHARE: Final = 1 / 6
_WAKER_SHARE: Final = 1 / 8
_WAKER_WEIGHTS: Final = [2 if kind == "lost_broker" else 1 for kind in false_wakers.DRAWERS]
_RECORDS_AT_RISK: Final = frozenset({Cause.UNCLEAN_ELECTION, Cause.LAST_KNOWN_LEADER})
_HARMFUL: Final = frozenset({"refused", "leaderless", "unclean"})

Result = dict[str, Any]


class EveryRule(Judgement):
    """All rules are evaluated: what nothing here exposes is absent, as in a cluster without it."""

    def _why_not(self, _: Mapping[str, Any]) -> str:
        """Leave none out."""
        return ""


class Scrapes:
    """Scrapes a play every 15 s."""

    def __init__(self, names: frozenset[str]) -> None:
        self.series, self.constancy = ScrapedSeries(), Constancy()
        self._exposed = ExposedPlay(names)
        self._samples: list[Observation] = []

    def __call__(self, batch: Batch, more: str = "") -> None:
        """Take over what a micro-batch commits, and scrape if it is time; ``more``: lines of another program."""
        self._exposed.commit(batch)
        self._samples += batch.samples
        second = (batch.now - START) // SECOND
        if (second - BATCH_SECONDS) % SCRAPE_SECONDS:
            return
        self._exposed.sample(batch.now, self._samples, batch.sources)
        self._samples.clear()
        text = self._exposed.scrape(batch.now) + more
        for _ in range(1 if self.series.scrapes else QUIET_SCRAPES + 1):
            self.series.add(text)
        self.constancy.add(text)

    def times(self) -> range:
        """Give the times of the scrapes, UTC microseconds."""
        begin = START + (BATCH_SECONDS - QUIET_SCRAPES * SCRAPE_SECONDS) * SECOND
        step = SCRAPE_SECONDS * SECOND
        return range(begin, begin + self.series.scrapes * step, step)


def alerted(seed: int, kinds: tuple[str, ...] = (), *, with_vmalert: bool = False, is_polled: bool = False) -> Result:
    """Play a seed and evaluate the rules, by vmalert, too, if asked; a play that fails is a result, too.

    ``is_polled``: the play is one of those of polled clusters.
    """
    try:
        began = sum(os.times()[:4])  # promtool's, too
        return _alerted(seed, kinds, with_vmalert=with_vmalert, is_polled=is_polled) | {
            "cpu": round(sum(os.times()[:4]) - began, 1)
        }
    except Exception:  # noqa: BLE001 - one play must not end the others, and its error is shown
        return {"seed": seed, "failed": traceback.format_exc()}


def play_of(seed: int, kinds: tuple[str, ...], scrapes: Scrapes, *, is_polled: bool = False) -> Play:
    """Play faults, or what woke somebody in vain, as the seed or the kinds say."""
    random = Random(f"{seed} alerts")
    if is_polled:
        return polled(seed, kinds, watch=scrapes, tail=LONG_TAIL if random.random() < _LONG_SHARE else TAIL)
    if not kinds and random.random() < _WAKER_SHARE:
        kinds = tuple(random.choices(list(false_wakers.DRAWERS), _WAKER_WEIGHTS))
    if kinds and kinds[0] in false_wakers.DRAWERS:
        return false_wakers.waker_played(seed, kinds[0], scrapes)
    return played(seed, kinds, scrapes, LONG_TAIL if random.random() < _LONG_SHARE else TAIL)


def _alerted(seed: int, kinds: tuple[str, ...], *, with_vmalert: bool, is_polled: bool) -> Result:
    rules = RuleFile.read(RULES)
    judgement = EveryRule([rules])
    scrapes = Scrapes(judgement.metrics | in_texts(rules))
    play = play_of(seed, kinds, scrapes, is_polled=is_polled)
    right, effects = expectations(play)
    with tempfile.TemporaryDirectory(prefix="isrwatch-judge-") as folder:
        fired = firings([without_texts(rules)], judgement, scrapes.series, scrapes.times(), Path(folder))
        shown = [fired_in(each) for each in fired if each.alert not in always_firing(rules)]
        _put_texts(shown, rules, scrapes.times()[0], Path(folder))
        compared = (
            {VMALERT: both_engines(Path(folder), rules, scrapes.times()[0], always_firing(rules))}
            if with_vmalert
            else {}
        )
    for one in shown:
        if "text" in one:
            one["right"] = list(
                read(one["text"], [each for each in right[0] if each.harm], missing_at(play, one["began"]))
            )
    return (
        {
            "seed": seed,
            "preset": play.preset,
            "is_polled": play.is_polled,
            "faults": [f"{one.kind}: {one.what}" for one in play.troubles],
            "kinds": [one.kind for one in play.troubles],
            "harm": sorted({harm for effect in effects.of for harm in effect.harm}),
            "firings": shown,
            "changed": [*scrapes.constancy.broken(), *fired_again(shown)],
            "seconds": play.seconds,
        }
        | judged_result(judged_harm(play), effects.of)
        | _as_seen(play)
        | compared
    )


def _as_seen(play: Play) -> Result:
    """Require no wake of a polled cluster for unclean elections that no poll could see; one is allowed."""
    judged = judged_harm(play)
    seen = {one["at"] for one in unclean_elections(play, (), _RECORDS_AT_RISK) if one["could_be_seen"]}
    unseen = tuple(at for at in judged.unclean if play.met is not None and round(at, 2) not in seen)
    if not unseen:
        return {}
    due = judged._replace(unclean=tuple(at for at in judged.unclean if at not in unseen)).due
    call = MUST if due is not None else MAY if judged.call == MUST else judged.call
    return {"due": due, "call": call, "unseen": len(unseen)}


def judged_result(judged: Judged, effects: Sequence[Effect]) -> Result:
    """Write the judge's own rule of a play as JSON."""
    return {
        "call": judged.call,
        "due": judged.due,
        "harms": [[each.kind, each.topic, *_rounded(each.span)] for each in judged.harm],
        "disputed": [[each.kind, each.topic, *_rounded(each.span)] for each in judged.disputed],
        "unclean": [round(at, 1) for at in judged.unclean],
        "wakes_allowed": max(1, sum(not _HARMFUL.isdisjoint(effect.harm) for effect in effects)),
        "lost": {str(broker): _rounded(span) for broker, span in judged.lost.items()},
    }


def _rounded(span: Span) -> list[float]:
    return [round(span.begin, 1), round(span.end, 1)]


def in_texts(rules: RuleFile) -> frozenset[str]:
    """Give the metrics that alerts ask for when they say what they say."""
    said = (str(text) for rule in rules.rules() for text in rule.get("annotations", {}).values())
    return frozenset(metric.name for metric in CATALOGUE) & frozenset(re.findall(r"\w+", " ".join(said)))


def always_firing(rules: RuleFile) -> frozenset[str]:
    """Give the alerts that say that alerting works."""
    return frozenset(str(rule["alert"]) for rule in rules.rules() if "alert" in rule and rule["expr"] == "vector(1)")


def _put_texts(shown: Sequence[Result], rules: RuleFile, first: int, folder: Path) -> None:
    """Add to what wakes somebody what it said when it began."""
    urgent = [each for each in shown if severity(each["labels"]["severity"]) == CRITICAL]
    begin = (first - START) // SECOND
    wanted = [Wanted(each["alert"], int(each["began"] - begin), each["labels"]) for each in urgent]
    for each, text in zip(urgent, texts(folder, rules, wanted), strict=True):
        each["text"] = text


def fired_in(firing: Firing) -> Result:
    """Write an alert that fired as JSON, in seconds of the play."""
    return {
        "alert": firing.alert,
        "labels": dict(firing.labels),
        "began": (firing.began_at - START) / SECOND,
        "last": (firing.last_at - START) / SECOND,
    }
