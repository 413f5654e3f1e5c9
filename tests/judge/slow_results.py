"""Results of plays of slow brokers as lines of JSON, and their sum as a table: found, missed, false alarms."""

from __future__ import annotations

import time
import traceback
from collections.abc import Iterator, Sequence
from statistics import median
from typing import Final

from docs.builder.quality import folded
from tests.judge.results import Result, share
from tests.judge.slow_play import RULES, slow_played

FEWEST: Final = 3
_INTRODUCTION = """
Half of the plays are of the model: links from and to one broker, or half of them, carry less than they have to; or
something else happens that delays replication without a slow broker. There brokers respond at once, so the only
signal is who is behind. In the others the response times of brokers are drawn by chance: noise, pauses, waves of load,
cold starts, one broker that always is slower than the others, and one that becomes slow. That is no measurement of real
brokers. Before anything happens there are 16 quiet rounds of ten seconds.
In two of three plays brokers have agents, which say how long an append takes, are scraped every 15 seconds and are
silent now and then. A slow disk, on which an append takes ten times as long, is seen by its
agent alone.

A broker must be found that is slow for two minutes, at most half as fast as it has to be, in more than half of what it
replicates; or late by at least 150 ms; or that takes 45 ms for an append, while its agent and those of two peers
always answered, and each had two requests in a second. To call another broker slow, or one at another time, is a
false alarm. Where fewer than two peers have something to replicate with two others, isrwatch compares no replication:
it misses who is slow there. Two of three brokers that receive slowly from the third are not played: that is the third
one that sends slowly.
Cruise Control's rule sees the same signals with the same floors. The constants of
ours were chosen on plays of the seed `dev`.
"""


def slow_judged(seed: int, kinds: tuple[str, ...] = ()) -> Result:  # noqa: ARG001 - it draws its own
    """Play and judge one seed; a play that fails is a result, too."""
    began = time.process_time()
    try:
        play = slow_played(seed)
    except Exception:  # noqa: BLE001 - one play must not end the others, and its error is shown
        return {"seed": seed, "failed": traceback.format_exc()}
    by_rule = {
        rule: {
            "found": {str(broker): seconds for broker, seconds in play.found(rule).items()},
            "false_alarms": play.false_alarms(rule),
        }
        for rule in RULES
    }
    ours = by_rule[RULES[0]]
    return {
        "seed": seed,
        "kind": play.kind,
        "what": play.what,
        "brokers": play.brokers,
        "has_agents": play.has_agents,
        "must": sorted(play.must),
        "rules": by_rule,
        "errors": len(play.must) - len(ours["found"]) + len(ours["false_alarms"]),
        "cpu": round(time.process_time() - began, 3),
    }


def slow_rendered(results: Sequence[Result], heading: str) -> str:
    kinds = sorted({result["kind"] for result in results}, key=lambda kind: (not _must(results, kind), kind))
    lines = [heading + _INTRODUCTION]
    lines.append(
        "| what happens | plays | slow brokers |" + "".join(f" {rule}: found | false alarms |" for rule in RULES)
    )
    lines.append("|---|---:|---:|" + "---:|---:|" * len(RULES))
    lines += [_row(kind, [result for result in results if result["kind"] == kind]) for kind in kinds]
    lines.append(_row("all with agents", [result for result in results if result["has_agents"]]))
    lines.append(_row("all of three brokers", _of_three(results)))
    lines.append(_row("all", results))
    lines += ["", "| over all plays | " + " | ".join(RULES) + " |", "|---|" + "---|" * len(RULES)]
    lines += [f"| {name} | " + " | ".join(values) + " |" for name, values in _sums(results)]
    of_three = [*_sums(_of_three(results))]
    lines += [f"| of three brokers: {name} | " + " | ".join(values) + " |" for name, values in of_three]
    wrong = [result for result in results if result["errors"]]
    table = ["| seed | what happens | brokers | must be found | called slow |", "|---:|---|---:|---|---|"]
    table += [_wrong(result) for result in wrong[:25]]
    lines += ["", *folded(f"The plays in which isrwatch is wrong: {len(wrong)}", table)]
    return "\n".join([*lines, ""])


def _of_three(results: Sequence[Result]) -> list[Result]:
    return [result for result in results if result["brokers"] == FEWEST]


def _must(results: Sequence[Result], kind: str = "") -> int:
    return sum(len(result["must"]) for result in results if not kind or result["kind"] == kind)


def _row(kind: str, results: Sequence[Result]) -> str:
    cells = [kind, str(len(results)), str(_must(results) or "")]
    for rule in RULES:
        found = sum(len(result["rules"][rule]["found"]) for result in results)
        alarms = sum(len(result["rules"][rule]["false_alarms"]) for result in results)
        cells += [str(found) if _must(results) else "", str(alarms or "")]
    return f"| {' | '.join(cells)} |"


def _sums(results: Sequence[Result]) -> Iterator[tuple[str, list[str]]]:
    of_rules = [[result["rules"][rule] for result in results] for rule in RULES]
    yield "slow brokers found", [share(sum(len(one["found"]) for one in each), _must(results)) for each in of_rules]
    yield (
        "plays with a false alarm",
        [share(sum(bool(one["false_alarms"]) for one in each), len(results)) for each in of_rules],
    )
    seconds = [[after for one in each for after in one["found"].values()] for each in of_rules]
    yield "found after, median", [f"{median(each):.0f} s" if each else "" for each in seconds]


def _wrong(result: Result) -> str:
    ours = result["rules"][RULES[0]]
    called = ", ".join(f"{broker} at {at:.0f} s" for broker, at in ours["false_alarms"]) or "none"
    return (
        f"| {result['seed']} | {result['kind']}: {result['what']} | {result['brokers']} | {result['must']} | {called} |"
    )
