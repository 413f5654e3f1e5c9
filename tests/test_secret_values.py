"""Values of the configuration that stand in the environment or in a file."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming.errors import ConfigurationError
from streaming.secret_values import with_secrets, written_secrets
from streaming.settings import ClusterSettings, CollectSettings, ControllersSettings, Settings


def with_client(**client: str) -> Settings:
    return Settings(cluster=ClusterSettings(client=client))


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("plain $text {x} $$ 100%", "plain $text {x} $$ 100%"),
        ("${USER}", "ann"),
        ("${USER}:${PASSWORD}", "ann:s3${USER}"),  # a value is not searched for others
        ("$${USER}", "${USER}"),
        ("$$${USER}", "$${USER}"),
        ("${1}${}", "${1}${}"),
    ],
)
def test_a_variable_of_the_environment_stands_for_its_value(written: str, value: str) -> None:
    filled = with_secrets(with_client(key=written), {"USER": "ann", "PASSWORD": "s3${USER}"})
    assert filled.cluster.client == {"key": value}


@given(st.text().filter(lambda text: "${" not in text and not text.startswith("file:")))
def test_all_other_text_stays_as_it_is(text: str) -> None:
    assert with_secrets(with_client(key=text), {}) == with_client(key=text)


@pytest.mark.parametrize(
    ("content", "value"), [("s3cret\n", "s3cret"), ("\ufeffs3cret\r\n", "s3cret"), (" a\n\n", " a\n")]
)
def test_a_file_stands_for_its_content_without_the_end_of_its_last_line(
    content: str, value: str, tmp_path: Path
) -> None:
    path = tmp_path / "password"
    path.write_bytes(content.encode())
    assert with_secrets(with_client(key=f"file:{path}")).cluster.client == {"key": value}


def test_every_table_that_may_hold_a_secret_is_filled() -> None:
    value, environment = "${A}", {"A": "b:1"}
    configured = Settings(
        cluster=ClusterSettings(
            bootstrap_servers=value, client={"k": value}, controllers=ControllersSettings(client={"k": value})
        ),
        collect=CollectSettings(broker_metrics={"1": value}, broker_metrics_client={"basic.auth.user.info": value}),
    )
    filled = with_secrets(configured, environment)
    assert filled.cluster.bootstrap_servers == "b:1"
    assert filled.cluster.client == filled.cluster.controllers.client == {"k": "b:1"}
    assert filled.collect.broker_metrics == {"1": "b:1"}
    assert filled.collect.broker_metrics_client == {"basic.auth.user.info": "b:1"}


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ("a${NO}b", r"cluster.client sasl.password refers to \$\{NO\}, which the environment does not have; set it"),
        ("file:/nowhere/at/all", "cluster.client sasl.password refers to the file /nowhere/at/all.*No such file"),
        ("file:/", "cluster.client sasl.password refers to the file /, which cannot be read"),
    ],
)
def test_what_is_missing_is_one_sentence_with_the_key(value: str, sentence: str) -> None:
    with pytest.raises(ConfigurationError, match=sentence):
        with_secrets(with_client(**{"sasl.password": value}), {})


def test_a_file_that_is_no_text_is_refused_without_its_content(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_bytes(b"\xff\xfesecret")
    with pytest.raises(ConfigurationError, match=r"which is not text in UTF-8$") as refusal:
        with_secrets(with_client(key=f"file:{path}"))
    assert "secret" not in str(refusal.value)
    assert refusal.value.__suppress_context__


def test_secrets_in_the_file_itself_are_named_by_their_key() -> None:
    configured = Settings(
        cluster=ClusterSettings(
            client={
                "sasl.username": "ann", "sasl.password": "s3cret", "ssl.key.password": "${KEY}",
                "ssl.key.pem": "-----BEGIN", "ssl.ca.location": "/ca.pem",
            },
            controllers=ControllersSettings(client={"sasl.password": "file:/run/secret"}),
        ),
        collect=CollectSettings(
            broker_metrics={"1": "http://ann:s3cret@h:1/metrics", "2": "http://h:1/metrics"},
            broker_metrics_client={"basic.auth.user.info": "ann:s3cret", "ssl.ca.location": "/ca.pem"},
        ),
    )  # fmt: skip

    assert written_secrets(configured) == [
        "cluster.client sasl.password", "cluster.client ssl.key.pem", "collect.broker_metrics 1",
        "collect.broker_metrics_client basic.auth.user.info",
    ]  # fmt: skip
