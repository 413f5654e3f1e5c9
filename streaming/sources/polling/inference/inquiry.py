"""Questions to the brokers of a polled cluster that its metadata does not answer, and how each one ended. Pure values.

The rules that choose questions and draw conclusions from answers do no IO: they see only these values. Sockets carry
the questions out on a real cluster, and the model answers them in a simulated one, so the same rules run on both.

Each broker has one connection, which is kept. It is opened again after the broker has closed it. A second one is opened
only to learn whether the address of a silent broker still accepts connections.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streaming.contracts.identifiers import BrokerId, Micros
    from streaming.sources.polling.view import PartitionView


class Ask(StrEnum):
    """Kind of a question."""

    PRESENCE = "presence"
    """Its id and the brokers it lists: DescribeCluster with fenced brokers (KIP-1073), else Metadata of no topic."""
    QUORUM = "quorum"
    """Leader and epoch of the metadata quorum, which a broker asks its controller for (DescribeQuorum)."""
    PARTITIONS = "partitions"
    """Partitions of topics: DescribeTopicPartitions, which has eligible leader replicas (KIP-966), else Metadata."""
    LOG_ENDS = "log_ends"
    """Ends of its own replicas: ListOffsets with replica id -2, which followers answer, too."""
    EPOCH_ENDS = "epoch_ends"
    """Ends of leader epochs, asked of the present leader (OffsetForLeaderEpoch, KIP-279)."""


class BrokerQuestion(NamedTuple):
    """Question to one broker.

    ``partitions`` are topics, numbers and, for ``EPOCH_ENDS`` alone, leader epochs; -1 otherwise. A whole topic is
    meant by ``PARTITIONS``, of which the number is -1.
    """

    ask: Ask
    broker: BrokerId
    partitions: tuple[tuple[str, int, int], ...] = ()


class Meeting(StrEnum):
    """Outcome of a question."""

    ANSWERED = "answered"
    """Answer of the node whose id was asked for, and of no other."""
    REFUSED = "refused"
    """Refusal of a new connection at once: no process listens there."""
    CLOSED = "closed"
    """End of the open connection, which the node closed."""
    SILENT = "silent"
    """No answer on an open connection so far. It is met again each second while that lasts."""
    UNREACHABLE = "unreachable"
    """Attempt at a new connection that was neither accepted nor refused in time."""
    WRONG_NODE = "wrong_node"
    """Another node answered: nothing is known of the one that was asked."""


class Presence(NamedTuple):
    """Brokers that a broker lists as not fenced, and as fenced (None where it cannot list these)."""

    controller: BrokerId | None
    unfenced: frozenset[BrokerId]
    fenced: frozenset[BrokerId] | None


class QuorumLeader(NamedTuple):
    """Leader and epoch of the metadata quorum; the leader is -1 while there is none."""

    leader: int
    epoch: int


Partitions: TypeAlias = "Mapping[str, Mapping[int, PartitionView]]"
Offsets: TypeAlias = "Mapping[tuple[str, int], int]"
Content: TypeAlias = "Presence | QuorumLeader | Partitions | Offsets"
"""Content of PRESENCE, QUORUM, PARTITIONS by topic and number; offsets of LOG_ENDS and EPOCH_ENDS likewise."""


class Met(NamedTuple):
    """End of one question.

    Attributes:
        question: what was asked.
        asked: when it was sent, or the connection was begun, by the monotonic clock.
        ended: when it was answered, refused or closed; of silence now.
        how: what it met.
        connection: number of the connection to this broker, which grows with each new one.
        content: of an answer; None of everything else, and of an answer that is an error.
        error: Kafka's error code of an answer.
    """

    question: BrokerQuestion
    asked: Micros
    ended: Micros
    how: Meeting
    connection: int
    content: Content | None = None
    error: int = 0
