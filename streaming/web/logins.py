"""Logins of HTTP's basic authentication (RFC 7617) against bcrypt hashes."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import secrets
from typing import TYPE_CHECKING, Final

import bcrypt

if TYPE_CHECKING:
    from collections.abc import Mapping

LONGEST_PASSWORD: Final = 72
"""Bytes that bcrypt looks at."""


class Logins:
    """The users of a web configuration file.

    A hash takes a tenth of a second, so a password that was right is remembered, as a digest with a random key, and
    only one is computed at a time: strangers delay each other, not those who were let in before.
    """

    def __init__(self, users: Mapping[str, str]) -> None:
        self._hashes = {user: hashed.encode() for user, hashed in users.items()}
        self._key = secrets.token_bytes(32)
        self._right: set[bytes] = set()
        self._one_at_a_time = asyncio.Lock()
        # Nobody has its password. An unknown user takes as long as one that exists.
        rounds = max((int(hashed.split("$")[2]) for hashed in users.values()), default=10)
        self._of_nobody = bcrypt.hashpw(secrets.token_hex(16).encode(), bcrypt.gensalt(min(rounds, 12)))

    async def accept(self, header: str) -> bool:
        """Return whether an ``Authorization`` header has the name and password of a user."""
        scheme, _, encoded = header.partition(" ")
        if scheme.lower() != "basic":
            return False
        try:
            decoded = base64.b64decode(encoded.strip(), validate=True)
        except ValueError:  # no base64, or characters beyond ASCII
            return False
        name, colon, password = decoded.partition(b":")
        if not colon:
            return False
        hashed = self._hashes.get(name.decode(errors="replace"))
        digest = hashlib.blake2b(decoded, key=self._key).digest()
        if digest in self._right:
            return True
        async with self._one_at_a_time:
            is_right = await asyncio.to_thread(_is_right, password, hashed or self._of_nobody)
        if not is_right or hashed is None:
            return False
        self._right.add(digest)
        return True


def _is_right(password: bytes, hashed: bytes) -> bool:
    return b"\0" not in password and bcrypt.checkpw(password[:LONGEST_PASSWORD], hashed)
