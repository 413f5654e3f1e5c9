"""Results of plays as lines of JSON, and their sum as tables: what was taken for what, with 95 % intervals."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from docs.builder.quality import folded
from streaming.contracts.events import Cause, Evidence
from tests.judge.expected import expectations
from tests.judge.matching import Finding, ReportedIncident, judged, reported_incidents
from tests.judge.play import Play
from tests.judge.steps import steps_of

Result = dict[str, Any]
NOTHING, MISSED = "nothing", "missed"
_CAUSE_COLUMNS: Final = (
    "proven, right",
    "proven, wrong",
    "ambiguous, the true one among them",
    "ambiguous, without it",
    "not recorded",
)
_WORST: Final = 25
_POLLED_SECONDS: Final = 12.0
"""Two polls and a little."""
_Z: Final = 1.959964


def result_of(play: Play, cpu: float) -> Result:
    """Judge one play; everything that the tables and a person need."""
    right, effects = expectations(play)
    verdict = judged(right, reported_incidents(play.incidents))
    causes, wrong = _causes(play)
    return {
        "seed": play.seed,
        "preset": play.preset,
        "is_polled": play.is_polled,
        "brokers": len(play.scenario.brokers),
        "partitions": len(play.before),
        "faults": [f"{one.kind}: {one.what}" for one in play.troubles],
        "kinds": [one.kind for one in play.troubles],
        "errors": verdict.errors + 4 * len(wrong),
        "findings": [_finding(one) for one in verdict.findings],
        "extra": [_reported(each) for each in verdict.extra],
        "is_harmful": any(effect.harm for effect in effects.of),
        "unexplained": len(effects.unexplained),
        "causes": [[*key, count] for key, count in sorted(causes.items())],
        "wrong_proven": wrong[:5],
        "wrong_proven_count": len(wrong),
        "seconds": play.seconds,
        "cpu": round(cpu, 3),
    }


def _finding(one: Finding) -> Result:
    expected = one.expected
    return {
        "expected": expected.kind,
        "kinds": list(expected.kinds),
        "must": sorted(expected.must),
        "may": sorted(expected.may),
        "harm": sorted(expected.harm),
        "trouble": expected.trouble,
        "begin": round(expected.begin, 2),
        "first": round(expected.first, 2),
        "end": round(expected.end, 2),
        "reported": [_reported(each) for each in one.reported],
        "reported_kind": one.reported_kind,
        "kind_right": one.kind_right,
        "suspects_right": one.suspects_right,
        "is_silent": one.is_silent,
        "is_false_alarm": one.is_false_alarm,
    }


def _reported(each: ReportedIncident) -> Result:
    return {
        "kind": each.kind,
        "suspects": sorted(each.suspects),
        "begin": round(each.begin, 2),
        "end": round(each.end, 2),
        "is_harmful": each.is_harmful,
        "summary": each.summary,
    }


def _causes(play: Play) -> tuple[Counter[tuple[str, str, str, bool]], list[str]]:
    """Count (true cause, given cause, evidence, whether the true one is among those given); list what is disproved."""
    counts: Counter[tuple[str, str, str, bool]] = Counter()
    wrong: list[str] = []
    steps = list(steps_of(play))
    removals = {(step.at, broker, str(step.cause)) for step in steps for broker in step.removed}
    for step in steps:
        given = play.causes.get((step.key.topic_id, step.key.partition, step.after.partition_epoch))
        true = str(step.cause)
        if given is None:
            if play.is_polled:
                continue
            if step.removed or step.before.leader != step.after.leader:
                counts[true, "not recorded", "", False] += 1
            continue
        if step.cause is Cause.ELR_ELECTION and any((step.at, gone, given.cause) in removals for gone in step.removed):
            true = given.cause  # one record removes a broker, as others do just then, and elects: both are true of it
        counts[true, given.cause, given.evidence, true in {given.cause, *given.candidates}] += 1
        if given.evidence == Evidence.PROVEN and given.cause != true:
            wrong.append(f"{step.at:.3f} s {step.topic}-{step.key.partition}: {given.cause}, proven; it was {true}")
    return counts, wrong


# ------------------------------------------------------------------------------------------------- sums


def interval(right: int, count: int) -> tuple[float, float]:
    """Give Wilson's 95 % interval of a share; 0 to 1 for nothing."""
    if not count:
        return 0.0, 1.0
    share, spread = right / count, _Z * _Z / count
    centre, root = share + spread / 2, _Z * math.sqrt(share * (1 - share) / count + spread / (4 * count))
    return max(0.0, (centre - root) / (1 + spread)), min(1.0, (centre + root) / (1 + spread))


def share(right: int, count: int) -> str:
    """Write a share with its interval: ``97.5 % (96.1 to 98.4) of 400``."""
    if not count:
        return "none"
    low, high = interval(right, count)
    return f"{100 * right / count:.1f} % ({100 * low:.1f} to {100 * high:.1f}) of {count}"


def confusion(results: Iterable[Result]) -> Counter[tuple[str, str]]:
    """Count (expected class, reported class)."""
    counts: Counter[tuple[str, str]] = Counter()
    for result in results:
        counts.update((one["expected"], one["reported_kind"]) for one in result["findings"])
        counts.update((NOTHING, each["kind"]) for each in result["extra"])
        if not result["findings"] and not result["extra"]:
            counts[NOTHING, NOTHING] += 1
    return counts


def rendered(results: Sequence[Result], heading: str) -> str:
    polled = [result for result in results if result["is_polled"]]
    results = [result for result in results if not result["is_polled"]]
    classes, suspects = classes_table("Classes", confusion(results)), suspects_table("Suspects", results)
    parts = [heading, *_aims(results), "", *classes, "", *suspects, "", *_cause_table(results), ""]
    of_polled = folded(f"Polled clusters: {len(polled)} plays, by what the metadata log would show", _polled(polled))
    return "\n".join([*parts, *of_polled, "", *_worst(results), ""])


def _polled(results: Sequence[Result]) -> Iterator[str]:
    """Of a polled cluster no order can be proven, and what is over between two polls is never seen."""
    lasting = [one for result in results for one in result["findings"] if one["end"] - one["first"] > _POLLED_SECONDS]
    harmful = [one for one in lasting if one["harm"]]
    silent = sum(one["is_silent"] for one in harmful)
    yield "| what | aim | found |"
    yield "|---|---|---|"
    long = f"harmful for at least {_POLLED_SECONDS:.0f} s, and reported as benign or not at all"
    yield f"| {long} | 0 | {silent} of {len(harmful)} |"
    right = share(sum(one["kind_right"] for one in lasting), len(lasting))
    yield f"| class as if the metadata log had been read | | {right} |"


def _aims(results: Sequence[Result]) -> Iterator[str]:
    findings = [one for result in results for one in result["findings"]]
    counts = confusion(results)
    right = sum(count for (true, reported), count in counts.items() if true == reported)
    silent = sum(one["is_silent"] for one in findings)
    alarms = sum(one["is_false_alarm"] for one in findings)
    alarms += sum(each["is_harmful"] for result in results if not result["is_harmful"] for each in result["extra"])
    steps = sum(row[-1] for result in results for row in result["causes"] if row[2] == Evidence.PROVEN)
    wrong = sum(result["wrong_proven_count"] for result in results)
    named = [one for one in findings if one["may"] and one["reported"]]
    yield "| what | aim | found |"
    yield "|---|---|---|"
    yield f"| benign reported as harmful | 0 | {alarms} |"
    yield f"| harmful reported as benign, or not at all | 0 | {silent} |"
    yield f"| a wrong `proven` cause | 0 | {wrong} of {steps} |"
    yield f"| class right (incidents, extra ones, plays without any) | 95 % | {share(right, sum(counts.values()))} |"
    blamed = share(sum(one["suspects_right"] for one in named), len(named))
    yield f"| suspects right (incidents that blame a broker) | 98 % | {blamed} |"
    clean = sum(not result["errors"] for result in results)
    yield f"| plays without any error | | {share(clean, len(results))} |"
    unexplained = sum(result["unexplained"] for result in results)
    yield f"| ISR removals that the judge itself cannot explain | 0 | {unexplained} |"


def classes_table(title: str, counts: Counter[tuple[str, str]]) -> Iterator[str]:
    """Write what was taken for what, from counts of (expected, reported)."""
    columns = [*sorted({column for _, column in counts} - {MISSED, NOTHING}), NOTHING, MISSED]
    yield f"### {title}"
    yield ""
    yield "| was | recall | precision | reported as something else |"
    yield "|---|---|---|---|"
    for true in sorted({row for row, _ in counts}):
        row = [counts[true, column] for column in columns]
        recall = share(counts[true, true], sum(row))
        precision = share(counts[true, true], sum(count for (_, column), count in counts.items() if column == true))
        others = (f"{count} {name}" for name, count in zip(columns, row, strict=True) if count and name != true)
        yield f"| {true} | {recall} | {precision} | {', '.join(others)} |"


def suspects_table(title: str, results: Sequence[Result]) -> Iterator[str]:
    """Write of each class how often the right brokers were blamed."""
    yield f"### {title}"
    yield ""
    yield "| class | right | a suspect missing | a suspect too many | both |"
    yield "|---|---|---:|---:|---:|"
    findings = [one for result in results for one in result["findings"] if one["may"] and one["reported"]]
    for kind in sorted({one["expected"] for one in findings}):
        theirs = [one for one in findings if one["expected"] == kind]
        wrong = [one for one in theirs if not one["suspects_right"]]
        shapes = Counter(_shape(one) for one in wrong)
        right = share(len(theirs) - len(wrong), len(theirs))
        yield f"| {kind} | {right} | {shapes['missing']} | {shapes['many']} | {shapes['both']} |"


def _shape(one: Result) -> str:
    reported = {broker for each in one["reported"] for broker in each["suspects"]}
    lacks, has_more = not set(one["must"]) <= reported, not reported <= set(one["may"])
    return "both" if lacks and has_more else "missing" if lacks else "many"


def _cause_table(results: Sequence[Result]) -> Iterator[str]:
    counts: Counter[tuple[str, str, str, bool]] = Counter()
    for result in results:
        for *key, count in result["causes"]:
            counts[tuple(key)] += count
    yield "### Causes of ISR and leader changes"
    yield ""
    yield "`lag` and `leader_stall` are never called proven: a leader that stands still removes its followers by the"
    yield "same records as one whose followers lag."
    yield ""
    yield f"| was | {' | '.join(_CAUSE_COLUMNS)} |"
    yield "|---|---|" + "---:|" * (len(_CAUSE_COLUMNS) - 1)
    for true in sorted({key[0] for key in counts}):
        theirs: Counter[str] = Counter()
        for (was, given, evidence, is_among), count in counts.items():
            if was == true:
                theirs[_cause_column(true, given, evidence, is_among=is_among)] += count
        proven = share(theirs[_CAUSE_COLUMNS[0]], theirs.total())
        yield f"| {true} | {proven} | " + " | ".join(str(theirs[name] or "") for name in _CAUSE_COLUMNS[1:]) + " |"


def _cause_column(true: str, given: str, evidence: str, *, is_among: bool) -> str:
    if given == "not recorded":
        return given
    if evidence == Evidence.PROVEN:
        return _CAUSE_COLUMNS[0 if given == true else 1]
    return _CAUSE_COLUMNS[2 if is_among else 3]


def _worst(results: Sequence[Result]) -> Iterator[str]:
    wrong = sorted(
        (result for result in results if result["errors"]), key=lambda result: (-result["errors"], result["seed"])
    )
    lines = [
        '`make judge ARGS="--play SEED -v"` plays one of them again.',
        "",
        "| seed | preset | faults | expected | reported | errors |",
        "|---:|---|---|---|---|---:|",
    ]
    for result in wrong[:_WORST]:
        said = (result["preset"], "; ".join(result["faults"]), said_expected(result), said_reported(result))
        lines.append(f"| {result['seed']} | {' | '.join(said)} | {result['errors']} |")
    yield from folded(f"The worst plays ({len(wrong)} have an error)", lines)


def said_expected(result: Result) -> str:
    """Write the incidents that ought to be reported of a play."""
    return "; ".join(f"{one['expected']} {one['must']}" for one in result["findings"]) or NOTHING


def said_reported(result: Result) -> str:
    """Write the incidents that were reported."""
    reported = {id(each): each for one in result["findings"] for each in one["reported"]}
    every = [*reported.values(), *result["extra"]]
    said = "; ".join(f"{each['kind']} {each['suspects']}" for each in every) or NOTHING
    return said + (f"; {result['wrong_proven_count']} wrong proven causes" if result["wrong_proven_count"] else "")
