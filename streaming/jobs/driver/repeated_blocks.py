"""Blocks of a full report that say what the state says already: recognised by digest, never decoded.

The digest of a block is kept while the block describes the state as it is now: any change of one of its topic's
partitions makes it forgotten. Depends on the codec and the fold's rules, not on Arrow or Spark.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from streaming.changes.partitions import is_repeated, news
from streaming.changes.state import ListedPartitions
from streaming.contracts.blocks import PartitionsBlock, PartitionsObserved, cut_block
from streaming.contracts.codec import encode
from streaming.contracts.observations import Observation, PartitionObserved, SnapshotEnd, TopicRemoved
from streaming.jobs.streams.left_out_blocks import DigestPublisher, cut_end, digest_of, new_run

if TYPE_CHECKING:
    from collections.abc import Container, Iterable
    from collections.abc import Set as AbstractSet
    from pathlib import Path

    from streaming.changes.state import ReplicationState, TopicKey
    from streaming.contracts.identifiers import ClusterId
    from streaming.contracts.observations import SourceKind
    from streaming.jobs.streams.left_out_blocks import LeftOut, RepeatedRun

# The log and a poller encode the same partitions differently.
_ENCODINGS: Final = 3


def with_digest(observed: PartitionsObserved, payload: bytes) -> DecodedBlock | None:
    """Return a block to be remembered; None if our own codec would write it otherwise.

    Of another encoding, with a field that stands twice for instance, a part of the bytes may say something else.
    """
    cut = cut_block(payload)
    return DecodedBlock(observed, digest_of(observed, cut[1])) if cut and encode(observed) == payload else None


@dataclass(frozen=True, slots=True)
class DecodedBlock:
    """A block that was decoded, and its digest."""

    observed: PartitionsObserved
    digest: bytes


@dataclass(frozen=True, slots=True)
class _Difference:
    """What is in one set and not in another, as they are at the moment."""

    one: AbstractSet[bytes]
    other: AbstractSet[bytes]

    def __contains__(self, digest: object) -> bool:
        return digest in self.one and digest not in self.other


@dataclass(slots=True)
class _Topic:
    """The digests of a topic's blocks by their first partition, the newest first; and its last partition."""

    last_partition: int = -1
    digests: dict[int, tuple[bytes, ...]] = field(default_factory=dict)

    def all(self) -> set[bytes]:
        return {digest for digests in self.digests.values() for digest in digests}


class RepeatedBlocks:
    """The digests of the blocks that describe what the state says now."""

    def __init__(self, published: Path | None = None) -> None:
        """Begin without any.

        Args:
            published: the file in which the workers find their digests; None if they are not to leave blocks out.
        """
        self._repeated: set[bytes] = set()
        self._topics: defaultdict[TopicKey, _Topic] = defaultdict(_Topic)
        self._lists: dict[tuple[ClusterId, SourceKind], tuple[bytes, bytes]] = {}
        self._is_published = True
        self._publisher = DigestPublisher(published)
        self._publisher.withdraw()

    def __len__(self) -> int:
        """Return how many blocks are remembered."""
        return len(self._repeated)

    def but(self, doubtful: AbstractSet[bytes]) -> Container[bytes]:
        """Return the digests but for some, which may grow: their blocks must be decoded all the same."""
        return _Difference(self._repeated, doubtful)

    def run_left_out(self, left_out: LeftOut, repeated: Container[bytes]) -> RepeatedRun | None:
        """Return the run that a worker left out; None if its blocks must be read, because the state has changed since.

        Args:
            left_out: what stands for it.
            repeated: the digests of blocks that still repeat the state.
        """
        digests = self._publisher.digests_of(left_out)
        run = new_run(left_out.payload)
        if run is None or digests is None or not all(digest in repeated for digest in digests):
            return None
        run.extend(digests)
        return run

    def end_left_out(self, left_out: LeftOut) -> bytes | None:
        """Return the end of a report whose lists a worker left out; None if it must be read, or if it is none."""
        digests = self._publisher.digests_of(left_out)
        lists = [lists for digest, lists in self._lists.values() if digests == [digest]]
        return left_out.payload + lists[0] if lists else None

    def listed(self, observed: SnapshotEnd, payload: bytes) -> None:
        """Remember what a report listed at its end: the next one will most likely list the same."""
        end = cut_end(payload)
        before = self._lists.get((observed.cluster_id, observed.authority))
        if end is not None and (before is None or before[1] != end.lists):
            self._lists[observed.cluster_id, observed.authority] = end.digest, end.lists
            self._is_published = False

    def learn(self, decoded: Iterable[DecodedBlock], touched: ReplicationState, state: ReplicationState) -> None:
        """Forget the blocks of topics that changed, and remember those that say what the state says now.

        Args:
            decoded: blocks of the batch.
            touched: what the fold of the batch changed.
            state: after the fold.
        """
        for key in touched.topics:
            if (topic := self._topics.pop(key, None)) is not None:
                self._repeated -= topic.all()
        for block in decoded:
            if _describes(block.observed, state):
                self._remember(block)
                self._is_published = False
        if not self._is_published:
            digests = (*self._repeated, *(digest for digest, _ in self._lists.values()))
            self._is_published = self._publisher.publish(digests)

    def _remember(self, block: DecodedBlock) -> None:
        observed = block.observed
        topic = self._topics[observed.cluster_id, observed.topic_id]
        first = observed.partitions[0]
        others = tuple(digest for digest in topic.digests.get(first, ()) if digest != block.digest)
        self._repeated.difference_update(others[_ENCODINGS - 1 :])
        topic.digests[first] = (block.digest, *others[: _ENCODINGS - 1])
        topic.last_partition = max(topic.last_partition, observed.partitions[-1])
        self._repeated.add(block.digest)

    def at_risk(self, observed: Observation) -> set[bytes]:
        """Return the digests of the blocks that an observation may change."""
        if isinstance(observed, PartitionObserved | PartitionsBlock | TopicRemoved):
            topic = self._topics.get((observed.cluster_id, observed.topic_id))
            return set() if topic is None else topic.all()
        if isinstance(observed, SnapshotEnd):
            counts = dict(zip(observed.topic_ids, observed.partition_counts, strict=True))
            return {
                digest
                for (cluster_id, topic_id), topic in self._topics.items()
                if cluster_id == observed.cluster_id and topic.last_partition >= counts.get(topic_id, 0)
                for digest in topic.all()
            }
        return set()


def _describes(block: PartitionsObserved, state: ReplicationState) -> bool:
    """Return whether a block says what the state says now."""
    states = state.topic((block.cluster_id, block.topic_id))
    if isinstance(states, ListedPartitions) and states.are_of(block):
        return True
    return all(
        (partition := states.get(observed.partition)) is not None and is_repeated(partition, observed)
        for observed in news(block, states)
    )
