from __future__ import annotations

import errno
import hashlib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from streaming.commands.jars import app
from streaming.runtime import ivy, jars
from streaming.runtime.ivy import Coordinate, Group

JAR = Coordinate("org.example", "one", "1.0.0")
SETTINGS = """<ivysettings><settings defaultResolver="folder"/><resolvers>
<filesystem name="folder"><artifact pattern="{folder}/[artifact]-[revision].[ext]"/></filesystem>
</resolvers></ivysettings>"""


@pytest.fixture(autouse=True)
def lock(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Give a lock that wishes one jar but has no sum for it yet, and a folder that holds the jar."""
    (tmp_path / "one-1.0.0.jar").write_bytes(b"one")
    (tmp_path / "settings.xml").write_text(SETTINGS.format(folder=tmp_path))
    monkeypatch.setenv("ISRWATCH_IVY_SETTINGS", str(tmp_path / "settings.xml"))
    monkeypatch.setenv("ISRWATCH_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "jars.lock"
    path.write_text(ivy.render({"test": Group(exact=(JAR,), jars={})}))
    monkeypatch.setattr("streaming.runtime.jars.conf_path", lambda _: path)
    monkeypatch.setattr("streaming.commands.jars.conf_path", lambda _: path)
    return path


def called(*arguments: str) -> str:
    done = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return " ".join(done.output.split())


def test_the_lock_is_written_anew_from_its_wishes(lock: Path) -> None:
    called("lock")
    assert {JAR: hashlib.sha256(b"one").hexdigest()} == ivy.read(lock)["test"].jars


def test_a_pipe_is_given_every_line_whole(lock: Path) -> None:
    long = Coordinate("org.example", "one" * 30, "1.0.0")
    lock.write_text(ivy.render({"test": Group(exact=(long,), jars={long: "0" * 64})}))
    assert str(long) in called()


def test_jars_are_shown_fetched_and_repaired() -> None:
    called("lock")
    assert f"test │ {JAR} │ │ no" in called()
    assert "1 jars (0.0 MB) in" in called("fetch", "test")
    assert f"test │ {JAR} │ 0 │ yes" in called()
    (jars.jars_folder() / JAR.path).write_bytes(b"damaged")
    assert "damaged" in called()
    assert "1 fetched again" in called("fetch")
    assert (jars.jars_folder() / JAR.path).read_bytes() == b"one"


def test_the_paths_of_jars_are_printed_as_spark_submit_takes_them_and_are_there() -> None:
    called("lock")
    assert called("paths", "test") == str(jars.jars_folder() / JAR.path)
    assert called("paths", "test", "test").split(",") == [str(jars.jars_folder() / JAR.path)]
    assert (jars.jars_folder() / JAR.path).read_bytes() == b"one"


def test_a_group_for_long_tests_is_fetched_by_its_name_alone(lock: Path) -> None:
    lock.write_text(ivy.render({"test-server": Group(exact=(JAR,), only_by_name=True, jars={})}))
    called("lock")
    assert "0 jars (0.0 MB) in" in called("fetch")
    assert "1 jars (0.0 MB) in" in called("fetch", "test-server")
    assert f"test-server │ {JAR} │ 0 │ yes" in called()


def test_without_room_for_the_archive_of_sparks_classes_the_jars_are_there_all_the_same(
    lock: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def archive() -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    lock.write_text(ivy.render({jars.SPARK_KAFKA: Group(exact=(JAR,), jars={})}))
    called("lock")
    monkeypatch.setattr("streaming.commands.jars.archive", archive)
    said = called("fetch", jars.SPARK_KAFKA)
    assert "1 jars (0.0 MB) in" in said
    assert "Spark's classes are not archived, so it starts in twice the time: [Errno 28] No space left" in said


def test_each_jar_that_arrives_is_reported_with_its_size() -> None:
    lines = [
        "downloading https://repository/org/example/one/1.0.0/one-1.0.0.jar ...",
        ".......... (9293kB)",
        "\t[SUCCESSFUL ] org.example#one;1.0.0!one.jar (34ms)",
        "\t[SUCCESSFUL ] org.example#local;1.0.0!local.jar (1ms)",
        "\t2 artifacts copied, 0 already retrieved (9294kB/12ms)",
    ]
    arrived: list[str] = []
    assert ivy.read_output(lines, arrived.append) == ""
    assert arrived == ["one.jar (9.1 MB)", "local.jar"]
