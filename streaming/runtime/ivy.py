"""Ivy, the resolver that pyspark's wheel carries, run as a program. Knows coordinates and folders, no lock file.

All jars of a run share one JVM: 87 exact jars take 9 seconds that way, against 1.6 seconds for each alone.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit
from xml.sax.saxutils import quoteattr

from streaming.errors import ConfigurationError, MissingTool
from streaming.resources import conf_path
from streaming.runtime.java import find_java
from streaming.runtime.lockfile import Coordinate
from streaming.runtime.truststore import trust_options

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

_LIGHT: Final = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_TRIES: Final = 2  # a registry that drops one of a hundred downloads is an ordinary day
_REASONS: Final = {  # what Ivy prints, and what it means; the most telling first
    r"PKIX path building failed": "Java does not trust the repository; let SSL_CERT_FILE name your company's CA",
    r"java\.net\.\S+|[Tt]imed out|UnknownHost\S*": "the repository cannot be reached ({0})",
    r"(\S+)#(\S+);(\S+): not found": "{1}:{2}:{3} is not in the repository",
    r"(?:Server access error|problem|[Ee]rror|Exception).*": "{0}",
}
_FETCHED: Final = "[organisation]/[module]-[revision].[ext]"


def fetch(jars: Iterable[Coordinate], folder: Path, progress: Callable[[str], None]) -> str:
    """Fetch exactly these jars into ``folder``; when one cannot be had, none may be there.

    Gives the reason, "" when all came. ``progress`` is told each file as it arrives.
    """
    wanted = list(jars)
    complaint = ""
    for _ in range(_TRIES):
        wanted = [jar for jar in wanted if not (folder / jar.path).exists()]
        if not wanted:
            return ""
        complaint = _run(dict.fromkeys(wanted, False), folder / _FETCHED, progress)
    return complaint


def closure(wishes: Mapping[Coordinate, bool], folder: Path, progress: Callable[[str], None]) -> set[Coordinate]:
    """Fetch wishes into ``folder``, those marked true with what they depend on; give everything that came.

    Raises:
        MissingTool: one of them cannot be had.
    """
    complaint = _run(wishes, folder / _FETCHED.replace("-[revision]", "/[revision]"), progress)
    if complaint:
        raise MissingTool(f"the lock of jars cannot be written: {complaint}")
    found = set()
    for file in folder.glob("*/*/*.jar"):
        jar = Coordinate(file.parent.parent.name, file.parent.name, file.stem)
        found.add(jar)
        file.rename(folder / jar.path)
    return found


def _run(wishes: Mapping[Coordinate, bool], pattern: Path, progress: Callable[[str], None]) -> str:
    """Start Ivy once for all; give its complaints in one line."""
    with tempfile.TemporaryDirectory(prefix="isrwatch-ivy-") as scratch:
        descriptor = Path(scratch, "ivy.xml")
        descriptor.write_text(_descriptor(wishes), encoding="utf-8")
        command = [*_ivy(Path(scratch), poms=any(wishes.values())), "-ivy", descriptor, "-retrieve", pattern]
        with subprocess.Popen(  # noqa: S603 - our own arguments
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, stdin=subprocess.DEVNULL
        ) as ivy:
            complaints = _listen(ivy.stdout or (), progress)
        return "" if ivy.returncode == 0 else complaints or f"Ivy ended with exit code {ivy.returncode}"


def _descriptor(wishes: Mapping[Coordinate, bool]) -> str:
    """Ask for the jars; without dependencies, two versions of one jar must not evict each other."""
    lines = [
        f"<dependency org={quoteattr(jar.group)} name={quoteattr(jar.artifact)} rev={quoteattr(jar.version)} "
        f'conf="default" transitive="{str(transitive).lower()}"/>'
        for jar, transitive in wishes.items()
    ]
    if not any(wishes.values()):
        lines.append('<conflict manager="all"/>')
    return (
        '<ivy-module version="2.0"><info organisation="isrwatch" module="jars"/>'
        '<configurations><conf name="default"/></configurations>'
        f"<dependencies>{''.join(lines)}</dependencies></ivy-module>"
    )


def _ivy(scratch: Path, *, poms: bool) -> list[str | Path]:
    """Start of the command line. Ivy's own cache is scratch: the SHA-256 of the lock is what we trust."""
    program = next(_pyspark_jars().glob("ivy-*.jar"), None)
    if program is None:
        raise MissingTool("pyspark has no ivy jar inside: pip install --force-reinstall 'pyspark==4.2.0'")
    options = [*_LIGHT, *trust_options(), *proxy_options(), f"-Disrwatch.poms={str(poms).lower()}"]
    return [
        find_java().executable, *options, f"-Divy.default.ivy.user.dir={scratch}", "-jar", program,
        "-settings", settings_file(), "-cache", scratch / "cache", "-confs", "default",
    ]  # fmt: skip


def settings_file() -> Path:
    """Give the Ivy settings: the user's own where ``ISRWATCH_IVY_SETTINGS`` names a file.

    Raises:
        ConfigurationError: it names none.
    """
    own = os.environ.get("ISRWATCH_IVY_SETTINGS")
    if own and not Path(own).is_file():
        raise ConfigurationError(f"ISRWATCH_IVY_SETTINGS names {own}, which is no file")
    return Path(own) if own else conf_path("ivysettings.xml")


def proxy_options() -> list[str]:
    """Tell Java the proxy of the environment; JAVA_TOOL_OPTIONS, which Java reads itself, wins over it."""
    options = []
    for scheme in ("http", "https"):
        named = os.environ.get(f"{scheme}_proxy") or os.environ.get(f"{scheme.upper()}_PROXY")
        proxy = urlsplit(named if named and "//" in named else f"//{named or ''}")
        if proxy.hostname:
            options.append(f"-D{scheme}.proxyHost={proxy.hostname}")
            options.append(f"-D{scheme}.proxyPort={proxy.port or 80}")
    direct = os.environ.get("no_proxy") or os.environ.get("NO_PROXY")
    if options and direct:
        hosts = (f"*{host}" if host.startswith(".") else host for host in direct.replace(" ", "").split(",") if host)
        options.append(f"-Dhttp.nonProxyHosts={'|'.join(hosts)}")
    return options


def _pyspark_jars() -> Path:
    """Find the wheel's jars without importing pyspark, which costs half a second."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise MissingTool("the resolver of jars comes with pyspark: pip install 'isrwatch[job]'")
    return Path(spec.origin).parent / "jars"


def _listen(lines: Iterable[str], progress: Callable[[str], None]) -> str:
    """Hand on what arrives; give the best reason why something did not, "" when nothing was complained about."""
    reasons: dict[str, str] = {}
    for line in lines:
        if arrived := re.search(r"\[SUCCESSFUL \] \S+!(\S+)", line):
            progress(arrived[1])
        for pattern, meaning in _REASONS.items():
            if pattern not in reasons and (found := re.search(pattern, line)):
                reasons[pattern] = meaning.format(found[0].strip(), *found.groups())
    return next((reasons[pattern] for pattern in _REASONS if pattern in reasons), "")
