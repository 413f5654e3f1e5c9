"""Prints an answer: from the answer alone, so that one that was served prints as one that was read here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from exporters.answers.answer import Tone
from exporters.read_model.times import Clock, span
from exporters.terminal.columns import SubjectColumns, shown_of, text
from exporters.terminal.output import RowFormat, RowOutput
from exporters.terminal.table_layout import Field
from streaming.errors import TableUnreadable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from exporters.answers.answer import Answer
    from exporters.answers.incidents import IncidentReport
    from streaming.terminal import Terminal

_MOST_STALE: Final = 5
"""So many clusters are named with the age of their data each."""
_STYLES: Final = {Tone.PLAIN: "", Tone.NOTE: "dim", Tone.WARNING: "yellow", Tone.CRITICAL: "bold red"}


def output_for(console: Terminal, chosen: RowFormat | None, answer: Answer, *, local: bool) -> RowOutput:
    """Return an output with the clock of who answered."""
    return RowOutput(console, chosen or RowFormat.TABLE, Clock(answer.now, local))


def print_answer(
    output: RowOutput, subject: str, answer: Answer, *, also: Answer | None = None, shown: SubjectColumns | None = None
) -> None:
    """Print an answer, with its rows shown as those of the subject or otherwise.

    ``also`` are the unhealthy partitions, below an answer about clusters; CSV, which has one table, is without them.
    """
    if output.format is not RowFormat.JSON:
        say_heading(output, answer)
    _print_rows(output, subject, answer, also, shown or shown_of(subject))
    if output.format is not RowFormat.JSON:
        say_sentences(output, answer)
    if also is not None and output.is_for_people:
        if answer.rows:
            output.console.print()
        _print_rows(output, "partitions", also, None, shown_of("partitions"))
        say_sentences(output, also)


def _print_rows(output: RowOutput, subject: str, answer: Answer, also: Answer | None, shown: SubjectColumns) -> None:
    owner = (Field("cluster", text("cluster")),) if len(answer.clusters) > 1 and subject != "clusters" else ()
    beside = beside_rows(output, answer)
    if also is not None:
        beside["partitions"] = also.rows
        beside["sentences"] += [each._asdict() for each in also.sentences]
    fields = (*owner, *shown.fields(answer.rows, output.clock)) if output.is_for_people else ()
    output.print(answer.rows, fields, answer.columns, shown.style, further=beside)


def beside_rows(output: RowOutput, answer: Answer) -> dict[str, Any]:
    """Return what a JSON document has besides the rows."""
    as_of = answer.as_of
    return {
        "now": output.clock.iso(answer.now),
        "as_of": None if as_of is None else {**as_of._asdict(), "moment": output.clock.iso(as_of.moment)},
        "clusters": [each._asdict() for each in answer.clusters],
        "sentences": [each._asdict() for each in answer.sentences],
        "unreadable": answer.unreadable,
    }


def say_heading(output: RowOutput, answer: Answer) -> None:
    """Say of which moment the answer is, and which state is old."""
    if answer.as_of is not None:
        version = "" if answer.as_of.version is None else f"version {answer.as_of.version}, committed "
        output.say(f"as of {version}{output.clock.iso(answer.as_of.moment)}")
    for sentence in stale_sentences(answer):
        output.say(sentence, style="bold red")


def stale_sentences(answer: Answer) -> Iterator[str]:
    """Say which clusters have stale data, and how old it is."""
    stale = [cluster for cluster in answer.clusters if cluster.is_stale]
    then = "ago; its state is" if answer.as_of is None else "earlier; its state was"
    for name, _, age, _ in stale if len(stale) <= _MOST_STALE else ():
        last = "never observed" if age is None else f"last observed {span(age)} {then} that old"
        yield f"STALE: cluster {name} was {last}"
    if len(stale) > _MOST_STALE:
        first, names = min(each.age or 0 for each in stale), ", ".join(each.name for each in stale[:_MOST_STALE])
        more = f"{names} and {len(stale) - _MOST_STALE:,} more"
        old = f"was last observed {span(first)} {then.partition(';')[0]} or longer, or never"
        yield f"STALE: each of {len(stale):,} of {len(answer.clusters):,} clusters {old}: {more}"


def say_sentences(output: RowOutput, answer: Answer) -> None:
    """Print the sentences of an answer."""
    for text_of_it, tone in answer.sentences:
        output.say(text_of_it, style=_STYLES[Tone(tone)])


def raise_unreadable(*answers: Answer | IncidentReport) -> None:
    """End a command, after everything that can be shown was shown.

    Raises:
        TableUnreadable: a table could not be read.
    """
    sentences = dict.fromkeys(why for answer in answers for why in answer.unreadable.values())
    if sentences:
        raise TableUnreadable("; ".join(sentences))
