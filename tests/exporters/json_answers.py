"""What the JSON API answers about a snapshot, without a server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from exporters.answers.subject import Limits, Tables
from exporters.read_model.snapshot import ReplicationSnapshot
from exporters.web.api import ENDPOINTS
from exporters.web.api_resource import View, clusters_of
from exporters.web.parameters import query_of


def json_answer(
    snapshot: ReplicationSnapshot, now: int, name: str, folder: Path | None = None, **parameters: str
) -> Any:
    """Give an answer; ``folder`` of the tables, where these are read beyond the snapshot."""
    (endpoint,) = (each for each in ENDPOINTS if each.name == name)
    query = query_of(endpoint.parameters, parameters.items())
    limits = Limits(stale_after=60.0, oldest_ages={}, poll_intervals={})
    tables = None if folder is None else Tables(folder=folder, limits=limits, now=now, snapshot=snapshot)
    view = View(snapshot, now, 60.0, clusters_of(snapshot, query["cluster"]), tables=tables)
    return endpoint.answer(view, query)[1]
