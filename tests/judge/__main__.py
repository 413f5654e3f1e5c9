"""``python -m tests.judge``: is what isrwatch says of incidents right? Plays that nobody has seen, against the model.

--plays N    so many plays (2,000; with --polled 660, and further ones until each class has 30 incidents)
--seed S     draws them from S, for development; else from the id of the commit that is checked out
--kinds A,B  these faults in every play: one, or two
--workers N  so many at once (one for each core)
--resume     goes on where the same command was stopped
--write      writes its section of docs/quality.md
--play S     plays the seed S alone, with -v its timeline, too
--polled     plays clusters without a readable metadata log, by fault
--interval S   reads their metadata each S seconds (5)
--bare         reads their metadata, and asks nothing else
--transcripts S  prints everything that was met in the play of the seed S
--compare S    plays both histories that the incidents of the seed S name, and compares their transcripts
--slow       plays slow brokers, and what only looks like one, instead
--alerts     judges whom the committed alerts wake, instead; with --polled of polled clusters alone, which is
             printed only
--vmalert    the same, and compares what vmalert makes of each play
--quiet      lives through 30 days of a healthy cluster, instead
--days N     so many of them

Results are appended to a file below build/judge/, named by commit and seed. A play costs about two seconds of a core.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

from docs.builder.quality import Section, write_section
from tests.judge.alert_results import alert_rendered, alerts_heading, alerts_sent, named_rendered, verdict_of
from tests.judge.alerts import Scrapes, alerted, play_of
from tests.judge.false_wakers import DRAWERS as WAKERS
from tests.judge.false_wakers import NAMED
from tests.judge.faults import DRAWERS
from tests.judge.fleet import fleet_rendered
from tests.judge.groups.verdicts import is_enough
from tests.judge.judging import judged, seeds
from tests.judge.play import played
from tests.judge.polls.command import judge_polled
from tests.judge.pool import CHECKOUT, Commit, all_played, commit
from tests.judge.quiet import DAYS, errors, lived, quiet_heading, quiet_rendered
from tests.judge.results import Result, rendered, result_of
from tests.judge.slow_results import slow_judged, slow_rendered
from tests.judge.timeline import timeline
from tests.judge.vmalert import VMALERT, vmalert_rendered

PLAYS: Final = 2_000


class Kind(NamedTuple):
    """What is judged of a play: the prefix of the file of results, the section, and how one play and all are judged."""

    prefix: str
    section: Section
    judged: Callable[..., Result]
    rendered: Callable[[list[Result], Commit, str | None], str]


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--plays", type=int)
    options.add_argument("--seed")
    options.add_argument("--kinds", default="", help=", ".join((*DRAWERS, *WAKERS)))
    options.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    options.add_argument("--resume", action="store_true")
    options.add_argument("--write", action="store_true")
    options.add_argument("--play", type=int)
    options.add_argument("--polled", action="store_true")
    options.add_argument("--interval", type=float, default=5.0)
    options.add_argument("--bare", action="store_true")
    options.add_argument("--transcripts", type=int)
    options.add_argument("--compare", type=int)
    options.add_argument("--slow", dest="kind", action="store_const", const="slow", default="incidents")
    options.add_argument("--alerts", dest="kind", action="store_const", const="alerts")
    options.add_argument("--vmalert", dest="kind", action="store_const", const="vmalert")
    options.add_argument("--quiet", dest="kind", action="store_const", const="quiet")
    options.add_argument("--days", type=int, default=DAYS)
    options.add_argument("-v", "--verbose", action="store_true")
    given = options.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # through every finally: no process stays behind
    kinds = tuple(filter(None, given.kinds.split(",")))
    if given.polled and given.kind == "incidents":
        return judge_polled(given, kinds)
    if given.play is not None:
        if given.kind in {"alerts", "vmalert"}:
            return _show_alerts(given.play, kinds, is_verbose=given.verbose, is_polled=given.polled)
        return _play_one(given.play, kinds, is_verbose=given.verbose)
    if given.kind == "quiet":
        return _quiet(given)
    of, kind = commit(), POLLED_ALERTS if given.polled else KINDS[given.kind]
    name = f"{kind.prefix}{of.name[:12]}-{given.seed or 'unseen'}{''.join(f'-{each}' for each in kinds)}.jsonl"
    path = CHECKOUT / "build" / "judge" / name
    wanted = list(seeds(given.seed or of.name, given.plays or PLAYS))
    results = all_played(path, wanted, partial(kind.judged, kinds=kinds), given)
    page = kind.rendered(results, of, given.seed)
    print(page)
    if given.write and kind is not POLLED_ALERTS:
        write_section(kind.section, page)
    failed = [result for result in results if "failed" in result]
    for result in failed[:3]:
        print(f"seed {result['seed']} failed:\n{result['failed']}", file=sys.stderr)
    return bool(failed)


def _quiet(given: argparse.Namespace) -> int:
    """Live through quiet days; what fires that nobody planted is an error, and what of groups is not told."""
    of = commit()
    seed = given.seed or of.name[:12]
    name = f"quiet-{of.name[:12]}{'-changed' * of.is_changed}-{given.seed or 'unseen'}"
    results = lived(CHECKOUT / "build" / "judge", name, seed, given.days, resume=given.resume)
    page = quiet_rendered(results, quiet_heading(len(results), of.name[:12], of.date, seed))
    print(page)
    if given.write:
        write_section(Section.QUIET, page)
    return any(map(errors, results)) or not is_enough(results)


def _page(results: list[Result], of: Commit, seed: str | None) -> str:
    played_ones = [result for result in results if "failed" not in result]
    heading = f"## Incidents, from the metadata log\n\n{_played(results, of, seed)} {_cost(results)}\n"
    return rendered(played_ones, heading)


def _slow_page(results: list[Result], of: Commit, seed: str | None) -> str:
    heading = f"## Slow brokers\n\n{_played(results, of, seed)} {_cost(results)}\n"
    return slow_rendered([result for result in results if "failed" not in result], heading)


def _alerts_page(results: list[Result], of: Commit, seed: str | None) -> str:
    played = [result for result in results if "failed" not in result]
    with_vmalert = any(VMALERT in result for result in played)
    heading = alerts_heading(f"{_played(results, of, seed)} {_cost(results)}")
    named = [alerted(seed, (kind,), with_vmalert=with_vmalert) for kind, seed in NAMED.items()]
    sent = alerts_sent([*played, *named])
    more = [*named_rendered(named, sent), "", *fleet_rendered()]
    if with_vmalert:
        more += ["", *vmalert_rendered([*played, *named], sent)]
    return alert_rendered(played, sent, heading, more)


def _played(results: list[Result], of: Commit, seed: str | None) -> str:
    changed = " with changes" if of.is_changed else ""
    drawn = f"seed {seed}" if seed else "drawn from the commit's id"
    count = sum("failed" not in result for result in results)
    today = f"{dt.datetime.now(dt.UTC):%Y-%m-%d}"
    return f"{count} plays of commit `{of.name[:12]}`{changed} of {of.date}, {drawn}; judged on {today}."


def _cost(results: list[Result]) -> str:
    cpu = [result["cpu"] for result in results if "failed" not in result]
    return f"{len(results) - len(cpu)} plays failed. {sum(cpu) / max(1, len(cpu)):.1f} s of a core each."


def _play_one(seed: int, kinds: tuple[str, ...], *, is_verbose: bool) -> int:
    began = time.process_time()
    play = played(seed, kinds)
    result = result_of(play, time.process_time() - began)
    if is_verbose:
        print("\n".join(timeline(play)))
    print(json.dumps({name: value for name, value in result.items() if name != "causes"}, indent=1))
    return bool(result["errors"])


def _show_alerts(seed: int, kinds: tuple[str, ...], *, is_verbose: bool, is_polled: bool) -> int:
    """Show what fires in one play, what is sent of it, and what is wrong with that."""
    scrapes = Scrapes(frozenset())
    if is_verbose:
        print("\n".join(timeline(play_of(seed, kinds, scrapes, is_polled=is_polled))))
    result = alerted(seed, kinds, is_polled=is_polled)
    print(json.dumps(result, indent=1))
    if "failed" in result:
        return 1
    (sent,) = alerts_sent([result]).values() or ([],)
    verdict = verdict_of(result, sent)
    print("\n".join([*map(str, sent), *verdict.complaints()]))
    return bool(list(verdict.complaints()))


POLLED_ALERTS: Final = Kind("alerts-polled-", Section.ALERTS, partial(alerted, is_polled=True), _alerts_page)
KINDS: Final = {
    "incidents": Kind("", Section.INCIDENTS, judged, _page),
    "slow": Kind("slow-", Section.SLOW, slow_judged, _slow_page),
    "alerts": Kind("alerts-", Section.ALERTS, alerted, _alerts_page),
    "vmalert": Kind("vmalert-", Section.ALERTS, partial(alerted, with_vmalert=True), _alerts_page),
}


if __name__ == "__main__":
    sys.exit(main())
