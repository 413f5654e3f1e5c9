"""Fixtures of this room: the files as they are rendered."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dashboards.boards import all_boards
from dashboards.render import rendered
from streaming.settings import Settings


@pytest.fixture(scope="session")
def files() -> dict[str, str]:
    return rendered(Settings())


@pytest.fixture(scope="session")
def boards(files: dict[str, str]) -> dict[str, dict[str, Any]]:
    """Give every board by the name of its file."""
    return {name: json.loads(content) for name, content in files.items() if name.endswith(".json")}


@pytest.fixture(params=list(all_boards()))
def board(request: pytest.FixtureRequest, boards: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Give each board, one after the other."""
    return boards[f"{request.param}.json"]


@pytest.fixture
def panels(board: dict[str, Any]) -> list[dict[str, Any]]:
    """Give the panels of a board that show something: no headings."""
    return [panel for panel in board["panels"] if panel["type"] != "row"]


@pytest.fixture(scope="session")
def repository() -> Path:
    return Path(__file__).parents[2]
