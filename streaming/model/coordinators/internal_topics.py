"""Topics that Kafka, its clients and its frameworks keep their state in: ordinary topics with unusual configurations.

Create one with ``Admin.create_topic``; ``InternalTopic.config`` is its configuration.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from streaming.model.messages.clients import CONSUMER_OFFSETS, TRANSACTION_STATE

if TYPE_CHECKING:
    from streaming.model.constants import Constants

COMPACT: Final = "compact"
DELETE: Final = "delete"
COMPACT_AND_DELETE: Final = "compact,delete"
SHARE_GROUP_STATE: Final = "__share_group_state"
REMOTE_LOG_METADATA: Final = "__remote_log_metadata"


class InternalTopic(NamedTuple):
    """Settings with which such a topic is created.

    Attributes:
        replication_factor: None leaves it to the brokers' ``default.replication.factor`` (Streams spells that -1).
        min_isr: None leaves it to the brokers' ``min.insync.replicas``.
        unclean: None leaves it to the brokers' ``unclean.leader.election.enable``.
    """

    name: str
    partitions: int
    replication_factor: int | None
    cleanup: str
    min_isr: int | None = None
    unclean: bool | None = None

    @property
    def config(self) -> dict[str, str]:
        """Topic configuration, by Kafka's keys."""
        config = {"cleanup.policy": self.cleanup}
        if self.min_isr is not None:
            config["min.insync.replicas"] = str(self.min_isr)
        if self.unclean is not None:
            config["unclean.leader.election.enable"] = str(self.unclean).lower()
        return config


def coordinators_topics(constants: Constants) -> tuple[InternalTopic, ...]:
    """Give the topics that brokers create for their coordinators, and for tiered storage.

    ``__cluster_metadata`` is none of them: its voters replicate it, and no client sees it.
    """
    return (
        InternalTopic(
            CONSUMER_OFFSETS,
            constants.offsets_topic_num_partitions,
            constants.offsets_topic_replication_factor,
            COMPACT,
        ),
        InternalTopic(
            TRANSACTION_STATE,
            constants.transaction_state_log_num_partitions,
            constants.transaction_state_log_replication_factor,
            COMPACT,
            constants.transaction_state_log_min_isr,
            unclean=False,
        ),
        # KIP-932 prunes by DeleteRecords what a share coordinator does not need any more.
        InternalTopic(SHARE_GROUP_STATE, 50, 3, DELETE, 2),
        InternalTopic(REMOTE_LOG_METADATA, 50, 3, DELETE),
    )


def changelog(
    application: str, store: str, partitions: int, *, replication_factor: int | None = None, windowed: bool = False
) -> InternalTopic:
    """Give the topic from which Kafka Streams rebuilds a state store: as many partitions as the store's source has.

    Only as safe as its replication factor, which the application's ``replication.factor`` says.
    """
    cleanup = COMPACT_AND_DELETE if windowed else COMPACT
    return InternalTopic(f"{application}-{store}-changelog", partitions, replication_factor, cleanup)


def connect(
    configs: str = "connect-configs", offsets: str = "connect-offsets", statuses: str = "connect-status"
) -> tuple[InternalTopic, InternalTopic, InternalTopic]:
    """Give the topics of a Connect cluster: its workers' configuration names them.

    Configurations have an order across all connectors, so one partition holds them all.
    """
    return (
        InternalTopic(configs, 1, 3, COMPACT),
        InternalTopic(offsets, 25, 3, COMPACT),
        InternalTopic(statuses, 5, 3, COMPACT),
    )
