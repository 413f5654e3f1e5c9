"""One run: a schedule played, and what the tables say afterwards."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from tests.chaos.comparison import differences, undisturbed
from tests.chaos.harms import HARMS
from tests.chaos.stage import PATIENCE, Stage

if TYPE_CHECKING:
    from pathlib import Path

    from tests.chaos.schedule import Schedule


def played(schedule: Schedule, directory: Path) -> str:
    """Play a schedule; give what differs, with the schedule that did it, or nothing."""
    stage = Stage(directory, schedule)
    try:
        for act in schedule.acts:
            if act.harm.startswith("fill_"):
                stage.give_disk(getattr(stage.pipeline, act.harm.removeprefix("fill_")))
        for act in schedule.acts:
            stage.running()
            stage.tell(act.pieces)
            stage.tell(1, wait=False)
            time.sleep(act.seconds)
            HARMS[act.harm](stage)
        found = finished(stage)
    except AssertionError as error:
        found = f"{error}\n{stage.logs()}"
    finally:
        stage.close()
    return f"{schedule}\n{found}\nrepeat: python -m tests.chaos --seed {schedule.seed}" if found else ""


def finished(stage: Stage) -> str:
    """Tell the rest, let a job apply it, and compare."""
    job = stage.running()
    stage.tell(len(stage.pieces) - stage.told, wait=False)
    expected = stage.pipeline.directory / "undisturbed"
    undisturbed(stage.pipeline.bus, expected)
    deadline = time.monotonic() + PATIENCE
    while next(differences(stage, expected), "") and time.monotonic() < deadline and job.process.poll() is None:
        time.sleep(1.0)
    if (code := job.stop()) != 0:
        return f"the last job ended with {code}\n{stage.logs()}"
    return "\n".join(differences(stage, expected))
