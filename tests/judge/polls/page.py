"""Results of polled plays as a section of docs/quality.md: what was taken for what, and what polls cannot see."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from docs.builder.quality import folded
from tests.judge.polls.strata import LEAST
from tests.judge.polls.transcripts import BUDGET_SECONDS
from tests.judge.results import NOTHING, classes_table, said_expected, said_reported, share, suspects_table
from tests.judge.table import TABLE

Result = dict[str, Any]
LASTING: Final = 12.0
"""Seconds of harm that must not be benign, or silent, however it is polled."""
_WORST: Final = 40
UNDRAWN: Final = {
    "unsafe_reassignment": "the model hardly ever refuses writes by a reassignment; other tests have the sequences."
}
"""Classes without a play, each with the reason."""
CLASSES: Final = tuple(sorted({row.kind for row in TABLE.outcomes if row.kind is not None} - UNDRAWN.keys()))


def is_right(one: Result) -> bool:
    """Return whether a class is right, as far as polls could show, or two are named that nothing tells apart."""
    return bool(one["kind_right"]) or bool(one["right_as_seen"]) or is_alike(one)


def is_alike(one: Result) -> bool:
    """Return whether a finding names two histories, one of them the true one, that answer alike."""
    return one["alike"] is not None and one["alike"]["difference"] is None


def short_classes(results: Iterable[Result]) -> dict[str, int]:
    """Return the classes of which there are too few incidents that could be seen, and how many there are."""
    counts = Counter(one["expected"] for one in _findings(results))
    return {kind: counts[kind] for kind in CLASSES if counts[kind] < LEAST}


def _findings(results: Iterable[Result], *, everything: bool = False) -> list[Result]:
    every = [one for result in results if "failed" not in result for one in result["findings"]]
    return [one for one in every if everything or one["could_be_seen"]]


def confusion(results: Iterable[Result], *, everything: bool = False) -> Counter[tuple[str, str]]:
    """Count (expected class, reported class) of what could be seen, and of what was reported beyond."""
    counts: Counter[tuple[str, str]] = Counter()
    for result in results:
        findings = _findings([result], everything=everything)
        counts.update((one["expected"], one["expected"] if is_right(one) else one["reported_kind"]) for one in findings)
        counts.update((NOTHING, each["kind"]) for each in result["extra"])
        if not findings and not result["extra"]:
            counts[NOTHING, NOTHING] += 1
    return counts


class Figures:
    """What is asked of polled plays, as counts."""

    def __init__(self, results: Sequence[Result]) -> None:
        results = [result for result in results if "failed" not in result]
        findings, everything = _findings(results), _findings(results, everything=True)
        self.plays = len(results)
        self.counts, self.all_counts = confusion(results), confusion(results, everything=True)
        self.named = [one for one in findings if one["may"] and one["reported"]]
        self.blamed = sum(one["suspects_right"] for one in self.named)
        benign = [one for one in everything if one["expected"] in TABLE.planned | TABLE.neutral and not one["harm"]]
        harmless = [result for result in results if not result["is_harmful"]]
        alarms = sum(one["is_false_alarm"] for one in everything)
        extra = sum(any(each["is_harmful"] for each in result["extra"]) for result in harmless)
        self.alarms, self.benign = alarms + extra, len(benign) + len(harmless)
        lasting = [one for one in everything if one["harm"] and one["end"] - one["first"] >= LASTING]
        self.silent, self.lasting = sum(one["is_silent"] for one in lasting), len(lasting)
        elections = [one for result in results for one in result["unclean"]]
        self.unclean = [one for one in elections if one["could_be_seen"]]
        self.unseen_unclean = [one for one in elections if not one["could_be_seen"]]
        self.alike = sum(any(one["alike"] is not None for one in result["findings"]) for result in results)
        self.wrongly_alike = sum(one["alike"] is not None and not is_alike(one) for one in everything)
        self.as_seen = sum(one["right_as_seen"] and not one["kind_right"] for one in findings)
        self.unseen = len(everything) - len(findings)
        asked = sorted(result["most_asked"] for result in results)
        self.asked = asked[-1] if asked else 0.0
        self.mostly_asked = asked[len(asked) // 2] if asked else 0.0

    def recalls(self) -> dict[str, tuple[int, int]]:
        """Return how many of each class were right, and how many there were."""
        rows = Counter[str]()
        for (true, _), count in self.counts.items():
            rows[true] += count
        return {true: (self.counts[true, true], count) for true, count in sorted(rows.items())}

    def right(self, counts: Counter[tuple[str, str]]) -> str:
        """Write the share of classes that are right."""
        return share(sum(count for (true, reported), count in counts.items() if true == reported), counts.total())

    def lines(self) -> Iterator[tuple[str, str, str]]:
        """Give what is asked, its aim, and what was found."""
        least, of_least = min(self.recalls().items(), key=lambda each: each[1][0] / max(1, each[1][1]))
        yield (
            "class right (incidents that a poll could see, extra ones, plays without any)",
            "85 %",
            self.right(self.counts),
        )
        yield "the same of all incidents, with those invisible to every poll", "", self.right(self.all_counts)
        yield f"the lowest recall of a class: {least}", "80 %", share(*of_least)
        yield "suspects right (incidents that blame a broker)", "92 %", share(self.blamed, len(self.named))
        yield "benign reported as harmful", "1 %", share(self.alarms, self.benign)
        yield (
            f"harm of at least {LASTING:.0f} s reported as benign, or not at all",
            "0",
            (f"{self.silent} of {self.lasting}"),
        )
        reported = sum(one["reported"] for one in self.unclean)
        yield "unclean elections reported that a poll could see", "all", f"{reported} of {len(self.unclean)}"
        others = sum(one["reported"] for one in self.unseen_unclean)
        yield "unclean elections reported that no poll could see", "", f"{others} of {len(self.unseen_unclean)}"
        yield "plays with an incident that names two histories", "10 %", share(self.alike, self.plays)
        yield "such names that another transcript disproves", "0", str(self.wrongly_alike)
        yield "stalled leaders reported as slow brokers, of which no poll showed what they did", "", str(self.as_seen)
        yield "incidents that no poll could see", "", str(self.unseen)
        yield (
            f"most questions a second to a broker, over {BUDGET_SECONDS} s: in half of the plays, in any",
            "",
            (f"{self.mostly_asked:.1f}, {self.asked:.1f}"),
        )


Column = tuple[str, Sequence[Result]]
"""The name of another way to poll, and the results of the same plays."""


def polled_rendered(results: Sequence[Result], heading: str, columns: Sequence[Column] = ()) -> str:
    """Write the page; ``columns`` are the results of other ways to poll the same plays."""
    played = [result for result in results if "failed" not in result]
    parts = [
        heading,
        *_aims(played, columns),
        "",
        *classes_table("Classes of polled incidents", confusion(played)),
        "",
        *_undrawn(played),
        "",
    ]
    parts += [
        *suspects_table("Suspects of polled incidents", played),
        "",
        *_by_fault(played),
        "",
        *_pairs(played),
        "",
        *_worst(played),
        "",
    ]
    return "\n".join(parts)


def _aims(results: Sequence[Result], columns: Sequence[Column]) -> Iterator[str]:
    every = [Figures(results), *(Figures(others) for _, others in columns)]
    heads = "".join(f" {name}, {len(others)} of these plays |" for name, others in columns)
    yield f"| what | aim | found |{heads}"
    yield "|---|---|---|" + "---|" * len(columns)
    for (what, aim, found), *others in zip(*(list(figures.lines()) for figures in every), strict=True):
        yield f"| {what} | {aim} | {found} |" + "".join(f" {other[2]} |" for other in others)


def _undrawn(results: Sequence[Result]) -> Iterator[str]:
    for kind, why in UNDRAWN.items():
        yield f"`{kind}` is not drawn: {why}"
    for kind, count in short_classes(results).items():
        yield f"`{kind}` has {count} incidents that could be seen, fewer than {LEAST}."


def _by_fault(results: Sequence[Result]) -> Iterator[str]:
    lines = ["| fault | plays | without an error | what was taken for what |", "|---|---:|---:|---|"]
    for stratum in dict.fromkeys(sorted(result["stratum"] for result in results)):
        theirs = [result for result in results if result["stratum"] == stratum]
        wrong = Counter(
            f"{one['expected']} as {one['reported_kind']}" for one in _findings(theirs) if not is_right(one)
        )
        wrong.update(f"nothing as {each['kind']}" for result in theirs for each in result["extra"])
        clean = sum(not errors_of(result) for result in theirs)
        said = ", ".join(f"{count} x {what}" for what, count in wrong.most_common(6))
        lines.append(f"| {stratum} | {len(theirs)} | {clean} | {said} |")
    yield from folded("Errors by fault: plays whose first fault is of a kind", lines)


def errors_of(result: Result) -> int:
    """Return how much of a play is wrong.

    What no poll could see counts only where it lasted; two histories that nothing tells apart do not.
    """
    count: int = 2 * len(result["extra"]) + sum(
        one["could_be_seen"] and not one["reported"] for one in result["unclean"]
    )
    for one in result["findings"]:
        is_lasting = bool(one["harm"]) and one["end"] - one["first"] >= LASTING
        count += 4 * (one["is_silent"] and is_lasting) + 2 * one["is_false_alarm"]
        if one["could_be_seen"]:
            count += (not is_right(one)) + (not one["suspects_right"] and bool(one["may"]))
    return count


def _pairs(results: Sequence[Result]) -> Iterator[str]:
    lines = [
        '`make judge ARGS="--polled --compare SEED"` plays both again and compares their transcripts.',
        "",
        "| seed | what happened | reported as | the two | difference |",
        "|---:|---|---|---|---|",
    ]
    pairs = list(_pair_rows(results))
    if pairs:
        yield from folded("Two histories with the same answers", [*lines, *pairs])


def _pair_rows(results: Sequence[Result]) -> Iterator[str]:
    for result in results:
        for one in result["findings"]:
            if one["alike"] is not None:
                first, second, why = one["alike"]["named"]
                apart = one["alike"]["difference"] or "nothing"
                yield (
                    f"| {result['seed']} | {one['expected']} | {one['reported_kind']} "
                    f"| {first} and {second}: {why} | {apart} |"
                )


def _worst(results: Sequence[Result]) -> Iterator[str]:
    wrong = sorted((one for one in results if errors_of(one)), key=lambda one: (-errors_of(one), one["seed"]))
    lines = [
        '`make judge ARGS="--polled --play SEED -v"` plays one of them again; `--transcripts SEED` instead prints all',
        "that was met in it, in order.",
        "",
        "| seed | preset | faults | monitor | expected | reported | errors |",
        "|---:|---|---|---|---|---|---:|",
    ]
    for one in wrong[:_WORST]:
        said = (one["preset"], "; ".join(one["faults"]), one["around"], said_expected(one), said_reported(one))
        lines.append(f"| {one['seed']} | {' | '.join(said)} | {errors_of(one)} |")
    yield from folded(f"The worst plays ({len(wrong)} have an error)", lines)


def failing(results: Sequence[Result], count: int) -> Iterator[str]:
    """Give the plays with most errors, one to a line, for whom who writes the rules."""
    wrong = sorted((one for one in results if "failed" not in one and errors_of(one)), key=lambda one: -errors_of(one))
    for one in wrong[:count]:
        yield (
            f"{one['seed']} [{errors_of(one)}] {'; '.join(one['faults'])} | {one['around']} | "
            f"expected {said_expected(one)} | reported {said_reported(one)}"
        )
    for one in results:
        if "failed" in one:
            yield f"{one['seed']} FAILED {one['failed'].strip().splitlines()[-1]}"
