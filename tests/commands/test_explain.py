"""``isrwatch explain``: statements by number and by word."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from streaming.commands import app
from streaming.contracts.events import EXPLAINED
from streaming.model.cluster.statements import STATEMENTS


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
    said = (
        "no cause, evidence or class of incidents, and no statement contains all of: zork; try other words, or a number"
    )
    assert (run.exit_code, run.stderr) == (2, f"{said}\n")


def test_a_cause_its_evidence_and_a_class_of_incidents_are_explained() -> None:
    assert explained("Ambiguous") == [
        "Evidence: ambiguous",
        "    The order of the controller's records allows several causes, which are listed as candidates.",
    ]
    every = [(title, word) for title, values in EXPLAINED.items() for word in values]
    assert [word for title, word in every if f"{title}: {word}" not in explained(word)] == []


def test_a_cause_is_explained_before_the_statements_that_contain_it() -> None:
    first, _, *statements = explained("fenced")
    assert first == "Causes: fenced"
    assert any(line[:2].strip().isdigit() for line in statements)
