"""Entries of a Delta log, as they are read."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from streaming.delta.log.storage import open_table
from streaming.delta.log.table_log import actions_of, has_entry, has_moved, identity_of
from streaming.errors import TableUnreadable

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("name", ["prod\u0085eu", "prod\u2028eu", "prod\u2029eu", "prod\x1eeu"])
def test_only_a_line_feed_ends_an_action(tmp_path: Path, name: str) -> None:
    """Names stand in statistics as they are; Python has ten more characters at which it splits lines."""
    actions = [{"txn": {"appId": name, "version": 1}}, {"add": {"path": "part", "stats": name}}]
    (tmp_path / "_delta_log").mkdir()
    lines = "\n".join(json.dumps(action, ensure_ascii=False) for action in actions)
    (tmp_path / "_delta_log" / f"{3:020}.json").write_text(lines + "\n", encoding="utf-8")

    assert actions_of(tmp_path, 3) == actions


def test_a_table_that_this_user_may_not_look_into_is_not_one_that_does_not_exist(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(path: Path, **_: object) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("os.stat", refused)

    with pytest.raises(TableUnreadable, match="Permission denied; run this as a user who may read"):
        open_table(tmp_path / "partition_changes")


def test_an_entry_that_this_user_may_not_look_at_is_not_one_that_does_not_exist(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(path: Path, **_: object) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("os.stat", refused)

    for look in (has_entry, has_moved, identity_of):
        with pytest.raises(TableUnreadable, match="Permission denied; run this as a user who may read"):
            look(tmp_path / "partition_changes", 1)
