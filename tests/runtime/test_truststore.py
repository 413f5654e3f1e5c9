from __future__ import annotations

import hashlib
import re
import ssl
import subprocess
from pathlib import Path

import pytest

from streaming.errors import ConfigurationError
from streaming.runtime.ivy import trust_options
from streaming.runtime.java import find_java

# A self-signed certificate made for this test; its key was thrown away.
CERTIFICATE = (Path(__file__).parent / "authority.pem").read_text()
OPTION = "-Djavax.net.ssl.trustStore="


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ISRWATCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    monkeypatch.delenv("REQUESTS_CA_BUNDLE", raising=False)


def bundle(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)


def listed(store: str) -> list[str]:
    """Let Java itself read the store and give the SHA-256 fingerprints of what it trusts."""
    keytool = find_java().home / "bin" / "keytool"
    program = keytool if keytool.exists() else "keytool"
    told = subprocess.run(
        [program, "-list", "-keystore", store, "-storepass", "changeit"], capture_output=True, text=True, check=True
    )
    return re.findall(r"\(SHA-256\): (\S+)", told.stdout)


def test_without_a_bundle_java_keeps_its_own_trust() -> None:
    assert trust_options() == ()


@pytest.mark.parametrize("variable", ["SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"])
def test_java_reads_and_trusts_what_the_bundle_holds(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, variable: str
) -> None:
    monkeypatch.setenv(variable, bundle(tmp_path / "ca.pem", f"# a comment\n{CERTIFICATE}\nmore\n{CERTIFICATE}"))
    (option,) = trust_options()
    digest = hashlib.sha256(ssl.PEM_cert_to_DER_cert(CERTIFICATE)).hexdigest().upper()
    fingerprint = ":".join(digest[i : i + 2] for i in range(0, 64, 2))
    assert [fingerprint, fingerprint] == listed(option.removeprefix(OPTION))


def test_a_changed_bundle_gives_another_store(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", bundle(tmp_path / "ca.pem", CERTIFICATE))
    before = trust_options()
    assert before == trust_options()
    bundle(tmp_path / "ca.pem", CERTIFICATE + "\n")
    assert before != trust_options()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (None, "SSL_CERT_FILE is .*ca.pem, which cannot be read: No such file"),
        ("nothing here", "contains no PEM certificate"),
        ("-----BEGIN CERTIFICATE-----\nabc\n-----END CERTIFICATE-----", "is not PEM"),
    ],
)
def test_a_bundle_that_cannot_be_used_is_reported_with_its_variable(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str | None, told: str
) -> None:
    if text is not None:
        bundle(tmp_path / "ca.pem", text)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    with pytest.raises(ConfigurationError, match=told):
        trust_options()
