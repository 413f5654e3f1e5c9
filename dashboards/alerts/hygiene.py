"""Opt-in: what was not finished, or not meant. The cluster works; the next failure is worse for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dashboards.alerts.rule import OF_BROKER, OF_CLUSTER, Rule, rule, scope, threshold
from dashboards.signals import brokers, clusters

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dashboards.promql import Signal
    from streaming.settings import Settings

# With these a single lost replica refuses writes, or compaction that Kafka relies on does not take place.
BROKEN_SETTINGS: Final = ("min_isr_above_replication_factor", "not_compacted")
_CLUSTER: Final = "{{ $labels.cluster }}"
_SETTINGS: Final = f"isrwatch settings --cluster {_CLUSTER}"
_BROKERS: Final = f"isrwatch brokers --cluster {_CLUSTER}"
_CONTROLLERS_WINDOW: Final = "1h"
_SKEW_LEAST_PARTITIONS: Final = 20


def hygiene(settings: Settings) -> Iterator[Rule]:
    """Yield the rules of hygiene."""
    yield from _of_cluster(settings)
    yield from _of_brokers(settings)


def _of_cluster(settings: Settings) -> Iterator[Rule]:
    own = scope(settings)
    share = f"{clusters.OFF_PREFERRED_LEADER.now(own)} / on (cluster) {clusters.PARTITIONS.now()}"
    whole = f"{clusters.UNDER_REPLICATED.now()} == 0"
    least = threshold("IsrwatchLeadersNotPreferred", settings)
    broken = f'weakness=~"{"|".join(BROKEN_SETTINGS)}"'
    # An increase is extrapolated, so half an election is added.
    elections = threshold("IsrwatchControllersFlap", settings) + 0.5
    for name, expression, what, first, command in (
        ("LeadersNotPreferred", f"{share} > {least:g}\nand on (cluster) {whole}",
         f"Leaders of {_CLUSTER} have not returned to their preferred brokers: load is uneven", "elect them", _BROKERS),
        ("TopicsMisconfigured", f"{clusters.WEAK_TOPICS.now(own, broken, by=('cluster',))} > 0",
         f"Topics of {_CLUSTER} have invalid durability settings", "correct what isrwatch settings lists",
         _SETTINGS),
        ("ThrottleLeft", f"{clusters.LEFT_THROTTLES.now(own)} > 0",
         f"Replication of {_CLUSTER} is throttled, though nothing is being reassigned", "remove the throttle",
         _SETTINGS),
        ("VersionsMixed", f"{clusters.OLDER_BROKERS.now(own)} > 0",
         f"Brokers of {_CLUSTER} run different versions of Kafka", "finish the upgrade", _SETTINGS),
        ("ControllersFlap", f"{clusters.CONTROLLER_CHANGES.increase(_CONTROLLERS_WINDOW, own)} > {elections:g}",
         f"{_CLUSTER} elects a controller again and again", "read the log of its controllers",
         f"isrwatch quorum --cluster {_CLUSTER}"),
    ):  # fmt: skip
        sentence = f"{what}. First: {first}"
        about = OF_CLUSTER
        yield rule(f"Isrwatch{name}", expression, sentence, settings, command=command, about=about)


def _of_brokers(settings: Settings) -> Iterator[Rule]:
    own = scope(settings)
    most = "\nor ".join(_above_average(signal, settings) for signal in (brokers.LED, brokers.HOSTED))
    errors = (brokers.METADATA_LOAD_ERRORS, brokers.METADATA_APPLY_ERRORS, brokers.METADATA_ERRORS)
    for name, expression, what, first in (
        ("BrokerSkewed", f"({most})\nunless on (cluster) {clusters.UNDER_REPLICATED.now()} > 0",
         "has more than its share", "move replicas or leaders away"),
        ("MetadataErrors", " or ".join(f"{each.now(own)} > 0" for each in errors),
         "could not apply records of the metadata log", "read its log, then restart it if that is safe"),
    ):  # fmt: skip
        yield rule(
            f"Isrwatch{name}",
            expression,
            f"Broker {{{{ $labels.broker }}}} of {_CLUSTER} {what}. First: {first}",
            settings,
            command=_BROKERS,
            about=OF_BROKER,
        )


def _above_average(signal: Signal, settings: Settings) -> str:
    """Return the brokers above the average of those that host anything: one that is moved away has no share."""
    average = f"avg by (cluster) ({signal.now()} unless on (cluster, broker) {brokers.HOSTED.now()} == 0)"
    limit = f"{threshold('IsrwatchBrokerSkewed', settings):g} * ({average} >= {_SKEW_LEAST_PARTITIONS})"
    return f"{signal.now(scope(settings))} > on (cluster) group_left () {limit}"
