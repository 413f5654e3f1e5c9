"""What a snapshot says again, told by its bytes alone: most of it is known, and never becomes a Python object.

A partition within a snapshot says the same as before when the same bytes stand behind its envelope. That is skipped
only while the state is exactly what those bytes said last; whatever else is said of the partition makes it forgotten.
Knows the codec's cut and the state, no Arrow, no Spark.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import singledispatchmethod
from itertools import takewhile
from typing import TYPE_CHECKING, Final

from streaming.changes.confirmed import Confirmed
from streaming.changes.partitions import is_repeated
from streaming.contracts.codec import encode, halves
from streaming.contracts.observations import Observation, PartitionObserved, SnapshotEnd, TopicRemoved

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from streaming.changes.state import ReplicationState, TopicKey
    from streaming.contracts.identifiers import ClusterId

# Looking at many rows at once costs less than looking at each; the first ones of a run show whether there is one.
_ROWS_AT_ONCE: Final = 1024
# The log and a poller spell the same partition in two ways, and a poller adds what it inferred.
_SPELLINGS: Final = 3


@dataclass(frozen=True, slots=True)
class Told:
    """One partition within a snapshot that was decoded, and the digest of what was said of it."""

    observed: PartitionObserved
    digest: int


class Run:
    """Neighbours of one log with the same envelope but for their numbers, from a decoded one on."""

    __slots__ = ("_around", "_bodies", "_doubtful", "_envelope", "_first", "_head", "_next", "skipped")

    def __init__(
        self, envelope: PartitionObserved, cut: tuple[bytes, bytes], bodies: set[int], doubtful: set[int]
    ) -> None:
        self._envelope, self._bodies, self._doubtful = envelope, bodies, doubtful
        self._head = b"%d".join(part.replace(b"%", b"%%") for part in cut)
        self._around = sum(map(len, cut))
        self._first = self._next = envelope.sequence + 1
        self.skipped: list[int] = []

    def skip(self, payloads: Sequence[bytes], start: int) -> int:
        """Skip the next numbers as long as they repeat what was told; give the index behind them."""
        at, size = start, 1
        while at < len(payloads):
            taken = self._takes(payloads[at : at + size])
            at += taken
            if taken < size:
                break
            size = min(2 * size, _ROWS_AT_ONCE)
        return at

    def _takes(self, payloads: Sequence[bytes]) -> int:
        """Take the first of these, up to one that is news."""
        cut = self._around + len(str(self._next))
        due = [self._head % number for number in range(self._next, self._next + len(payloads))]
        heads = [payload[:cut] for payload in payloads]
        digests = [_digest(payload[cut:]) for payload in payloads]
        if heads != due or not self._bodies.issuperset(digests) or not self._doubtful.isdisjoint(digests):
            told = takewhile(self._is_told, zip(heads, due, digests, strict=True))
            digests = [digest for _, _, digest in told]
        self._next += len(digests)
        self.skipped += digests
        return len(digests)

    def _is_told(self, row: tuple[bytes, bytes, int]) -> bool:
        head, due, digest = row
        return head == due and digest in self._bodies and digest not in self._doubtful

    def confirmed(self) -> Confirmed:
        """Stand for what was skipped, one number at the least."""
        envelope = {name: getattr(self._envelope, name) for name in _ENVELOPE}
        return Confirmed(**envelope, first_sequence=self._first, sequence=self._next - 1)


_ENVELOPE: Final = tuple(item.name for item in fields(Confirmed) if item.name not in {"sequence", "first_sequence"})


def _digest(body: bytes) -> int:
    """Give 64 bits, of SipHash: that news look like one of a million known bodies happens once in 10^13 times."""
    return hash(body)


class Repeats:
    """The digests of what each partition was told within snapshots since it changed."""

    def __init__(self) -> None:
        self._bodies: dict[ClusterId, set[int]] = {}
        self._digests: dict[TopicKey, dict[int, tuple[int, ...]]] = {}

    def run_after(self, observed: Observation, payload: bytes, doubtful: set[int]) -> tuple[Run, Told] | None:
        """Begin a run behind a decoded observation; None where nothing can follow.

        What is not spelled as our own codec does, a field that stands twice for instance, is never compared by bytes.

        Args:
            observed: the observation.
            payload: its bytes.
            doubtful: digests that must not be skipped; may grow while the run goes on.
        """
        cut = halves(payload)
        if cut is None or not isinstance(observed, PartitionObserved) or encode(observed) != payload:
            return None
        bodies = self._bodies.setdefault(observed.cluster_id, set())
        return Run(observed, cut[:2], bodies, doubtful), Told(observed, _digest(cut[2]))

    def learn(self, told: Iterable[Told], touched: ReplicationState, state: ReplicationState) -> None:
        """Forget what was said of partitions that changed, and keep what is true of them now.

        Args:
            told: what was decoded.
            touched: what a fold changed.
            state: what is true after it.
        """
        for key, partitions in touched.topics.items():
            for number in partitions:
                self._bodies.get(key[0], set()).difference_update(self._digests.get(key, {}).pop(number, ()))
        for each in told:
            observed = each.observed
            known = state.topics.get((observed.cluster_id, observed.topic_id), {}).get(observed.partition)
            if known is not None and is_repeated(known, observed):
                self._keep(observed, each.digest)

    def _keep(self, observed: PartitionObserved, digest: int) -> None:
        partitions = self._digests.setdefault((observed.cluster_id, observed.topic_id), {})
        bodies = self._bodies.setdefault(observed.cluster_id, set())
        known = (digest, *(other for other in partitions.get(observed.partition, ()) if other != digest))
        bodies.difference_update(known[_SPELLINGS:])
        bodies.add(digest)
        partitions[observed.partition] = known[:_SPELLINGS]

    @singledispatchmethod
    def doubted_by(self, observed: Observation) -> set[int]:  # noqa: ARG002 - the signature of every kind
        """Give the digests of the partitions that an observation may change."""
        return set()

    @doubted_by.register
    def _(self, observed: PartitionObserved) -> set[int]:
        partitions = self._digests.get((observed.cluster_id, observed.topic_id), {})
        return set(partitions.get(observed.partition, ()))

    @doubted_by.register
    def _(self, observed: TopicRemoved) -> set[int]:
        return self._from((observed.cluster_id, observed.topic_id), 0)

    @doubted_by.register
    def _(self, observed: SnapshotEnd) -> set[int]:
        counts = dict(zip(observed.topic_ids, observed.partition_counts, strict=True))
        topics = [key for key in self._digests if key[0] == observed.cluster_id]
        return {digest for key in topics for digest in self._from(key, counts.get(key[1], 0))}

    def _from(self, key: TopicKey, count: int) -> set[int]:
        partitions = self._digests.get(key, {})
        if max(partitions, default=-1) < count:
            return set()
        return {digest for number, digests in partitions.items() if number >= count for digest in digests}
