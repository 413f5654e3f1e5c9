"""The stages of a demo's start."""

from __future__ import annotations

import io
import re

import pytest

from exporters.demo.command import StageFailed, StartStages, wait_until
from exporters.running.supervision import Supervisor
from streaming.terminal import Terminal

NOTHING = Supervisor({}, lambda _name, _line: None, lambda _: None)


@pytest.fixture
def output() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def stages(output: io.StringIO) -> StartStages:
    return StartStages(Terminal(file=output, width=60))


def test_in_a_pipe_a_stage_is_one_line_with_its_seconds(stages: StartStages, output: io.StringIO) -> None:
    with stages.stage("finding Java") as stage:
        stage.label = "Java 17 (PATH)"
    with stages.stage("Spark"):
        pass
    assert re.fullmatch(r"✓ Java 17 \(PATH\)  \d+\.\d s\n✓ Spark  \d+\.\d s\n", output.getvalue())


def test_a_stage_that_fails_gets_no_tick(stages: StartStages, output: io.StringIO) -> None:
    with pytest.raises(StageFailed), stages.stage("Spark"):
        raise StageFailed("not ready")
    assert output.getvalue() == ""


def test_waiting_ends_when_it_is_ready() -> None:
    answers = iter([False, False, True])
    wait_until(lambda: next(answers), "Spark", NOTHING, 60)
    assert list(answers) == []


def test_waiting_has_an_end() -> None:
    with pytest.raises(StageFailed, match="Spark was not ready"):
        wait_until(lambda: False, "Spark", NOTHING, 0.01)
