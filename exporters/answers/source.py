"""The source of answers: an exporter, or the tables of a folder, by options, environment and configuration."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from exporters.answers.answer import Answer, Question
from exporters.answers.incidents import IncidentReport, report
from exporters.answers.subject import Limits, Tables
from exporters.answers.subjects import ANSWERS
from exporters.read_model.reader import micros_now
from streaming.contracts.tables import PARTITION_CHANGES
from streaming.delta.log.storage import is_table, reading
from streaming.delta.store.place import tables_place
from streaming.errors import ConfigurationError
from streaming.settings import load

if TYPE_CHECKING:
    from exporters.answers.server import Server
    from streaming.delta.store.place import Place


@dataclass(frozen=True, slots=True)
class AnswerSource:
    """Source of answers: an exporter, or else the tables of a folder."""

    server: Server | None
    folder: Place | None
    config_file: Path | None

    @classmethod
    def of(cls, server: str | None, tables: str | None, config_file: Path | None) -> AnswerSource:
        """Choose by the options, the variable ISRWATCH_SERVER and the configuration.

        Raises:
            ConfigurationError: both are given, or there are no tables.
        """
        asked = server_of(server, tables, config_file)
        return cls(asked, None if asked else folder_of(tables, config_file), config_file)

    def ask(self, subject: str, question: Question) -> Answer:
        """Ask; the one place where it matters who answers."""
        if self.server is not None:
            return self.server.answer(subject, question)
        return ANSWERS[subject].answer(self.tables(), question)

    def tables(self) -> Tables:
        """Return the tables, where no server is asked."""
        if self.folder is None:
            raise AssertionError("a server is asked")
        return Tables(folder=self.folder, limits=Limits.of(self.config_file), now=micros_now())

    def incident(self, any_id: str) -> IncidentReport:
        """Return everything about an incident."""
        if self.server is not None:
            return self.server.incident(any_id)
        return report(self.tables(), any_id, load(self.config_file).export.url)


def folder_of(tables: str | None, config_file: Path | None) -> Place:
    """Return the folder of the tables: the option's, else the configuration's.

    Raises:
        ConfigurationError: the folder contains no tables.
        TableUnreadable: it cannot be looked into.
    """
    folder = tables_place(load(config_file), tables)
    path = folder / PARTITION_CHANGES.name
    with reading(str(path)):
        is_there = is_table(path)
    if not is_there:
        raise ConfigurationError(
            f"no tables in {folder}; start isrwatch job, or point tables.directory (--tables) at the folder of the "
            "tables"
        )
    return folder


def server_of(server: str | None, tables: str | None, config_file: Path | None) -> Server | None:
    """Return the exporter that a command asks, None where it reads tables.

    Raises:
        ConfigurationError: tables are given as well, or the address cannot be used.
    """
    if server is not None and tables is not None:
        raise ConfigurationError("--server and --tables are two sources of one answer; give one of them")
    if tables is not None:
        return None
    settings = load(config_file).server
    if not (server or os.environ.get("ISRWATCH_SERVER") or settings.url):
        return None
    from exporters.answers import server as servers  # noqa: PLC0415 - most commands ask no server

    return servers.server_of(server, settings)
