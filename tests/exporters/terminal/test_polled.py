"""What commands say of a cluster that is polled: that it is, how often, and that causes are inferred."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from exporters.answers.incidents import said_of_evidence
from streaming.contracts.events import Cause, Evidence
from streaming.contracts.observations import SourceKind
from tests.changes.conftest import SECOND, Story
from tests.exporters.terminal.test_incidents_command import incidents, rows_of, write

SURENESS = "so causes are inferred from what brokers answer, not proven"


class Polls(Story):
    """Each observation is what two polls 5 seconds apart differ in."""

    def __init__(self) -> None:
        super().__init__("admin:a", SourceKind.POLL)

    def envelope(self) -> dict[str, object]:
        return super().envelope() | {"occurred_not_before": self.now - 5 * SECOND}


def test_an_incident_of_polls_says_so_and_how_exact_its_times_are(tmp_path: Path) -> None:
    story = Polls()
    story.snapshot([{}])
    story.later(20).partition(0, isr=(1, 2), cause=Cause.FENCED, evidence=Evidence.INFERRED)
    story.seen = [replace(each, offset=None) if hasattr(each, "offset") else each for each in story.seen]
    write(story, tmp_path)
    (row,) = rows_of(tmp_path)
    (line,) = (each for each in incidents(tmp_path, row["incident_id"]).splitlines() if each.startswith("polled"))
    assert line == (
        f"polled    the brokers were polled, {SURENESS}; each change happened at most 5.0s before it was seen"
    )


@pytest.mark.parametrize(
    ("offsets", "begins"),
    [([7, 8], None), ([None, None], "the brokers were polled, "), ([7, None], "1 of these events are of polls, ")],
)
def test_events_of_the_log_and_of_polls_are_told_apart(offsets: list[int | None], begins: str | None) -> None:
    events = [{"offset": each, "occurred_not_before": 0, "occurred_not_after": 2_500_000} for each in offsets]
    said = said_of_evidence(events)
    assert (said is None) == (begins is None)
    assert said is None or (said.startswith(begins or "?") and said.endswith("at most 2.5s before it was seen"))


def test_an_event_of_polls_says_from_what_its_cause_was_inferred(tmp_path: Path) -> None:
    story = Polls()
    story.snapshot([{}])
    because = "broker 3 had been silent for 9.1 s"
    story.later(20).partition(0, isr=(1, 2), cause=Cause.FENCED, evidence=Evidence.INFERRED, because=because)
    write(story, tmp_path)
    (row,) = rows_of(tmp_path)
    lines = incidents(tmp_path, row["incident_id"], "-o", "table").splitlines()
    assert [line for line in lines if line.endswith(f"fenced (inferred: {because})")] != []
