"""What the JSON API answers about a snapshot, without a server."""

from __future__ import annotations

from typing import Any

from exporters.read_model.snapshot import ReplicationSnapshot
from exporters.web.api import ENDPOINTS
from exporters.web.api_resource import View, clusters_of
from exporters.web.parameters import query_of


def json_answer(snapshot: ReplicationSnapshot, now: int, name: str, **parameters: str) -> Any:
    (endpoint,) = (each for each in ENDPOINTS if each.name == name)
    query = query_of(endpoint.parameters, parameters.items())
    view = View(snapshot, now, 60.0, clusters_of(snapshot, query["cluster"]))
    return endpoint.answer(view, query)[1]
