"""Whether the bootstrap servers are of one cluster: otherwise the one that answers first would decide what is read."""

from __future__ import annotations

from contextlib import closing, suppress
from typing import TYPE_CHECKING

from streaming.errors import ConnectionRefused
from streaming.sources.protocol.connection import CannotServe

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from streaming.contracts.identifiers import ClusterId, Micros
    from streaming.sources.address import Address
    from streaming.sources.admin_broker import Open


def clusters_of(connect: Open, servers: Iterable[Address], deadline: Micros) -> dict[Address, ClusterId]:
    """Ask servers, one after the other, which cluster each is of; those that do not answer are left out."""
    clusters: dict[Address, ClusterId] = {}
    for server in servers:
        with suppress(ConnectionRefused), closing(connect(server)) as broker:
            clusters[server] = broker.answer((), deadline).view.cluster_id
    return clusters


def several_clusters(clusters: Mapping[Address, ClusterId]) -> CannotServe | None:
    """Return the refusal of servers that are of several clusters, None if they are of one."""
    if len(set(clusters.values())) < 2:  # noqa: PLR2004 - several
        return None
    of_each = ", ".join(f"{server} is of {cluster}" for server, cluster in clusters.items())
    return CannotServe(f"cluster.bootstrap_servers names brokers of several clusters: {of_each}; name those of one")
