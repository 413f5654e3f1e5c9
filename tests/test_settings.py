"""The configuration: the reference file is the code's defaults, and a wrong key is named."""

from __future__ import annotations

import dataclasses
import math
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from streaming import settings
from streaming.durations import duration_text
from streaming.errors import ConfigurationError, ConnectionRefused
from streaming.secret_values import with_secrets
from streaming.sources.protocol.security import from_client

REFERENCE = Path(__file__).parents[1] / "conf" / "isrwatch.toml"


def sections(configured: settings.Settings) -> dict[str, dict[str, Any]]:
    """Each table of the file with its values; a table inside another one is one of its own."""
    found = dataclasses.asdict(configured)
    inner = {"cluster.controllers": found["cluster"].pop("controllers"), "bus.kafka": found["bus"].pop("kafka")}
    return {**found, **inner}


DEFAULTS = sections(settings.Settings())
EMPTY = [
    (section, key) for section, values in DEFAULTS.items() for key, default in values.items() if default in ("", {}, ())
]


def uncommented() -> str:
    """The reference with its examples switched on: a line "#key = ..." or "#[table]"."""
    return re.sub(r"^#(?=[\[\"a-z])", "", REFERENCE.read_text(), flags=re.MULTILINE)


def write(folder: Path, text: str) -> Path:
    path = folder / "isrwatch.toml"
    path.write_text(text)
    return path


def test_the_reference_gives_every_default() -> None:
    assert settings.load(REFERENCE) == settings.Settings()


def test_the_reference_spells_out_every_key_that_has_a_default() -> None:
    written = tomllib.loads(REFERENCE.read_text())
    written["cluster.controllers"] = written["cluster"].pop("controllers")
    written["bus.kafka"] = written["bus"].pop("kafka")
    durations = {key: duration_text(seconds) for key, seconds in settings.durations_of(settings.Settings())}
    expected = {
        section: {
            key: durations.get(f"{section}.{key}", value)
            for key, value in values.items()
            if (section, key) not in EMPTY
        }
        for section, values in DEFAULTS.items()
    }
    assert expected == written


@pytest.mark.parametrize(("section", "key"), EMPTY)
def test_the_reference_has_a_valid_example_of_every_key_that_is_empty_by_default(
    section: str, key: str, tmp_path: Path
) -> None:
    loaded = sections(settings.load(write(tmp_path, uncommented())))
    assert loaded[section][key] != DEFAULTS[section][key]


def test_examples_change_only_what_is_empty_by_default(tmp_path: Path) -> None:
    loaded = sections(settings.load(write(tmp_path, uncommented())))
    changed = [
        (section, key) for section, values in loaded.items() for key in values if values[key] != DEFAULTS[section][key]
    ]
    assert changed == EMPTY


def test_the_example_with_a_client_certificate_has_properties_of_librdkafka(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    examples = REFERENCE.read_text().partition("# With a certificate of the client")[2].partition("\n\n")[0]
    lines = re.findall(r'^#     ("s[a-z.]+" = .*)$', examples, re.MULTILINE)
    monkeypatch.setenv("KAFKA_KEY_PASSWORD", "secret")
    loaded = settings.load(write(tmp_path, "\n".join(["[cluster.client]", *lines])))
    client = with_secrets(loaded).cluster.client
    assert (client["security.protocol"], client["ssl.key.password"]) == ("SSL", "secret")
    with pytest.raises(KafkaException, match=r"ssl\.ca\.location failed"):  # every property exists; the file does not
        AdminClient(dict(client))


def test_the_example_with_a_token_command_is_one_that_prints_a_token(tmp_path: Path) -> None:
    examples = REFERENCE.read_text().partition("# With tokens: ")[2].partition("# With a certificate")[0]
    lines = re.findall(r'^#     ("[a-z.]+" = .*)$', examples, re.MULTILINE)
    client = settings.load(write(tmp_path, "\n".join(["[cluster.client]", *lines]))).cluster.client
    security = from_client(client)
    assert (security.mechanism, security.tls is not None) == ("OAUTHBEARER", True)
    with pytest.raises(
        ConnectionRefused, match=r"token command '/opt/isrwatch/msk-token --region eu-west-1' cannot be"
    ):
        security.exchange().auth_bytes()


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[colect]\n", r"unknown key colect \(did you mean collect\?\); the keys of the file are: cluster, collect"),
        ("[cluster]\npoll_interval = '5s'\n", r"^unknown key cluster.poll_interval \(it is a key of \[collect\]\); "),
        (
            "[cluster]\nbootstrap_servers = ['a:1', 'b:2']\n",
            r"^cluster.bootstrap_servers must be a string in quotes, not .*; write \"a:1,b:2\"$",
        ),
        (
            "[export]\nport = 1\n",
            r"unknown key export.port; the keys of \[export\] are: listen, url, alertmanager_url, refresh",
        ),
        ("cluster = 3\n", r"cluster must be a table: write \[cluster\]"),
        ("[advanced]\nsegment_bytes = 'many'\n", "advanced.segment_bytes must be a whole number, not 'many'"),
        ("[tables]\nhistory = '5m'\n", "^tables.history is 5m; it must be at least 1d$"),
        ("[tables]\nhistory = 90\n", '^tables.history is 90, without a unit; write "90s", "90m", "90h" or "90d"$'),
        (
            "[tables]\nhistory = -1\n",
            '^tables.history is -1; write a duration with its unit, such as "30s", "5m", "2h"',
        ),
        ("[advanced]\nreader_time = '30s'\n", "advanced.reader_time is 30s; it must be at least 1m"),
        ("[advanced]\nreader_time = nan\n", "advanced.reader_time is nan; write a duration with its unit"),
        ("[advanced]\nsegment_bytes = 8\n", "advanced.segment_bytes is 8; it must be at least 1024"),
        ("[advanced]\nbatch_bytes = 8\n", "advanced.batch_bytes is 8; it must be at least 1024"),
        ("[advanced]\nsegment_bytes = true\n", "advanced.segment_bytes must be a whole number, not True"),
        (
            "[collect]\nprimary_source = 'zookeeper'\n",
            "collect.primary_source is 'zookeeper'; use one of auto, metadata_log, poll",
        ),
        ("[collect]\npoll_interval = '0s'\n", "collect.poll_interval is 0s; it must be at least 1ms"),
        (
            "[collect]\npoll_interval = '5'\n",
            'collect.poll_interval is 5, without a unit; write "5s", "5m", "5h" or "5d"',
        ),
        ("[collect]\npoll_interval = 0.5\n", "collect.poll_interval is 0.5, without a unit"),
        ("[collect]\npoll_interval = 'forever'\n", "collect.poll_interval is 'forever'; write a duration"),
        ("[collect]\npoll_interval = true\n", "collect.poll_interval is True; write a duration"),
        ("[collect]\npoll_seconds = 5\n", "unknown key collect.poll_seconds; the keys of .* poll_interval"),
        ("[advanced]\ntrigger_interval = inf\n", "advanced.trigger_interval is inf; write a duration"),
        ("[advanced]\ntrigger_interval = -1\n", "advanced.trigger_interval is -1; write a duration"),
        ("[maintenance]\nmax_duration = '8d'\n", "maintenance.max_duration is 8d; it must be at most 7d"),
        ("[cluster.client]\nacks = 1\n", "cluster.client must be a table of strings"),
        (
            "[export]\ntelemetry_path = 'metrics'\n",
            "export.telemetry_path is 'metrics'; write a path that nothing else",
        ),
        ("[export]\ntelemetry_path = '/api/v1/x'\n", "export.telemetry_path is '/api/v1/x'; write a path"),
        ("[export]\ntelemetry_path = '/runbook'\n", "export.telemetry_path is '/runbook'; write a path"),
        ("[export]\nalertmanager_url = 'am:9093'\n", "export.alertmanager_url is 'am:9093'; write an absolute address"),
        (
            "[cluster]\nplatform = 'k8s'\n",
            "cluster.platform is 'k8s'; use one of bare metal, strimzi, msk, confluent cloud, aiven",
        ),
        ("[export]\nurl = 'isrwatch:9308'\n", "export.url is 'isrwatch:9308'; write an absolute address"),
        ("[export]\nurl = 'https://x/?a=1'\n", r"export.url is 'https://x/\?a=1'; write an absolute address"),
        ("[cluster\n", "is not TOML"),
        ("[export]\ntopics = ['^a']\n", r"export.topics has '\^a', which looks like a regular expression"),
        ("[export]\ngroups = ['!']\n", "export.groups has '!'; write a name, such as"),
        ("[collect]\ngroups = ['a|b']\n", r"collect.groups has 'a\|b', which looks like a regular expression"),
        ("[export]\ndisabled = ['lags']\n", "export.disabled has 'lags'; use some of incidents, topics, partitions"),
    ],
)
def test_a_wrong_configuration_is_one_sentence_that_names_the_key(text: str, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=sentence):
        settings.load(write(tmp_path, text))


def test_a_missing_file_is_named_with_where_to_start(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigurationError, match=r"no\.toml: No such file or directory; start from conf/isrwatch\.toml"
    ):
        settings.load(tmp_path / "no.toml")


def test_every_default_duration_is_one_that_the_file_may_have(tmp_path: Path) -> None:
    for key, seconds in settings.durations_of(settings.Settings()):
        section, _, name = key.rpartition(".")
        written = settings.load(write(tmp_path, f'[{section}]\n{name} = "{duration_text(seconds)}"\n'))
        assert dict(settings.durations_of(written))[key] == seconds


def test_no_key_carries_the_unit_of_a_duration() -> None:
    units = ("_seconds", "_minutes", "_hours", "_days", "_ms")
    assert [key for values in DEFAULTS.values() for key in values if key.endswith(units)] == []


def test_history_may_be_kept_forever(tmp_path: Path) -> None:
    assert settings.load(write(tmp_path, '[tables]\nhistory = "forever"\n')).tables.history == math.inf
