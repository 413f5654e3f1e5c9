"""Fixtures of this room: the files as they are rendered."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dashboards.alerts import AlertSettings
from dashboards.render import rendered


@pytest.fixture(scope="session")
def files() -> dict[str, str]:
    return rendered(AlertSettings())


@pytest.fixture(scope="session")
def overview(files: dict[str, str]) -> dict[str, Any]:
    return json.loads(files["replication-overview.json"])


@pytest.fixture(scope="session")
def panels(overview: dict[str, Any]) -> list[dict[str, Any]]:
    """Give the panels that show something: no headings."""
    return [panel for panel in overview["panels"] if panel["type"] != "row"]


@pytest.fixture(scope="session")
def repository() -> Path:
    return Path(__file__).parents[2]
