"""Which alerts a play fires under the committed rules, and whether somebody had to be woken: by the model's states.

A play *must* page if partitions were unavailable (``tests/judge/unavailable.py``) for longer than the page waits, or a
leader was elected uncleanly. It *must not* if no fault did harm, or if what it did was over well before the page would
fire. In between it *may*: a few seconds decide, or repeated short troubles, or a broker that is lost for minutes, or
one was stopped for minutes that led nothing: in the metadata log that is what a crash is, too.
"""

from __future__ import annotations

import re
import tempfile
import time
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from exporters.backtest.evaluation import Firing, firings
from exporters.backtest.rule_files import Judgement, RuleFile
from exporters.backtest.series import ScrapedSeries
from tests.judge.expected import ExpectedIncident, expectations
from tests.judge.play import BATCH_SECONDS, SECOND, START, Batch, Play, played
from tests.judge.unavailable import unavailable, unclean_elections
from tests.plugins.exposed_play import ExposedPlay

RULES: Final = Path(__file__).parents[2] / "dashboards" / "generated" / "alerts.yml"
SCRAPE_SECONDS: Final = 15
QUIET_SCRAPES: Final = 40
"""Before the play: a monitor has been there for a while."""
PAGES_AFTER: Final = 60.0
"""``for`` of the pages about partitions that are unavailable."""
MARGIN: Final = 2.0 * SCRAPE_SECONDS
"""A scrape and an evaluation: by as much what is seen may be shorter or longer than what was."""
LOST_AFTER: Final = 300.0
"""``for`` of the page about a lost broker."""
FLAPPING_SECONDS: Final = 90.0
MUST, MAY, MUST_NOT = "must", "may", "must not"
_INCIDENT: Final = "kafka_replication_incident_opened_timestamp_seconds"
_LABEL: Final = re.compile(r'(\w+)="([^"]*)"')

Result = dict[str, Any]


class EveryRule(Judgement):
    """All rules are evaluated: what has no past in the tables is absent, or as it is in a cluster without samples."""

    def _why_not(self, _: Mapping[str, Any]) -> str:
        """Leave none out."""
        return ""


class OpenIncident(NamedTuple):
    """What a page can say of an open incident: its text is made of this series."""

    kind: str
    severity: str
    suspects: frozenset[int]


class Scrapes:
    """Scrapes a play every 15 s: the series, and the incidents that were open at each scrape."""

    def __init__(self, names: frozenset[str]) -> None:
        self.series = ScrapedSeries()
        self.open: dict[int, list[OpenIncident]] = {}
        self._exposed = ExposedPlay(names)

    def __call__(self, batch: Batch) -> None:
        """Take over what a micro-batch commits, and scrape if it is time."""
        self._exposed.commit(*batch)
        second = (batch.now - START) // SECOND
        if (second - BATCH_SECONDS) % SCRAPE_SECONDS:
            return
        text = self._exposed.scrape(batch.now)
        for _ in range(1 if self.series.scrapes else QUIET_SCRAPES + 1):
            self.series.add(text)
        self.open[second] = [_incident(line) for line in text.splitlines() if line.startswith(_INCIDENT + "{")]

    def times(self) -> range:
        """Give the times of the scrapes, UTC microseconds."""
        begin = START + (BATCH_SECONDS - QUIET_SCRAPES * SCRAPE_SECONDS) * SECOND
        step = SCRAPE_SECONDS * SECOND
        return range(begin, begin + self.series.scrapes * step, step)


def _incident(line: str) -> OpenIncident:
    labels = dict(_LABEL.findall(line))
    suspects = frozenset(int(each) for each in labels["suspects"].split(",") if each)
    return OpenIncident(labels["class"], labels["severity"], suspects)


def alerted(seed: int, kinds: tuple[str, ...] = ()) -> Result:
    """Play a seed and evaluate the rules; a play that fails is a result, too."""
    try:
        began = time.process_time()
        return _alerted(seed, kinds) | {"cpu": round(time.process_time() - began, 1)}
    except Exception:  # noqa: BLE001 - one play must not end the others, and its error is shown
        return {"seed": seed, "failed": traceback.format_exc()}


def _alerted(seed: int, kinds: tuple[str, ...]) -> Result:
    rules = RuleFile.read(RULES)
    judgement = EveryRule([rules])
    scrapes = Scrapes(judgement.metrics)
    play = played(seed, kinds, scrapes)
    with tempfile.TemporaryDirectory(prefix="isrwatch-judge-") as folder:
        fired = firings([rules], judgement, scrapes.series, scrapes.times(), Path(folder))
    right, effects = expectations(play)
    harmful = [each for each in right[0] if each.harm]
    return {
        "seed": seed,
        "preset": play.preset,
        "is_polled": play.is_polled,
        "faults": [f"{one.kind}: {one.what}" for one in play.troubles],
        "kinds": [one.kind for one in play.troubles],
        "harm": sorted({harm for effect in effects.of for harm in effect.harm}),
        "call": call_of(play, [effect.harm for effect in effects.of], right[0]),
        "due": due(play),
        "unavailable": [[round(span.begin, 1), round(span.end, 1)] for span in unavailable(play)],
        "firings": [_fired(each) for each in fired if each.alert != "Watchdog"],
        "blamed": _is_blamed_rightly(fired, harmful, scrapes.open, unclean_elections(play)),
        "seconds": play.seconds,
    }


def call_of(play: Play, harm: list[set[str]], expected: Sequence[ExpectedIncident] = ()) -> str:
    """Decide whether somebody must, may or must not be woken.

    Args:
        play: what was played.
        harm: that each fault did.
        expected: incidents; of a broker that led nothing no record proves that it was stopped cleanly.
    """
    spans = unavailable(play)
    if unclean_elections(play) or any(span.seconds >= PAGES_AFTER + MARGIN for span in spans):
        return MUST
    is_long = any(span.seconds > PAGES_AFTER - MARGIN for span in spans)
    is_repeated = len(spans) > 1 and sum(span.seconds for span in spans) > FLAPPING_SECONDS - MARGIN
    last = max((trouble.end for trouble in play.troubles), default=0.0)
    is_lasting = any(harm) and min(last, play.seconds) - play.begin > LOST_AFTER - MARGIN
    is_unproven = any(each.unproven and each.end - each.first > LOST_AFTER - MARGIN for each in expected)
    is_lasting |= is_unproven or (any(harm) and play.seconds > LOST_AFTER)
    return MAY if is_long or is_repeated or is_lasting else MUST_NOT


def due(play: Play) -> float | None:
    """Give the second by which a page must fire; None if none must."""
    lasting = (span.begin + PAGES_AFTER for span in unavailable(play) if span.seconds >= PAGES_AFTER + MARGIN)
    moments = [*lasting, *unclean_elections(play)]
    return min(moments) + MARGIN + BATCH_SECONDS if moments else None


def _fired(firing: Firing) -> Result:
    labels = dict(firing.labels)
    return {
        "alert": firing.alert,
        "labels": labels,
        "began": (firing.began_at - START) / SECOND,
        "last": (firing.last_at - START) / SECOND,
    }


def _is_blamed_rightly(
    fired: list[Firing],
    harmful: list[ExpectedIncident],
    incidents: Mapping[int, list[OpenIncident]],
    elections: list[float],
) -> bool | None:
    """Return whether the first page could name an incident of a right class and with a right broker; None: no page.

    What ends in an unclean election is the loss of brokers until then, and any of those that are lost by then is right.
    """
    pages = [each for each in fired if ("severity", "page") in each.labels]
    if not pages:
        return None
    at = (pages[0].began_at - START) // SECOND
    is_before = not elections or at < min(elections)
    return any(
        (each.kind in right.kinds or (is_before and each.kind == "broker_loss" and "unclean_election" in right.kinds))
        and (not right.must or bool(each.suspects & right.may))
        for each in incidents.get(at, ())
        for right in harmful
    )
