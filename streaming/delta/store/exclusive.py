"""A race that checks whether create-if-absent is exclusive in a store, before it is trusted with tables.

Two of five servers that speak S3 accept the header but let several writers win: each would believe that its commit was
made, and all commits but one would be lost silently.
"""

from __future__ import annotations

import secrets
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import TYPE_CHECKING, Final

from streaming.delta.store.objects import create, delete, get
from streaming.errors import ConfigurationError

if TYPE_CHECKING:
    from streaming.delta.store.place import Place

WRITERS: Final = 8
ROUNDS: Final = 20
_PATIENCE_SECONDS: Final = 60.0


def prove_exclusive(place: Place) -> None:
    """Let writers race for names below a place, and delete the names afterwards.

    Raises:
        ConfigurationError: several writers won, or the content is not the winner's.
        OSError: the store refuses, or does not answer.
    """
    folder, together = place / f"_race-{secrets.token_hex(8)}", Barrier(WRITERS)

    def race(writer: int, name: Place) -> bool:
        together.wait(_PATIENCE_SECONDS)
        return create(name, str(writer).encode())

    with ThreadPoolExecutor(WRITERS) as writers:
        for number in range(ROUNDS):
            name = folder / str(number)
            try:
                outcomes = list(writers.map(race, range(WRITERS), [name] * WRITERS))
                winners = [writer for writer, has_won in enumerate(outcomes) if has_won]
                content = get(name).decode()
            finally:
                delete(name)
            # If the answer to the winner was lost, its repeated request came second, and there is no winner.
            if len(winners) > 1 or (winners and content != str(winners[0])):
                raise ConfigurationError(
                    f"{place} is no store for tables: {len(winners)} of {WRITERS} writers of one name were told that "
                    "they had created it, so commits would be lost; point tables.directory (--tables) at a store that "
                    "keeps If-None-Match, as S3, Azure and Google Cloud Storage do"
                )
