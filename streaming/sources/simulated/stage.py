"""What faults, producers and writers find on the stage of a simulation. An interface; ``simulation`` is the stage."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from streaming.contracts.identifiers import BrokerId, TopicId
    from streaming.model.cluster.cluster import Cluster
    from streaming.model.messages.network import Link
    from streaming.sources.simulated.network import SimulatedNetwork
    from streaming.sources.simulated.scenario import Scenario


class Stage(Protocol):
    """A cluster under a scenario.

    Attributes:
        scenario: the cluster and its fate, as written.
        cluster: the model.
        network: its links.
        topic_ids: of the topics that exist, by name.
    """

    scenario: Scenario
    cluster: Cluster
    network: SimulatedNetwork
    topic_ids: dict[str, TopicId]

    def start(self, broker: BrokerId) -> None:
        """Operator starts a process."""

    def administer(self, request: Callable[[], object]) -> None:
        """Administrator asks, again and again while no controller is active."""

    def release(self, link: Link) -> None:
        """A held or slow link is itself again."""

    def partitions_of(self, topic_id: TopicId) -> int:
        """Count the partitions of a topic that exists."""
