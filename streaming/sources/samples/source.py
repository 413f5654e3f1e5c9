"""Samples of a real cluster, as a source: every broker is asked for what only it knows, again and again.

It orders no partitions (``SourceKind.NONE``). What a dead or hung broker would say is missing; nothing else is late.
Its times never run backwards, or a table would keep its rows until a clock that was set back is where it was.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from streaming.contracts.identifiers import NO_BROKER, BrokerId, Micros
from streaming.contracts.observations import SourceKind
from streaming.errors import ConnectionRefused
from streaming.name_patterns import NamePatterns
from streaming.sources.permissions import ANYBODY, PermissionDenied, Probe, addressed, grantee_of
from streaming.sources.polling.broker import ConnectedBrokers
from streaming.sources.polling.metadata import AddressRotation
from streaming.sources.polling.unseen import listener_name, unseen_sentence
from streaming.sources.protocol.addresses import Address, Peers, parse_servers
from streaming.sources.protocol.connection import NodeTooOld, ServiceRefused, dialer
from streaming.sources.protocol.identity import NodeIdentity, Role, WrongNode, require
from streaming.sources.protocol.security import from_client
from streaming.sources.samples.directories import DirectoriesKind
from streaming.sources.samples.groups.groups import GroupsKind
from streaming.sources.samples.groups.readable import ReadableKind
from streaming.sources.samples.groups.spark import SparkGroupsKind
from streaming.sources.samples.kind import BrokerCalls, ProbingKind
from streaming.sources.samples.offsets import OffsetsKind
from streaming.sources.samples.quorum import QuorumKind
from streaming.sources.samples.settings import SettingsKind
from streaming.sources.samples.speed import KIND as SPEED
from streaming.sources.samples.speed import SpeedKind
from streaming.sources.samples.transactions import TransactionsKind
from streaming.sources.source import AT_ONCE, Timer, monotonic

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from streaming.contracts.observations import Observation
    from streaming.settings import CollectSettings, Settings
    from streaming.sources.append_times import AppendTimes
    from streaming.sources.permissions import Grantee
    from streaming.sources.polling.view import ClusterView
    from streaming.sources.protocol.connection import Connection, Dial
    from streaming.sources.samples.kind import BrokerAnswer, Kind, Work

METADATA: Final = "metadata"
_LISTENER: Final = "listener"
_ANYONE: Final = BrokerId(-2)
_MAX_BLOCK: Final = 1_000_000  # microseconds, of one poll
VIEW_MICROS: Final = 1_000_000
"""So long questions that are due wait for the view that is asked for at the same moment."""
_BELIEVED: Final = 3_600_000_000  # what is further ahead of its clock, the job refuses (``sources.is_ahead``)


class SamplesSource:
    """Asks the brokers of a cluster for samples.

    Args:
        servers: the first brokers to ask which brokers there are.
        dial: opens a connection.
        new_kinds: creates what is asked for; again for another cluster under the same addresses.
        cluster: the display name of the cluster.
        name: name of the source on the bus, for example ``samples:collector-1``.
        view_micros: how often it is asked which brokers and partitions there are.
        peers: note what its connections see.
        grantee: whom the brokers see.
        report: takes one line for the user.
        seconds: timeout of each request.
    """

    def __init__(  # noqa: PLR0913 - one argument per setting
        self,
        servers: Sequence[Address],
        dial: Dial,
        new_kinds: Callable[[], Sequence[Kind]],
        *,
        cluster: str,
        name: str,
        view_micros: Micros,
        peers: Peers,
        grantee: Grantee = ANYBODY,
        report: Callable[[str], None] = lambda _: None,
        seconds: float = 5.0,
    ) -> None:
        self.name, self.peers = name, peers
        self._cluster, self._grantee = cluster, grantee
        self._turns = AddressRotation(servers)
        self._unreached: list[Address] = []
        self._view_of = ConnectedBrokers(dial, cluster=cluster, seconds=seconds).view
        self._calls = BrokerCalls(dial, name=name, seconds=seconds, ahead=SPEED, require=self._require)
        self._new_kinds, self.kinds = new_kinds, list(new_kinds())
        self._view: ClusterView | None = None
        self._view_due, self._view_until = Timer(view_micros), AT_ONCE
        self._reported_at = AT_ONCE
        self._refusals: list[ConnectionRefused] = []
        self._say, self._is_too_old = report, False
        self._raised: dict[tuple[str, BrokerId], str] = {}
        self._wrong: set[BrokerId] = set()
        self._unseen: frozenset[BrokerId] = frozenset()

    @property
    def unseen_brokers(self) -> frozenset[BrokerId]:
        """Brokers that run and have no listener of the name that is asked: they give no samples."""
        return frozenset() if self._view is None else self._view.unseen

    def poll(self, now: Micros) -> Sequence[Observation]:
        """Return the samples that have arrived, or wait for some for at most a second.

        Raises:
            ConnectionRefused: no broker says which brokers there are, or a permission is missing; the latter is raised
                once.
        """
        skew = now - monotonic()
        until = monotonic() + _MAX_BLOCK
        while True:
            self._ask_due(skew)
            left = min(until, self._view_due.next_at, *self._next_times()) - monotonic()
            observations = [
                each for answer in self._calls.take(left / 1_000_000) for each in self._observations(answer, skew)
            ]
            if observations:
                return observations
            if self._refusals:
                raise addressed(self._refusals.pop(0), self._grantee)
            if monotonic() >= until:
                return []

    def acknowledge(self) -> None:
        """Do nothing: there is no position."""

    def close(self) -> None:
        """Hang up; a request in flight ends by its own timeout."""
        self._calls.close()

    def _next_times(self) -> list[Micros]:
        return [] if self._view is None else [max(self._view_until, kind.next_at) for kind in self.kinds]

    def _require(self, connection: Connection, broker: BrokerId) -> None:
        """Check that a broker answers at its address; who answers for the view may be any."""
        view = self._view
        if broker >= 0 and view is not None:
            require(connection, NodeIdentity(Role.BROKER, broker, view.cluster_id))

    def _ask_due(self, skew: int) -> None:
        moment = monotonic()
        if self._view_due.take_due(moment):
            self._unreached = self._turns.next(None, is_asked=True)
            self._ask_for_view(skew)
        view = self._view
        if view is None or moment < self._view_until:
            return

        def ask(kind: str, broker: BrokerId, work: Work) -> bool:
            address = None if broker == NO_BROKER else Address(*view.brokers[broker])
            return self._calls.ask(kind, broker, address, work, Micros(monotonic() + skew))

        for kind in self.kinds:
            kind.ask(view, ask, moment)

    def _ask_for_view(self, skew: int) -> None:
        """Ask the next one for the brokers and the partitions, unless one is being asked."""
        if self._calls.is_outstanding(METADATA):
            return
        self._view_until = Micros(monotonic() + VIEW_MICROS)
        self._calls.ask(METADATA, _ANYONE, self._unreached.pop(0), self._view_of, Micros(monotonic() + skew))

    def _observations(self, answer: BrokerAnswer, skew: int) -> Sequence[Observation]:
        if answer.kind == METADATA:
            self._take_view(answer, skew)
            self._ask_for_listener(skew)
            return ()
        if answer.kind == _LISTENER:
            self._say(f"{self.name}: {unseen_sentence(self._unseen, answer.value or '')}")
            return ()
        kind = next(kind for kind in self.kinds if answer.kind in kind.names)
        view = self._view
        if view is None or answer.broker not in {*view.brokers, NO_BROKER}:
            return ()
        shown = kind.shown(view, answer, self._envelope(view, answer, self._later(Micros(monotonic() + skew))))
        self._note(answer, shown.refusal)
        return shown.observations

    def _take_view(self, answer: BrokerAnswer, skew: int) -> None:
        if answer.refusal is not None:
            if self._unreached:
                self._ask_for_view(skew)
            elif isinstance(answer.refusal, NodeTooOld):
                if not self._is_too_old:
                    self._say(f"{self.name}: there are no samples of this cluster: {answer.refusal}")
                self._is_too_old = True
            else:
                self._refusals.append(answer.refusal)
            return
        view: ClusterView = answer.value
        if self._view is not None and self._view.cluster_id != view.cluster_id:
            if self._unreached:  # an address may be another cluster's now; if all are, the cluster was rebuilt
                self._ask_for_view(skew)
                return
            self.kinds = list(self._new_kinds())
        elif self._view is not None and self._unreached and _is_older(view, self._view):
            self._ask_for_view(skew)
            return
        self._view, self._view_until = view, AT_ONCE
        self._turns.advertised = [Address(*at) for at in view.brokers.values()]
        self._calls.retain({*view.brokers, _ANYONE, NO_BROKER})

    def _ask_for_listener(self, skew: int) -> None:
        """Ask for the name of the listener that brokers lack, where they are others than before; then it is said."""
        view, before = self._view, self._unseen
        if view is None or view.unseen == before or self._calls.is_outstanding(_LISTENER):
            return
        self._unseen = view.unseen
        if before - view.unseen and not view.unseen:
            self._say(f"{self.name}: every broker that runs can be asked again")
        if view.unseen and view.brokers:
            broker = min(view.brokers)
            address = Address(*view.brokers[broker])
            ask = partial(listener_name, broker=broker, address=address)
            self._calls.ask(_LISTENER, broker, address, ask, Micros(monotonic() + skew))

    def _note(self, answer: BrokerAnswer, refusal: ConnectionRefused | None) -> None:
        """Raise what is missing once, and again if it was there meanwhile; that a broker does not answer, never."""
        if isinstance(answer.refusal, WrongNode):
            self._wrong.add(answer.broker)
        elif answer.refusal is None and answer.broker in self._wrong:
            self._wrong.remove(answer.broker)
            self._say(f"{self.name}: the address of broker {answer.broker} leads to that broker again")
        asked = answer.kind, answer.broker
        sentence = str(refusal) if isinstance(refusal, ServiceRefused) else ""
        if sentence and sentence not in self._raised.values():
            self._refusals += [] if refusal is None else [refusal]
        if isinstance(refusal, PermissionDenied) or (refusal is None and self._raised.get(asked)):
            self._note_permissions(answer.kind, changed=sentence != self._raised.get(asked, ""))
        self._raised[asked] = sentence

    def _note_permissions(self, kind: str, *, changed: bool) -> None:
        """Ask for the names again that others were denied, when the answer to something else has changed."""
        if changed:
            for other in self.kinds:
                if isinstance(other, ProbingKind) and kind not in other.names:
                    other.probe.expire()

    def _later(self, now: Micros) -> Micros:
        """Return the time, later than that of the last answer even if the clock was set back since."""
        if now <= self._reported_at < now + _BELIEVED:
            now = Micros(self._reported_at + 1)
        self._reported_at = now
        return now

    def _envelope(self, view: ClusterView, answer: BrokerAnswer, now: Micros) -> dict[str, Any]:
        return {
            "cluster_id": view.cluster_id,
            "cluster": self._cluster,
            "source": self.name,
            "source_kind": SourceKind.NONE,
            "occurred_not_before": min(answer.asked_at, now),
            "occurred_not_after": now,
            "collected_at": now,
        }


def _is_older(view: ClusterView, other: ClusterView) -> bool:
    """Return whether a broker has not learned yet of an election that is in another view: it is cut off, or was."""
    return any(
        part.leader_epoch is not None
        and (epoch := before[number].leader_epoch) is not None
        and part.leader_epoch < epoch
        for topic, parts in view.topics.items()
        if other.topic_ids.get(topic) == view.topic_ids.get(topic)
        and (before := other.topics.get(topic, {})) is not parts
        for number, part in parts.items()
        if number in before
    )


# The samples of a configuration.


LEAST_SPEED_SECONDS: Final = 10.0
"""So long a round of the comparison of brokers lasts at least: its rule counts rounds."""


_SETTLED_ROUNDS: Final = 3  # positions are of one round ago, at most, and two clocks may differ


def samples_name(settings: Settings) -> str:
    """Return the name of the source."""
    return f"samples:{settings.collect.collector_name}"


def open_samples(
    settings: Settings, report: Callable[[str], None], append_times: AppendTimes | None = None
) -> list[SamplesSource]:
    """Create the source of the samples of one cluster.

    Raises:
        ConfigurationError: an address or a client property is wrong.
    """
    collect, cluster, peers = settings.collect, settings.cluster, Peers()
    source = SamplesSource(
        parse_servers(cluster.bootstrap_servers),
        dialer(from_client(cluster.client), peers),
        partial(kinds_of, collect, report, append_times),
        cluster=cluster.name,
        name=samples_name(settings),
        view_micros=_micros(collect.offsets_interval),
        peers=peers,
        grantee=grantee_of(cluster.bootstrap_servers, cluster.client),
        report=report,
    )
    return [source]


def kinds_of(
    collect: CollectSettings, report: Callable[[str], None], append_times: AppendTimes | None = None
) -> list[Kind]:
    """Create what is asked for, in this order: see ``SpeedKind``; then directories, for the sizes of logs."""
    directories = DirectoriesKind(_micros(collect.directories_interval))
    offsets = OffsetsKind(_micros(collect.offsets_interval), directories)
    groups = GroupsKind(
        _micros(collect.groups_interval), offsets, NamePatterns(collect.groups), Probe(f"{collect.probe_prefix}group")
    )
    kinds: list[Kind] = [
        SpeedKind(_micros(max(collect.offsets_interval, LEAST_SPEED_SECONDS)), offsets, append_times),
        directories,
        offsets,
        groups,
        ReadableKind(_micros(collect.groups_interval), groups.standing),
        QuorumKind(_micros(collect.quorum_interval), report),
        TransactionsKind(
            _micros(collect.transactions_interval), offsets.held, probe=Probe(f"{collect.probe_prefix}transaction")
        ),
        SettingsKind(_micros(collect.config_interval)),
    ]
    if collect.spark_checkpoints:
        kinds.append(
            SparkGroupsKind(
                _micros(collect.groups_interval),
                _micros(_SETTLED_ROUNDS * max(collect.groups_interval, collect.offsets_interval)),
                offsets,
                {name: Path(folder) for name, folder in collect.spark_checkpoints.items()},
                is_group=groups.is_group,
                standing=groups.standing,
                report=report,
            )
        )
    return kinds


def _micros(seconds: float) -> Micros:
    return Micros(round(seconds * 1_000_000))
