"""The configuration: the reference file is the code's defaults, and a wrong key is named."""

from __future__ import annotations

import dataclasses
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from streaming import settings
from streaming.errors import ConfigurationError, ConnectionRefused
from streaming.settings import with_secrets
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
    expected = {
        section: {key: value for key, value in values.items() if (section, key) not in EMPTY}
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
        ("[colect]\n", "unknown key colect; the keys of the file are: cluster, collect"),
        ("[export]\nport = 1\n", r"unknown key export.port; the keys of \[export\] are: listen, url, refresh_seconds"),
        ("cluster = 3\n", r"cluster must be a table: write \[cluster\]"),
        ("[bus]\nsegment_bytes = 'many'\n", "bus.segment_bytes must be int, not 'many'"),
        ("[tables]\nhistory_days = -1\n", "tables.history_days is -1; it must be at least 0"),
        ("[tables]\nreader_minutes = 0.5\n", "tables.reader_minutes is 0.5; it must be at least 1"),
        ("[tables]\nreader_minutes = nan\n", "tables.reader_minutes is nan; it must be at least 1, and finite"),
        ("[bus]\nsegment_bytes = 8\n", "bus.segment_bytes is 8; it must be at least 1024"),
        ("[job]\nbatch_bytes = 8\n", "job.batch_bytes is 8; it must be at least 1024"),
        ("[bus]\nsegment_bytes = true\n", "bus.segment_bytes must be int, not True"),
        (
            "[collect]\nprimary_source = 'zookeeper'\n",
            "collect.primary_source is 'zookeeper'; use one of auto, metadata_log, poll",
        ),
        ("[collect]\npoll_seconds = 0\n", "poll_seconds is 0.0; it must be above 0"),
        ("[collect]\npoll_seconds = nan\n", "poll_seconds is nan; it must be above 0, and finite"),
        ("[job]\ntrigger_seconds = inf\n", "trigger_seconds is inf; it must be 0 or more, and finite"),
        ("[job]\ntrigger_seconds = -1\n", "trigger_seconds is -1.0"),
        ("[cluster.client]\nacks = 1\n", "cluster.client must be a table of strings"),
        (
            "[export]\ntelemetry_path = 'metrics'\n",
            "export.telemetry_path is 'metrics'; write a path that nothing else",
        ),
        ("[export]\ntelemetry_path = '/api/v1/x'\n", "export.telemetry_path is '/api/v1/x'; write a path"),
        ("[export]\ntelemetry_path = '/runbook'\n", "export.telemetry_path is '/runbook'; write a path"),
        ("[export]\nurl = 'isrwatch:9308'\n", "export.url is 'isrwatch:9308'; write an absolute address"),
        ("[export]\nurl = 'https://x/?a=1'\n", r"export.url is 'https://x/\?a=1'; write an absolute address"),
        ("[cluster\n", "is not TOML"),
        ("[export]\ntopic_filter = '('\n", r"export.topic_filter '\(' is no regular expression: missing \)"),
        (
            "[export]\ngroup_exclude = 'tmp-*'\n",
            r"export.group_exclude is 'tmp-\*', but it is a regular expression, .*: write 'tmp-\.\*', or put that",
        ),
        ("[export]\nwithout = ['lags']\n", "export.without has 'lags'; use some of incidents, topics, partitions"),
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


def test_a_whole_number_is_a_duration(tmp_path: Path) -> None:
    assert settings.load(write(tmp_path, "[collect]\npoll_seconds = 2\n")).collect.poll_seconds == 2.0


@pytest.mark.parametrize(
    ("pattern", "meant"),
    [("tmp-*", "tmp-.*"), ("*", ".*"), ("*-internal", ".*-internal"), ("a*|b_*", "a.*|b_.*"), ("^tmp*$", "^tmp.*$")],
)
def test_a_pattern_of_file_names_is_refused_with_what_is_meant(pattern: str, meant: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(f"--x is {pattern!r}, but")) as refused:
        settings.check_pattern("--x", pattern)
    assert f"write {meant!r}, or" in str(refused.value)
    assert "\n" not in str(refused.value)
    settings.check_pattern("--x", meant)


@pytest.mark.parametrize(
    "pattern", ["", ".*", "^$", "orders.*", r"\w*", "(ab)*", "[-]*", "tmp-.*|junk", "a+", "x{2}", r"_\d*$"]
)
def test_a_regular_expression_is_none_of_these(pattern: str) -> None:
    settings.check_pattern("--x", pattern)


def test_what_is_no_regular_expression_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"^--x '\[a' is no regular expression: unterminated"):
        settings.check_pattern("--x", "[a")
