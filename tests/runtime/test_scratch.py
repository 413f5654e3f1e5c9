"""The folder for temporary files of Java: one sentence where there is none, instead of traces of Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from streaming.commands.doctor_machine import CHECKS_OF_THE_MACHINE, Status
from streaming.errors import ConfigurationError
from streaming.jobs import session
from streaming.runtime import scratch
from streaming.runtime.scratch import check_scratch
from streaming.settings import Settings


def test_a_folder_that_cannot_be_written_is_one_sentence_of_the_job_and_of_doctor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Read-only, full or not there: what is tried is to make a folder in it."""
    gone = tmp_path / "gone"
    monkeypatch.setattr(scratch, "DEFAULT", str(gone))
    sentence = f"Java cannot put temporary files into {gone} (No such file or directory), and without them Spark does"
    with pytest.raises(ConfigurationError) as refusal:
        session.build_session("test")
    assert str(refusal.value).startswith(sentence)
    found = dict(CHECKS_OF_THE_MACHINE["Java"](Settings()))
    assert found[Status.WARNING].startswith(sentence)
    gone.mkdir()
    check_scratch()
    assert Status.WARNING not in dict(CHECKS_OF_THE_MACHINE["Java"](Settings()))
    assert not list(gone.iterdir())


def test_the_folder_is_that_of_the_last_option(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scratch, "DEFAULT", "/nowhere")
    monkeypatch.setenv("JDK_JAVA_OPTIONS", f"-Xmx1g -Djava.io.tmpdir={tmp_path}")
    check_scratch()
    with pytest.raises(ConfigurationError, match="into /other "):
        check_scratch("-Djava.io.tmpdir=/other -Xmx2g")
