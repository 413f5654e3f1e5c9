"""The properties of librdkafka as those of Kafka's Java clients."""

from __future__ import annotations

from pathlib import Path

import pytest

from streaming.errors import ConfigurationError
from streaming.jobs.streams.kafka_source import java_properties
from streaming.settings import KafkaBusSettings


def java(**client: str) -> dict[str, str]:
    return java_properties(KafkaBusSettings(client={name.replace("_", "."): value for name, value in client.items()}))


def test_nothing_is_nothing() -> None:
    assert java() == {}


@pytest.mark.parametrize(
    ("mechanism", "module"), [("PLAIN", "plain.PlainLoginModule"), ("SCRAM-SHA-512", "scram.ScramLoginModule")]
)
def test_a_login_becomes_a_jaas_configuration_in_which_nothing_ends_early(mechanism: str, module: str) -> None:
    login = {"sasl_username": "me", "sasl_password": 'a"b\\c; d'}
    found = java(security_protocol="SASL_SSL", sasl_mechanism=mechanism, **login)
    assert found == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": f"org.apache.kafka.common.security.{module} required "
        'username="me" password="a\\"b\\\\c; d";',
    }


def test_pem_files_become_pem_stores(tmp_path: Path) -> None:
    for name in ("ca", "certificate", "key"):
        (tmp_path / name).write_text(f"PEM of {name}")
    found = java_properties(
        KafkaBusSettings(
            client={
                "security.protocol": "SSL",
                "ssl.ca.location": str(tmp_path / "ca"),
                "ssl.certificate.location": str(tmp_path / "certificate"),
                "ssl.key.location": str(tmp_path / "key"),
                "ssl.key.password": "secret",
                "ssl.endpoint.identification.algorithm": "none",
                "compression.type": "zstd",
            }
        )
    )
    assert found == {
        "security.protocol": "SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": "PEM of ca",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": "PEM of certificate",
        "ssl.keystore.key": "PEM of key",
        "ssl.key.password": "secret",
        "ssl.endpoint.identification.algorithm": "",
    }


def test_what_has_no_counterpart_is_refused_by_name_and_may_be_written_for_java(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"bus\.kafka\.client: ssl\.crl\.location of librdkafka has no"):
        java(ssl_crl_location="x")
    with pytest.raises(ConfigurationError, match="cannot log in by GSSAPI without the properties of Kafka's Java"):
        java(sasl_mechanism="GSSAPI", sasl_kerberos_keytab="x")
    with pytest.raises(ConfigurationError, match=rf"ssl\.ca\.location: cannot read {tmp_path}/none"):
        java(ssl_ca_location=f"{tmp_path}/none")
    found = java(sasl_mechanism="GSSAPI", sasl_kerberos_keytab="x", spark_sasl_jaas_config="Krb5 required;")
    assert found == {"sasl.mechanism": "GSSAPI", "sasl.jaas.config": "Krb5 required;"}
