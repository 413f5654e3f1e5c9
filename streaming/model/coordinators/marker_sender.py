"""A decision is carried to the leader of every partition, until each has its marker (``TransactionMarkerChannel``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from streaming.model.coordinators.transaction_state import MARKER, TransactionMetadata
from streaming.model.errors import Error
from streaming.model.messages.transactions import MarkersDue, WriteTxnMarkersRequest, WriteTxnMarkersResponse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from streaming.contracts.identifiers import BrokerId, TopicPartition
    from streaming.model.broker.metadata_cache import MetadataCache
    from streaming.model.network_client import NetworkClient

# Another coordinator, or a newer session, has overtaken this decision.
_OVERTAKEN: Final = frozenset({Error.INVALID_PRODUCER_EPOCH, Error.TRANSACTION_COORDINATOR_FENCED})
# A deleted topic needs no marker.
_SETTLED: Final = frozenset({Error.NONE, Error.UNKNOWN_TOPIC_OR_PARTITION})


class _Decision:
    """Which partitions have no marker yet; True while one is on its way."""

    def __init__(self, metadata: TransactionMetadata, coordinator_epoch: int) -> None:
        self.metadata = metadata
        self.coordinator_epoch = coordinator_epoch
        self.missing = dict.fromkeys(metadata.partitions, False)


class MarkerSender:
    """Decisions whose markers are not all written.

    Args:
        written: told once every partition has its marker, and again after each :meth:`try_again`.
    """

    def __init__(
        self,
        metadata_cache: MetadataCache,
        network: NetworkClient,
        retry_backoff_ms: int,
        written: Callable[[int, str], None],
    ) -> None:
        self._metadata_cache = metadata_cache
        self._network = network
        self._retry_backoff_ms = retry_backoff_ms
        self._written = written
        self._decisions: dict[str, _Decision] = {}

    def send(self, now: int, transactional_id: str, metadata: TransactionMetadata, coordinator_epoch: int) -> None:
        """Coordinator has decided; its record is committed."""
        self._decisions[transactional_id] = _Decision(metadata, coordinator_epoch)
        self._send(now, transactional_id)

    def forget(self, transactional_ids: Iterable[str]) -> None:
        """They are complete, or another broker coordinates them."""
        for transactional_id in transactional_ids:
            self._decisions.pop(transactional_id, None)

    def try_again(self, transactional_id: str, metadata: TransactionMetadata) -> None:
        """Go on after a wait."""
        self._network.outbox.after(self._retry_backoff_ms, MarkersDue(transactional_id, metadata.producer_epoch))

    def retry(self, now: int, timer: MarkersDue) -> None:
        """The wait is over."""
        decision = self._decisions.get(timer.transactional_id)
        if decision is not None and decision.metadata.producer_epoch == timer.producer_epoch:
            self._send(now, timer.transactional_id)

    def _send(self, now: int, transactional_id: str) -> None:
        decision = self._decisions[transactional_id]
        by_leader: dict[BrokerId, list[TopicPartition]] = {}
        for key in [key for key, is_sent in decision.missing.items() if not is_sent]:
            leader_of_key = self._metadata_cache.leader_of(key)
            if leader_of_key.error is Error.NONE:
                by_leader.setdefault(leader_of_key.leader, []).append(key)
                decision.missing[key] = True
            elif leader_of_key.error in _SETTLED:
                del decision.missing[key]
        for leader, keys in by_leader.items():
            self._request(transactional_id, decision, leader, tuple(keys))
        if not decision.missing:
            self._written(now, transactional_id)
        elif not all(decision.missing.values()):
            self.try_again(transactional_id, decision.metadata)

    def _request(
        self, transactional_id: str, decision: _Decision, leader: BrokerId, keys: tuple[TopicPartition, ...]
    ) -> None:
        metadata = decision.metadata
        request = WriteTxnMarkersRequest(
            self._network.header(),
            metadata.producer_id,
            metadata.producer_epoch,
            MARKER[metadata.state],
            decision.coordinator_epoch,
            keys,
        )
        self._network.send(
            leader, request, lambda now, answer: self._answered(now, transactional_id, decision, keys, answer)
        )

    def _answered(
        self,
        now: int,
        transactional_id: str,
        decision: _Decision,
        keys: tuple[TopicPartition, ...],
        response: WriteTxnMarkersResponse | None,
    ) -> None:
        if self._decisions.get(transactional_id) is not decision:
            return
        errors = dict(response.errors) if response else dict.fromkeys(keys, Error.NOT_LEADER_OR_FOLLOWER)
        if _OVERTAKEN & set(errors.values()):
            del self._decisions[transactional_id]
            return
        for key, error in errors.items():
            if error in _SETTLED:
                del decision.missing[key]
            else:
                decision.missing[key] = False
        if not decision.missing:
            self._written(now, transactional_id)
        elif not all(decision.missing.values()):
            self.try_again(transactional_id, decision.metadata)
