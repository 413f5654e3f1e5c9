"""Versions of Kafka as values: what their defaults were, and which checks they did not have yet."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any, Final

from streaming.model.constants import Constants, MetadataMode
from streaming.model.switches import Switches, Truncation

if TYPE_CHECKING:
    from collections.abc import Iterator

NEWEST: Final = "kraft-4.x"

PRESETS: Final[dict[str, Constants]] = {
    NEWEST: Constants(),
    "kraft-3.9": Constants(
        eligible_leader_replicas=False,
        transaction_version=1,
        switches=Switches(exclude_unclean_shutdown=False, last_known_leader_check=False, pre_vote=False),
    ),
    # 3.x on ZooKeeper: the windows of 2.5 (KIP-537), the ISR changes of 2.7 (KIP-497). What came with KRaft alone is
    # missing: uptimes in proposals (KIP-903) and eligibility (KIP-841), ELR and what belongs to it (KIP-966).
    "zk-3.x": Constants(
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
    ),
    # Before KIP-537: short windows; leaders write their ISRs into ZooKeeper; epochs are asked for before each fetch.
    "legacy-2.4": Constants(
        metadata_mode=MetadataMode.ZOOKEEPER,
        replica_lag_time_max_ms=10_000,
        broker_session_timeout_ms=6_000,
        eligible_leader_replicas=False,
        leader_imbalance_per_broker_percentage=10,
        producer_id_expiration_ms=604_800_000,  # until KIP-854 (3.4)
        group_session_timeout_ms=10_000,  # until KIP-735 (3.0)
        transaction_version=0,
        switches=Switches(
            truncation=Truncation.LEADER_EPOCH,
            broker_epoch_check=False,
            eligibility_check=False,
            exclude_unclean_shutdown=False,
            freeze_high_watermark_under_min_isr=False,
            transaction_verification=False,
            epoch_cache_keeps_progress=False,
            isr_changes_through_controller=False,
        ),
    ),
    # What most popular texts describe: lag in messages, truncation to the high watermark, no fencing, no idempotence.
    "legacy-0.8": Constants(
        metadata_mode=MetadataMode.ZOOKEEPER,
        replica_lag_time_max_ms=10_000,
        replica_lag_max_messages=4_000,
        broker_session_timeout_ms=6_000,
        eligible_leader_replicas=False,
        leader_imbalance_per_broker_percentage=10,
        unclean_leader_election_enable=True,  # until 0.11 (KIP-106)
        offsets_retention_ms=86_400_000,  # until KIP-186 (2.0)
        producer_id_expiration_ms=604_800_000,
        group_session_timeout_ms=10_000,
        transaction_version=0,
        switches=Switches(
            truncation=Truncation.HIGH_WATERMARK,
            epoch_fencing=False,
            broker_epoch_check=False,
            eligibility_check=False,
            expand_needs_epoch_start=False,
            exclude_unclean_shutdown=False,
            freeze_high_watermark_under_min_isr=False,
            monotonic_latest_offset=False,
            transaction_verification=False,
            isr_changes_through_controller=False,
            first_registered_leads=True,
        ),
    ),
}


def differences(constants: Constants) -> Iterator[tuple[str, Any, Any]]:
    """Give (name, value, Kafka 4.x's value) of everything that differs from Kafka 4.x, switches included."""
    values, newest = _values(constants), _values(PRESETS[NEWEST])
    yield from ((name, value, newest[name]) for name, value in values.items() if value != newest[name])


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
