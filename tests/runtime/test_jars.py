from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming.errors import ConfigurationError, MissingTool
from streaming.resources import conf_path
from streaming.runtime import ivy, jars
from streaming.runtime.ivy import Coordinate, Group

Locks = Callable[..., dict[Coordinate, str]]

ONE = Coordinate("org.example", "one_2.13", "1.0.0")
OLD = Coordinate("org.example", "two", "1.0.0-rc1")
NEW = Coordinate("org.example", "two", "2.0.0")

SETTINGS = """<ivysettings><settings defaultResolver="central"/><resolvers>
<filesystem name="central" m2compatible="true">
<artifact pattern="{root}/[organisation]/[module]/[revision]/[artifact]-[revision].[ext]"/>
</filesystem></resolvers></ivysettings>"""


def content(jar: Coordinate) -> bytes:
    return f"the bytes of {jar}".encode()


@pytest.fixture
def lock(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Locks:
    """Give a folder in Maven's layout instead of the network, an empty cache, and a lock of some of its jars."""
    repository = tmp_path / "repository"
    for jar in (ONE, OLD, NEW):
        file = (
            repository / jar.group.replace(".", "/") / jar.artifact / jar.version / f"{jar.artifact}-{jar.version}.jar"
        )
        file.parent.mkdir(parents=True)
        file.write_bytes(content(jar))
    (tmp_path / "settings.xml").write_text(SETTINGS.format(root=repository))
    monkeypatch.setenv("ISRWATCH_IVY_SETTINGS", str(tmp_path / "settings.xml"))
    monkeypatch.setenv("ISRWATCH_CACHE", str(tmp_path / "cache"))

    def write(*wanted: Coordinate, checksums: dict[Coordinate, str] | None = None) -> dict[Coordinate, str]:
        sums = {jar: hashlib.sha256(content(jar)).hexdigest() for jar in wanted} | (checksums or {})
        monkeypatch.setattr(jars, "groups", lambda: {"test": Group(jars=sums)})
        return sums

    return write


def test_what_is_missing_is_fetched_verified_and_told_and_then_only_looked_up(
    lock: Locks, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock(ONE, OLD, NEW)
    arrived: list[str] = []
    paths = jars.jar_paths("test", progress=arrived.append)
    assert [content(jar) for jar in (ONE, OLD, NEW)] == [path.read_bytes() for path in paths]
    assert sorted(arrived) == ["one_2.13.jar (0.0 MB)", "two.jar (0.0 MB)", "two.jar (0.0 MB)"]
    monkeypatch.setattr(ivy, "fetch", lambda *_: pytest.fail("a cached jar was fetched"))
    assert paths == jars.jar_paths("test")


def test_another_file_than_the_locked_one_is_refused_and_not_kept(lock: Locks) -> None:
    lock(ONE, checksums={ONE: "0" * 64})
    with pytest.raises(MissingTool, match=f"{ONE} has SHA-256 .* but 000"):
        jars.jar_paths("test")
    assert list(jars.jars_folder().rglob("*.jar")) == []


def test_a_jar_that_is_nowhere_is_named(lock: Locks) -> None:
    absent = Coordinate("org.example", "absent", "9")
    lock(ONE, checksums={absent: "0" * 64})
    with pytest.raises(MissingTool, match=r"org\.example:absent:9 is not in the repository .*ISRWATCH_IVY_SETTINGS"):
        jars.jar_paths("test")


@pytest.mark.parametrize("version", [OLD, NEW])
def test_a_jar_of_the_installed_package_is_used_if_it_is_the_locked_one_and_nothing_is_fetched(
    lock: Locks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: Coordinate
) -> None:
    packaged = tmp_path / jars.PACKAGE / version.path
    packaged.parent.mkdir(parents=True)
    packaged.write_bytes(content(OLD))
    monkeypatch.syspath_prepend(tmp_path)
    sums = lock(version)
    (path,) = jars.jar_paths("test")
    assert path.read_bytes() == content(version), "what has another checksum than the lock is not used"
    assert (path == packaged) is (version == OLD)
    assert (jars.missing(sums), jars.intact(version, sums[version])) == ({}, True)
    assert jars.jars_folder().exists() is (version == NEW)


def test_an_unknown_group_is_reported_with_the_known_ones(lock: Locks) -> None:
    lock(ONE)
    with pytest.raises(ConfigurationError, match="no group of jars called 'tset'; groups: test"):
        jars.jar_paths("tset")


def test_settings_that_are_no_file_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ISRWATCH_IVY_SETTINGS", "/nowhere.xml")
    with pytest.raises(ConfigurationError, match=r"ISRWATCH_IVY_SETTINGS is /nowhere\.xml"):
        ivy.settings_file()


def test_processes_that_fetch_at_once_all_get_whole_jars(lock: Locks, tmp_path: Path) -> None:
    sums = lock(ONE, OLD)
    (tmp_path / "test.lock").write_text(ivy.render({"test": Group(jars=sums)}))
    program = (
        "from pathlib import Path; from streaming.runtime import jars; jars.conf_path = lambda _: Path('test.lock');"
        "print(*(path.read_text() for path in jars.jar_paths('test')), sep='\\n')"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(jars.__file__).parents[2])}
    running = [
        subprocess.Popen(
            [sys.executable, "-c", program], cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True
        )
        for _ in range(3)
    ]
    expected = "".join(f"{content(jar).decode()}\n" for jar in sorted([ONE, OLD]))
    assert [expected] * 3 == [process.communicate(timeout=120)[0] for process in running]
    assert list(jars.jars_folder().glob(".fetch-*")) == []


def test_a_proxy_of_the_environment_reaches_java(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example:3128")
    monkeypatch.setenv("NO_PROXY", "localhost,.internal.example")
    expected = ["-Dhttps.proxyHost=proxy.example", "-Dhttps.proxyPort=3128"]
    assert [*expected, "-Dhttp.nonProxyHosts=localhost|*.internal.example"] == ivy.proxy_options()


def test_the_committed_lock_holds_every_wish_and_no_address() -> None:
    path = conf_path("jars.lock")
    text = path.read_text()
    locked = ivy.read(path)
    kafkas = ["sandbox", "sandbox-kafka-1", "sandbox-kafka-3", "sandbox-kafka-3-6", "sandbox-kafka-4-4"]
    assert sorted(locked) == [
        "delta",
        "jmx-agent",
        *kafkas,
        "spark-kafka",
        "test-hdfs",
        "test-s3proxy",
        "test-strimzi",
        "test-yarn",
    ]
    assert {name for name in locked if name.startswith("test-")} == set(locked) - set(jars.usual_groups())
    for group in locked.values():
        assert set(group.resolve) | set(group.exact) <= set(group.jars)
    assert text == ivy.render(locked)
    assert "://" not in text + conf_path("ivysettings.xml").read_text()


def test_the_connector_and_what_it_brings_of_spark_are_of_the_version_of_spark() -> None:
    ours = [jar for jar in ivy.read(conf_path("jars.lock"))[jars.SPARK_KAFKA].jars if jar.group == "org.apache.spark"]
    assert {jar.version for jar in ours} == {version("pyspark")}


@pytest.mark.parametrize("text", ["a:b", "a:b:c:d", "../x:b:1", "a:b/c:1", "a::1", "a:..:1"])
def test_what_is_no_coordinate_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="group:artifact:version"):
        ivy.coordinate(text)


def test_a_line_without_a_sum_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "jars.lock"
    path.write_text('[g]\n[g.jars]\n"a:b:1" = "abc"\n')
    with pytest.raises(ConfigurationError, match=r"a:b:1 in jars\.lock has no SHA-256"):
        ivy.read(path)


words = st.text("aZ0_.-", min_size=1, max_size=8).filter(lambda word: ".." not in word)
coordinates = st.builds(Coordinate, words, words, words)
several = st.lists(coordinates, max_size=3).map(tuple)
checksums = st.integers(min_value=0, max_value=16**64 - 1).map("{:064x}".format)
group = st.builds(
    Group,
    resolve=several,
    exact=several,
    only_by_name=st.booleans(),
    jars=st.dictionaries(coordinates, checksums, max_size=4),
)


@given(st.dictionaries(st.sampled_from(["delta", "jmx-agent"]), group))
def test_a_lock_reads_back_as_written(tmp_path_factory: pytest.TempPathFactory, groups: dict[str, Group]) -> None:
    path = tmp_path_factory.getbasetemp() / "roundtrip.lock"
    path.write_text(ivy.render(groups))
    assert groups == ivy.read(path)
