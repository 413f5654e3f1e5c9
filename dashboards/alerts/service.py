"""Opt-in: how well a cluster serves. Burn rates of the objective of availability; the speed of brokers and traffic.

Burn rates are in several windows (Google, *The Site Reliability Workbook*, chapter 5): a long one for what was used, a
short one for whether it still is. What is counted is exact and comes from the tables, so it has what no scrape saw.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dashboards.alerts.rule import OF_BROKER, OF_CLUSTER, Rule, rule, scope, threshold
from dashboards.signals import brokers, changes, clusters, partitions
from streaming.durations import seconds_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streaming.settings import Settings

_CLUSTER: Final = "{{ $labels.cluster }}"


def slo(settings: Settings) -> Iterator[Rule]:
    """Yield the rules of the objective: a budget that is gone within days, and one that does not last."""
    fast = f"({_burn('1h', '5m', 14.4, 'Fast', settings)})\nor ({_burn('6h', '30m', 6, 'Fast', settings)})"
    for suffix, expression, how, window in (
        ("Fast", fast, "within days", "6h"),
        ("", _burn("3d", "6h", 1, "", settings), "before its time", "3d"),
    ):
        yield rule(
            f"IsrwatchAvailabilityBurns{suffix}",
            expression,
            f"Partitions of {_CLUSTER} are unavailable again and again: the error budget is used up {how}. First: "
            "find the cause that costs most",
            settings,
            command=f"isrwatch incidents --cluster {_CLUSTER} --since {window}",
            about=OF_CLUSTER,
        )


def _burn(long: str, short: str, rate: float, suffix: str, settings: Settings) -> str:
    limit = f"{rate * (1 - threshold(f'IsrwatchAvailabilityBurns{suffix}', settings)):.6g}"
    used, still_used = (f"{_unavailable_share(window, settings)} > {limit}" for window in (long, short))
    return f"{used} and on (cluster) {still_used}"


def _unavailable_share(window: str, settings: Settings) -> str:
    """Divide the larger of both times by the time of all: a partition may be offline and under min ISR at once.

    VictoriaMetrics' rate of a cluster that is younger than the window is that of its age, so it is no rate.
    """
    own = scope(settings)
    refused, offline = (
        seconds.increase(window, own) for seconds in (changes.UNDER_MIN_ISR_SECONDS, changes.OFFLINE_SECONDS)
    )
    time = f"{seconds_of('window', window):g} * ({clusters.PARTITIONS.now(own)} > 0)"
    return f"(({refused} > {offline}) or {offline}) / on (cluster) ({time})"


def speed(settings: Settings) -> Iterator[Rule]:
    """Yield the rules of speed."""
    own = scope(settings)
    for name, expression, what, first in (
        ("HandlersBusy", f"{brokers.HANDLERS_IDLE.now(own)} < {threshold('IsrwatchHandlersBusy', settings):g}",
         "has request handlers that are hardly ever idle", "move leaders away, or limit clients"),
        ("ProduceSlow", f"{brokers.PRODUCE_P99.now(own)} > {_millis('IsrwatchProduceSlow', settings)}",
         "answers producers slowly (p99)", "see its disk, and the followers that it waits for"),
        ("FetchSlow", f"{brokers.FETCH_P99.now(own)} > {_millis('IsrwatchFetchSlow', settings)}",
         "answers consumers slowly (p99)", "see its disk, and what reads old records"),
        ("BrokerSlow", _slow(settings), "is slower than it was, and than its peers", "see its disk, load and network"),
        ("LogCleanerDead", f"{brokers.DEAD_CLEANERS.now(own)} > 0", "has a log cleaner that ended",
         "fix what its log names, then restart it if that is safe"),
    ):  # fmt: skip
        yield rule(
            f"Isrwatch{name}",
            expression,
            f"Broker {{{{ $labels.broker }}}} of {_CLUSTER} {what}. First: {first}",
            settings,
            command=f"isrwatch brokers --cluster {_CLUSTER}",
            about=OF_BROKER,
        )
    yield _traffic_stopped(settings)


def _millis(name: str, settings: Settings) -> str:
    return f"{threshold(name, settings) * 1_000:g}"


def _slow(settings: Settings) -> str:
    own = scope(settings)
    return f"{brokers.SLOW.now(own)} == 1\nunless on (cluster, broker) {brokers.MAINTENANCE.now(own)} == 1"


_QUIET: Final = "30m"
_BUSY: Final = "6h"
_BETWEEN: Final = "1h"


def _traffic_stopped(settings: Settings) -> Rule:
    """Return the rule of a topic that has had records all the time, and has none now.

    The names of kafka_exporter have no cluster: the scrape adds it as ``kafka_cluster``.
    """
    name, written = "IsrwatchTrafficStopped", partitions.HIGH_WATERMARK.series(scope(settings))
    now, before = (
        f"sum by (kafka_cluster, topic) (max by (kafka_cluster, topic, partition) (rate({written}{window})))"
        for window in (f"[{_QUIET}]", f"[{_BUSY}] offset {_BETWEEN}")
    )
    return rule(
        name,
        f"{now} == 0\nand {before} > {threshold(name, settings):g}",
        "Topic {{ $labels.topic }} used to have new records and has none. First: ask the owners of its producers",
        settings,
        command="isrwatch partitions --topic {{ $labels.topic }}",
        about={"topic": "topic"},
    )
