"""What Java lacks to start Spark: one sentence, instead of its traces."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from streaming.commands.doctor_machine import CHECKS_OF_THE_MACHINE, Status
from streaming.errors import ConfigurationError
from streaming.jobs import session
from streaming.runtime import java
from streaming.runtime.java import check_needs
from streaming.settings import Settings


def test_a_folder_that_cannot_be_written_is_one_sentence_of_the_job_and_of_doctor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Read-only, full or not there: what is tried is to make a folder in it."""
    gone = tmp_path / "gone"
    monkeypatch.setattr(java, "TEMPORARY", str(gone))
    monkeypatch.setattr(session, "is_submitted", lambda: False)  # another test of this process may have started Java
    sentence = f"Java cannot put temporary files into {gone} (No such file or directory), and without them Spark does"
    with pytest.raises(ConfigurationError) as refusal:
        session.build_session("test")
    assert str(refusal.value).startswith(sentence)
    found = dict(CHECKS_OF_THE_MACHINE["Java"](Settings()))
    assert found[Status.WARNING].startswith(sentence)
    gone.mkdir()
    check_needs()
    assert Status.WARNING not in dict(CHECKS_OF_THE_MACHINE["Java"](Settings()))
    assert not list(gone.iterdir())


def test_a_limit_of_open_files_that_is_too_low_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "LEAST_FILES", resource.getrlimit(resource.RLIMIT_NOFILE)[1] + 1)
    monkeypatch.setattr(session, "is_submitted", lambda: False)
    with pytest.raises(ConfigurationError, match=r"a process may open \d+ files here, and Spark takes more: raise the"):
        session.build_session("test")
    found = dict(CHECKS_OF_THE_MACHINE["Java"](Settings()))
    assert "LimitNOFILE=" in found[Status.WARNING]


def test_the_folder_is_that_of_the_last_option(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "TEMPORARY", "/nowhere")
    monkeypatch.setenv("JDK_JAVA_OPTIONS", f"-Xmx1g -Djava.io.tmpdir={tmp_path}")
    check_needs()
    with pytest.raises(ConfigurationError, match="into /other "):
        check_needs("-Djava.io.tmpdir=/other -Xmx2g")
