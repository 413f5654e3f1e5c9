"""A uid that the system has no name for: where Spark gets one, or one sentence that says how."""

from __future__ import annotations

import os
import pwd
from collections.abc import Callable
from pathlib import Path

import pytest

from streaming.commands.doctor_machine import CHECKS_OF_THE_MACHINE, Status
from streaming.errors import ConfigurationError, MissingTool
from streaming.runtime import java
from streaming.runtime.folders import cache_folder
from streaming.settings import Settings

SENTENCE = (
    f"uid {os.geteuid()} has no name in /etc/passwd, and without one Spark does not start: add a line for it there"
)


@pytest.fixture
def nameless(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(uid: int) -> pwd.struct_passwd:
        raise KeyError(f"getpwuid(): uid not found: {uid}")

    monkeypatch.setattr(pwd, "getpwuid", unknown)


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Path]:
    """Look for nss_wrapper below a folder of the test alone, and put one there when it is called."""
    monkeypatch.setattr(java, "LIBRARY_FOLDERS", (tmp_path / "none", tmp_path / "lib"))

    def install() -> Path:
        path = tmp_path / "lib" / "aarch64-linux-gnu" / "libnss_wrapper.so"
        path.parent.mkdir(parents=True)
        path.touch()
        return path

    return install


def test_a_uid_with_a_name_needs_nothing(library: Callable[[], Path]) -> None:
    library()
    assert java.name_environment() == {}


@pytest.mark.usefixtures("nameless", "library")
def test_a_uid_without_a_name_is_refused_with_what_would_give_it_one() -> None:
    with pytest.raises(MissingTool, match=SENTENCE):
        java.name_environment()


@pytest.mark.usefixtures("nameless")
def test_nss_wrapper_gives_it_a_name_and_a_home_that_can_be_written(
    library: Callable[[], Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = library()
    monkeypatch.setenv("LD_PRELOAD", "/lib/other.so")
    monkeypatch.setenv("HOME", str(tmp_path))
    environment = java.name_environment()
    assert environment["LD_PRELOAD"] == f"{path}:/lib/other.so"
    names = Path(environment["NSS_WRAPPER_PASSWD"]).read_text()
    system = Path("/etc/passwd").read_text()
    assert names == f"{system}isrwatch:x:{os.geteuid()}:{os.getegid()}:isrwatch:{tmp_path}:/sbin/nologin\n"
    monkeypatch.setenv("HOME", str(tmp_path / "nowhere"))
    names = Path(java.name_environment()["NSS_WRAPPER_PASSWD"])
    assert f":{names.parent}:/sbin/nologin" in names.read_text()


@pytest.mark.usefixtures("nameless")
def test_the_doctor_says_so_before_a_job_is_started(library: Callable[[], Path]) -> None:
    check = CHECKS_OF_THE_MACHINE["Java"]
    found = iter(check(Settings()))
    assert next(found)[0] is Status.OK
    with pytest.raises(MissingTool, match=SENTENCE):  # which the command reports as a problem
        next(found)
    path = library()
    assert list(check(Settings()))[1] == (
        Status.OK,
        f"uid {os.geteuid()} has no name in /etc/passwd; Spark gets one by {path}",
    )


@pytest.mark.usefixtures("nameless")
def test_a_uid_without_a_home_is_told_to_name_a_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOME", "ISRWATCH_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ConfigurationError, match="has no home folder: set ISRWATCH_CACHE"):
        cache_folder()
