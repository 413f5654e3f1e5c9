"""Blocks of a full report that say what the state says already: recognised by digest, never decoded.

The digest of a block is kept while the block describes the state as it is now: any change of one of its topic's
partitions makes it forgotten. Depends on the codec and the fold's rules, not on Arrow or Spark.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, fields
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

from streaming.changes.partitions import is_repeated, news
from streaming.changes.unchanged_run import UnchangedRun
from streaming.contracts.blocks import PartitionsBlock, PartitionsObserved, cut_block
from streaming.contracts.codec import encode, envelope_of
from streaming.contracts.observations import Observation, PartitionObserved, SnapshotEnd, TopicRemoved

if TYPE_CHECKING:
    from collections.abc import Iterable

    from streaming.changes.state import ReplicationState, TopicKey
    from streaming.contracts.observations import Heartbeat

# The log and a poller encode the same partitions differently.
_ENCODINGS: Final = 3
_ENVELOPE: Final = tuple(item.name for item in fields(UnchangedRun) if item.name not in {"sequence", "first_sequence"})
_SEQUENCE: Final = b',"sequence":'


def digest_of(envelope: Observation, body: bytes) -> bytes:
    """Return 128 bits that stand for what a block says, and of which cluster; a poller reports less than the log."""
    return blake2b(f"{envelope.cluster_id}/{envelope.authority}/".encode() + body, digest_size=16).digest()


def decoded_block(observed: PartitionsObserved, payload: bytes) -> DecodedBlock | None:
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


@dataclass(slots=True)
class RepeatedRun:
    """Consecutive repeated blocks of one log, whose envelopes differ in the sequence number only."""

    envelope: Heartbeat
    next_head: bytes
    digests: list[bytes] = field(default_factory=list)

    def extend(self, digest: bytes) -> None:
        """Add the next block."""
        self.digests.append(digest)
        self.next_head = _with_next_sequence(self.next_head)

    def as_observation(self) -> UnchangedRun:
        """Return what stands for the blocks of the run."""
        envelope = {name: getattr(self.envelope, name) for name in _ENVELOPE}
        first = self.envelope.sequence
        return UnchangedRun(**envelope, first_sequence=first, sequence=first + len(self.digests) - 1)


def _with_next_sequence(head: bytes) -> bytes:
    """Return an encoded envelope with the next sequence number."""
    before, mark, rest = head.partition(_SEQUENCE)
    digits, comma, after = rest.partition(b",")
    return b"%b%b%d%b%b" % (before, mark, int(digits) + 1, comma, after)


@dataclass(slots=True)
class _Topic:
    """The digests of a topic's blocks by their first partition, the newest first; and its last partition."""

    last_partition: int = -1
    digests: dict[int, tuple[bytes, ...]] = field(default_factory=dict)

    def all(self) -> set[bytes]:
        return {digest for digests in self.digests.values() for digest in digests}


class RepeatedBlocks:
    """The digests of the blocks that describe what the state says now."""

    def __init__(self) -> None:
        self._repeated: set[bytes] = set()
        self._topics: defaultdict[TopicKey, _Topic] = defaultdict(_Topic)

    def __len__(self) -> int:
        """Return how many blocks are remembered."""
        return len(self._repeated)

    def run_with(self, run: RepeatedRun | None, head: bytes, body: bytes, doubtful: set[bytes]) -> RepeatedRun | None:
        """Return the run that a block extends or begins; None if it repeats nothing.

        Args:
            run: that of the block before it.
            head: its encoded envelope.
            body: what it says of its topic.
            doubtful: digests that must be decoded all the same.
        """
        if run is None or run.next_head != head:
            envelope = envelope_of(head)
            if envelope is None or envelope.sequence < 1:
                return None
            run = RepeatedRun(envelope, head)
        digest = digest_of(run.envelope, body)
        if digest not in self._repeated or digest in doubtful:
            return None
        run.extend(digest)
        return run

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
            states = state.topics.get((block.observed.cluster_id, block.observed.topic_id), {})
            if all(
                (partition := states.get(observed.partition)) is not None and is_repeated(partition, observed)
                for observed in news(block.observed, states)
            ):
                self._remember(block)

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
