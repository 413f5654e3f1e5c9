"""Plays ``Inference`` on a simulated cluster, at the intervals of a real one: the model answers where brokers would."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

from streaming.contracts.identifiers import Micros
from streaming.contracts.observations import Observation
from streaming.model.controller.metadata_writer import Commit
from streaming.sources.polling.inference.inference import Inference
from streaming.sources.polling.inference.inquiry import Meeting, Met
from streaming.sources.polling.inference.schedule import Intervals
from streaming.sources.polling.metadata import TimedView
from streaming.sources.simulated.simulation import WARM_UP_MS, Simulation
from tests.judge.polls.answers import Answers
from tests.judge.polls.bare import NAME, configuration
from tests.judge.polls.images import Images
from tests.judge.polls.listeners import TICK_MS, Listeners
from tests.judge.polls.surroundings import Surroundings
from tests.judge.polls.transcripts import Transcript
from tests.judge.polls.views import Views

_MILLI: Final = 1_000
_SECOND: Final = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Polling:
    """How a cluster is polled in a play.

    Attributes:
        seconds: between two reads of the metadata.
        is_bare: by the metadata alone, as before there were other questions.
        is_whole: keep everything that is met.
    """

    seconds: float = 5.0
    is_bare: bool = False
    is_whole: bool = False


class Monitor:
    """The collector of one polled cluster; it sees what the surroundings let through, and nothing else.

    Args:
        simulation: the cluster; the monitor acts on its agenda.
        commits: every batch of the controllers.
        surroundings: where it stands.
        seed: of latencies and of the moment at which it begins.
        origin: wall-clock time of the begin of the play.
        polling: at which intervals.
    """

    def __init__(  # noqa: PLR0913 - a cluster, what is around it, and whose clock and chance it is
        self,
        simulation: Simulation,
        commits: Sequence[Commit],
        surroundings: Surroundings,
        *,
        seed: int,
        origin: Micros,
        polling: Polling,
    ) -> None:
        constants = simulation.scenario.constants
        random = Random(f"{seed} monitor")
        self.transcript = Transcript(origin, is_whole=polling.is_whole)
        self._simulation = simulation
        self._agenda = simulation.agenda
        self._inference = Inference(NAME, "judged", Intervals(poll=Micros(round(polling.seconds * _SECOND))))
        answers = Answers(
            simulation,
            Images(simulation.cluster, commits),
            surroundings.addresses,
            lists_fenced=constants.switches.pre_vote,
            random=random,
        )
        self._listeners = Listeners(simulation, answers, surroundings, random=random, take=self._met, origin=origin)
        self._views = Views(
            self._listeners,
            answers,
            simulation.agenda,
            simulation.scenario.brokers,
            interval_ms=round(polling.seconds * _MILLI),
            random=random,
            take=self._viewed,
        )
        self._around = surroundings
        self._late: list[Met | TimedView | None] = []
        self._seen: list[Observation] = []
        self._has_configuration = False
        self._views.begin(WARM_UP_MS + random.randrange(round(min(polling.seconds, 4) * _MILLI)))
        self._agenda.every(TICK_MS, WARM_UP_MS + TICK_MS, self._tick)
        self._next_ms = -1

    def poll(self, _: Micros) -> list[Observation]:
        """Give what was seen since the last call."""
        seen, self._seen = self._seen, []
        return seen

    @property
    def _now(self) -> Micros:
        return self._listeners.micros(self._listeners.now)

    @property
    def _stands_still(self) -> bool:
        return self._around.stands_still((self._listeners.now - WARM_UP_MS) / _MILLI)

    def _tick(self) -> None:
        self._listeners.tick()
        if self._stands_still:
            return
        late, self._late = self._late, []
        for each in late:
            self._take_late(each)
        self._go_on()

    def _take_late(self, late: Met | TimedView | None) -> None:
        """Take what has ended while the monitor stood still: for it, that was now."""
        if isinstance(late, Met):
            self._met(late._replace(ended=self._now))
        else:
            self._viewed(None if late is None else TimedView(late.view, late.began, self._now))

    def _met(self, met: Met) -> None:
        if self._stands_still:
            self._late += [met] * (met.how is not Meeting.SILENT)
            return
        self.transcript.met(met)
        self._inference.meet(met)
        self._plan()

    def _viewed(self, read: TimedView | None) -> None:
        if self._stands_still:
            self._late.append(read)
            return
        self.transcript.viewed(read, self._now)
        if read is None:
            self._inference.miss_changes()
            return
        self._inference.view(read.view, read.began, read.ended)
        if not self._has_configuration:
            self._has_configuration = True
            self._take()
            self._learn_times()
            self._seen += configuration(self._simulation, self._now, has_times=self._around.knows_times)
        self._plan()

    def _learn_times(self) -> None:
        """Let what is inferred follow the configured times of the cluster, as the admin source does."""
        constants = self._simulation.scenario.constants
        if self._around.knows_times:
            self._inference.use_times(
                session=Micros(constants.broker_session_timeout_ms * _MILLI),
                lag=Micros(constants.replica_lag_time_max_ms * _MILLI),
            )

    def _plan(self) -> None:
        """Go on when this moment is over: several questions may end in it."""
        now = self._listeners.now
        if self._next_ms != now:
            self._next_ms = now
            self._agenda.at(now, self._go_on)

    def _go_on(self) -> None:
        """Publish what is clear, and ask what is due."""
        if self._stands_still:
            return
        self._take()
        if self._now >= self._inference.next_at:
            for question in self._inference.questions(self._now):
                self._listeners.ask(question)

    def _take(self) -> None:
        self._seen += self._inference.take(self._now, 0)
