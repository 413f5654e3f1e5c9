"""Harm to clients in words: as the sentence of an incident has it, and as briefly as a notification needs it. Pure.

Both are written here, so that a notification can shorten what the job wrote: it keeps what is most harmful.
"""

from __future__ import annotations

import re
from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

LONGEST_NOTIFICATION: Final = 200
_TOPICS_LISTED: Final = 3
_SHORTEST_STEP: Final = 36
"""Characters that are left of what to do first, however long all else is: enough for its verb and whom it concerns."""
_FACTS_KEPT: Final = 48
"""Characters of who is to blame that are left as long as the first step has enough of its own."""


class Harm(Enum):
    """Harm of one kind, the worst first: its sentence, its verb now and before, and the same of one topic, and of more.

    The sentence of lost records has no topics.
    """

    LOST = ("acknowledged records may be lost", ("", ""), ("", ""), ("records may be lost", "records may be lost"))
    OFFLINE = (
        "partitions of {topics} {verb}",
        ("cannot be written or read", "could not be written or read"),
        ("is offline", "was offline"),
        ("are offline", "were offline"),
    )
    REFUSED = (
        "acks=all writers of {topics} {verb}",
        ("fail", "failed"),
        ("refuses writes", "refused writes"),
        ("refuse writes", "refused writes"),
    )

    def sentence(self, names: Iterable[str] = (), *, is_over: bool = False) -> str:
        """Say it of topics."""
        template, verbs, _, _ = self.value
        return template.format(topics=topics_named(names) if "{" in template else "", verb=verbs[is_over])

    def brief(self, topics: int = 0, *, is_over: bool = False) -> str:
        """Say it of so many topics; 0: of an unknown number."""
        _, verbs, of_one, of_more = self.value
        whom = f"{topics} topic{'s' * (topics > 1)} " if topics else "partitions "
        return f"{whom * bool(verbs[0])}{(of_one if topics == 1 else of_more)[is_over]}"


def topics_named(topics: Iterable[str]) -> str:
    """Name few topics; of many say how many, and name the first."""
    names = sorted(topics)
    if len(names) > _TOPICS_LISTED:
        return f"{len(names)} topics ({', '.join(names[:_TOPICS_LISTED])}, …)"
    return f"topic {names[0]}" if len(names) == 1 else f"topics {', '.join(names[:-1])} and {names[-1]}"


_TOPICS: Final = r"topic \S+|topics \S+(?:, \S+)* and \S+|\d+ topics \(\S+(?:, \S+)*, …\)"
_SAID: Final = {
    (harm, is_over): re.compile(
        rf"{template.format(topics=f'(?P<topics>{_TOPICS})', verb=re.escape(verbs[is_over]))}(?=, |$)"
    )
    for harm in Harm
    for template, verbs in (harm.value[:2],)
    for is_over in (False, True)
    if harm is not Harm.LOST or not is_over
}
_REASON: Final = re.compile("[:;] ")
"""Between what to do first, and why."""
_BROKERS: Final = re.compile(r"\bbrokers ((?:\d+, ){2}\d+)((?:, \d+)*) and \d+")


def notification(
    short_id: str, facts: str, consequence: str, next_step: str, also: Mapping[Harm, bool] = MappingProxyType({})
) -> str:
    """Return what a notification says of an incident: who, what it means, what to do first; 200 characters at most.

    However long the parts are, it has the id, every kind of harm that there is now or was, and the first step.

    Args:
        short_id: of the incident.
        facts: who or what is to blame.
        consequence: for clients, made of sentences of ``Harm`` and others.
        next_step: empty for none.
        also: harm of conditions that have the name of the incident, and whether it lasts; said if the consequence
            does not say it.
    """
    said = dict(_harm_in(consequence))
    more = {harm: harm.brief(is_over=not also[harm]) for harm in also.keys() - {each for each, _ in said}}
    worse = (more[harm] for harm in Harm if harm in more)
    whole = ", ".join((*worse, *([consequence] if said or not more else [])))  # not "no write was refused" next to harm
    counted = ", ".join(_counted(said, more)) or whole
    brief = ", ".join(_briefly(said, more)) or _cut(whole, LONGEST_NOTIFICATION // 3)
    for harm in (whole, counted, brief):
        if len(text := _text(short_id, facts, harm, next_step)) <= LONGEST_NOTIFICATION:
            return text
    facts, next_step = fewer_brokers(facts), fewer_brokers(_REASON.split(next_step)[0])
    if len(text := _text(short_id, facts, brief, next_step)) <= LONGEST_NOTIFICATION:
        return text
    room = LONGEST_NOTIFICATION - len(_text(short_id, " ", brief, " ")) + len("  ")
    next_step = _cut(next_step, max(_SHORTEST_STEP, room - min(len(facts), _FACTS_KEPT)))
    facts = _cut(facts, room - len(next_step))
    return _cut(_text(short_id, facts, brief, next_step), LONGEST_NOTIFICATION)


def _text(short_id: str, facts: str, harm: str, next_step: str) -> str:
    return ": ".join(filter(None, (short_id, facts, harm))) + (f". First: {next_step}" if next_step else "")


def _harm_in(consequence: str) -> Iterator[tuple[tuple[Harm, bool], str]]:
    """Yield the harm that a consequence says, whether it is over, and its topics."""
    for (harm, is_over), pattern in _SAID.items():
        if (match := pattern.search(consequence)) is not None:
            yield (harm, is_over), match.groupdict().get("topics") or ""


def _counted(said: dict[tuple[Harm, bool], str], more: dict[Harm, str]) -> Iterator[str]:
    """Yield the sentences of harm, the worst first, with a number instead of names of several topics."""
    for harm in Harm:
        if harm in more:
            yield more[harm]
        for (each, is_over), topics in said.items():
            if each is harm:
                template, verbs, _, _ = harm.value
                count = _count(topics)
                yield template.format(topics=topics if count == 1 else f"{count} topics", verb=verbs[is_over])


def _briefly(said: dict[tuple[Harm, bool], str], more: dict[Harm, str]) -> Iterator[str]:
    """Yield each kind of harm, the worst first, in a few words: what is over only where nothing of it is left."""
    for harm in Harm:
        if harm in more:
            yield more[harm]
        for is_over in (False, True):
            if (harm, is_over) in said:
                yield harm.brief(_count(said[harm, is_over]), is_over=is_over)
                break


def _count(topics: str) -> int:
    """Return how many topics a text of ``topics_named`` is about."""
    if not topics or topics.startswith("topic "):
        return len(topics[:1])
    return topics.count(", ") + 2 if topics.startswith("topics ") else int(topics.partition(" ")[0])


def fewer_brokers(text: str) -> str:
    """Name three of many brokers, and say how many they are."""
    return _BROKERS.sub(lambda each: f"{each[0].count(', ') + 2} brokers ({each[1]}, …)", text)


def _cut(text: str, room: int) -> str:
    """Leave the beginning of a text; nothing where that would be a letter or two."""
    if len(text) <= room:
        return text
    return f"{text[: room - 1].rstrip(' .,:(')}…" if room > len("broker 1…") else ""
