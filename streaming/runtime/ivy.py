"""Ivy, the resolver in pyspark's wheel, run as a program. Depends on coordinates and folders, not on the lock file.

All jars of a call share one JVM: 87 jars take 9 seconds that way, but 1.6 seconds each in a JVM of their own.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import importlib.util
import os
import re
import struct
import subprocess
import tempfile
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit
from xml.sax.saxutils import quoteattr

from streaming.errors import ConfigurationError, MissingTool
from streaming.resources import conf_path
from streaming.runtime.folders import cache_folder, write_atomically
from streaming.runtime.java import find_java

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

_LIGHT: Final = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_TRIES: Final = 2  # one of a hundred downloads may well fail
_REASONS: Final = {  # Ivy's output and its meaning, the most specific first
    r"PKIX path building failed": "Java does not trust the repository; let SSL_CERT_FILE name your company's CA",
    r"java\.net\.\S+|[Tt]imed out|UnknownHost\S*": "the repository cannot be reached ({0})",
    r"(\S+)#(\S+);(\S+): not found": "{1}:{2}:{3} is not in the repository",
    r"(?:Server access error|problem|[Ee]rror|Exception).*": "{0}",
}
_FETCHED: Final = "[organisation]/[module]-[revision].[ext]"


def fetch(jars: Iterable[Coordinate], folder: Path, progress: Callable[[str], None]) -> str:
    """Download exactly these jars into ``folder``; when one fails, Ivy may have stored none of them.

    Returns the reason of a failure, else "". ``progress`` is called with each file that was downloaded, and its size.
    """
    remaining = list(jars)
    reason = ""
    for _ in range(_TRIES):
        remaining = [jar for jar in remaining if not (folder / jar.path).exists()]
        if not remaining:
            return ""
        reason = _run(dict.fromkeys(remaining, False), folder / _FETCHED, progress)
    return reason


def closure(required: Mapping[Coordinate, bool], folder: Path, progress: Callable[[str], None]) -> set[Coordinate]:
    """Download jars into ``folder``, those marked true with their dependencies; return all that were downloaded.

    Raises:
        MissingTool: one of them cannot be downloaded.
    """
    # A variant for one system goes a level deeper, and is left out: a coordinate of ours has no classifier.
    reason = _run(required, folder / _FETCHED.replace("-[revision]", "/[revision](/[classifier])"), progress)
    if reason:
        raise MissingTool(f"jars.lock cannot be written: {reason}")
    coordinates = set()
    for file in folder.glob("*/*/*.jar"):
        jar = Coordinate(file.parent.parent.name, file.parent.name, file.stem)
        coordinates.add(jar)
        file.rename(folder / jar.path)
    return coordinates


def _run(required: Mapping[Coordinate, bool], pattern: Path, progress: Callable[[str], None]) -> str:
    """Run Ivy once for all jars; return its error in one line, else ""."""
    with tempfile.TemporaryDirectory(prefix="isrwatch-ivy-") as scratch:
        descriptor = Path(scratch, "ivy.xml")
        descriptor.write_text(_descriptor(required), encoding="utf-8")
        command = [*_ivy(Path(scratch), poms=any(required.values())), "-ivy", descriptor, "-retrieve", pattern]
        with subprocess.Popen(  # noqa: S603 - our own arguments
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, stdin=subprocess.DEVNULL
        ) as ivy:
            error = read_output(ivy.stdout or (), progress)
        return "" if ivy.returncode == 0 else error or f"Ivy ended with exit code {ivy.returncode}"


def _descriptor(required: Mapping[Coordinate, bool]) -> str:
    """Return the Ivy module; without dependencies, two versions of one jar must not evict each other."""
    lines = [
        f"<dependency org={quoteattr(jar.group)} name={quoteattr(jar.artifact)} rev={quoteattr(jar.version)} "
        f'conf="default" transitive="{str(transitive).lower()}"/>'
        for jar, transitive in required.items()
    ]
    if not any(required.values()):
        lines.append('<conflict manager="all"/>')
    return (
        '<ivy-module version="2.0"><info organisation="isrwatch" module="jars"/>'
        '<configurations><conf name="default"/></configurations>'
        f"<dependencies>{''.join(lines)}</dependencies></ivy-module>"
    )


def _ivy(scratch: Path, *, poms: bool) -> list[str | Path]:
    """Return the begin of the command line. Ivy's own cache is temporary: only the SHA-256 of the lock file counts."""
    program = next(_pyspark_jars().glob("ivy-*.jar"), None)
    if program is None:
        raise MissingTool("pyspark has no ivy jar inside: pip install --force-reinstall 'pyspark==4.2.0'")
    options = [*_LIGHT, *trust_options(), *proxy_options(), f"-Disrwatch.poms={str(poms).lower()}"]
    return [
        find_java().executable, *options, f"-Divy.default.ivy.user.dir={scratch}", "-jar", program,
        "-settings", settings_file(), "-cache", scratch / "cache", "-confs", "default",
    ]  # fmt: skip


def settings_file() -> Path:
    """Return the path of the Ivy settings: the user's own when ``ISRWATCH_IVY_SETTINGS`` is set.

    Raises:
        ConfigurationError: it is set to a path that is not a file.
    """
    own = os.environ.get("ISRWATCH_IVY_SETTINGS")
    if own and not Path(own).is_file():
        raise ConfigurationError(f"ISRWATCH_IVY_SETTINGS is {own}, which is not a file")
    return Path(own) if own else conf_path("ivysettings.xml")


def proxy_options() -> list[str]:
    """Return the Java options for the proxy of the environment; JAVA_TOOL_OPTIONS, which Java reads itself, wins."""
    options = []
    for scheme in ("http", "https"):
        value = os.environ.get(f"{scheme}_proxy") or os.environ.get(f"{scheme.upper()}_PROXY")
        proxy = urlsplit(value if value and "//" in value else f"//{value or ''}")
        if proxy.hostname:
            options.append(f"-D{scheme}.proxyHost={proxy.hostname}")
            options.append(f"-D{scheme}.proxyPort={proxy.port or 80}")
    direct = os.environ.get("no_proxy") or os.environ.get("NO_PROXY")
    if options and direct:
        hosts = (f"*{host}" if host.startswith(".") else host for host in direct.replace(" ", "").split(",") if host)
        options.append(f"-Dhttp.nonProxyHosts={'|'.join(hosts)}")
    return options


def _pyspark_jars() -> Path:
    """Return the folder of the wheel's jars, without an import of pyspark, which takes half a second."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise MissingTool("the resolver of jars is part of pyspark: pip install 'isrwatch[job]'")
    return Path(spec.origin).parent / "jars"


def read_output(lines: Iterable[str], progress: Callable[[str], None]) -> str:
    """Report the downloads in Ivy's output; return the most specific error in it, else ""."""
    reasons: dict[str, str] = {}
    size = ""
    for line in lines:
        if measured := re.search(r"\((\d+)kB\)", line):  # the end of its download
            size = f" ({int(measured[1]) / 1024:.1f} MB)"
        if arrived := re.search(r"\[SUCCESSFUL \] \S+!(\S+)", line):
            progress(f"{arrived[1]}{size}")
            size = ""
        for pattern, meaning in _REASONS.items():
            if pattern not in reasons and (match := re.search(pattern, line)):
                reasons[pattern] = meaning.format(match[0].strip(), *match.groups())
    return next((reasons[pattern] for pattern in _REASONS if pattern in reasons), "")


# ``conf/jars.lock``: jars by coordinate and SHA-256. Depends on TOML only, not on the network or the cache.
#
# A group requires the jars of ``resolve`` with their dependencies and those of ``exact`` without; its ``jars`` are the
# result of the last resolution. Only ``jars`` are ever downloaded, those of a group ``only_by_name`` when it is named.


_HEADER: Final = """\
# The jars that pyspark does not contain, by coordinate and SHA-256. The repository is configured in
# conf/ivysettings.xml, or in the file that ISRWATCH_IVY_SETTINGS points at (a mirror, a local folder).
# "resolve" includes the dependencies of a jar, "exact" does not: Spark already has the other dependencies of delta.
# "only_by_name": fetched when it is named, never with all the others. Servers for the long tests alone are such jars.
# After a change of "resolve" or "exact" write the sums again: isrwatch jars lock
"""
_COORDINATE: Final = re.compile(r"([\w.-]+):([\w.-]+):([\w.-]+)")
_SUM: Final = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True, order=True)
class Coordinate:
    """One jar: ``group:artifact:version``."""

    group: str
    artifact: str
    version: str

    def __str__(self) -> str:
        return f"{self.group}:{self.artifact}:{self.version}"

    @property
    def path(self) -> str:
        """The path of the jar below the folder of the jars."""
        return f"{self.group}/{self.artifact}-{self.version}.jar"


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Jars that are used together."""

    resolve: tuple[Coordinate, ...] = ()
    exact: tuple[Coordinate, ...] = ()
    only_by_name: bool = False
    jars: Mapping[Coordinate, str]


def coordinate(text: str) -> Coordinate:
    """Parse ``group:artifact:version``.

    Raises:
        ConfigurationError: it does not have that form.
    """
    parts = _COORDINATE.fullmatch(text)
    if parts is None or ".." in text:
        raise ConfigurationError(f"{text!r} in jars.lock is not of the form group:artifact:version")
    return Coordinate(*parts.groups())


def read(path: Path) -> dict[str, Group]:
    """Read a lock file.

    Raises:
        ConfigurationError: it is missing, is not TOML, or a line is not a coordinate with a SHA-256.
    """
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
        return {name: _group(**table) for name, table in document.items()}
    except OSError as error:
        raise ConfigurationError(f"cannot read {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, TypeError) as error:
        raise ConfigurationError(f"{path} is not a lock file of jars: {error}") from None


def render(groups: Mapping[str, Group]) -> str:
    """Return the text of a lock file; deterministic."""
    return "\n".join([_HEADER, *(_section(name, group) for name, group in groups.items())])


def _group(
    *,
    jars: dict[str, str],
    resolve: list[str] | None = None,
    exact: list[str] | None = None,
    only_by_name: bool = False,
) -> Group:
    for text, checksum in jars.items():
        if not _SUM.fullmatch(checksum):
            raise ConfigurationError(f"{text} in jars.lock has no SHA-256; write it again: isrwatch jars lock")
    return Group(
        resolve=tuple(map(coordinate, resolve or ())),
        exact=tuple(map(coordinate, exact or ())),
        only_by_name=only_by_name,
        jars={coordinate(text): checksum for text, checksum in jars.items()},
    )


def _section(name: str, group: Group) -> str:
    lines = [f"[{name}]", *(["only_by_name = true"] if group.only_by_name else [])]
    for key, required in (("resolve", group.resolve), ("exact", group.exact)):
        if required:
            lines += [f"{key} = [", *(f'    "{jar}",' for jar in required), "]"]
    lines += ["", f"[{name}.jars]"]
    lines += [f'"{jar}" = "{group.jars[jar]}"' for jar in sorted(group.jars)]
    return "\n".join([*lines, ""])


# The certificate authorities of the environment as a Java trust store.
#
# Python, pip and curl use ``SSL_CERT_FILE`` or ``REQUESTS_CA_BUNDLE``; Java does not, and fails behind a company's
# proxy with "PKIX path building failed". The JKS format is simple enough to be written here, in milliseconds; keytool
# imports one certificate per run, and bundles contain 150.


_PEM: Final = re.compile(rb"-----BEGIN (?:TRUSTED )?CERTIFICATE-----\s+(.*?)-----END", re.DOTALL)
_MAGIC: Final = 0xFEEDFEED
_VERSION: Final = 2
_TRUSTED_CERTIFICATE: Final = 2
_PASSWORD: Final = "changeit"  # noqa: S105 - Java's default; a list of public certificates is no secret


def trust_options() -> tuple[str, ...]:
    """Return the Java options for the CA bundle of the environment; none when it sets no bundle.

    Raises:
        ConfigurationError: the bundle cannot be read or contains no certificate.
    """
    for name in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"):
        if bundle := os.environ.get(name):
            return (f"-Djavax.net.ssl.trustStore={_trust_store(name, Path(bundle))}",)
    return ()


def _trust_store(variable: str, bundle: Path) -> Path:
    """Return the trust store of a bundle, with the hash of the bundle in its name, so that a change creates another."""
    try:
        pem = bundle.read_bytes()
    except OSError as error:
        raise ConfigurationError(f"{variable} is {bundle}, which cannot be read: {error.strerror}") from None
    path = cache_folder() / f"truststore-{hashlib.sha256(pem).hexdigest()[:16]}.jks"
    if not path.exists():
        try:
            certificates = [base64.b64decode(match[1]) for match in _PEM.finditer(pem)]
        except binascii.Error as error:
            raise ConfigurationError(f"{variable} is {bundle}, which is not PEM: {error}") from None
        if not certificates:
            raise ConfigurationError(f"{variable} is {bundle}, which contains no PEM certificate")
        write_atomically(path, jks(certificates))
    return path


def jks(certificates: list[bytes]) -> bytes:
    """Return DER certificates as a JKS trust store: header, entries, keyed SHA-1 over both.

    The key is the password in UTF-16 and the constant "Mighty Aphrodite" (``sun.security.provider.JavaKeyStore``).
    """
    body = struct.pack(">III", _MAGIC, _VERSION, len(certificates))
    for number, certificate in enumerate(certificates):
        body += struct.pack(">I", _TRUSTED_CERTIFICATE) + _text(f"authority-{number}") + struct.pack(">Q", 0)
        body += _text("X.509") + struct.pack(">I", len(certificate)) + certificate
    keyed = _PASSWORD.encode("utf-16-be") + b"Mighty Aphrodite" + body
    return body + hashlib.sha1(keyed, usedforsecurity=False).digest()


def _text(text: str) -> bytes:
    encoded = text.encode()
    return struct.pack(">H", len(encoded)) + encoded
