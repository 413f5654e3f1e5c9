"""A server that this machine cannot get fails the test that wants it, with a sentence that says what is missing."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from streaming.errors import MissingTool
from tests.stores import programs
from tests.stores.hdfs import hdfs
from tests.stores.s3 import s3proxy

NOTHING = """<ivysettings><settings defaultResolver="central"/><resolvers>
<filesystem name="central"><artifact pattern="{folder}/[artifact]-[revision].[ext]"/></filesystem>
</resolvers></ivysettings>"""


def vmalert() -> Path:
    return programs.of_victoria_metrics("vmalert")


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Give a machine with nothing in its cache, no repository of jars, and two programs of its own that fail."""
    monkeypatch.setenv("ISRWATCH_CACHE", str(tmp_path / "cache"))
    (tmp_path / "ivysettings.xml").write_text(NOTHING.format(folder=tmp_path))
    monkeypatch.setenv("ISRWATCH_IVY_SETTINGS", str(tmp_path / "ivysettings.xml"))
    return tmp_path


@pytest.mark.parametrize(
    ("get", "missing"),
    [(programs.versitygw, "go"), (vmalert, "go"), (programs.azurite, "npm"), (programs.node, "node")],
)
def test_without_its_tool_a_server_is_not_there(
    monkeypatch: pytest.MonkeyPatch, get: Callable[[], Path], missing: str
) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(programs, "GO_FOLDER", "")
    with pytest.raises(MissingTool, match=f"needs {missing}: install it, or put it on the PATH"):
        get()


@pytest.mark.parametrize(("get", "tool"), [(programs.versitygw, "go"), (vmalert, "go"), (programs.azurite, "npm")])
def test_a_tool_that_fails_is_told_and_leaves_nothing_that_looks_finished(
    monkeypatch: pytest.MonkeyPatch, machine: Path, get: Callable[[], Path], tool: str
) -> None:
    failing = machine / tool
    failing.write_text(f"#!{sys.executable}\nimport sys\nprint('looking')\nsys.exit('no such host')\n")
    failing.chmod(0o755)
    monkeypatch.setenv("PATH", f"{machine}{os.pathsep}{os.environ['PATH']}")
    with pytest.raises(MissingTool, match=f"cannot be fetched: {tool} says 'no such host'; is there a network"):
        get()
    assert [path for path in (machine / "cache" / "servers").iterdir() if not path.name.startswith(".")] == []


def test_what_was_made_once_is_not_made_again(monkeypatch: pytest.MonkeyPatch, machine: Path) -> None:
    calls = machine / "calls"
    making = machine / "go"
    making.write_text(f"#!/bin/sh\necho called >> {calls}\necho > $3\n")  # go build -o FILE PACKAGE
    making.chmod(0o755)
    monkeypatch.setenv("PATH", f"{machine}{os.pathsep}{os.environ['PATH']}")
    assert programs.versitygw() == programs.versitygw()
    assert programs.versitygw().exists()
    assert calls.read_text() == "called\n"


@pytest.mark.parametrize("server", [s3proxy, hdfs])
def test_a_jar_that_cannot_be_fetched_is_named(machine: Path, server: Callable[[Path], object]) -> None:
    with pytest.raises(MissingTool, match=r"cannot fetch jars: \S+:\S+:\S+ is not in the repository"), server(machine):
        pass
