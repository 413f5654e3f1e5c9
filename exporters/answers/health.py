"""The health of clusters as an exporter judges it, chosen and counted here: the same value as from tables.

Also what an assistant asks: health of tables and of an exporter alike.
"""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from exporters.answers.answer import Question, ServerRefused
from exporters.answers.subject import opened
from exporters.read_model.cluster_health import (
    ClusterHealth,
    HealthAnswer,
    HealthBasis,
    HealthStatus,
    document_of,
    health_of,
)
from exporters.read_model.health_reasons import HealthReason, HealthSeverity
from streaming.name_patterns import is_exclusion, patterns_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from exporters.answers.answer import Row
    from exporters.answers.server import Server
    from exporters.answers.source import AnswerSource

_UNHEALTHY: Final = 503
_WORST_FIRST: Final = (HealthStatus.UNHEALTHY, HealthStatus.UNKNOWN, HealthStatus.HEALTHY)


class ServedHealth(NamedTuple):
    """Health as a server judges it.

    Attributes:
        health: of the clusters that were chosen.
        unreadable: tables that the server cannot read, each with the reason.
        missing: patterns that fit no cluster.
        names: of all clusters.
        now: the clock of the server, UTC microseconds.
        read_at: the moment that was judged, UTC microseconds; of the present when the server last read the tables.
    """

    health: HealthAnswer
    unreadable: dict[str, str]
    missing: tuple[str, ...]
    names: tuple[str, ...]
    now: int
    read_at: int


def served_health(
    server: Server, clusters: Sequence[str], basis: HealthBasis, max_age: float | None, at: str | None = None
) -> ServedHealth:
    """Ask a server for the health of clusters.

    Args:
        server: to ask.
        clusters: patterns of names or ids; none choose all.
        basis: what the answer must rest on; ``newer_than`` by the clock of the server.
        max_age: older data is unknown, in seconds; None is the ``export.stale_after`` of the server.
        at: a moment of the past, as a user writes it; None is the present.

    Raises:
        ServerRefused: the server does not answer with health.
        ServerUnavailable: it does not answer.
    """
    parameters = [("ignore", each) for each in sorted(basis.ignored)]
    parameters += [("allow_planned", "true")] if basis.allows_planned else []
    parameters += [("newer_than", str(basis.newer_than))] if basis.newer_than is not None else []
    parameters += [] if max_age is None else [("max_age", str(max_age))]
    if at is not None:  # only the server knows which name a cluster had then
        parameters += [("at", at), *(("cluster", each) for each in clusters)]
        clusters = ()
    document = server.document("health", parameters, frozenset({_UNHEALTHY}))
    try:
        judged = [_cluster_of(each) for each in document["clusters"]]
        unreadable, now = dict(document["unreadable_tables"]), int(document["now"])
        read_at = int(document["read_at"])
    except (KeyError, TypeError, ValueError) as error:
        raise ServerRefused(f"{server.url} answers what this version does not understand: {error!r}") from None
    chosen = patterns_of(*clusters)
    selected = tuple(each for each in judged if chosen(each.cluster, each.cluster_id))
    keys = [(each.cluster, each.cluster_id) for each in judged]
    missing = (each for each in clusters if not is_exclusion(each) and not any(patterns_of(each)(*key) for key in keys))
    statuses = {each.status for each in selected} | ({HealthStatus.UNKNOWN} if not selected else set())
    worst = next(status for status in _WORST_FIRST if status in statuses)
    names = tuple(each.cluster for each in judged)
    return ServedHealth(HealthAnswer(worst, selected), unreadable, tuple(missing), names, now, read_at)


def _cluster_of(document: Mapping[str, Any]) -> ClusterHealth:
    values = {name: document[name] for name in ClusterHealth._fields}
    reasons = tuple(map(_reason_of, document["reasons"]))
    return ClusterHealth(**{**values, "status": HealthStatus(document["status"]), "reasons": reasons})


def _reason_of(document: Mapping[str, Any]) -> HealthReason:
    values = {field.name: document[field.name] for field in fields(HealthReason)}
    lists = {name: tuple(document[name]) for name in ("examples", "incidents")}
    return HealthReason(**{**values, **lists, "severity": HealthSeverity(document["severity"])})


# Health of now, from wherever a source answers.


def health_documents(source: AnswerSource, clusters: Sequence[str]) -> list[Row]:
    """Return the health of clusters with every reason, for JSON; what announced work explains does not count."""
    if source.server is not None:
        basis = HealthBasis(max_age_seconds=0.0, allows_planned=True)  # the age is that of the server
        health = served_health(source.server, clusters, basis, None).health
    else:
        asked = opened(source.tables(), Question(tuple(clusters)))
        basis = HealthBasis(max_age_seconds=asked.tables.limits.stale_after, allows_planned=True)
        health = health_of({each.name: each for each, _ in asked.clusters}, asked.errors, asked.now, basis)
    documents: list[Row] = document_of(health, basis)["clusters"]
    return documents
