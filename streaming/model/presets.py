"""Versions of Kafka as values: what their defaults were, and which checks they did not have yet."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any, Final

from streaming.model.constants import Constants, MetadataMode
from streaming.model.switches import Switches, Truncation

NEWEST: Final = "kraft-4.x"

# 3.x on ZooKeeper: the windows of 2.5 (KIP-537), the ISR changes of 2.7 (KIP-497). What came with KRaft alone is
# missing: broker epochs in proposals (KIP-903) and eligibility (KIP-841), ELR and what belongs to it (KIP-966).
_ZOOKEEPER_3: Final = Constants(
    metadata_mode=MetadataMode.ZOOKEEPER,
    broker_session_timeout_ms=18_000,
    eligible_leader_replicas=False,
    leader_imbalance_per_broker_percentage=10,
    transaction_version=0,
    switches=Switches(
        broker_epoch_check=False,
        eligibility_check=False,
        exclude_unclean_shutdown=False,
        freeze_high_watermark_under_min_isr=False,
        transaction_verification=False,
    ),
)
# Before KIP-537: short windows; leaders write their ISRs into ZooKeeper; epochs are asked for before each fetch.
_LEGACY_2_4: Final = replace(
    _ZOOKEEPER_3,
    replica_lag_time_max_ms=10_000,
    broker_session_timeout_ms=6_000,
    producer_id_expiration_ms=604_800_000,  # until KIP-854 (3.4)
    group_session_timeout_ms=10_000,  # until KIP-735 (3.0)
    switches=replace(
        _ZOOKEEPER_3.switches,
        truncation=Truncation.LEADER_EPOCH,
        epoch_cache_keeps_progress=False,
        isr_changes_through_controller=False,
    ),
)
# What most popular texts describe: lag in messages, truncation to the high watermark, no fencing, no idempotence.
_LEGACY_0_8: Final = replace(
    _LEGACY_2_4,
    replica_lag_max_messages=4_000,
    unclean_leader_election_enable=True,  # until 0.11 (KIP-106)
    offsets_retention_ms=86_400_000,  # until KIP-186 (2.0)
    switches=replace(
        _LEGACY_2_4.switches,
        truncation=Truncation.HIGH_WATERMARK,
        epoch_cache_keeps_progress=True,  # it has no epochs to keep
        epoch_fencing=False,
        expand_needs_epoch_start=False,
        monotonic_latest_offset=False,
        first_registered_leads=True,
    ),
)

PRESETS: Final[dict[str, Constants]] = {
    NEWEST: Constants(),
    "kraft-3.9": Constants(
        eligible_leader_replicas=False,
        transaction_version=1,
        switches=Switches(exclude_unclean_shutdown=False, last_known_leader_check=False, pre_vote=False),
    ),
    "zk-3.x": _ZOOKEEPER_3,
    "legacy-2.4": _LEGACY_2_4,
    "legacy-0.8": _LEGACY_0_8,
}


def table() -> tuple[tuple[str, ...], ...]:
    """Compare the presets: a heading, then a row for each constant and switch in which any two differ.

    A cell is empty where a preset does as Kafka 4.x does.
    """
    columns = {name: _values(constants) for name, constants in PRESETS.items()}
    newest = columns.pop(NEWEST)
    rows = [("", NEWEST, *columns)]
    for name, usual in newest.items():
        others = [column[name] for column in columns.values()]
        if any(value != usual for value in others):
            rows.append((name, str(usual), *("" if value == usual else str(value) for value in others)))
    return tuple(rows)


def _values(constants: Constants) -> dict[str, Any]:
    """Everything by its name, switches beside constants."""
    given = {item.name: getattr(constants, item.name) for item in fields(constants) if item.name != "switches"}
    return given | {item.name: getattr(constants.switches, item.name) for item in fields(constants.switches)}
