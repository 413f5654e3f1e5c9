"""Health as JSON: one status for a gate, and each reason with its examples and the age of what it rests on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from exporters.read_model.cluster_health import IGNORABLE, HealthBasis, HealthStatus, document_of, health_of
from exporters.read_model.health_reasons import HealthSeverity, ReasonKind
from exporters.web.api_resource import CLUSTER
from exporters.web.parameters import choice, flag, moment, number
from streaming.contracts.columns import Column, required

if TYPE_CHECKING:
    from exporters.web.api_resource import View
    from exporters.web.parameters import Query

PARAMETERS: Final = (
    CLUSTER,
    number("max_age", "Seconds: older data says nothing about now; by default export.stale_after_seconds.", at_least=1),
    moment("newer_than", "The data must be newer than this: a gate gives the time at which the restart ended."),
    flag("allow_planned", "A cluster from which announced work keeps brokers or replicas away is healthy."),
    choice("ignore", "A reason that does not count.", IGNORABLE, is_repeatable=True),
)
_REASON: Final = (
    required("reason", "string", f"one of {', '.join(ReasonKind)}"),
    required("severity", "string", f"one of {', '.join(HealthSeverity)}"),
    required("count", "long", "of how many partitions, brokers or other things it is true"),
    required("examples", "string[]", "the first of them"),
    required("more", "long", "how many are not among the examples"),
    Column("since", "timestamp", "when the oldest of them began"),
    Column("age_seconds", "double", "age of the data that it rests on"),
    required("summary", "string", "the reason in words"),
    required("counts", "boolean", "it keeps the cluster from being healthy; false: the request leaves it out"),
)
CLUSTER_COLUMNS: Final = (
    required("cluster_id", "string", "Kafka's cluster id"),
    required("cluster", "string", "display name of the cluster"),
    required("status", "string", f"one of {', '.join(HealthStatus)}"),
    Column("observed_until", "timestamp", "newest time that the answer rests on"),
    Column("age_seconds", "double", "age of that"),
    Column("reasons", [_REASON], "what is wrong, or why nobody can say; empty: nothing", nullable=False),
)
STATUS: Final = required("status", "string", "the worst of the clusters: unhealthy, then unknown, then healthy")


def health_content(view: View, query: Query) -> dict[str, Any]:
    """Return the health of the clusters that a request selects."""
    basis = HealthBasis(
        max_age_seconds=view.stale_after_seconds if query["max_age"] is None else query["max_age"],
        newer_than=query["newer_than"],
        allows_planned=query["allow_planned"],
        ignored=frozenset(query["ignore"]),
    )
    return document_of(health_of(view.clusters, view.unreadable, view.now, basis), basis)
