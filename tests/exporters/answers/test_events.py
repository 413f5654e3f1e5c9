"""Events as an answer: by the names that clusters have now, page by page, and what was committed since."""

from __future__ import annotations

from typing import Any

import pytest

from exporters.answers import events
from exporters.answers.answer import Question
from exporters.answers.events import key_text
from exporters.answers.subject import Limits, Tables
from streaming.delta.changes.reader import ChangesRestarted
from streaming.errors import ConfigurationError
from tests.exporters.conftest import SECOND, Rows

LIMITS = Limits(stale_after=60.0, oldest_ages={}, poll_intervals={})


def shrunk(rows: Rows, number: int) -> Any:
    event = {"event_id": f"e{number}", "event": "isr_shrink", "event_broker": None, "detail": None}
    state = rows.state([1, 2], [1], 1)
    return rows.partition("orders", number, state, rows.start + number * SECOND, events=[event], left_isr=[2])


@pytest.fixture
def asked(tables: Any, rows: Rows, other_rows: Rows) -> Any:
    """Ask of a cluster that was renamed to ``live``, and of another one with one event, the last."""
    changes = [
        rows.cluster_row(rows.start + 9 * SECOND),
        rows.source(rows.start + 9 * SECOND),
        *(shrunk(rows, number) for number in range(3)),
    ]
    tables.commit(*changes, other_rows.cluster_row(), other_rows.source(rows.start), shrunk(other_rows, 3))
    now = [Rows(cluster="live").cluster_row(rows.start + 9 * SECOND), other_rows.cluster_row()]
    tables.project(now, 1)

    def ask(*clusters: str, at: str | None = None, **filters: str) -> list[str]:
        question = Question(clusters, {name: (value,) for name, value in filters.items()}, at=at)
        given = events.answer(Tables(folder=tables.directory, limits=LIMITS, now=rows.start + 60 * SECOND), question)
        return [row["event_id"] for row in given.rows]

    return ask


def test_a_renamed_cluster_is_chosen_by_either_name_and_left_out_by_either(asked: Any) -> None:
    assert asked("main") == asked("live") == asked("li*") == asked("id-of-main") == ["e0", "e1", "e2"]
    assert asked("!live") == asked("!main") == asked("other") == ["e3"]
    assert asked("nobody") == []


def test_pages_go_back_from_the_newest_and_together_are_all(asked: Any, rows: Rows) -> None:
    newest = asked(limit="2")
    assert newest == ["e2", "e3"]
    key = key_text({"occurred_not_after": rows.start + 2 * SECOND, "offset": None, "event_id": "e2"})
    assert asked(limit="2", before=key) == ["e0", "e1"]
    assert asked(limit="2", at="2026-09-21T14:13:21Z") == ["e0", "e1"], "what had occurred by then"


def test_what_was_committed_since_a_version_is_given_whole_and_too_much_is_refused(
    asked: Any, tables: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = tables.open("partition_changes").version()
    assert asked(after=str(version)) == []
    tables.commit(shrunk(Rows(), 7))
    assert asked(after=str(version)) == ["e7"]
    assert asked(after=str(version), event="online") == []
    monkeypatch.setattr(events, "_FARTHEST", 1)
    tables.commit(shrunk(Rows(), 8))
    with pytest.raises(ChangesRestarted, match="2 versions came since the last look"):
        asked(after=str(version))


@pytest.mark.parametrize(
    ("filters", "said"),
    [
        ({"limit": "-1"}, "limit is '-1'; give a whole number"),
        ({"limit": "9" * 30}, "give a whole number"),
        ({"partition": "x"}, "partition is 'x'; give a whole number"),
        ({"event": "shrink"}, "event is 'shrink'; use one of isr_shrink"),
        ({"cause": "x"}, "cause is 'x'; use one of"),
        ({"before": "1"}, "before is '1'; give the key of an event"),
        ({"before": "a,b,c"}, "before is 'a'; give a whole number"),
        ({"since": "soon"}, "cannot read the time 'soon'"),
        ({"topics": "x"}, "events have no filter topics"),
    ],
)
def test_a_wrong_filter_is_refused_in_a_sentence(asked: Any, filters: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        asked(**filters)
    assert said in str(refused.value)
