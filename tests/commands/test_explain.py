"""``isrwatch explain``: statements by number and by word."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from streaming.commands import app
from streaming.model.statements import STATEMENTS


def explained(*words: str) -> list[str]:
    run = CliRunner().invoke(app, ["explain", *words])
    assert run.exit_code == 0, run.output
    return run.output.splitlines()


def test_without_words_every_statement_is_reported() -> None:
    assert [int(line[:2]) for line in explained() if line[:2].strip()] == list(STATEMENTS)


def test_numbers_choose_statements() -> None:
    statement = STATEMENTS[8]
    assert [f" 8  {statement.claim}", f"    {statement.does}", f"    {statement.differs}"] == explained("8")


@pytest.mark.parametrize("words", [("ZooKeeper", "registers"), ("zookeeper REGISTERS",)])
def test_words_must_all_occur(words: tuple[str, ...]) -> None:
    assert [line[:2] for line in explained(*" ".join(words).split()) if line[:2].strip()] == ["18"]


def test_what_nobody_says_is_one_sentence() -> None:
    run = CliRunner().invoke(app, ["explain", "zork"])
    assert (run.exit_code, run.stderr) == (2, "no statement contains all of: zork; try other words, or a number\n")
