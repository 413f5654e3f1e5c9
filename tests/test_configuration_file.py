"""Which configuration file is read, and the variables that override its keys."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from streaming import configuration_file
from streaming.cluster_settings import each_cluster
from streaming.commands.doctor import read_from
from streaming.configuration_file import file_to_read, without_configuration
from streaming.errors import ConfigurationError
from streaming.settings import Settings, load

SEVERAL = """
[[cluster]]
name = "prod"
[cluster.collect]
primary_source = "poll"
poll_interval = "1s"
[[cluster]]
name = "test"
"""


@pytest.fixture(autouse=True)
def _places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A working directory and a system without a configuration."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(configuration_file, "OF_SYSTEM", tmp_path / "etc.toml")
    monkeypatch.delenv("ISRWATCH_CONFIG", raising=False)


def test_the_first_of_option_variable_working_directory_and_system_is_read(tmp_path: Path) -> None:
    system, option = tmp_path / "etc.toml", Path("option.toml")
    assert file_to_read(None, {}) is None
    system.touch()
    assert file_to_read(None, {"ISRWATCH_CONFIG": ""}) == system
    Path("isrwatch.toml").touch()
    assert file_to_read(None, {}) == Path("isrwatch.toml")
    assert file_to_read(None, {"ISRWATCH_CONFIG": "named.toml"}) == Path("named.toml")
    assert file_to_read(option, {"ISRWATCH_CONFIG": "named.toml"}) == option


def test_commands_read_what_is_in_the_working_directory() -> None:
    Path("isrwatch.toml").write_text('[cluster]\nname = "here"\n')
    assert load(None).cluster.name == each_cluster(None)[0].cluster.name == "here"


def test_a_file_of_an_editor_of_windows_is_read() -> None:
    Path("isrwatch.toml").write_bytes(b'\xef\xbb\xbf[cluster]\r\nname = "here"\r\n')
    assert load(None).cluster.name == "here"


def test_a_file_that_the_variable_names_must_exist() -> None:
    with pytest.raises(ConfigurationError, match=r"cannot read the configuration no\.toml"):
        load(None, {"ISRWATCH_CONFIG": "no.toml"})


def test_a_variable_overrides_a_key_of_every_kind() -> None:
    Path("isrwatch.toml").write_text(
        '[tables]\ndirectory = "a"\nhistory = "5d"\n[bus.kafka]\nreplication_topic = "r"\n'
    )
    settings = load(
        None,
        {
            "ISRWATCH_TABLES__DIRECTORY": "/data/tables",
            "ISRWATCH_COLLECT__POLL_INTERVAL": "30s",
            "ISRWATCH_COLLECT__GROUPS": "payments-*, !*-test",
            "ISRWATCH_BUS__KAFKA__REPLICATION_PARTITIONS": "12",
            "ISRWATCH_CLUSTER__CLIENT": '{ "security.protocol" = "SSL" }',
        },
    )
    assert (settings.tables.directory, settings.tables.history) == ("/data/tables", 5 * 86_400)
    assert (settings.collect.poll_interval, settings.collect.groups) == (30, ("payments-*", "!*-test"))
    assert (settings.bus.kafka.replication_topic, settings.bus.kafka.replication_partitions) == ("r", 12)
    assert settings.cluster.client == {"security.protocol": "SSL"}


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("JOB__TABLES", "x", "the variable ISRWATCH_JOB__TABLES names no key job.tables; [job] has: queries"),
        ("JOBS__LISTEN", "x", "the variable ISRWATCH_JOBS__LISTEN names no key jobs; the file has: cluster, collect"),
        (
            "ALERTS__RULES__IsrwatchBrokerDown__FOR",
            "30m",
            "alerts.rules is one value: set ISRWATCH_ALERTS__RULES to a table of TOML",
        ),
        ("JOB__LISTEN__PORT", "x", "ISRWATCH_JOB__LISTEN__PORT names no key job.listen.port; job.listen is one value"),
        ("BUS__KAFKA", "x", "the variable ISRWATCH_BUS__KAFKA is a table; name one of its keys: bootstrap_servers"),
        ("CLUSTER__CLIENT", "SSL", "the variable ISRWATCH_CLUSTER__CLIENT is 'SSL'; write a value of TOML, such as { "),
        ("BUS__MAX_BYTES", "8 GB", "the variable ISRWATCH_BUS__MAX_BYTES is '8 GB'; write a value of TOML, such as 5"),
        ("COLLECT__POLL_INTERVAL", "5", 'collect.poll_interval is 5, without a unit; write "5s"'),
    ],
)
def test_a_variable_that_cannot_be_meant_is_refused(name: str, value: str, sentence: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(sentence)):
        load(None, {f"ISRWATCH_{name}": value})


def test_of_several_clusters_a_variable_wins_over_each_and_names_no_one(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("isrwatch.toml").write_text(SEVERAL)
    monkeypatch.setenv("ISRWATCH_COLLECT__POLL_INTERVAL", "9s")
    every = each_cluster(None)
    assert [each.collect.poll_interval for each in every] == [9, 9]
    assert [each.collect.primary_source for each in every] == ["poll", "auto"]
    monkeypatch.setenv("ISRWATCH_CLUSTER__NAME", "one")
    with pytest.raises(ConfigurationError, match=r"ISRWATCH_CLUSTER__NAME is of one cluster, and .* has several"):
        each_cluster(None)


def test_other_variables_are_none_of_it() -> None:
    assert load(None, {"ISRWATCH_DEBUG": "1", "ISRWATCH_CACHE": "/c", "OTHER__KEY": "x"}) == Settings()


def test_programs_of_the_demo_read_no_configuration() -> None:
    Path("isrwatch.toml").write_text('[cluster]\nname = "here"\n')
    environment = without_configuration({"PATH": "/bin", "ISRWATCH_CACHE": "/c", "ISRWATCH_CLUSTER__NAME": "x"})
    assert load(None, environment) == Settings()
    assert environment["PATH"] == "/bin"


def test_doctor_says_what_is_read() -> None:
    (finding,) = read_from(Path("a.toml"), {"ISRWATCH_JOB__LISTEN": "", "ISRWATCH_CACHE": "/c"})
    assert (finding.check, finding.sentence) == ("configuration", "a.toml, and ISRWATCH_JOB__LISTEN")
    (finding,) = read_from(None, {})
    assert finding.sentence == "no file, only defaults"
