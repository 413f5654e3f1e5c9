"""Asks a subject about tables, and prints the answer as it is and as it was served: both are the same text."""

from __future__ import annotations

import io
import re
from contextlib import suppress
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import pytest

from exporters.answers.answer import Answer, Question
from exporters.answers.subject import Limits, Tables
from exporters.answers.subjects import SUBJECTS
from exporters.read_model.reader import micros_now
from exporters.read_model.times import Clock
from exporters.terminal.answer_view import print_answer
from exporters.terminal.output import RowFormat, RowOutput
from streaming.errors import ConfigurationError, TableUnreadable
from streaming.terminal import Terminal
from tests.exporters.conftest import restless

limits = cache(Limits.of)
reader_of = lru_cache(maxsize=4)(restless)
"""Follows the tables of a folder: who asks of them again reads only what is new."""


def asked(  # noqa: PLR0913 - what a question has
    folder: Path,
    of: str = "partitions",
    *,
    everything: bool = False,
    at: str | None = None,
    config: Path | None = None,
    now: int | None = None,
    **filters: str,
) -> Answer:
    """Ask, and give the answer as it is served."""
    given = {name: (pattern,) for name, pattern in filters.items()}
    question = Question(given.pop("cluster", ()), given, everything, at)
    reader, read = reader_of(folder), dict[str, Any]()
    with suppress(TableUnreadable):  # then they are read as a command reads them
        read = {"snapshot": reader.refresh(), "unreadable": {it.table: it.error for it in reader.statuses if it.error}}
    tables = Tables(folder=folder, limits=limits(config), now=now or micros_now(), **read)
    here = SUBJECTS[of].answer(tables, question)
    served = Answer.from_json(here.to_json())
    for row_format in (RowFormat.WIDE, RowFormat.JSON):  # these have all that the others have
        assert printed(of, here, row_format) == printed(of, served, row_format)
    assert all(set(row) == set(here.columns) for row in here.rows), "every row has every column"
    return served


def printed(subject: str, answer: Answer, row_format: RowFormat = RowFormat.TABLE, **settings: Any) -> str:
    """Print as into a pipe; as on a terminal with a width."""
    file = io.StringIO()
    output = RowOutput(Terminal(file=file, color_system=None, **settings), row_format, Clock(answer.now))
    print_answer(output, subject, answer)
    return file.getvalue()


def state(folder: Path, of: str = "partitions", **options: Any) -> str:
    """Give the rows of a table, two blanks between the cells that are not empty, and the sentences."""
    answer = asked(folder, of, **options)
    lines = printed(of, answer).splitlines()
    rows = lines[-len(answer.rows) - len(answer.sentences) :][: len(answer.rows)]
    cells = [re.sub(r" {2,}", "  ", line.strip()) for line in rows]
    return "".join(f"{line}\n" for line in [*cells, *(sentence.text for sentence in answer.sentences)])


def objects(folder: Path, of: str = "partitions", **options: Any) -> list[dict[str, Any]]:
    return asked(folder, of, **options).rows


def refusal(folder: Path, of: str = "partitions", **options: Any) -> str:
    """Give the sentence with which a question is refused."""
    with pytest.raises(ConfigurationError) as refused:
        asked(folder, of, **options)
    return str(refused.value)
