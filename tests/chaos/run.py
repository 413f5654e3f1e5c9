"""One run: a schedule played, and what the tables say afterwards."""

from __future__ import annotations

import time
from pathlib import Path

from tests.chaos.comparison import differences, undisturbed
from tests.chaos.harms import HARMS
from tests.chaos.schedule import Schedule
from tests.chaos.stage import PATIENCE, ChaosStage


def played(schedule: Schedule, directory: Path) -> str:
    """Play a schedule; return what differs, with the schedule that led to it; empty if nothing does."""
    stage = ChaosStage(directory, schedule)
    try:
        for act in schedule.acts:
            if act.harm.startswith("fill_"):
                stage.give_disk(getattr(stage.pipeline, act.harm.removeprefix("fill_")))
        for act in schedule.acts:
            stage.running()
            stage.publish_pieces(act.pieces)
            stage.publish_pieces(1, wait=False)
            time.sleep(act.seconds)
            HARMS[act.harm](stage)
        result = finished(stage)
    except AssertionError as error:
        result = f"{error}\n{stage.logs()}"
    finally:
        stage.close()
    return f"{schedule}\n{result}\nrepeat: python -m tests.chaos --seed {schedule.seed}" if result else ""


def finished(stage: ChaosStage) -> str:
    """Publish the rest, let a job apply it, and compare."""
    job = stage.running()
    stage.publish_pieces(len(stage.pieces) - stage.published, wait=False)
    expected = stage.pipeline.directory / "undisturbed"
    undisturbed(stage.pipeline.bus, expected)
    deadline = time.monotonic() + PATIENCE
    while next(differences(stage, expected), "") and time.monotonic() < deadline and job.process.poll() is None:
        time.sleep(1.0)
    if (code := job.stop()) != 0:
        return f"the last job ended with {code}\n{stage.logs()}"
    return "\n".join(differences(stage, expected))
