"""The samples of a configuration."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from streaming.contracts.identifiers import Micros
from streaming.sources.address import parse_servers
from streaming.sources.permissions import grantee_of
from streaming.sources.protocol.connection import dialer
from streaming.sources.protocol.peers import Peers
from streaming.sources.protocol.security import from_client
from streaming.sources.samples.directories import DirectoriesKind
from streaming.sources.samples.groups import GroupFilter, GroupsKind
from streaming.sources.samples.offsets import OffsetsKind
from streaming.sources.samples.quorum import QuorumKind
from streaming.sources.samples.settings import SettingsKind
from streaming.sources.samples.source import SamplesSource
from streaming.sources.samples.spark_groups import SparkGroupsKind
from streaming.sources.samples.speed import SpeedKind
from streaming.sources.samples.transactions import TransactionsKind

if TYPE_CHECKING:
    from collections.abc import Callable

    from streaming.settings import CollectSettings, Settings
    from streaming.sources.append_times import AppendTimes
    from streaming.sources.samples.kind import Kind

LEAST_SPEED_SECONDS: Final = 10.0
"""So long a round of the comparison of brokers lasts at least: its rule counts rounds."""


_SETTLED_ROUNDS: Final = 3  # positions are of one round ago, at most, and two clocks may differ


def samples_name(settings: Settings) -> str:
    """Return the name of the source."""
    return f"samples:{settings.collect.collector}"


def open_samples(
    settings: Settings, report: Callable[[str], None], append_times: AppendTimes | None = None
) -> list[SamplesSource]:
    """Create the source of the samples of one cluster.

    Args:
        settings: of the cluster.
        report: takes one line for the user.
        append_times: what brokers' agents say, if any are scraped.

    Raises:
        ConfigurationError: an address or a client property is wrong.
        Unsupported: only librdkafka can log in so.
    """
    collect, cluster, peers = settings.collect, settings.cluster, Peers()
    source = SamplesSource(
        parse_servers(cluster.bootstrap_servers),
        dialer(from_client(cluster.client), peers),
        partial(kinds_of, collect, report, append_times),
        cluster=cluster.name,
        name=samples_name(settings),
        view_micros=_micros(collect.offsets_seconds),
        peers=peers,
        grantee=grantee_of(cluster.bootstrap_servers, cluster.client),
        report=report,
    )
    return [source]


def kinds_of(
    collect: CollectSettings, report: Callable[[str], None], append_times: AppendTimes | None = None
) -> list[Kind]:
    """Create what is asked for, in this order: see ``SpeedKind``; then directories, for the sizes of logs."""
    directories = DirectoriesKind(_micros(collect.directories_seconds))
    offsets = OffsetsKind(_micros(collect.offsets_seconds), directories)
    groups = GroupsKind(_micros(collect.groups_seconds), offsets, GroupFilter(collect.groups, collect.groups_exclude))
    kinds: list[Kind] = [
        SpeedKind(_micros(max(collect.offsets_seconds, LEAST_SPEED_SECONDS)), offsets, append_times),
        directories,
        offsets,
        groups,
        QuorumKind(_micros(collect.quorum_seconds)),
        TransactionsKind(_micros(collect.transactions_seconds), offsets.held),
        SettingsKind(_micros(collect.config_seconds)),
    ]
    if collect.spark_checkpoints:
        kinds.append(
            SparkGroupsKind(
                _micros(collect.groups_seconds),
                _micros(_SETTLED_ROUNDS * max(collect.groups_seconds, collect.offsets_seconds)),
                offsets,
                {name: Path(folder) for name, folder in collect.spark_checkpoints.items()},
                is_group=groups.is_group,
                report=report,
            )
        )
    return kinds


def _micros(seconds: float) -> Micros:
    return Micros(round(seconds * 1_000_000))
