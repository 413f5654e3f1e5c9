"""What ``isrwatch doctor`` checks of this machine: folders, tables, Java, jars, ports and web configuration files."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Final

from streaming.commands.doctor_findings import Status
from streaming.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from streaming.settings import Settings

LEAST_FREE_BYTES: Final = 1 << 30
ANSWER_SECONDS: Final = 2.0
_MOST_BYTES: Final = 4096
_TITLE: Final = re.compile(rb"<title>([^<]*)")


def _folders(settings: Settings) -> Iterator[tuple[Status, str]]:
    for key, folder in (
        ("bus.directory", settings.bus.directory),
        ("tables.directory", settings.tables.directory),
        ("job.checkpoint", settings.job.checkpoint),
    ):
        path = Path(folder).absolute()
        nearest = next(each for each in (path, *path.parents) if each.exists())
        if not nearest.is_dir() or not os.access(nearest, os.W_OK | os.X_OK):
            yield (
                Status.PROBLEM,
                f"{key}: {nearest} is no folder that this user can write; correct the key or its owner",
            )
        elif (free := shutil.disk_usage(nearest).free) < LEAST_FREE_BYTES:
            yield Status.WARNING, f"{key}: {free / (1 << 20):,.0f} MiB are free below {nearest}; make space"
        else:
            exists = "can be written" if path.exists() else "can be created"
            yield Status.OK, f"{key}: {path} {exists}, {free / (1 << 30):,.0f} GiB are free"


def _tables(settings: Settings) -> Iterator[tuple[Status, str]]:
    from streaming.commands.doctor_tables import tables

    return tables(settings)


def _java(_: Settings) -> Iterator[tuple[Status, str]]:
    from streaming.runtime import jars
    from streaming.runtime.java import find_java

    java = find_java()
    yield Status.OK, f"Java {java.version} at {java.home} (from {java.origin})"
    missing = jars.missing(jars.groups()[jars.DELTA].jars)
    if missing:
        yield Status.WARNING, f"{len(missing)} jars of the job are not here yet: isrwatch jars fetch {jars.DELTA}"
    else:
        yield Status.OK, "the jars of the job are here"


def _ports(settings: Settings) -> Iterator[tuple[Status, str]]:
    from streaming.runtime.listening import listen_all

    for key, address, web_config_file in (
        ("collect.listen", settings.collect.listen, settings.collect.web_config_file),
        ("job.listen", settings.job.listen, settings.job.web_config_file),
        ("export.listen", settings.export.listen, settings.export.web_config_file),
    ):
        if not address:
            continue
        try:
            for opened in listen_all(address, key):
                opened.close()
        except ConfigurationError as refusal:
            program = f"isrwatch {key.partition('.')[0]}"
            if all(program in _title_at(each.strip(), is_tls=_has_tls(web_config_file)) for each in address.split(",")):
                yield Status.OK, f"{key}: {program} runs already at {address}"
            else:
                yield Status.WARNING, f"{refusal}, unless it is {program} that runs already"
        else:
            yield Status.OK, f"{key}: {address} is free"


def _has_tls(web_config_file: str) -> bool:
    from streaming.web.protection import protection_of

    try:
        return protection_of(web_config_file).rules.context is not None
    except ConfigurationError:  # which the next check reports
        return False


def _title_at(address: str, *, is_tls: bool) -> str:
    """Return the title of what a program serves at an address of this machine, "" if it shows none to everybody."""
    import ssl
    from http.client import HTTPConnection, HTTPException, HTTPSConnection

    host, _, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]") or "127.0.0.1"
    connection = HTTPConnection(host, int(port), timeout=ANSWER_SECONDS)
    if is_tls:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # nothing secret is sent or read
        connection = HTTPSConnection(host, int(port), timeout=ANSWER_SECONDS, context=context)
    try:
        connection.request("GET", "/")
        title = _TITLE.search(connection.getresponse().read(_MOST_BYTES))
    except (OSError, HTTPException):
        return ""
    finally:
        connection.close()
    return "" if title is None else title[1].decode(errors="replace")


def _web_files(settings: Settings) -> Iterator[tuple[Status, str]]:
    from streaming.web.protection import protection_of

    files = {
        "collect.web_config_file": settings.collect.web_config_file,
        "job.web_config_file": settings.job.web_config_file,
        "export.web_config_file": settings.export.web_config_file,
    }
    for key, file in files.items():
        if not file:
            continue
        try:
            protects = protection_of(file).rules.protects()
        except ConfigurationError as error:
            yield Status.PROBLEM, f"{key}: {error}"
            continue
        given = [name for name, is_given in zip(_PROTECTIONS, protects, strict=True) if is_given]
        if given:
            yield Status.OK, f"{key}: {file} gives {', '.join(given)}"
        else:
            yield (
                Status.WARNING,
                f"{key}: {file} protects nothing; write TLS or logins into it, as in conf/web-config.yml",
            )


_PROTECTIONS: Final = ("TLS", "certificates of clients", "logins")
CHECKS_OF_THE_MACHINE: Final[Mapping[str, Callable[[Settings], Iterator[tuple[Status, str]]]]] = {
    "folders": _folders,
    "tables": _tables,
    "Java and jars": _java,
    "ports": _ports,
    "web files": _web_files,
}
