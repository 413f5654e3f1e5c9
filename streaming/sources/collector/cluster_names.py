"""The names under which clusters are read: two ``[[cluster]]`` may lead to one Kafka cluster, and one of them counts.

Kafka's cluster id says so, and is known only when a broker has answered. The name that comes first in the configuration
counts, so the same one does after each start. The other one is refused before anything of it is published, or as soon
as the first one is found to be the same cluster.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from streaming.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from streaming.contracts.identifiers import ClusterId


class ClusterNames:
    """Notes which cluster each name leads to; for any thread.

    Args:
        names: in the order of the configuration.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self._lock = threading.Lock()
        self._ids: dict[str, ClusterId] = {}  # under the lock; a cluster that was rebuilt has another one

    def admit(self, name: str, cluster_id: ClusterId) -> None:
        """Note that a name leads to a cluster.

        Raises:
            ConfigurationError: so does a name that comes before it.
        """
        with self._lock:
            self._ids[name] = cluster_id
            refusal = refusals({each: self._ids[each] for each in self._names if each in self._ids}).get(name)
        if refusal is not None:
            raise ConfigurationError(refusal)


def refusals(ids: Mapping[str, ClusterId]) -> dict[str, str]:
    """Return a sentence for each name whose cluster a name before it has.

    >>> refusals({"a": "x", "b": "y", "c": "x"})
    {'c': 'cluster x is read as [[cluster]] a already: remove c, or correct its bootstrap_servers'}
    """
    first: dict[ClusterId, str] = {}
    for name, cluster_id in ids.items():
        first.setdefault(cluster_id, name)
    return {
        name: f"cluster {cluster_id} is read as [[cluster]] {first[cluster_id]} already: remove {name}, or correct its "
        "bootstrap_servers"
        for name, cluster_id in ids.items()
        if first[cluster_id] != name
    }
