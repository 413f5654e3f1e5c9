"""Findings: a line for each deviation and one at the end, for people or as JSON."""

from __future__ import annotations

import json
import time
from collections import Counter
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Protocol

import typer

from streaming.contracts.records import RecordBatch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from streaming.contracts.identifiers import Micros
    from streaming.contracts.records import MetadataRecord
    from tests.conformance.actions import Deviation, Explanation
    from tests.conformance.logs import Start
    from tests.conformance.quirks import Quirk

PROGRESS_SECONDS: Final = 5.0
# The subject names the topic-partition; a value may be secret.
_LEFT_OUT: Final = frozenset({"topic_id", "partition", "value", "host", "port"})


@dataclass(slots=True)
class DeviationCount:
    """What was checked.

    Attributes:
        first, following: the offsets ``[first, following)``.
        after_snapshot: the state at ``first`` comes from a snapshot.
        began, ended: times of the first and the last batch; None before.
        deviating: offset of the first deviation; None without any.
        quirks: what Kafka does and the model does not, let pass.
    """

    first: int = 0
    following: int = 0
    after_snapshot: bool = False
    records: int = 0
    began: Micros | None = None
    ended: Micros | None = None
    deviations: int = 0
    deviating: int | None = None
    quirks: Counter[Quirk] = field(default_factory=Counter)

    def begin(self, start: Start) -> None:
        """Read from here on; what was found before in another log still counts."""
        self.first = self.following = start.offset
        self.after_snapshot = bool(start.snapshot)
        self.records, self.began, self.ended = 0, None, None

    def count(self, batch: RecordBatch, explanation: Explanation) -> None:
        """Count a batch."""
        self.records += len(batch.records)
        self.following = batch.base_offset + len(batch.records)
        self.began, self.ended = self.began or batch.timestamp, batch.timestamp
        self.quirks.update(action.quirk for action in explanation.actions if action.quirk is not None)
        self.deviations += len(explanation.deviations)
        if explanation.deviations and self.deviating is None:
            self.deviating = min(deviation.offset for deviation in explanation.deviations)


class Output(Protocol):
    """Where findings go."""

    def begin(self, start: Start) -> None:
        """Reading begins."""

    def deviation(self, timestamp: Micros, deviation: Deviation) -> None:
        """A record is none that the model would have written."""

    def end(self, tally: DeviationCount) -> None:
        """Everything was read."""


class DeviationsAsText:
    """For people: one line for each deviation; ``report`` takes what is beside the matter."""

    def __init__(self, report: Callable[[str], None]) -> None:
        self._report = report

    def begin(self, start: Start) -> None:
        """Say where, and what a snapshot cannot show."""
        if start.snapshot:
            self._report(
                f"the log begins at offset {start.offset}: the state before comes from a snapshot, its steps are not "
                "checked. A snapshot does not say which directories had failed; an election may deviate for that alone"
            )

    def deviation(self, timestamp: Micros, deviation: Deviation) -> None:
        """Write it as one line."""
        subject = f" {deviation.subject}" if deviation.subject else ""
        what = f"{type(deviation.seen).__name__}{subject}: {deviation.reason}"
        seen, expected = _text(_values(deviation.seen)), "".join(_expected(deviation))
        typer.echo(f"offset {deviation.offset}  {_iso(timestamp)}  {what}{f' {seen}' if seen else ''}{expected}")

    def end(self, tally: DeviationCount) -> None:
        """Say how it came out."""
        if not tally.records:
            typer.echo(f"nothing to check: there is no record from offset {tally.first} on")
            return
        for quirk, count in tally.quirks.items():
            typer.echo(f"{count:,} x {quirk}: a harmless difference between Kafka and the model, let pass")
        period = "" if tally.began is None or tally.ended is None else f", {_iso(tally.began)} to {_iso(tally.ended)}"
        what = f"{tally.records:,} records, offsets {tally.first} to {tally.following - 1}{period}"
        if tally.deviating is None:
            typer.echo(f"conforms: {what}; each is one that the model's controller would have written")
        else:
            typer.echo(f"deviates {tally.deviations:,} times, first at offset {tally.deviating}: {what}")


class DeviationsAsJson:
    """For scripts: one object on each line, the last one of kind ``summary``."""

    def begin(self, start: Start) -> None:
        """Give the first offset."""
        _print({"kind": "begin", "offset": start.offset, "after_snapshot": bool(start.snapshot)})

    def deviation(self, timestamp: Micros, deviation: Deviation) -> None:
        """Give a deviation, with what each action would have written."""
        _print({
            "kind": "deviation",
            "offset": deviation.offset,
            "time": _iso(timestamp),
            "record": type(deviation.seen).__name__,
            "subject": deviation.subject,
            "reason": deviation.reason,
            "seen": _values(deviation.seen),
            "considered": [
                {
                    "action": alternative.name,
                    "why": alternative.why,
                    "would_write": _values(alternative.would_write) if alternative.would_write else None,
                }
                for alternative in deviation.considered
            ],
            "missing": [{"subject": write.subject, "change": _values(write.change)} for write in deviation.missing],
        })  # fmt: skip

    def end(self, tally: DeviationCount) -> None:
        """Give the tally."""
        _print({
            "kind": "summary",
            "conforms": tally.deviating is None,
            "first_offset": tally.first,
            "next_offset": tally.following,
            "after_snapshot": tally.after_snapshot,
            "records": tally.records,
            "deviations": tally.deviations,
            "first_deviation": tally.deviating,
            "quirks": dict(tally.quirks),
        })  # fmt: skip


class ProgressLine:
    """Says every few seconds how far the reading of a long log is."""

    def __init__(self, report: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._report, self._clock = report, clock
        self._last = clock()

    def show(self, tally: DeviationCount, share: float) -> None:
        """Say it, when it is time."""
        if self._clock() - self._last >= PROGRESS_SECONDS:
            self._last = self._clock()
            self._report(f"offset {tally.following:,}, {share:.0%} of the log, {tally.deviations:,} deviations so far")


def _print(line: dict[str, Any]) -> None:
    typer.echo(json.dumps(line))


def _iso(timestamp: Micros) -> str:
    """Write a time in UTC, as precise as Kafka keeps it."""
    return datetime.fromtimestamp(timestamp / 1e6, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _values(record: MetadataRecord) -> dict[str, Any]:
    """Give what a record carries, without what its subject says and what may be secret."""
    fields_of_record = {
        field.name: getattr(record, field.name) for field in fields(record) if field.name not in _LEFT_OUT
    }
    return {name: value for name, value in fields_of_record.items() if value is not None}


def _text(values: dict[str, Any]) -> str:
    return " ".join(
        f"{name}={json.dumps(value, separators=(',', ':')) if isinstance(value, tuple) else value}"
        for name, value in values.items()
    )


def _expected(deviation: Deviation) -> Iterator[str]:
    """Give what actions would have written, what they would have written beside it, and why the others are not it."""
    written = [
        (alternative.name, alternative.would_write)
        for alternative in deviation.considered
        if alternative.would_write is not None
    ]
    if written:
        yield f"; expected: {' or '.join(f'{name} {_text(_values(change))}' for name, change in written)}"
    if deviation.missing:
        missing = (f"{write.subject} {_text(_values(write.change))}" for write in deviation.missing)
        yield f"; missing: {', '.join(missing)}"
    others = [
        f"{alternative.name} ({alternative.why})"
        for alternative in deviation.considered
        if alternative.would_write is None
    ]
    if others:
        yield f"; ruled out: {', '.join(others)}"
