"""What was told of the judge's groups, against the rule: each story once, in time, of the right partitions; as a table.

A story is told by an alert; its partitions are those of the conditions that the alert follows from.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from streaming.contracts.conditions import Condition
from tests.judge.groups.rule import BEYOND, LOSING, STUCK, Episode, Story, reason, stories
from tests.judge.play import SECOND, START

AIM: Final = 0.98
_CONDITIONS: Final = {Condition.GROUP_STUCK: STUCK, Condition.GROUP_BEYOND_END: BEYOND, Condition.GROUP_LOSING: LOSING}
_LISTED: Final = 40
_GROUP: Final = "IsrwatchGroup"

Result = dict[str, Any]


class Told(NamedTuple):
    """A condition of a group in a partition, as a row of its table has it, in seconds."""

    alert: str
    group: str
    part: str
    begin: float
    end: float


class Tellings:
    """The conditions of groups that were ever in the table."""

    def __init__(self) -> None:
        self._of: dict[str, Told] = {}

    def take(self, rows: Iterable[pa.Table]) -> None:
        """Take the rows of the table."""
        for table in rows:
            names = ("spell_id", "condition", "subject", "part", "began_at", "ended_at")
            for row in table.select(names).filter(_of_groups(table)).to_pylist():
                begin, end = (_second(row[name]) for name in ("began_at", "ended_at"))
                self._of[row["spell_id"]] = Told(_CONDITIONS[row["condition"]], row["subject"], row["part"], begin, end)

    def parts(self, story: Story) -> frozenset[str]:
        """Give the partitions of which a story was told."""
        return frozenset(
            each.part
            for each in self._of.values()
            if (each.alert, each.group) == (story.alert, story.group)
            and each.begin <= story.end
            and each.end >= story.begin
        )

    def forget(self, before: float) -> None:
        self._of = {spell: each for spell, each in self._of.items() if each.end >= before}


def _of_groups(rows: pa.Table) -> Any:
    return pc.is_in(rows["condition"], pa.array([*_CONDITIONS], pa.string()))


def _second(moment: Any) -> float:
    return float("inf") if moment is None else (moment.timestamp() * SECOND - START) / SECOND


def is_of_group(alert: str) -> bool:
    return alert.startswith(_GROUP)


def group_of(labels: Mapping[str, str]) -> str:
    """Give the group that an alert is about, if it is about one."""
    return labels.get("subject", labels.get("group", ""))


def belongs_to_group(firing: Result, episodes: Iterable[Episode]) -> str:
    """Give the alert as the reason for itself, if the truth has one; "" if not."""
    alert = firing["alert"]
    return alert if reason(alert, group_of(firing["labels"]), firing["began"], episodes) else ""


def judged_stories(
    episodes: Sequence[Episode], firings: Sequence[Result], told: Tellings, begin: float, end: float
) -> Iterator[Result]:
    """Judge the stories of a day that are over in it."""
    for story in stories(episodes):
        if begin <= story.begin and story.end < end:
            yield (
                story._asdict()
                | {name: sorted(getattr(story, name)) for name in ("parts", "may")}
                | {"wrong": _wrong(story, firings, told.parts(story))}
            )


def _wrong(story: Story, firings: Sequence[Result], parts: frozenset[str]) -> str:
    """Say what is wrong with what was told of a story; "" if nothing is."""
    began = [
        each
        for each in firings
        if (each["alert"], group_of(each["labels"])) == (story.alert, story.group)
        and story.begin <= each["began"] <= story.end
    ]
    if not began:
        return "never reported"
    if len(began) > 1:
        return "reported " + ", ".join(f"{each['began']:.0f} to {each['last']:.0f}" for each in began)
    if began[0]["began"] > story.due:
        return f"{began[0]['began'] - story.due:.0f} s late"
    if began[0]["last"] > story.end:
        return f"reported for {began[0]['last'] - story.end:.0f} s too long"
    if not story.parts <= parts <= story.may:
        return f"reported of {', '.join(sorted(parts)) or 'nothing'}"
    return ""


def is_enough(results: Sequence[Result]) -> bool:
    """Return whether as many stories are right as there should be."""
    wrong = [bool(story["wrong"]) for result in results for story in result.get("stories", ())]
    return sum(wrong) <= (1 - AIM) * len(wrong)


def stories_rendered(results: Sequence[Result]) -> list[str]:
    """Write the stories of all days as tables, as Markdown."""
    every = [story for result in results for story in result.get("stories", ())]
    lines = [
        "",
        "| what must be reported of a group | stories | reported once, in time, of the right partitions | aim |",
    ]
    lines.append("|---|---:|---:|---:|")
    for alert in (STUCK, BEYOND, LOSING):
        of = [each for each in every if each["alert"] == alert]
        right = sum(not each["wrong"] for each in of)
        share = f"{right / len(of):.1%}" if of else ""
        lines.append(f"| {alert} | {len(of)} | {right} ({share}) | {AIM:.0%} |")
    done = Counter(what for result in results for what in result.get("groups_done", ()))
    planted = Counter(one["kind"] for result in results for one in result.get("groups_planted", ()))
    lines += ["", "| with groups | times |", "|---|---:|"]
    lines += [f"| planted: {kind} | {planted[kind]} |" for kind in sorted(planted)]
    lines += [f"| done: {what} | {done[what]} |" for what in sorted(done)]
    wrong = [each for each in every if each["wrong"]]
    if wrong:
        lines += ["", "| alert | group | begin | due | end | partitions | wrong |", "|---|---|---:|---:|---:|---|---|"]
    lines += [
        f"| {each['alert']} | {each['group']} | {each['begin']:.0f} | {each['due']:.0f} | {each['end']:.0f} | "
        f"{', '.join(each['parts'])} | {each['wrong']} |"
        for each in wrong[:_LISTED]
    ]
    return lines
