"""The stream of the change log: which versions a batch gets, and when."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from streaming.contracts.tables import PARTITION_CHANGES
from streaming.delta.changes.log import ChangeLog
from streaming.jobs.streams import changes_source
from streaming.jobs.streams.changes_source import ChangesStreamReader
from tests.delta.test_change_log import changed

if TYPE_CHECKING:
    from pathlib import Path


def heartbeats(log: ChangeLog, count: int) -> int:
    for _ in range(count):
        log.commit(changed()[1].slice(0, 1), {"a": log.version}, only_sources=True)
    return log.version


def test_steps_are_planned_at_once_and_heartbeats_at_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log, reader = ChangeLog(tmp_path), ChangesStreamReader(tmp_path / PARTITION_CHANGES.name)
    log.commit(changed()[1], {"a": 1})
    start = reader.latestOffset(reader.initialOffset())
    assert start == {"version": 1}

    heartbeats(log, 3)
    assert reader.latestOffset(start) == start
    assert reader.latestOffset(start) == start

    step = log.commit(changed()[1], {"a": 5})
    assert reader.latestOffset(start) == {"version": step}

    newest = heartbeats(log, 2)
    assert reader.latestOffset({"version": step}) == {"version": step}
    monkeypatch.setattr(changes_source, "SECONDS_BETWEEN_HEARTBEATS", 0.0)
    assert reader.latestOffset({"version": step}) == {"version": newest}
