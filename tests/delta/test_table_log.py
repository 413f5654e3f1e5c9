"""Entries of a Delta log, as they are read."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from streaming.delta.table_log import actions_of

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
