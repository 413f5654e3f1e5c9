"""Objects of a store that this process has written lately: they never change, so it need not request them again.

The data files and the log entries of tables only; the queries of a job read what the others of them have committed.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from streaming.delta.store.place import Url

if TYPE_CHECKING:
    from streaming.delta.store.place import Place

KEPT_BYTES: Final = 16 << 20
LARGEST_BYTES: Final = 1 << 20

_contents: Final[OrderedDict[Url, bytes]] = OrderedDict()
_lock: Final = threading.Lock()


def remember(place: Place, content: bytes) -> None:
    """Keep what was written, unless it is large, or lies in a folder."""
    if not isinstance(place, Url) or len(content) > LARGEST_BYTES:
        return
    with _lock:
        _contents[place] = content
        _contents.move_to_end(place)
        while sum(map(len, _contents.values())) > KEPT_BYTES:
            _contents.popitem(last=False)


def recall(place: Place) -> bytes | None:
    """Return what this process has written; None if that is not known any more."""
    if not isinstance(place, Url):
        return None
    with _lock:
        return _contents.get(place)


def forget(place: Place) -> None:
    """Forget an object that is deleted."""
    if isinstance(place, Url):
        with _lock:
            _contents.pop(place, None)
