"""Properties files of Kafka's own tools, as the properties that isrwatch connects with."""

from __future__ import annotations

import datetime as dt
import ssl
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat, pkcs12
from cryptography.x509.oid import NameOID

from streaming.errors import ConfigurationError
from streaming.secret_values import as_of_now, client_properties, with_secrets
from streaming.settings import ClusterSettings, Settings
from streaming.sources.protocol.security import from_client


def of(folder: Path, text: str) -> dict[str, str]:
    path = folder / "client.properties"
    path.write_text(text)
    return client_properties(path)


def truststore(name: str, password: str) -> bytes:
    """Make a truststore with one authority."""
    _, authority = certificate(name)
    kept = [pkcs12.PKCS12Certificate(authority, b"ca")]
    return pkcs12.serialize_java_truststore(kept, BestAvailableEncryption(password.encode()))


def certificate(name: str) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
    key, begin = ec.generate_private_key(ec.SECP256R1()), dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    made = x509.CertificateBuilder().subject_name(subject).issuer_name(subject).public_key(key.public_key())
    made = made.serial_number(1).not_valid_before(begin).not_valid_after(begin + dt.timedelta(days=9_000))
    made = made.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    return key, made.sign(key, hashes.SHA256())


@pytest.fixture
def stores(tmp_path: Path) -> Path:
    """Give a folder with a truststore and a keystore, of the password "changeit"."""
    key, own = certificate("isrwatch")
    locked = BestAvailableEncryption(b"changeit")
    (tmp_path / "trust.p12").write_bytes(truststore("authority", "changeit"))
    (tmp_path / "own.jks").write_bytes(pkcs12.serialize_key_and_certificates(b"own", key, own, None, locked))
    return tmp_path


@pytest.mark.parametrize(
    "login",
    [
        'org.apache.kafka.common.security.scram.ScramLoginModule required username="ann" password="s \\\\"x\\\\";";',
        "org.apache.kafka.common.security.scram.ScramLoginModule required \\\n  username=ann password='s \"x\";';",
        "org.apache.kafka.common.security.scram.ScramLoginModule\trequired username=ann\tpassword='s \"x\";'; ",
    ],
)
def test_the_login_of_java_is_that_of_librdkafka(tmp_path: Path, login: str) -> None:
    text = f"# ours\nsecurity.protocol: SASL_PLAINTEXT \nsasl.mechanism=SCRAM-SHA-512\t\nsasl.jaas.config={login}\n"
    found = of(tmp_path, text)
    security = from_client(found)
    assert (security.username, security.password, security.mechanism) == ("ann", 's "x";', "SCRAM-SHA-512")


def test_names_of_librdkafka_stay(tmp_path: Path) -> None:
    text = "security.protocol=SASL_SSL\nsasl.mechanisms=PLAIN\nsasl.username=ann\nsasl.password=x=y\nclient.id=a\n"
    assert of(tmp_path, text) == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanisms": "PLAIN",
        "sasl.username": "ann",
        "sasl.password": "x=y",
        "client.id": "a",
    }


def names(context: ssl.SSLContext) -> list[str]:
    """Name the authorities that a context trusts."""
    return [dict(pair[0] for pair in each["subject"])["commonName"] for each in context.get_ca_certs()]


def test_a_truststore_and_a_keystore_are_read_for_each_connection(stores: Path) -> None:
    text = (
        f"security.protocol=SSL\nssl.truststore.location={stores}/trust.p12\nssl.truststore.password=changeit\n"
        f"ssl.keystore.location={stores}/own.jks\nssl.keystore.password=changeit\nssl.key.password=changeit\n"
        "ssl.endpoint.identification.algorithm=\nssl.enabled.protocols=TLSv1.3\nssl.truststore.type=PKCS12\n"
        "bootstrap.servers=a:1\n"
    )
    found = of(stores, text)
    assert found["ssl.endpoint.identification.algorithm"] == "none"
    assert not [name for name in found if name.endswith((".type", ".protocols", ".servers"))]
    tls = from_client(found).tls
    assert tls is not None
    assert names(tls.context()) == ["authority"]
    assert tls.expiries().keys() == {"ssl.truststore.location", "ssl.keystore.location"}
    (stores / "trust.p12").write_bytes(truststore("renewed", "other"))
    with pytest.raises(
        ConfigurationError, match=r"ssl\.truststore\.location cannot be used: .*its password is another"
    ):
        tls.context()
    of(stores, text.replace("truststore.password=changeit", "truststore.password=other"))
    assert names(tls.context()) == ["renewed"]


def test_pem_files_and_pem_in_the_file_are_taken(tmp_path: Path, stores: Path) -> None:
    key, own = certificate("isrwatch")
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"changeit"))
    (stores / "own.pem").write_bytes(private + own.public_bytes(Encoding.PEM))
    text = f"security.protocol=SSL\nssl.keystore.type=PEM\nssl.keystore.location={stores}/own.pem\n"
    tls = from_client(of(tmp_path, f"{text}ssl.truststore.location={stores}/own.pem\nssl.key.password=changeit\n")).tls
    assert tls is not None
    assert names(tls.context()) == ["isrwatch"]


@pytest.mark.parametrize("between", ["\\n", " ", "\\\n", " \\\n    ", "\\n\\\n"])
def test_pem_in_the_file_is_taken_on_one_line_or_several(tmp_path: Path, between: str) -> None:
    key, own = certificate("isrwatch")
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"changeit"))
    chain, secret = (between.join(pem.decode().splitlines()) for pem in (own.public_bytes(Encoding.PEM) * 2, private))
    text = (
        f"security.protocol=SSL\nssl.truststore.type=PEM\nssl.truststore.certificates={chain}\nssl.keystore.type=PEM\n"
    )
    tls = from_client(
        of(
            tmp_path,
            f"{text}ssl.keystore.certificate.chain={chain}\nssl.keystore.key={secret}\nssl.key.password=changeit\n",
        )
    ).tls
    assert tls is not None
    assert names(tls.context()) == ["isrwatch"]


def test_a_password_that_changes_in_the_file_is_used_at_the_next_login(tmp_path: Path) -> None:
    text = "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.username=ann\nsasl.password=old\n"
    security = from_client(of(tmp_path, text))
    of(tmp_path, text.replace("old", "new"))
    assert security.exchange().auth_bytes() == b"ann\0ann\0new"
    (tmp_path / "client.properties").unlink()  # a mounted secret is missing for a moment while it is exchanged
    assert security.exchange().auth_bytes() == b"ann\0ann\0old"


def test_tokens_of_an_openid_connect_provider_are_asked_for(tmp_path: Path) -> None:
    found = of(
        tmp_path,
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=OAUTHBEARER\n"
        "sasl.login.callback.handler.class=org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler\n"
        "sasl.oauthbearer.token.endpoint.url=https://login.example/token\n"
        "sasl.jaas.config=org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
        'clientId="isrwatch" clientSecret="s" scope="kafka";\n',
    )
    assert found["sasl.oauthbearer.method"] == "oidc"
    assert from_client(found).tokens is not None


def test_tokens_are_asked_for_as_the_clients_of_kafka_4_1_and_of_confluent_cloud_do(tmp_path: Path) -> None:
    found = of(
        tmp_path,
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=OAUTHBEARER\nsasl.login.refresh.window.factor=0.7\n"
        "sasl.oauthbearer.token.endpoint.url=https://login.example/token\nsasl.login.read.timeout.ms=5000\n"
        "sasl.oauthbearer.client.credentials.client.id=isrwatch\n"
        "sasl.oauthbearer.client.credentials.client.secret=s\n"
        "sasl.jaas.config=org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
        "extension_logicalCluster='lkc-1' extension_identityPoolId=pool-2;\n",
    )
    tokens = from_client(found).tokens
    assert tokens is not None
    assert tokens.extensions == {"logicalCluster": "lkc-1", "identityPoolId": "pool-2"}
    of(tmp_path, "sasl.oauthbearer.client.credentials.client.id=renewed\n")
    assert as_of_now(found["sasl.oauthbearer.client.id"]) == "renewed"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("sasl.jaas.config=com.sun.security.auth.module.Krb5LoginModule required;", "Krb5LoginModule, which only Java"),
        (
            "sasl.client.callback.handler.class=software.amazon.msk.auth.iam.IAMClientCallbackHandler",
            "sasl.client.callback.handler.class, a class that only Java can run",
        ),
        (
            'sasl.jaas.config=a.ScramLoginModule required username=id password="changeit" tokenauth="true";',
            "logs in with a delegation token, which isrwatch cannot do: name a user with a password",
        ),
        ('sasl.jaas.config=password="changeit" username=a;', "sasl.jaas.config that names no login module"),
        ("ssl.truststore.location=/nowhere", "ssl.truststore.location cannot be used: /nowhere: .*No such file"),
        ("ssl.truststore.location={0}/old.jks", "it has the old format JKS; convert it, by keytool -importkeystore"),
        ("ssl.truststore.location={0}/trust.p12\nssl.truststore.password=no", "it is no PKCS #12 store, or its"),
        ("ssl.keystore.location={0}/trust.p12\nssl.keystore.password=changeit", "has no key with a certificate"),
        ("a=\\u12", "is no properties file in UTF-8"),
    ],
)
def test_what_cannot_be_taken_is_refused_with_the_way_to_put_it_right(stores: Path, text: str, sentence: str) -> None:
    (stores / "old.jks").write_bytes(b"\xfe\xed\xfe\xed\x00\x00\x00\x02")
    with pytest.raises(ConfigurationError, match=sentence) as refused:
        from_client({"security.protocol": "SSL", **of(stores, text.replace("{0}", str(stores)))})
    assert "changeit" not in str(refused.value)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"cannot read the client properties .*absent: No such file"):
        client_properties(tmp_path / "absent")


def test_keys_of_the_table_win_over_the_file(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text("sasl.username=file\nsasl.password=x\n")
    settings = Settings(cluster=ClusterSettings(client_file=str(path), client={"sasl.username": "table"}))
    assert with_secrets(settings, {}).cluster.client == {"sasl.username": "table", "sasl.password": "x"}
