"""The harms of ``--standalone``: name -> what is done to executors, workers and drivers of a Spark cluster.

Each one asserts what must follow at once; the stage waits for the next commit.
"""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

from tests.chaos.stage import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.chaos.standalone.stage import StandaloneStage

TAKEN_OVER = "has taken over the tables below"


def kill_executor(stage: StandaloneStage) -> None:
    """An executor of either driver is gone; Spark starts another one, and no query of the job starts again."""
    stage.machines.kill_executor(stage.dice)


def kill_executors(stage: StandaloneStage) -> None:
    stage.machines.kill_executors()


def lose_worker(stage: StandaloneStage) -> None:
    stage.machines.lose_worker(stage.dice)


def kill_driver(stage: StandaloneStage) -> None:
    """A driver is gone at once, as with its machine; the standby takes over, or what supervises it submits again."""
    assert stage.active is not None
    stage.active.kill()
    stage.fail_over()


def kill_driver_python(stage: StandaloneStage) -> None:
    """The Python of a driver is gone, and its Java ends with it."""
    _kill_one(stage, is_python=True)


def kill_driver_java(stage: StandaloneStage) -> None:
    """The Java of a driver is gone, and its Python ends with it."""
    _kill_one(stage, is_python=False)


def _kill_one(stage: StandaloneStage, *, is_python: bool) -> None:
    assert stage.active is not None
    job = stage.active
    os.kill(job.python() if is_python else job.pid, signal.SIGKILL)
    assert job.wait(PATIENCE) != 0
    job.kill()
    stage.fail_over()


def stop_driver(stage: StandaloneStage) -> None:
    """A driver is stopped in order."""
    assert stage.active is not None
    job = stage.active
    for pid in job.children():
        os.kill(pid, signal.SIGTERM)
    assert job.wait(PATIENCE) == 0, job.text()[-3000:]
    stage.fail_over()


def pause_driver(stage: StandaloneStage) -> None:
    """A driver is paused until another one has committed; then it resumes, and ends."""
    assert stage.active is not None
    old = stage.active
    old.pause()
    stage.fail_over()
    stage.wait_for_commit("pause_driver")
    old.resume()
    assert old.wait(PATIENCE) == 1, old.text()[-3000:]
    said = old.text().splitlines()[-1]
    assert TAKEN_OVER in said or "another job writes" in said, old.text()[-3000:]


def kill_standby(stage: StandaloneStage) -> None:
    """A standby is gone: the active job does not notice."""
    if stage.standby is not None:
        stage.standby.kill()
        stage.standby = None


def kill_both(stage: StandaloneStage) -> None:
    """Active job and standby are gone at once."""
    kill_standby(stage)
    kill_driver(stage)


def add_standby(stage: StandaloneStage) -> None:
    """A standby is submitted, if there is none."""
    if stage.standby is None:
        stage.submit_standby()


HARMS: dict[str, Callable[[StandaloneStage], None]] = {
    harm.__name__: harm
    for harm in (
        kill_executor,
        kill_executors,
        lose_worker,
        kill_driver,
        kill_driver_python,
        kill_driver_java,
        stop_driver,
        pause_driver,
        kill_standby,
        kill_both,
        add_standby,
    )
}
