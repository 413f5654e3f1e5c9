"""Versions of Kafka as values: what their defaults were, and which checks they did not have yet."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any, Final

from streaming.model.constants import Constants, MetadataMode
from streaming.model.switches import Switches, Truncation

if TYPE_CHECKING:
    from collections.abc import Iterator

# Without KRaft: sessions of ZooKeeper, no ELR, a controller that tolerates ten per cent of imbalance.
_BEFORE_3_3: Final = Switches(
    broker_epoch_check=False,
    eligibility_check=False,
    exclude_unclean_shutdown=False,
    freeze_high_watermark_under_min_isr=False,
    bump_leader_epoch_on_shrink=True,
    transaction_verification=False,
)

PRESETS: Final[dict[str, Constants]] = {
    "kraft-4.x": Constants(),
    "kraft-3.9": Constants(
        eligible_leader_replicas=False,
        transaction_version=1,
        switches=Switches(exclude_unclean_shutdown=False, last_known_leader_check=False, pre_vote=False),
    ),
    # 2.5 to 3.9 with ZooKeeper: KIP-537 raised the windows, KIP-497 sent ISR changes to the controller.
    "zk-3.x": Constants(
        metadata_mode=MetadataMode.ZOOKEEPER,
        broker_session_timeout_ms=18_000,
        eligible_leader_replicas=False,
        leader_imbalance_per_broker_percentage=10,
        transaction_version=1,
        switches=_BEFORE_3_3,
    ),
    "legacy-2.4": Constants(
        metadata_mode=MetadataMode.ZOOKEEPER,
        replica_lag_time_max_ms=10_000,
        broker_session_timeout_ms=6_000,
        eligible_leader_replicas=False,
        leader_imbalance_per_broker_percentage=10,
        transaction_version=0,
        switches=Switches(
            truncation=Truncation.LEADER_EPOCH,
            isr_changes_through_controller=False,
            broker_epoch_check=False,
            eligibility_check=False,
            exclude_unclean_shutdown=False,
            freeze_high_watermark_under_min_isr=False,
            bump_leader_epoch_on_shrink=True,
            transaction_verification=False,
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
        unclean_leader_election_enable=True,
        transaction_version=0,
        switches=Switches(
            truncation=Truncation.HIGH_WATERMARK,
            isr_changes_through_controller=False,
            epoch_fencing=False,
            broker_epoch_check=False,
            eligibility_check=False,
            expand_needs_epoch_start=False,
            exclude_unclean_shutdown=False,
            freeze_high_watermark_under_min_isr=False,
            bump_leader_epoch_on_shrink=True,
            monotonic_latest_offset=False,
            transaction_verification=False,
            first_registered_leads=True,
        ),
    ),
}


def differences(constants: Constants) -> Iterator[tuple[str, Any, Any]]:
    """Give (name, value, Kafka 4.x's value) of everything that differs from Kafka 4.x, switches included."""
    newest = PRESETS["kraft-4.x"]
    for given, usual in ((constants, newest), (constants.switches, newest.switches)):
        for item in fields(given):
            value, default = getattr(given, item.name), getattr(usual, item.name)
            if item.name != "switches" and value != default:
                yield item.name, value, default
