"""The stages of a demo's start."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from rich.console import Console

from exporters.demo.parts import Parts, PartStopped
from exporters.demo.stages import StageFailed, StartStages, wait_until
from tests.exporters.demo.test_parts import start_script


@pytest.fixture
def output() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def stages(output: io.StringIO) -> StartStages:
    return StartStages(Console(file=output, width=60))


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


def test_waiting_ends_when_it_is_ready(tmp_path: Path) -> None:
    answers = iter([False, False, True])
    with Parts(logs=tmp_path) as parts:
        wait_until(lambda: next(answers), "Spark", parts, 60)
    assert list(answers) == []


def test_waiting_has_an_end(tmp_path: Path) -> None:
    with Parts(logs=tmp_path) as parts, pytest.raises(StageFailed, match=f"Spark was not ready.*logs in {tmp_path}"):
        wait_until(lambda: False, "Spark", parts, 0.01)


def test_nobody_waits_for_what_has_died(tmp_path: Path) -> None:
    with Parts(logs=tmp_path) as parts:
        start_script(parts, "job", "print('no memory'); raise SystemExit(3)")
        with pytest.raises(PartStopped, match=r"isrwatch job ended with exit code 3.*\nno memory"):
            wait_until(lambda: False, "the first batch", parts, 60)
