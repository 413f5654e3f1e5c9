"""Fixtures of the model's tests, and the commands of its transcripts."""

from tests.plugins import (
    transcript_commands,
    transcript_groups,
    transcript_operators,
    transcript_producers,
    transcript_quorum,
    transcript_storage,
    transcript_vectors,
)
from tests.plugins.laboratory import it, lab
from tests.plugins.transcript import transcript

__all__ = [
    "it",
    "lab",
    "transcript",
    "transcript_commands",
    "transcript_groups",
    "transcript_operators",
    "transcript_producers",
    "transcript_quorum",
    "transcript_storage",
    "transcript_vectors",
]
