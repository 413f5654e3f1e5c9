"""The web configuration file: what the toolkit accepts is served or refused by name."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from pathlib import Path

import pytest

from streaming.errors import ConfigurationError
from streaming.web.config_file import CIPHER_SUITES, TlsServerConfig, WebConfig, read_web_config
from streaming.web.protection import Protection
from tests.plugins.certificates import make_certificate

EXAMPLE = Path(__file__).parents[2] / "conf" / "web-config.yml"
HASH = "$2y$04$PTGfq2o8T0Lq0Ja3oFKlV.bDZNIuhrfBoGAPCLlBTCEzVjJHdcoIC"
TLS = "tls_server_config: {cert_file: a.crt, key_file: a.key, %s}\n"


def written(folder: Path, text: str) -> Path:
    path = folder / "web.yml"
    path.write_text(text)
    return path


def test_promtool_accepts_the_example_and_so_do_we(tmp_path: Path) -> None:
    shutil.copy(EXAMPLE, tmp_path)
    make_certificate(tmp_path, "clients")
    make_certificate(tmp_path, "server", signed_by="clients")
    checked = subprocess.run(
        ["promtool", "check", "web-config", tmp_path / EXAMPLE.name], capture_output=True, text=True, check=False
    )
    assert (checked.returncode, "SUCCESS" in checked.stderr + checked.stdout) == (0, True), checked
    rules = Protection(tmp_path / EXAMPLE.name).rules
    assert rules.protects() == (True, True, True)
    assert rules.config.tls == TlsServerConfig(
        cert_file=str(tmp_path / "server.crt"),
        key_file=str(tmp_path / "server.key"),
        client_ca_file=str(tmp_path / "clients.crt"),
        client_auth_type="RequireAndVerifyClientCert",
    )
    assert rules.config.headers == {"Strict-Transport-Security": "max-age=31536000", "X-Frame-Options": "deny"}


@pytest.mark.parametrize("text", ["", "tls_server_config:\nbasic_auth_users: {}\nhttp_server_config: {headers: }\n"])
def test_an_empty_file_protects_nothing(text: str, tmp_path: Path) -> None:
    assert read_web_config(written(tmp_path, text)) == WebConfig()


@pytest.mark.parametrize("suite", CIPHER_SUITES.values())
def test_every_cipher_suite_is_one_of_openssl(suite: str) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_ciphers(suite)
    assert suite in {cipher["name"] for cipher in context.get_ciphers()}


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[1, 2", "is not YAML"),
        ("tls_server_config: {min_version: 2026-13-01}", "is not YAML: month must be in"),
        ("[" * 3000, "is not YAML: maximum recursion depth"),
        (f"basic_auth_users: {{me: {HASH}}}\nbasic_auth_users: {{}}", "the key basic_auth_users is there 2 times"),
        (f"basic_auth_users: {{me: {HASH}, me: {HASH}}}", "is not YAML: the key me is there 2 times"),
        ("tls_server_config: []", "tls_server_config must be a mapping of keys to values"),
        ("tls_server_config: false", "tls_server_config must be a mapping of keys to values"),
        ("- 1", "the file must be a mapping"),
        ("tls: {}", "unknown key tls; the keys there are: tls_server_config, http_server_config, basic_auth_users"),
        ("rate_limit: {burst: 1}", "rate_limit is not served here: remove it; connections are limited"),
        ("http_server_config: {http2: true}", "http2: HTTP/2 is not served here; write http2: false"),
        ("http_server_config: {headers: {Server: x}}", "headers has 'Server'; the headers that can be set are: Strict"),
        ("http_server_config: {headers: {X-Frame-Options: DENY}}", "is 'DENY'; use one of deny, sameorigin"),
        ('http_server_config: {headers: {X-XSS-Protection: "1\\nX: y"}}', "must be one line of ASCII"),
        ("basic_auth_users: {me: secret}", "basic_auth_users.me is no bcrypt hash; write what htpasswd -nBC 10 me"),
        (f'basic_auth_users: {{"a:b": {HASH}}}', "has 'a:b'; a name of HTTP's basic login has no colon"),
        ("basic_auth_users: {1: x}", "basic_auth_users must be a mapping of texts to texts"),
        (TLS % "cert: x", "tls_server_config.cert is not served here: write the certificate into a file"),
        (TLS % "key: x", "tls_server_config.key is not served here"),
        (TLS % "client_ca: x", "tls_server_config.client_ca is not served here"),
        (TLS % "curve_preferences: [X25519]", "tls_server_config.curve_preferences is not served here: remove it"),
        (TLS % "ciphers: []", "unknown key tls_server_config.ciphers; the keys there are: cert_file, key_file"),
        (TLS % "min_version: TLS10", "min_version is 'TLS10'; use TLS12 or TLS13"),
        (TLS % "min_version: TLS13, max_version: TLS12", "min_version is above max_version"),
        (TLS % "min_version: 12", "min_version must be a text, not 12"),
        (TLS % "prefer_server_cipher_suites: 1", "prefer_server_cipher_suites must be true or false, not 1"),
        (TLS % "cipher_suites: TLS_AES_128_GCM_SHA256", "cipher_suites must be a list of texts"),
        (TLS % "cipher_suites: [TLS_AES_128_GCM_SHA256]", "the suites of TLS 1.3 cannot be chosen"),
        (TLS % "client_auth_type: RequireAnyClientCert", "a certificate that is not verified proves nothing"),
        (TLS % "client_auth_type: RequireAndVerifyClientCert", "need each other; write both or none"),
        (TLS % "client_ca_file: a.crt", "need each other; write both or none"),
        (TLS % "client_allowed_sans: [a]", "client_allowed_sans needs client_auth_type RequireAndVerifyClientCert"),
        ("tls_server_config: {cert_file: a.crt}", "tls_server_config.key_file is missing"),
        ("tls_server_config: {min_version: TLS13}", "tls_server_config.cert_file is missing"),
        (TLS % "", r"cert_file and key_file: cannot load .*a\.crt and .*a\.key: No such file or directory"),
    ],
)
def test_what_is_wrong_or_not_served_is_one_sentence_that_names_the_key(
    text: str, sentence: str, tmp_path: Path
) -> None:
    path = written(tmp_path, text)
    with pytest.raises(ConfigurationError, match=sentence) as refused:
        Protection(path)
    assert str(refused.value).startswith(str(path))
    assert "\n" not in str(refused.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"cannot read the web configuration .*web\.yml: No such file"):
        Protection(tmp_path / "web.yml")


def test_a_key_of_another_certificate_is_refused(tmp_path: Path) -> None:
    make_certificate(tmp_path, "a")
    make_certificate(tmp_path, "b")
    shutil.copy(tmp_path / "b.key", tmp_path / "a.key")
    with pytest.raises(ConfigurationError, match="not a PEM certificate with its key"):
        Protection(written(tmp_path, TLS % ""))


def test_the_files_of_every_suite_and_version_load(tmp_path: Path) -> None:
    make_certificate(tmp_path, "a")
    suites = f"cipher_suites: [{', '.join(CIPHER_SUITES)}], prefer_server_cipher_suites: false, max_version: TLS12"
    context = Protection(written(tmp_path, TLS % suites)).rules.context
    assert context is not None
    assert context.maximum_version == ssl.TLSVersion.TLSv1_2
    assert not context.options & ssl.OP_CIPHER_SERVER_PREFERENCE
    assert set(CIPHER_SUITES.values()) <= {cipher["name"] for cipher in context.get_ciphers()}
