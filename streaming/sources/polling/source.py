"""Polls the brokers: the primary source where the metadata log is not authorised, else a second one.

Nothing blocks on one broker: threads read the metadata, the configurations and the reassignments, another one watches
every broker, and a poll returns what follows from the responses that have arrived.
"""

from __future__ import annotations

import time
from concurrent.futures import FIRST_COMPLETED, wait
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from streaming.contracts.identifiers import NO_LEADER, BrokerId, ClusterId, Micros, TopicId
from streaming.contracts.observations import ConfigObserved, Observation, SourceKind
from streaming.errors import ConnectionRefused, IsrwatchError
from streaming.sources import checkpoint
from streaming.sources.permissions import PROBE_PREFIX, MissingPermissions, Probe, addressed, grantee_of, unanswered
from streaming.sources.polling.broker import ConnectedBrokers
from streaming.sources.polling.configs import ConfigsRound, DescribedConfigs
from streaming.sources.polling.inference.conduct import SLOW
from streaming.sources.polling.inference.inference import BLIND, Inference
from streaming.sources.polling.inference.inquiry import Meeting
from streaming.sources.polling.inference.schedule import Intervals
from streaming.sources.polling.metadata import MetadataRound, TimedView
from streaming.sources.polling.reassignments import ReassignmentsRound
from streaming.sources.polling.view import ClusterView, PartitionView, deleted_topics
from streaming.sources.polling.watching.watch import Watch
from streaming.sources.protocol.addresses import parse_servers
from streaming.sources.protocol.connection import ServiceRefused, dialer
from streaming.sources.protocol.security import from_client
from streaming.sources.source import Timer, monotonic, suspended

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from streaming.sources.polling.inference.inquiry import Met
    from streaming.sources.protocol.addresses import Peers

HOUR: Final = Micros(3_600_000_000)
SECOND: Final = Micros(1_000_000)
_MAX_BLOCK: Final = Micros(1_000_000)  # of one poll
_TIMES: Final = {"broker.session.timeout.ms": "session", "replica.lag.time.max.ms": "lag"}
_AWAITED: Final = 300_000  # then configurations are asked for that could not be while others were outstanding


class AdminSource:
    """Reads metadata and configurations from a cluster's brokers.

    As the primary source (``SourceKind.POLL``) it reports every partition that changed between two polls, with the time
    window of the change, and watches how each broker behaves meanwhile: what follows from it is inferred
    (:mod:`inference`). It sends a full report at the start, after failed polls, when a topic or a broker was added or
    removed, and every ``snapshot_micros``. Otherwise (``SourceKind.NONE``) it reports configurations only, unless the
    primary source is not whole or is silent: then it polls in its place, and begins with a full report.

    Args:
        bootstrap_servers: ``host:port``, comma-separated.
        client: librdkafka properties for security.
        cluster: the display name of the cluster.
        name: name of the source on the bus, for example ``admin:collector-1``.
        poll_micros: interval of polls of the metadata.
        view_micros: the same while another source is the primary one: which topics and brokers there are.
        config_micros: interval of polls of configurations.
        presence_micros: interval at which each broker is asked whether it is there, by the primary source.
        source_kind: ``POLL`` (primary source) or ``NONE``.
        is_primary_current: whether the primary source of the cluster knows the state, and still reads; asked each time.
        report: takes one line for the user.
        snapshot_micros: interval of full reports, and of reporting every configuration again.
        request_seconds: timeout of each request, and of a round of metadata polls.
        peers: record what each connection to a node saw.
        epochs: file of the topics and leader epochs that were polled last.
        probe_prefix: of the topic that does not exist, which is asked for; see ``permissions.Probe``.

    Raises:
        ConfigurationError: a property is wrong.
    """

    def __init__(  # noqa: PLR0913 - one argument per setting
        self,
        *,
        bootstrap_servers: str,
        client: Mapping[str, str],
        cluster: str,
        name: str,
        poll_micros: Micros,
        view_micros: Micros,
        config_micros: Micros,
        source_kind: SourceKind,
        presence_micros: Micros = SECOND,
        snapshot_micros: Micros = HOUR,
        request_seconds: float = 5.0,
        is_primary_current: Callable[[], bool] = lambda: True,
        report: Callable[[str], None] = lambda _: None,
        peers: Peers | None = None,
        epochs: Path | None = None,
        probe_prefix: str = PROBE_PREFIX,
    ) -> None:
        self.name = name
        self._cluster = cluster
        self._kind = self._own_kind = source_kind
        self._is_primary_current, self._say = is_primary_current, report
        self._poll_micros, self._view_micros = poll_micros, view_micros
        self._servers = bootstrap_servers
        self._grantee = grantee_of(bootstrap_servers, client)
        is_primary = source_kind is SourceKind.POLL
        intervals = Intervals(poll=poll_micros, presence=presence_micros, full_report=snapshot_micros)
        self._inference = Inference(name, cluster, intervals)
        self._epochs = SeenEpochs(epochs)
        self._metadata_due = Timer(poll_micros if is_primary else self._view_micros)
        self._configs_due = Timer(config_micros)
        self._everything_due = Timer(snapshot_micros)
        self._configs = ConfigsRound()
        dial, servers = dialer(from_client(client), peers), parse_servers(bootstrap_servers)
        self._described = DescribedConfigs(dial, servers, name=name, seconds=request_seconds)
        reassignments = ReassignmentsRound(dial, name=name, seconds=request_seconds)
        brokers = ConnectedBrokers(dial, cluster=cluster, seconds=request_seconds)
        self._watch = Watch(dial, name=name)
        self._hastened, self._absent = Timer(poll_micros), set[BrokerId]()
        probe = Probe(f"{probe_prefix}topic")
        self._metadata = MetadataRound(brokers, servers, reassignments, name=name, seconds=request_seconds, probe=probe)
        self._skew: int | None = None
        self._slept = suspended()
        self._awaits_view = True
        self._answers: tuple[str, ...] = ()
        self._last: TimedView | None = None
        self._refusal: ConnectionRefused | None = None
        self._missing = MissingPermissions(self._grantee)

    def poll(self, now: Micros) -> Sequence[Observation]:
        """Return the observations that have arrived, or wait for some for at most a second.

        Raises:
            ConnectionRefused: no broker responds, or a permission is missing; the latter is raised once.
        """
        self._note_suspension()
        self._skew_at(now)
        until = monotonic() + _MAX_BLOCK
        while True:
            skew = self._note_suspension()
            moment = Micros(monotonic() + skew)
            self._stand_in()
            self._send_due(moment)
            observations = self._take(moment, skew)
            if observations:
                return observations
            self._raise_refusal()
            if not self._wait(until):
                return []

    def _skew_at(self, now: Micros) -> None:
        """Note the wall clock minus the monotonic one: it changes where the wall clock is set."""
        before, self._skew = self._skew, now - monotonic()
        if before is not None and self._skew - before > BLIND:
            self._inference.miss_changes()

    def _note_suspension(self) -> int:
        """Return the wall clock minus the monotonic one, which stands still while the machine is suspended."""
        before, self._slept = self._slept, max(self._slept, suspended())
        lasted = self._slept - before
        if lasted > SLOW:
            self._inference.sleep(monotonic(), Micros(lasted))
            self._skew = None if self._skew is None else self._skew + lasted
        return self._skew or 0

    @property
    def is_primary(self) -> bool:
        """True if partition state comes from here: it polls, and brokers have answered."""
        return self._kind is SourceKind.POLL and self._last is not None

    @property
    def cluster_id(self) -> ClusterId | None:
        """The id of the cluster that was polled last."""
        return None if self._last is None else self._last.view.cluster_id

    @property
    def view(self) -> ClusterView | None:
        """The last view; None before the first."""
        return None if self._last is None else self._last.view

    def request_full_report(self) -> None:
        """Send a full report with the next poll of the metadata, and every configuration with the next ones."""
        self._inference.expire()
        self._everything_due.expire()

    def acknowledge(self) -> None:
        """Remember topics and leader epochs, which were reported; a poll has no position."""
        if self._last is not None:
            self._epochs.remember(self._last.view)

    def close(self) -> None:
        """Close the connections; a request in flight ends by its own timeout."""
        self._watch.close()
        self._metadata.close()
        self._described.close()

    def _send_due(self, now: Micros) -> None:
        """Send every request that is due."""
        moment = monotonic()
        if self._metadata_due.take_due(moment):
            self._metadata.ask(self._epochs.before if self._last is None else self._last.view)
        if self._last is None:
            return
        if self._configs_due.take_due(moment):
            if self._configs.is_outstanding:
                self._configs_due.hasten(moment + _AWAITED)
                return
            everything = self._everything_due.take_due(moment)
            view = self._last.view
            self._configs.ask(self._described.at(view), view, now, everything=everything)

    def _take(self, now: Micros, skew: int) -> list[Observation]:
        """Return the observations of every response that has arrived."""
        observations = self._take_metadata(now)
        if self._kind is SourceKind.POLL:
            observations += self._watched(skew)
        if self._last is not None:
            configs = self._configs.take(self._envelope(self._last.view, now), now)
            self._learn_times(configs)
            observations += configs
        return observations

    def _learn_times(self, configs: Iterable[Observation]) -> None:
        """Let what is inferred follow the configured times of the cluster."""
        for each in configs:
            if isinstance(each, ConfigObserved) and each.key in _TIMES and (each.value or "").isdecimal():
                self._inference.use_times(**{_TIMES[each.key]: Micros(int(each.value or 0) * 1_000)})

    def _watched(self, skew: int) -> list[Observation]:
        """Let what was met count, ask what is due, and return what follows from all that was seen so far.

        Nothing is said before a view is there: a full report is the first that a source says which stands in.
        """
        if self._awaits_view:
            return []
        for met in self._watch.take():
            self._inference.meet(met)
            if self._is_news(met) and self._hastened.take_due(monotonic()):
                self._metadata_due.expire()
        if monotonic() >= self._inference.next_at:
            self._watch.ask(self._inference.questions(monotonic()))
        return self._inference.take(monotonic(), skew)

    def _is_news(self, met: Met) -> bool:
        """Return whether a broker ceased to answer, or answers again: then the metadata are asked for at once."""
        broker, before = met.question.broker, len(self._absent)
        if met.how is Meeting.ANSWERED:
            self._absent.discard(broker)
        elif met.how in {Meeting.REFUSED, Meeting.CLOSED, Meeting.UNREACHABLE}:
            self._absent.add(broker)
        return len(self._absent) != before

    def _take_metadata(self, now: Micros) -> list[Observation]:
        before = self._last
        try:
            read = self._metadata.take(self._inference.newest_view, self._epochs.before)
        except ConnectionRefused as failure:
            self._refusal = failure if isinstance(failure, ServiceRefused) else unanswered(self._servers, failure)
            self._inference.miss_changes()
            self._metadata_due.expire()
            return []
        recheck = self._metadata.recheck_after()
        if recheck is not None:
            self._metadata_due.hasten(monotonic() + recheck)
        if read is None:
            return []
        self._last, self._awaits_view = read, False
        if before is not None and before.view.cluster_id != read.view.cluster_id:
            before = None  # nothing that was seen before is of this cluster
            self._configs = ConfigsRound()
            self.request_full_report()
        if before is None or before.view.topic_ids != read.view.topic_ids:
            self._configs_due.expire()
        was_cut_off = self._inference.is_cut_off
        self._inference.view(read.view, read.began, read.ended, self._epochs.before)
        self._report_cut(read.view.answered_by, was_cut_off=was_cut_off)
        self._watch.look_at(read.view)
        if self._kind is not SourceKind.POLL:
            self._inference.take(Micros(monotonic() + HOUR), 0)  # the primary source reports it
        last = self._epochs.before if before is None else before.view
        deleted = [] if last is None else [name for name, _ in deleted_topics(last, read.view)]
        return self._configs.forget(deleted, self._envelope(read.view, now))

    def _report_cut(self, broker: int, *, was_cut_off: bool) -> None:
        """Say that the data grow old although a broker answers, and when they do not any more."""
        if self._inference.is_cut_off is was_cut_off:
            return
        if was_cut_off:
            self._say(f"{self.name}: the brokers are read again")
            return
        hint = "; `Describe` on the cluster would show whether it is" if self._inference.is_quorum_denied else ""
        who = f"broker {broker}" if broker >= 0 else "the broker that answers"
        self._say(
            f"{self.name}: half of the brokers or more are silent, and {who} may be cut off from the "
            f"controllers{hint}: what it lists may be old, and is left out"
        )

    def _stand_in(self) -> None:
        """Poll while the primary source is not current, which begins with a full report; stop when it is again."""
        kind = self._own_kind if self._is_primary_current() else SourceKind.POLL
        if kind is not self._kind:
            self._say(
                f"{self.name}: polls the brokers while the metadata log cannot be read"
                if kind is SourceKind.POLL
                else f"{self.name}: the metadata log is read again"
            )
            self._kind, self._awaits_view = kind, True
            self._inference.miss_changes()
            if kind is not SourceKind.POLL:
                self._watch.rest()
            self._metadata_due.period = self._poll_micros if kind is SourceKind.POLL else self._view_micros
            self._metadata_due.expire()

    def _envelope(self, view: ClusterView, now: Micros) -> dict[str, Any]:
        return {
            "cluster_id": view.cluster_id,
            "cluster": self._cluster,
            "source": self.name,
            "source_kind": self._kind,
            "occurred_not_before": now,
            "occurred_not_after": now,
            "collected_at": now,
        }

    def _raise_refusal(self) -> None:
        """Raise a lost connection each time, a missing permission once, and again if it was given meanwhile."""
        refusal, self._refusal = self._refusal, None
        if refusal is not None:
            raise addressed(refusal, self._grantee)
        refusals = (*self._metadata.refusals, self._configs.refusal, self._configs.broker_refusal)
        others = tuple(str(each) for each in (*refusals[:1], *refusals[2:]))
        if others != self._answers:
            self._answers = others
            self._metadata.permissions_changed()
        self._missing.raise_new(refusals)

    def _wait(self, until: int) -> bool:
        """Wait for a response or for the next due request; return False when the poll has used its time."""
        now = monotonic()
        left = until - now
        if left <= 0:
            return False
        timers = [self._metadata_due] if self._last is None else [self._metadata_due, self._configs_due]
        due = min(timer.next_at for timer in timers) - now
        pending = [*self._metadata.pending(), *self._configs.pending()]
        if self._kind is SourceKind.POLL:
            due = min(due, self._inference.next_at - now)
            pending += self._watch.pending()
        seconds = max(1_000, min(left, due)) / 1_000_000
        if pending:
            wait(pending, timeout=seconds, return_when=FIRST_COMPLETED)
        else:
            time.sleep(seconds)
        return True


# The topics and leader epochs that were polled last, in a file: for what happens while no collector runs.
#
# Controllers may be restored from a backup. Their epochs are lower for good then, as those of a broker that is cut off
# are for a while; without the file the next collector could not distinguish what it polls from old news, which is
# dropped. Topics may be hidden, which only who asks for them by name can distinguish from deleted ones.


_WRITTEN_EVERY: Final = Micros(30_000_000)


class SeenEpochs:
    """Remembers the topics and leader epochs of the newest view.

    Args:
        path: of the file; None: they are forgotten.

    Attributes:
        before: the partitions that the collector before this one polled, with nothing but their epochs; None if there
            was none, or its file is damaged.

    Raises:
        ConfigurationError: the file cannot be read.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._due = Timer(_WRITTEN_EVERY)
        self._written: ClusterView | None = None
        self.before = None if path is None else _read(path)

    def remember(self, view: ClusterView) -> None:
        """Write the epochs of a view if it is due; what a full disk refuses is written the next time."""
        if self._path is None or not self._due.take_due(monotonic()):
            return
        last = self._written
        if last is not None and (last.topics, last.topic_ids) == (view.topics, view.topic_ids):
            return
        topics = {
            name: [view.topic_ids[name], {number: part.leader_epoch for number, part in parts.items()}]
            for name, parts in view.topics.items()
        }
        document = {"version": checkpoint.VERSION, "cluster_id": view.cluster_id, "topics": topics}
        with suppress(IsrwatchError):
            checkpoint.write(self._path, document)
            self._written = view


def _read(path: Path) -> ClusterView | None:
    try:
        document = checkpoint.document_at(path)
    except checkpoint.DamagedCheckpoint:
        return None
    if document is None or document["version"] != checkpoint.VERSION:
        return None
    return ClusterView(
        cluster_id=ClusterId(document["cluster_id"]),
        answered_by=-1,
        brokers={},
        topics={
            name: {int(number): PartitionView((), (), NO_LEADER, leader_epoch=epoch) for number, epoch in parts.items()}
            for name, (_, parts) in document["topics"].items()
        },
        topic_ids={name: TopicId(topic_id) for name, (topic_id, _) in document["topics"].items()},
    )
