"""``python -m tests.judge --polled``: the plays of polled clusters, their transcripts and pairs, and their page."""

from __future__ import annotations

import argparse
import datetime as dt
import json
import sys
import time
from functools import partial
from itertools import islice
from typing import Final

from docs.builder.quality import Section, write_section
from tests.judge.judging import seeds
from tests.judge.matching import reported_incidents
from tests.judge.polls.monitor import Polling
from tests.judge.polls.page import failing, polled_rendered, short_classes
from tests.judge.polls.strata import LEAST, polled, seeds_of
from tests.judge.polls.twins import twin_difference, twin_of
from tests.judge.polls.verdicts import Result, named_histories, polled_result
from tests.judge.polls.verdicts import polled_judged as judged
from tests.judge.pool import CHECKOUT, all_played, commit
from tests.judge.timeline import timeline

PLAYS: Final = 660
_FILLED_AT_ONCE: Final = 40
_MOST: Final = 1_200
_SHOWN: Final = 40
_COMPARED: Final = 240
"""Plays, the first ones, that are polled in other ways, too."""


def judge_polled(given: argparse.Namespace, kinds: tuple[str, ...]) -> int:
    """Judge polled plays, or show one."""
    polling = Polling(seconds=given.interval, is_bare=given.bare)
    if given.transcripts is not None:
        return _show_transcript(given.transcripts, kinds, polling)
    if given.compare is not None:
        return _compare(given.compare, kinds, polling)
    if given.play is not None:
        return _show(given.play, kinds, polling, is_verbose=given.verbose)
    results = _results(given, kinds, polling)
    print(_page(results, given))
    print("\n".join(failing(results, _SHOWN)), file=sys.stderr)
    if given.write:
        others = [("by the metadata alone", Polling(seconds=5.0, is_bare=True)), ("each 30 s", Polling(seconds=30.0))]
        columns = [(name, _same(results[:_COMPARED], given, kinds, other)) for name, other in others]
        write_section(Section.POLLED, _page(results, given, columns))
    return any("failed" in result for result in results)


def _file(given: argparse.Namespace, kinds: tuple[str, ...], polling: Polling) -> str:
    how = f"{polling.seconds:g}s{'-bare' * polling.is_bare}"
    chosen = "".join(f"-{each}" for each in kinds)
    return f"polled-{commit().name[:12]}-{given.seed or 'unseen'}-{how}{chosen}.jsonl"


def _results(given: argparse.Namespace, kinds: tuple[str, ...], polling: Polling) -> list[Result]:
    """Play as many as are wanted, then further ones for the classes that came too seldom."""
    root, count = given.seed or commit().name, given.plays or PLAYS
    path = CHECKOUT / "build" / "judge" / _file(given, kinds, polling)
    wanted = list(seeds(root, count))
    results = all_played(path, wanted, partial(judged, kinds=kinds, polling=polling), given)
    given.resume = True
    while not kinds and count >= PLAYS and (short := short_classes(results)) and len(wanted) < _MOST:
        print(f"fewer than {LEAST} incidents of {', '.join(short)}", file=sys.stderr)
        known = set(wanted)
        further = (seed for seed in seeds_of(root, short, count) if seed not in known)
        wanted += islice(further, _FILLED_AT_ONCE)
        results = all_played(path, wanted, partial(judged, kinds=kinds, polling=polling), given)
    return results


def _same(results: list[Result], given: argparse.Namespace, kinds: tuple[str, ...], polling: Polling) -> list[Result]:
    """Play the same seeds, polled in another way."""
    path = CHECKOUT / "build" / "judge" / _file(given, kinds, polling)
    wanted = [result["seed"] for result in results]
    return all_played(path, wanted, partial(judged, kinds=kinds, polling=polling), given)


def _page(
    results: list[Result], given: argparse.Namespace, columns: list[tuple[str, list[Result]]] | None = None
) -> str:
    of, played = commit(), [result for result in results if "failed" not in result]
    changed = " with changes" if of.is_changed else ""
    drawn = f"seed {given.seed}" if given.seed else "drawn from the commit's id"
    cpu = sum(result["cpu"] for result in played) / max(1, len(played))
    today = f"{dt.datetime.now(dt.UTC):%Y-%m-%d}"
    heading = f"""## Incidents, by polling alone

{len(played)} plays of commit `{of.name[:12]}`{changed} of {of.date}, {drawn}; judged on {today}.
{len(results) - len(played)} plays failed. {cpu:.1f} s of a core each. The metadata log is not readable: the model's
brokers answer each question as real ones did when they were recorded, and the metadata are read each
{given.interval:g} s. Faults are drawn by kind, so that each class has at least {LEAST} incidents; half of the plays
have a second one.
"""
    return polled_rendered(results, heading, columns or ())


def _show(seed: int, kinds: tuple[str, ...], polling: Polling, *, is_verbose: bool) -> int:
    began = time.process_time()
    play = polled(seed, kinds, polling)
    result = polled_result(play, time.process_time() - began)
    if is_verbose:
        print("\n".join(timeline(play)))
        if play.met is not None:
            print("\n".join(["", "met:", *play.met.summary(), ""]))
    print(json.dumps({name: value for name, value in result.items() if name != "causes"}, indent=1))
    return bool(list(failing([result], 1)))


def _show_transcript(seed: int, kinds: tuple[str, ...], polling: Polling) -> int:
    play = polled(seed, kinds, Polling(seconds=polling.seconds, is_whole=True))
    assert play.met is not None
    print("\n".join(play.met.lines()))
    return 0


def _compare(seed: int, kinds: tuple[str, ...], polling: Polling) -> int:
    """Play both histories of each pair that is named; return whether any can be told apart."""
    play = polled(seed, kinds, Polling(seconds=polling.seconds, is_whole=True))
    named = [pair for each in reported_incidents(play.incidents) if (pair := named_histories(each)) is not None]
    apart = 0
    for one, other, why in named:
        twin = twin_of(play, one, other)
        for title, met in (("as it was", play.met), ("the other history", twin and twin.met)):
            print(f"=== {one} and {other} ({why}): {title}")
            print("\n".join(met.summary()) if met else "the judge knows no play of it")
        difference = twin_difference(play, one, other)
        apart += difference is not None
        print(f"=== told apart by: {difference or 'nothing'}")
    if not named:
        print("no incident names two histories")
    return bool(apart)
