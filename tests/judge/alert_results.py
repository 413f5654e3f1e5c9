"""Results of plays under the committed rules as tables: who was woken, how often, how soon, and what was said.

What is right is ``tests/judge/harm.py``'s; here it is compared with what left Alertmanager, and added up.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from docs.builder.quality import folded
from tests.judge.harm import MAY, MUST, MUST_NOT, REDUNDANCY_LOST, WAKE_WITHIN, Harm, Judged, Span
from tests.judge.notifications import SPEED, Notification, notified
from tests.judge.results import share
from tests.judge.severity import CRITICAL, SEVERITIES, WARNING, severity
from tests.judge.vmalert import VMALERT, posted

Result = dict[str, Any]
Sent = dict[str, list["Notification"]]
"""What Alertmanager sent, by the name of the play."""
TICK: Final = 15.0
"""A notification is seen by so many seconds late at most."""
_PARTS: Final = ("class", "broker", "next step")
_COLUMNS: Final = (
    "plays", "must wake", "late or never", "must not wake", "woken", "more than once", "first message wrong",
    "lost redundancy", "one warning",
)  # fmt: skip
_LISTED: Final = 150


def alerts_sent(results: Sequence[Result]) -> Sent:
    """Send what fired through Alertmanager, and what fired by each engine, where they are compared."""
    fired = {_name(result): result["firings"] for result in results}
    by_engine = posted([result for result in results if VMALERT in result])
    with tempfile.TemporaryDirectory(prefix="isrwatch-judge-") as folder:
        return notified(fired | by_engine, Path(folder))


def _name(result: Result) -> str:
    return f"play-{result['seed']}"


class Told(NamedTuple):
    """A group that was opened: when, and the alerts that its first message says are firing."""

    second: float
    firing: tuple[str, ...]

    def __str__(self) -> str:
        return f"{' + '.join(self.firing)} at {self.second:.0f}"


class Verdict(NamedTuple):
    """What is said of one play.

    Attributes:
        wakes: that were told as critical; ``warnings`` as such.
        call: whether somebody had to be woken.
        is_late: harm was done, and nobody was woken in time.
        in_vain: wakes without harm.
        is_once: no more wakes than faults did harm.
        first: whether the first message has the right class, broker and next step; None: nobody was woken for harm.
        changed: alerts of which a label changed while they fired, or that fired again soon after.
        told_once: the loss of redundancy was told once; None: there was none, or the play ended too early.
    """

    wakes: tuple[Told, ...]
    warnings: tuple[Told, ...]
    call: str
    is_late: bool
    in_vain: tuple[Told, ...]
    is_once: bool
    first: tuple[bool, bool, bool] | None
    told_once: bool | None
    changed: tuple[str, ...] = ()

    def complaints(self) -> Iterator[str]:
        """Say what is wrong, for a person."""
        if self.is_late:
            yield "late" if len(self.wakes) > len(self.in_vain) else "never"
        if self.in_vain:
            yield "woken without harm"
        if not self.is_once:
            yield f"woken {len(self.wakes)} times"
        if self.first is not None and not all(self.first):
            wrong = [name for name, is_right in zip(_PARTS, self.first, strict=True) if not is_right]
            yield f"first message: {', '.join(wrong)}"
        if self.told_once is False:
            yield f"{len(self.warnings)} warnings of lost redundancy"
        yield from self.changed


def opened(sent: Sequence[Notification], receiver: str) -> tuple[Told, ...]:
    """Give the groups that were opened for a receiver.

    The key of a group is what pagers know a page by: while it is open, more messages of the group change its text.
    """
    told, open_now = list[Told](), set[str]()
    for each in sent:
        if each.receiver != receiver:
            continue
        if not each.firing:
            open_now.discard(each.group)
        elif each.group not in open_now:
            open_now.add(each.group)
            told.append(Told(each.second, each.firing))
    return tuple(told)


def verdict_of(result: Result, sent: Sequence[Notification]) -> Verdict:
    """Compare what was sent with what the judge's rule says of the play."""
    wakes, warnings, judged = opened(sent, CRITICAL), opened(sent, WARNING), _judged(result)
    in_vain = tuple(each for each in wakes if not judged.is_justified(each.second))
    right = [each for each in wakes if each not in in_vain]
    first_right = _reading(result, wakes[0]) if right and wakes[0] in right else None
    due = result["due"]
    return Verdict(
        wakes=wakes,
        warnings=warnings,
        call=result["call"],
        is_late=due is not None and min((each.second for each in right), default=due + 1e9) > due + TICK,
        in_vain=in_vain,
        is_once=len(right) <= result["wakes_allowed"],
        first=first_right,
        told_once=_told_once(result, warnings),
        changed=tuple(result["changed"]),
    )


def _judged(result: Result) -> Judged:
    harms, disputed = (
        tuple(Harm(kind, topic, Span(begin, end)) for kind, topic, begin, end in result[name])
        for name in ("harms", "disputed")
    )
    return Judged(harms, disputed, tuple(result["unclean"]), {}, result["seconds"])


def _reading(result: Result, first: Told) -> tuple[bool, bool, bool]:
    """Read the alerts of the first message together: a part is right if one of them has it right."""
    said = [
        each["right"]
        for each in result["firings"]
        if each["alert"] in first.firing and "right" in each and each["began"] <= first.second
    ]
    return any(each[0] for each in said), any(each[1] for each in said), any(each[2] for each in said)


def _told_once(result: Result, warnings: Sequence[Told]) -> bool | None:
    spans = [Span(*span) for span in result["lost"].values()]
    due = min((span.begin + REDUNDANCY_LOST + WAKE_WITHIN for span in spans), default=None)
    if due is None or due + TICK > result["seconds"] or min(span.end for span in spans) < due:
        return None
    return 1 <= len(warnings) <= len(result["kinds"]) and warnings[0].second <= due + TICK


# ------------------------------------------------------------------------------------------------- tables


Judgements = list[tuple[Result, Verdict]]


def alert_rendered(results: Sequence[Result], sent: Sent, heading: str, more: Sequence[str] = ()) -> str:
    """Write all tables of plays and of what was sent of them, as Markdown; ``more``: of named plays."""
    of_all = [(result, verdict_of(result, sent.get(_name(result), ()))) for result in results]
    logged = [each for each in of_all if not each[0]["is_polled"]]
    polled = [each for each in of_all if each[0]["is_polled"]]
    parts = [heading, *_aims(logged), "", *_by_kind("By fault", logged), "", *_alerts(logged), "", *more, ""]
    unseen = sum("unseen" in result for result, _ in polled)
    parts += [f"### Polled clusters: {len(polled)} plays", ""]
    parts += [line for line in _aims(polled) if not line.endswith("| none |")]
    parts += [
        f"| unclean elections that no poll could see, in so many plays | | {unseen} |",
        "",
        *_by_kind("Polled clusters by fault", polled),
        "",
    ]
    return "\n".join([*parts, *_wrong(of_all), ""])


def _aims(of: Judgements) -> Iterator[str]:
    verdicts = [verdict for _, verdict in of]
    yield "| what | aim | plays |"
    yield "|---|---|---|"
    must = [each for each in verdicts if each.call == MUST]
    yield f"| harm that woke too late or never | 0 | {_of(must, lambda each: each.is_late)} |"
    quiet = [each for each in verdicts if each.call == MUST_NOT]
    yield f"| woken although nothing harmful happened | 0 | {_of(quiet, lambda each: bool(each.wakes))} |"
    others = [each for each in verdicts if each.call != MUST_NOT]
    yield f"| woken before or long after the harm that there was | 0 | {_of(others, lambda each: bool(each.in_vain))} |"
    woken = [each for each in verdicts if each.wakes and len(each.in_vain) < len(each.wakes)]
    once = share(sum(each.is_once for each in woken), len(woken))
    yield f"| woken once, of the plays with a wake for harm | 98 % | {once} |"
    named = [each.first for each in verdicts if each.first is not None]
    right = share(sum(map(all, named)), len(named))
    yield f"| first message has the right class, broker and next step | 98 % | {right} |"
    for place, part in enumerate(_PARTS):
        yield f"| - {part} | | {share(sum(each[place] for each in named), len(named))} |"
    lost = [each.told_once for each in verdicts if each.told_once is not None]
    yield f"| one warning of lost redundancy | 98 % | {share(sum(lost), len(lost))} |"
    yield f"| a label of an alert changed, or it fired again | 0 | {_of(verdicts, lambda each: bool(each.changed))} |"
    may = [each for each in verdicts if each.call == MAY]
    yield f"| woken where it is allowed, and not required | | {_of(may, lambda each: bool(each.wakes))} |"


def _of(verdicts: Sequence[Verdict], holds: Callable[[Verdict], bool]) -> str:
    return f"{sum(map(holds, verdicts))} of {len(verdicts)}"


def _by_kind(title: str, of: Judgements) -> Iterator[str]:
    """Write a row for each kind of fault; a play with two is in both."""
    lines = [f"| fault | {' | '.join(_COLUMNS)} |", "|---|" + "---:|" * len(_COLUMNS)]
    for kind in sorted({kind for result, _ in of for kind in result["kinds"]}):
        verdicts = [verdict for result, verdict in of if kind in result["kinds"]]
        must = [each for each in verdicts if each.call == MUST]
        quiet = [each for each in verdicts if each.call == MUST_NOT]
        lost = [each.told_once for each in verdicts if each.told_once is not None]
        cells = (
            len(verdicts), len(must), sum(each.is_late for each in must), len(quiet),
            sum(bool(each.in_vain) for each in quiet), sum(not each.is_once for each in verdicts),
            sum(each.first is not None and not all(each.first) for each in verdicts), len(lost), sum(lost),
        )  # fmt: skip
        lines.append(f"| {kind} | {' | '.join(str(cell or '') for cell in cells)} |")
    yield from folded(f"{title}; a play with two faults is in two rows", lines)


def _alerts(of: Judgements) -> Iterator[str]:
    fired = Counter[tuple[str, str, str]]()
    for result, verdict in of:
        names = {(each["alert"], severity(each["labels"]["severity"])) for each in result["firings"]}
        fired.update((name, of_severity, verdict.call) for name, of_severity in names)
    yield "### Alerts that fired, in how many plays"
    yield ""
    yield f"| alert | severity | {MUST} wake | {MAY} wake | {MUST_NOT} wake |"
    yield "|---|---|---:|---:|---:|"
    for of_severity in SEVERITIES:
        for name in sorted({name for name, each, _ in fired if each == of_severity}):
            counts = (str(fired[name, of_severity, call] or "") for call in (MUST, MAY, MUST_NOT))
            yield f"| {name} | {of_severity} | {' | '.join(counts)} |"


def _wrong(of: Judgements) -> Iterator[str]:
    wrong = [(result, verdict) for result, verdict in of if any(verdict.complaints())]
    lines = [
        '`make judge ARGS="--alerts --play SEED"` plays one of them again.',
        "",
        "| seed | faults | harm, seconds | woken | warned | what is wrong |",
        "|---:|---|---|---|---|---|",
    ]
    for result, verdict in wrong[:_LISTED]:
        told = ("; ".join(map(str, each)) or "-" for each in (verdict.wakes, verdict.warnings))
        cells = ("; ".join(result["faults"]), _harm(result), *told, "; ".join(verdict.complaints()))
        lines.append(f"| {result['seed']}{' (polled)' * result['is_polled']} | {' | '.join(cells)} |")
    yield from folded(f"Every play in which something is wrong ({len(wrong)} of {len(of)})", lines)


def named_rendered(results: Sequence[Result], sent: Sent) -> Iterator[str]:
    """Write a row for each of the plays that are the same every time."""
    yield "### One play of each kind that woke operators for nothing"
    yield ""
    yield "| what | woken | warned | what is wrong |"
    yield "|---|---|---|---|"
    for result in results:
        verdict = verdict_of(result, sent.get(_name(result), ()))
        told = ("; ".join(map(str, each)) or "-" for each in (verdict.wakes, verdict.warnings))
        yield f"| {result['faults'][0]} | {' | '.join(told)} | {'; '.join(verdict.complaints()) or '-'} |"


def _harm(result: Result) -> str:
    """Write harm; what may wake and need not is in brackets."""
    harm = [f"{kind} {topic} {begin:.0f} to {end:.0f}" for kind, topic, begin, end in result["harms"][:3]]
    harm += [f"({kind}: {topic} {begin:.0f} to {end:.0f})" for kind, topic, begin, end in result["disputed"][:1]]
    harm += [f"unclean {at:.0f}" for at in result["unclean"][:1]]
    harm += [f"broker {broker} missing {begin:.0f} to {end:.0f}" for broker, (begin, end) in result["lost"].items()]
    return "; ".join(harm) or "-"


def alerts_heading(played: str) -> str:
    return f"""## Alerts

{played} The plays are those of incidents, and one in eight of what operators say woke them for nothing. Each is
folded as by the job, with its samples, exposed by the exporter at scrapes 15 s apart, and evaluated by promtool under
the committed rules; what fired went through a real Alertmanager with the shipped routes, {SPEED} times as fast. After
{WAKE_WITHIN / 60:.0f} minutes in which a partition was offline or refused writes, or after an unclean election, a
critical alert must have been sent; after less it need not be, and without harm it must not be.
"""
