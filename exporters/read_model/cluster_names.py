"""Names of clusters, where two have the same one: a name is a label, and stands for one cluster."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from streaming.name_patterns import is_exclusion, patterns_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from exporters.read_model.snapshot import ClusterSnapshot, ReplicationSnapshot
    from streaming.contracts.identifiers import ClusterId

OBSERVED_TOGETHER: Final = 60_000_000
"""Microseconds: clusters of one name whose newest times differ by less are all observed now."""


def clusters_by_name(snapshot: ReplicationSnapshot) -> dict[str, ClusterSnapshot]:
    """Give the clusters by name. Of two with one name the one seen last: a rebuilt cluster replaces the old.

    While both are observed they are two clusters without a given name: each has its id next to it. One label
    for both would show the numbers of one, then those of the other.
    """
    sharing: defaultdict[str, list[ClusterSnapshot]] = defaultdict(list)
    for cluster in sorted(snapshot.clusters.values(), key=_seen_at):
        sharing[cluster.name].append(cluster)
    shown = (cluster for _, of_one_name in sorted(sharing.items()) for cluster in _observed_now(of_one_name))
    return {cluster.name: cluster for cluster in shown}


def selected_clusters(
    snapshot: ReplicationSnapshot, patterns: Iterable[str]
) -> tuple[dict[str, ClusterSnapshot], list[str]]:
    """Give the clusters whose name or id patterns choose, all of them without any; and the patterns that none fits."""
    shown, asked = clusters_by_name(snapshot), frozenset(patterns)
    keys = [(name, cluster.cluster.cluster_id) for name, cluster in shown.items()]
    chosen = patterns_of(*sorted(asked))
    selected = {name: shown[name] for name, cluster_id in keys if chosen(name, cluster_id)}
    unknown = (each for each in asked if not is_exclusion(each) and not any(patterns_of(each)(*key) for key in keys))
    return selected, sorted(unknown)


class SelectedThen(NamedTuple):
    """Clusters that patterns choose at a moment of the past.

    Attributes:
        clusters: the clusters observed by then, by their names at that time.
        not_yet: the names that the others have now, by id; empty without patterns: those were not there.
        unknown: the patterns that fit no cluster, now or then.
    """

    clusters: dict[str, ClusterSnapshot]
    not_yet: dict[ClusterId, str]
    unknown: list[str]


def selected_then(then: ReplicationSnapshot, now: Mapping[ClusterId, str], patterns: Iterable[str]) -> SelectedThen:
    """Choose clusters of a state of the past by their id, the name that they had then, or the one that they have now.

    A name that another cluster has taken over since is that of the one that had it then, if both fit. Without patterns
    all are chosen.
    """
    asked, shown = sorted(frozenset(patterns)), clusters_by_name(then)
    chosen = patterns_of(*asked)
    keys = {
        key: (key, name, then.clusters[key].name, now.get(key, name))
        for name, key in ((name, each.cluster.cluster_id) for name, each in shown.items())
    }
    had = {each.name for each in then.clusters.values()}
    later = {key: (key, name) for key, name in now.items() if key not in then.clusters and name not in had}
    every = [*keys.values(), *later.values()]
    return SelectedThen(
        {name: each for name, each in shown.items() if chosen(*keys[each.cluster.cluster_id])},
        {key: now[key] for key, names in later.items() if asked and chosen(*names)},
        [each for each in asked if not is_exclusion(each) and not any(patterns_of(each)(*names) for names in every)],
    )


def _observed_now(of_one_name: Sequence[ClusterSnapshot]) -> Iterable[ClusterSnapshot]:
    oldest = _seen_at(of_one_name[-1]) - OBSERVED_TOGETHER
    observed = [cluster for cluster in of_one_name if _seen_at(cluster) > oldest]
    return observed if len(observed) == 1 else [_with_id(cluster) for cluster in observed]


def _seen_at(cluster: ClusterSnapshot) -> int:
    return cluster.watermark or 0


def _with_id(cluster: ClusterSnapshot) -> ClusterSnapshot:
    state = cluster.cluster
    return replace(cluster, cluster=state._replace(cluster=f"{state.cluster} ({state.cluster_id})"))
