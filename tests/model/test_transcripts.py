"""Every transcript in ``transcripts/`` still tells the truth."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

TRANSCRIPTS = sorted(Path(__file__).parent.joinpath("transcripts").glob("*.txt"))


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_the_cluster_does_what_the_transcript_says(path: Path, transcript: Callable[[Path], None]) -> None:
    transcript(path)
