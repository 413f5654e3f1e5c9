"""The committed recordings are well-formed, and what README.md says of real listeners holds in them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.listeners.faults import FAULTS
from tests.listeners.figures import table
from tests.listeners.recordings import VERSIONS, path_of, plays
from tests.listeners.sentences import SENTENCES, Sentence

RECORDED = [(version, fault) for version in VERSIONS for fault in plays(version)]


@pytest.mark.parametrize(("version", "fault"), RECORDED)
def test_a_play_is_well_formed(version: str, fault: str) -> None:
    play = plays(version)[fault]
    assert fault in FAULTS
    nodes = {*play.data["brokers"], *(number if number > 100 else number + 100 for number in play.data["controllers"])}
    times = [row[0] for row in play.data["met"]]
    assert play.steps[0][0] == 0
    assert times == sorted(times)
    assert {row[1] for row in play.data["met"]} == nodes
    offsets = [row[1] for row in play.data["log"]]
    assert offsets == sorted(set(offsets))
    for node in play.data["brokers"]:
        assert play.how(node, "Metadata", 0) == "answered"
        assert play.answer(node, "DescribeCluster", 0)["listed"] == play.data["brokers"]


def test_there_are_few_bytes_of_them() -> None:
    assert sum(path_of(version).stat().st_size for version in VERSIONS if path_of(version).exists()) < 400_000


@pytest.mark.parametrize("sentence", SENTENCES, ids=lambda sentence: sentence.text)
def test_a_sentence_holds_in_every_play_of_its_kind(sentence: Sentence) -> None:
    checked = [
        (version, fault, sentence.holds(plays(version)[fault]))
        for version in sentence.versions
        for fault in sentence.faults
        if fault in plays(version)
    ]
    assert checked
    assert [(version, fault) for version, fault, holds in checked if not holds] == []


README = (Path(__file__).parent / "README.md").read_text()


def test_the_readme_has_every_sentence() -> None:
    text = " ".join(README.split())
    assert [sentence.text for sentence in SENTENCES if sentence.text not in text] == []


def test_the_readme_has_the_figures_of_the_recordings() -> None:
    assert table() in README
