"""One play: a seed in, what really happened and what isrwatch said of it out. No Spark; all else is what runs live.

The model's records go through the simulated source, ``fold``, the rows of the change log and ``IncidentFold``, in
micro-batches of a few seconds, because incidents also follow from time that passes without changes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from random import Random
from typing import Any, Final, NamedTuple

import pyarrow as pa

from streaming.changes.conditions.fold import ConditionFold
from streaming.changes.fold import fold
from streaming.changes.incidents.grouping import IncidentFold, IncidentGaps
from streaming.changes.incidents.short_ids import IncidentNumbers
from streaming.changes.state import Change, ReplicationState
from streaming.contracts.conditions import Spell
from streaming.contracts.events import Cause, Subject
from streaming.contracts.identifiers import BrokerId, ClusterId, Micros, TopicPartition
from streaming.contracts.observations import CauseRevised, Channel, Observation
from streaming.contracts.state import ClusterState, SourceState
from streaming.delta.changes.log import changes_to_arrow
from streaming.delta.incidents.rows import incident_row, rows_of
from streaming.model.controller.metadata_writer import Commit
from streaming.model.invariants.ghost import Loss
from streaming.model.messages.network import CONTROLLER
from streaming.model.messages.registrations import PartitionRegistration
from streaming.settings import JobSettings
from streaming.sources.simulated import SimulatedSource
from streaming.sources.simulated.scenario import Fault, Scenario
from streaming.sources.simulated.simulation import WARM_UP_MS, Simulation
from streaming.sources.simulated.source import TraceEntry
from tests.judge.clusters import disagreeing, drawn_cluster
from tests.judge.faults import DRAWERS, LATER, Stand
from tests.judge.polls.bare import Poller
from tests.judge.polls.monitor import Monitor, Polling
from tests.judge.polls.surroundings import drawn_surroundings
from tests.judge.polls.transcripts import Transcript
from tests.judge.trouble import LOSE_RECORDS, Act, Trouble

SECOND: Final = 1_000_000
START: Final = 1_700_000_000 * SECOND
BATCH_SECONDS: Final = 5
TAIL_SECONDS: Final = 80.0
"""After the last act: sessions end, replicas catch up, and incidents are closed."""
_LOOK_MS: Final = 100
_DRAWS: Final = 40
_FITTING_DRAWS: Final = 400
_POLLED_SHARE: Final = 1 / 12
_DISAGREEING_SHARE: Final = 1 / 10
_ON_EVERYBODY: Final = frozenset({"split", "rack_isolation"})
_OF_CONTROLLERS: Final = frozenset({"controller", "combined", "controller_stall"})

CauseKey = tuple[str, int, int]
"""Topic id, partition and partition epoch: one step of one partition."""


class GivenCause(NamedTuple):
    """What isrwatch said of one step."""

    cause: str
    evidence: str
    candidates: tuple[str, ...]


class Batch(NamedTuple):
    """What one micro-batch commits, for who reads the tables while they are written.

    ``changes`` are rows of ``partition_changes``, ``incidents`` and ``spells`` all rows of these tables so far,
    ``samples`` what was sampled since the micro-batch before.
    """

    version: int
    now: Micros
    changes: pa.Table
    clusters: tuple[ClusterState, ...]
    incidents: tuple[dict[str, Any], ...]
    spells: tuple[Spell, ...]
    sources: tuple[SourceState, ...]
    samples: tuple[Observation, ...]


Sees = Callable[[float, "list[Observation]"], "list[Observation]"]
"""Turns what happened until a second of the play into what a collector sees of it."""


class Moved(NamedTuple):
    """Another controller became active; seconds of the play."""

    at: float
    before: BrokerId | None
    after: BrokerId


@dataclass(slots=True, kw_only=True)
class Play:
    """What was played, what the model did, and what isrwatch said.

    Attributes:
        polling: how isrwatch polled the cluster instead of reading its metadata log; None: it read that.
        met: what it met then.
        source_seed: of the model.
        trace: of the model: every step of every partition, with its true cause.
        before: every partition before the first step; ``topics`` their names.
        losses: of acknowledged records, in plays in which there may be some.
        controllers: changes of the active controller, seen from outside.
        without_controller: from when until when none was active, in seconds.
        incidents: rows of the table ``incidents``, without those that were merged into others.
        causes: of every step that was recorded; ``offsets``: of its record in the metadata log.
        seconds: how long it lasted, in its own time.
    """

    seed: int
    preset: str
    polling: Polling | None
    scenario: Scenario
    troubles: tuple[Trouble, ...]
    begin: float
    seconds: float
    before: dict[TopicPartition, PartitionRegistration]
    topics: dict[TopicPartition, str] = field(default_factory=dict)
    trace: tuple[TraceEntry, ...] = ()
    losses: tuple[Loss, ...] = ()
    controllers: list[Moved] = field(default_factory=list)
    without_controller: list[tuple[float, float]] = field(default_factory=list)
    incidents: list[dict[str, Any]] = field(default_factory=list)
    causes: dict[CauseKey, GivenCause] = field(default_factory=dict)
    offsets: dict[CauseKey, int | None] = field(default_factory=dict)
    met: Transcript | None = None
    source_seed: int = 0

    @property
    def is_polled(self) -> bool:
        """Whether isrwatch saw polls instead of the metadata log."""
        return self.polling is not None


def source_of(
    scenario: Scenario, seed: int, *, watched: bool = False, on_commit: Callable[[Commit], None] | None = None
) -> SimulatedSource:
    return SimulatedSource(
        scenario,
        seed=seed,
        cluster_id=ClusterId("judged"),
        cluster="judged",
        name="metadata_log:judge",
        epoch=Micros(START),
        watched=watched,
        on_commit=on_commit,
    )


def topics_of(source: SimulatedSource) -> dict[TopicPartition, str]:
    """Give the name of the topic of each partition."""
    names = {topic_id: topic.topic for topic_id, topic in source.topics().items()}
    return {key: names[key.topic_id] for key in source.partitions()}


def stand_of(random: Random, source: SimulatedSource, scenario: Scenario) -> Stand:
    """Give the cluster of a source, for drawers to choose from."""
    return Stand(
        random=random,
        scenario=scenario,
        partitions=source.partitions(),
        topic_of=topics_of(source),
        active=source.simulation.cluster.controllers.active or CONTROLLER,
    )


def played(  # noqa: PLR0913 - what is drawn, and how it is looked at
    seed: int,
    kinds: tuple[str, ...] = (),
    watch: Callable[[Batch], None] | None = None,
    tail: float = TAIL_SECONDS,
    *,
    polling: Polling | None = None,
    fits: Callable[[Scenario, tuple[Trouble, ...]], bool] | None = None,
) -> Play:
    """Play a seed.

    Args:
        seed: draws everything.
        kinds: these faults instead of drawn ones.
        watch: gets what each micro-batch commits.
        tail: seconds after the last act.
        polling: the cluster is polled, in this way; else the seed says whether it is, in the usual one.
        fits: which clusters and faults are wanted; others are drawn until some fit.
    """
    random = Random(f"{seed} judge")
    for draw in range(_DRAWS if fits is None else _FITTING_DRAWS):
        wanted = kinds or _with_later(Random(f"{seed} later"), _kinds(random))
        cluster = drawn_cluster(random, wanted)
        if (apart := Random(f"{seed} files of brokers")).random() < _DISAGREEING_SHARE:
            cluster = cluster._replace(scenario=disagreeing(apart, cluster.scenario))
        commits = list[Commit]()
        watched = not LOSE_RECORDS.isdisjoint(wanted)
        source_seed = seed * _DRAWS + draw
        source = source_of(cluster.scenario, source_seed, watched=watched, on_commit=commits.append)
        troubles = _troubles(random, source, cluster.scenario, wanted)
        if troubles is not None and (fits is None or fits(cluster.scenario, troubles)):
            is_polled = random.random() < _POLLED_SHARE
            seconds = max(act.at for trouble in troubles for act in trouble.acts) + tail
            play = Play(
                seed=seed,
                preset=cluster.preset,
                polling=polling or (Polling() if is_polled else None),
                scenario=cluster.scenario,
                troubles=troubles,
                begin=min(trouble.begin for trouble in troubles),
                seconds=math.ceil(seconds + cluster.scenario.constants.replica_lag_time_max_ms / 1_000),
                before=source.partitions(),
                topics=topics_of(source),
                source_seed=source_seed,
            )
            run(play, source, watch, commits=commits)
            return play
    raise ValueError(f"no cluster on which {wanted} can happen")


def played_again(play: Play, troubles: tuple[Trouble, ...]) -> Play:
    """Play the same cluster with other faults, for as long."""
    commits = list[Commit]()
    watched = any(one.kind in LOSE_RECORDS for one in troubles)
    source = source_of(play.scenario, play.source_seed, watched=watched, on_commit=commits.append)
    other = Play(
        seed=play.seed,
        preset=play.preset,
        polling=play.polling,
        scenario=play.scenario,
        troubles=troubles,
        begin=play.begin,
        seconds=play.seconds,
        before=source.partitions(),
        topics=topics_of(source),
        source_seed=play.source_seed,
    )
    run(other, source, commits=commits)
    return other


def _kinds(random: Random) -> tuple[str, ...]:
    first = [kind for kind in DRAWERS if kind not in LATER]
    weights = [DRAWERS[kind][0] for kind in first]
    return that_can_be(tuple(random.choices(first, weights, k=random.choice((1, 2)))))


def _with_later(random: Random, kinds: tuple[str, ...]) -> tuple[str, ...]:
    """Draw, now and then, a fault that was added later in the place of another; other plays stay as they were."""
    share = sum(DRAWERS[kind][0] for kind in LATER) / sum(weight for weight, _ in DRAWERS.values())
    if random.random() >= share * len(kinds):
        return kinds
    (later,) = random.choices([*LATER], [DRAWERS[kind][0] for kind in LATER])
    return that_can_be((later, *kinds[1:]))


def that_can_be(kinds: tuple[str, ...]) -> tuple[str, ...]:
    is_one = not _ON_EVERYBODY.isdisjoint(kinds[1:]) or len(_OF_CONTROLLERS.intersection(kinds)) > 1
    return kinds[:1] if is_one else kinds


def _troubles(
    random: Random, source: SimulatedSource, scenario: Scenario, kinds: tuple[str, ...]
) -> tuple[Trouble, ...] | None:
    """Draw the faults one after the other, on different brokers; None if one of them cannot happen."""
    stand = stand_of(random, source, scenario)
    drawn: list[Trouble] = []
    for kind in kinds:
        left = replace(stand, taken=frozenset(b for one in drawn for b in one.brokers))
        trouble = DRAWERS[kind][1](left) if left.free else None
        if trouble is None:
            return None
        drawn.append(trouble.shifted(_begin(random, drawn)))
    return tuple(drawn)


def _begin(random: Random, earlier: list[Trouble]) -> float:
    """Draw the phase: anywhere within every period of the cluster; of a second one also whether they overlap."""
    if not earlier:
        return round(random.uniform(5, 35), 3)
    first = earlier[0]
    overlaps = random.random() < 1 / 2
    until = min(first.end, first.begin + 300)
    at = random.uniform(first.begin, max(first.begin + 5, until)) if overlaps else first.end + random.uniform(10, 300)
    return round(at, 3)


def run(
    play: Play,
    source: SimulatedSource,
    watch: Callable[[Batch], None] | None = None,
    sees: Sees | None = None,
    commits: Sequence[Commit] = (),
) -> None:
    """Play it, and put into it what happened and what isrwatch said of what a collector saw."""
    simulation = source.simulation
    for act in sorted((act for trouble in play.troubles for act in trouble.acts), key=lambda act: act.at):
        simulation.agenda.at(WARM_UP_MS + round(act.at * 1_000), partial(do, source, act))
    simulation.agenda.every(_LOOK_MS, WARM_UP_MS, partial(_look, play, simulation))
    job, poller = JobOfPlay(), _poller(play, simulation, commits)
    for second in range(BATCH_SECONDS, math.ceil(play.seconds) + BATCH_SECONDS, BATCH_SECONDS):
        now = Micros(START + second * SECOND)
        seen = list(source.poll(now))
        if poller is not None:
            seen = [*poller.poll(now), *(each for each in seen if each.channel is Channel.SAMPLES)]
        changes, batch = job.batch(now, seen if sees is None else sees(second, seen))
        _note_causes(play, changes)
        if watch is not None:
            watch(batch)
    play.trace, play.losses = source.trace(), source.losses()
    play.incidents = job.incidents_of_their_own()


def _poller(play: Play, simulation: Simulation, commits: Sequence[Commit]) -> Poller | Monitor | None:
    """Give what polls the cluster of a play, None where its metadata log is read."""
    if play.polling is None or play.polling.is_bare:
        return None if play.polling is None else Poller(simulation)
    around = drawn_surroundings(play.seed, play.scenario, play.troubles)
    monitor = Monitor(simulation, commits, around, seed=play.seed, origin=Micros(START), polling=play.polling)
    play.met = monitor.transcript
    return monitor


class JobOfPlay:
    """The folds of the job, without its tables: a micro-batch of observations in, what it commits out."""

    def __init__(self) -> None:
        settings = JobSettings()
        gaps = IncidentGaps(
            usual=round(settings.incident_gap * SECOND), rolling=round(settings.incident_rolling_gap * SECOND)
        )
        self._state, self._version, self._conditions = ReplicationState(), 0, ConditionFold()
        self._incidents = IncidentFold(gaps, follow=self._conditions.follow)
        self._table: dict[str, dict[str, Any]] = {}
        self._spells: dict[str, Spell] = {}
        self._numbers, self._short_ids = IncidentNumbers(_none_stored), dict[str, str]()

    def batch(self, now: Micros, seen: Sequence[Observation]) -> tuple[tuple[Change, ...], Batch]:
        """Apply what was seen; give the changes, and what is committed."""
        folded = fold(self._state, [observed for observed in seen if observed.channel is Channel.REPLICATION])
        self._state.apply(folded.touched)
        changes = changes_to_arrow(folded.changes) if folded.changes else _no_changes()
        self._fold(changes)
        batch = Batch(
            version=self._version,
            now=now,
            changes=changes,
            clusters=tuple(self._state.clusters.values()),
            incidents=tuple(self._table.values()),
            spells=tuple(self._spells.values()),
            sources=tuple(self._state.sources.values()),
            samples=tuple(observed for observed in seen if observed.channel is Channel.SAMPLES),
        )
        self._version += 1
        return folded.changes, batch

    def _fold(self, changes: pa.Table) -> None:
        """Fold rows into incidents and spells, and give these their short ids as the writer of the tables does."""
        folded = self._incidents.fold(rows_of(changes, self._version) if len(changes) else ())
        self._short_ids |= self._numbers.follow(self._incidents.number_steps)
        for incident in folded:
            row = incident_row(
                incident,
                self._version,
                self._incidents.times(incident.cluster_id),
                may_go_on=self._incidents.remembered(incident),
            )
            self._table[incident.incident_id] = row | {"short_id": self._short_ids[incident.incident_id]}
        for condition_id, spell in self._conditions.take_changed().items():
            if spell is None:
                self._spells.pop(condition_id, None)
            else:
                short_id = None if spell.incident_id is None else self._short_ids[spell.incident_id]
                self._spells[condition_id] = spell._replace(short_id=short_id)

    def incidents_of_their_own(self) -> list[dict[str, Any]]:
        """Give the rows of incidents that were not merged into others, by time."""
        rows = (row for row in self._table.values() if row["merged_into"] is None)
        return sorted(rows, key=lambda row: row["opened_at"])


def _none_stored(_: str) -> int | None:
    """Begin to count."""
    return None


@cache
def _no_changes() -> pa.Table:
    """Give the rows of a micro-batch in which nothing changed: there are many, and their schema is large."""
    return changes_to_arrow(())


def do(source: SimulatedSource, act: Act) -> None:
    simulation = source.simulation
    if act.if_empty is not None and any(act.if_empty in state.replicas for state in source.partitions().values()):
        return
    if isinstance(act.what, Fault):
        simulation.inflict(act.what)
    elif act.deletes:
        simulation.delete(act.what)
    else:
        simulation.create(act.what)


def _look(play: Play, simulation: Simulation) -> None:
    """Notice another active controller; while nobody is, the last one counts. Notice also that nobody acts."""
    active = simulation.cluster.controllers.active
    last = play.controllers[-1].after if play.controllers else None
    if active is None or simulation.cluster.is_paused(active):
        at, spans = (simulation.cluster.now - WARM_UP_MS) / 1_000, play.without_controller
        before = at - _LOOK_MS / 1_000
        if spans and spans[-1][1] >= before - _LOOK_MS / 2_000:
            before = spans.pop()[0]
        spans.append((before, at))
    if active is not None and active != last:
        play.controllers.append(Moved((simulation.cluster.now - WARM_UP_MS) / 1_000, last, active))


def _note_causes(play: Play, changes: tuple[Change, ...]) -> None:
    """Note the cause of each recorded step; a later proof of an earlier step replaces what was said of it."""
    for change in changes:
        after, seen = change.after, change.observation
        if change.subject is not Subject.PARTITION or after is None or change.is_baseline or not change.cause:
            continue
        given = GivenCause(str(change.cause), str(change.evidence), tuple(map(str, change.candidates)))
        if isinstance(seen, CauseRevised):
            revised = [key for key, offset in play.offsets.items() if offset == seen.revised_offset]
            play.causes.update((key, given) for key in revised if key[:2] == (after.topic_id, after.partition))
        elif change.cause not in {Cause.CONFIG, Cause.CREATED, Cause.DELETED}:
            key = (after.topic_id, after.partition, after.partition_epoch or 0)
            play.causes[key] = given
            play.offsets[key] = getattr(seen, "metadata_offset", None)
