"""Results of plays under the committed rules as tables: who was woken, how often, how soon, and what was said."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from tests.judge.alerts import MAY, MUST, MUST_NOT
from tests.judge.notifications import SPEED, Notification, notified
from tests.judge.results import share

Result = dict[str, Any]
Sent = dict[str, list["Notification"]]
"""What Alertmanager sent, by the name of the play."""
PAGE, TICKET = "page", "ticket"
_WORST: Final = 15


def alerts_sent(results: Sequence[Result]) -> Sent:
    with tempfile.TemporaryDirectory(prefix="isrwatch-judge-") as folder:
        return notified({_name(result): result["firings"] for result in results}, Path(folder))


def _name(result: Result) -> str:
    return f"play-{result['seed']}"


def alert_rendered(results: Sequence[Result], sent: Sent, heading: str) -> str:
    """Write all tables of plays and of what was sent of them, as Markdown."""
    for result in results:
        name = _name(result)
        result["pages"], result["added"] = _opened(sent.get(name, ()), PAGE)
        result["tickets"], _ = _opened(sent.get(name, ()), TICKET)
    polled = [result for result in results if result["is_polled"]]
    logged = [result for result in results if not result["is_polled"]]
    parts = [heading, *_aims(logged), "", *_counts(logged), "", *_alerts(logged), ""]
    parts += [f"### Polled clusters: {len(polled)} plays", "", *_aims(polled), "", *_wrong(results), ""]
    return "\n".join(parts)


def _opened(sent: Sequence[Notification], receiver: str) -> tuple[list[str], int]:
    """Give what the messages say that wake somebody, and how many add an alert to a page that is open.

    The key of a group is what pagers know a page by: while it is open, more messages of the group change its text.
    """
    opened: list[str] = []
    added, before = 0, dict[str, Counter[str]]()
    for each in sent:
        if each.receiver != receiver:
            continue
        firing = Counter(each.firing)
        if not firing:
            before.pop(each.group, None)
        elif each.group not in before:
            opened.append(" + ".join(sorted(firing)))
            before[each.group] = firing
        elif firing - before[each.group]:
            added += 1
            before[each.group] |= firing
    return opened, added


def _is_late(result: Result) -> bool:
    """Whether the first page came after it was due, or never; the play may end before it can fire."""
    pages = [each["began"] for each in result["firings"] if each["labels"]["severity"] == PAGE]
    return result["due"] is not None and (not pages or min(pages) > result["due"])


def _aims(results: Sequence[Result]) -> Iterator[str]:
    of = {call: [result for result in results if result["call"] == call] for call in (MUST, MAY, MUST_NOT)}
    benign = [result for result in of[MUST_NOT] if not result["harm"]]
    brief = [result for result in of[MUST_NOT] if result["harm"]]
    woken = [result for result in results if result["pages"]]
    named = [result for result in woken if result["blamed"] is not None]
    yield "| what | aim | plays |"
    yield "|---|---|---|"
    yield f"| a page although nothing harmful happened | 0 | {_count(benign, PAGE)} of {len(benign)} |"
    yield f"| a page for harm that was over soon | 0 | {_count(brief, PAGE)} of {len(brief)} |"
    late = sum(_is_late(result) for result in of[MUST])
    yield f"| a required page that was late or missing | 0 | {late} of {len(of[MUST])} |"
    once = sum(len(result["pages"]) == 1 for result in woken)
    yield f"| only one page, of the plays with a page | 100 % | {share(once, len(woken))} |"
    added = sum(bool(result["added"]) for result in woken)
    yield f"| an open page said more later, of the plays with a page | | {added} of {len(woken)} |"
    right = sum(result["blamed"] for result in named)
    yield f"| the first page has a right class and broker | 98 % | {share(right, len(named))} |"
    yield f"| an optional page that was sent | | {_count(of[MAY], PAGE)} of {len(of[MAY])} |"


def _count(results: Sequence[Result], receiver: str) -> int:
    return sum(bool(result[f"{receiver}s"]) for result in results)


def _counts(results: Sequence[Result]) -> Iterator[str]:
    yield "### Pages and tickets of a play"
    yield ""
    yield "| how many | plays with so many pages | plays with so many tickets |"
    yield "|---:|---:|---:|"
    pages, tickets = (Counter(len(result[name]) for result in results) for name in ("pages", "tickets"))
    for count in range(max([*pages, *tickets], default=0) + 1):
        yield f"| {count} | {pages[count]} | {tickets[count]} |"


def _alerts(results: Sequence[Result]) -> Iterator[str]:
    fired = Counter[tuple[str, str, str]]()
    for result in results:
        names = {(each["alert"], each["labels"]["severity"]) for each in result["firings"]}
        fired.update((name, severity, result["call"] if result["harm"] else "benign") for name, severity in names)
    yield "### Alerts that fired, in how many plays"
    yield ""
    yield f"| alert | severity | {MUST} page | {MAY} page | {MUST_NOT} page | nothing harmful |"
    yield "|---|---|---:|---:|---:|---:|"
    for severity in (PAGE, TICKET, "info"):
        for name in sorted({name for name, of, _ in fired if of == severity}):
            counts = (fired[name, severity, call] or "" for call in (MUST, MAY, MUST_NOT, "benign"))
            yield f"| {name} | {severity} | {' | '.join(map(str, counts))} |"


def _wrong(results: Sequence[Result]) -> Iterator[str]:
    wrong = [(_complaints(result), result) for result in results]
    wrong = [(complaints, result) for complaints, result in wrong if complaints]
    yield f"### What is wrong, or happened more than once ({len(wrong)} plays)"
    yield ""
    yield "| seed | faults | unavailable, seconds | pages | why |"
    yield "|---:|---|---|---|---|"
    for complaints, result in wrong[:_WORST]:
        spans = ", ".join(f"{begin:.0f} to {end:.0f}" for begin, end in result["unavailable"]) or "-"
        pages = ", ".join(
            f"{each['alert']} at {each['began']:.0f}"
            for each in result["firings"]
            if each["labels"]["severity"] == PAGE
        )
        yield f"| {result['seed']} | {'; '.join(result['faults'])} | {spans} | {pages or '-'} | {complaints} |"


def _complaints(result: Result) -> str:
    wrong = []
    if result["pages"] and result["call"] == MUST_NOT:
        wrong.append("woken for nothing")
    if result["call"] == MUST and _is_late(result):
        wrong.append("late or never")
    if result["blamed"] is False:
        wrong.append("another class or broker")
    if len(result["pages"]) > 1:
        wrong.append(f"{len(result['pages'])} pages")
    return ", ".join(wrong)


def alerts_heading(played: str, cost: str) -> str:
    return f"""# Who is woken, judged

{played} Rendered by
`make judge ARGS="--alerts --write"`. The plays are those of [the judge of incidents](judge.md): one or two random
faults on a random cluster of the model, half of them with Kafka's defaults. Each is folded as by the job, rendered by
the exporter at scrapes 15 s apart, and evaluated by promtool under the committed rules; what fired went through a real
Alertmanager with the routes of `deploy/alertmanager`, {SPEED} times as fast. Whether a page was required is
decided from the model's states alone (`tests/judge/alerts.py`): partitions were unavailable for 90 s or more, or a
leader was elected uncleanly. Intervals are Wilson's, 95 %. {cost}
"""
