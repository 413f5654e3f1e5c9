"""One run of ``--standalone``, drawn from a seed: the real job on executors, under harm, then its tables."""

from __future__ import annotations

import time
from random import Random
from typing import TYPE_CHECKING, Final, NamedTuple

from tests.chaos.comparison import all_differences, undisturbed
from tests.chaos.schedule import SCENARIOS, ChaosAct
from tests.chaos.stage import PATIENCE
from tests.chaos.standalone.harms import HARMS
from tests.chaos.standalone.stage import StandaloneStage
from tests.end_to_end.model_trace import recorded, steps
from tests.plugins.pipeline import rows_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.chaos.standalone.machines import StandaloneMachines

MOST_HARMS: Final = 4
CLUSTERS: Final = 2


class StandaloneSchedule(NamedTuple):
    """One run.

    Attributes:
        scenarios: one for each Kafka cluster.
        has_standby: a standby is there from the beginning.
    """

    seed: int
    scenarios: tuple[str, ...]
    acts: tuple[ChaosAct, ...]
    has_standby: bool

    @property
    def scenario(self) -> str:
        """What is played, in one word of the results."""
        return "+".join(self.scenarios)

    def __str__(self) -> str:
        acts = "".join(f"\n  {act.pieces} pieces, {act.seconds:.3f} s, {act.harm}" for act in self.acts)
        return f"seed {self.seed}, scenarios {self.scenario}, standby: {self.has_standby}{acts}"


def drawn(seed: int, harms: tuple[str, ...] = ()) -> StandaloneSchedule:
    """Draw a run; with harms given, those in that order."""
    dice = Random(f"{seed} standalone")
    chosen = harms or tuple(dice.choice(list(HARMS)) for _ in range(dice.randint(2, MOST_HARMS)))
    acts = tuple(
        ChaosAct(dice.randint(1, 8), dice.choice((0.0, dice.random(), 5 * dice.random())), each) for each in chosen
    )
    scenarios = tuple(dice.choice(SCENARIOS) for _ in range(CLUSTERS))
    return StandaloneSchedule(seed, scenarios, acts, dice.random() < 0.5)


def played(schedule: StandaloneSchedule, folder: Path, machines: StandaloneMachines) -> str:
    """Play a schedule; return what differs, with the schedule that led to it; empty if nothing does."""
    machines.start()
    began = time.monotonic()
    stage = StandaloneStage(folder, machines, schedule.seed, list(schedule.scenarios))
    try:
        stage.publish(3)
        stage.submit_active()
        if schedule.has_standby:
            stage.submit_standby()
        stage.wait_for_commit("start")
        print(f"started after {time.monotonic() - began:.0f} s", flush=True)
        for act in schedule.acts:
            stage.publish(act.pieces)
            time.sleep(act.seconds)
            HARMS[act.harm](stage)
            stage.wait_for_commit(act.harm)
        print("; ".join(f"{each.harm} {each.seconds:.1f} s" for each in stage.recoveries), flush=True)
        result = "\n".join(finished(stage))
    except AssertionError as error:
        result = f"{error}\n{stage.logs()}"
    finally:
        stage.close()
    again = f"repeat: python -m tests.chaos --standalone --seed {schedule.seed}"
    return f"{schedule}\n{result}\n{again}" if result else ""


def finished(stage: StandaloneStage) -> Iterator[str]:
    """Publish the rest, let the active job apply it, and compare every table, and the trace of each cluster."""
    stage.publish(len(stage.pieces))
    stage.eventually(stage.is_applied, "everything is applied")
    expected = stage.pipeline.directory / "undisturbed"
    undisturbed(stage.pipeline.bus, expected)
    deadline = time.monotonic() + PATIENCE
    while next(all_differences(stage.place, expected), "") and time.monotonic() < deadline:
        time.sleep(2.0)
    yield from all_differences(stage.place, expected)
    changes = rows_of(stage.place, "partition_changes")
    for number, source in enumerate(stage.sources):
        found = [step[:-1] for step in recorded(changes, f"chaos-{number}")]
        if found != [step[:-1] for step in steps(source.trace())]:
            yield f"the trace of the model of cluster {number} differs"
