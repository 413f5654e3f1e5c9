"""The errors a user may see, drawn as a tree.

    IsrwatchError            everything we raise on purpose; its text is one sentence that tells what to do
    ├── ConfigurationError   a key, an option or a file is wrong: names the key and the fix
    ├── ConnectionRefused    a cluster cannot be reached or refuses us: names the address or the permission
    ├── MissingTool          Java, a jar or a program is not there: names it and how to get it
    ├── TableRefused         a table is newer than this program, or another writer owns it
    └── Quarantined          one observation cannot be understood: carries the reason, never stops a stream

A broken invariant of our own is not in this tree: it is an ``AssertionError`` and stops the program.
"""

from __future__ import annotations


class IsrwatchError(Exception):
    """Base of every error that is meant for the user's eyes."""


class ConfigurationError(IsrwatchError):
    """A configuration key or a command-line option is wrong."""


class ConnectionRefused(IsrwatchError):
    """A cluster cannot be reached, or does not let us read what we need."""


class MissingTool(IsrwatchError):
    """A program, a jar or an optional package that this command needs is not installed."""


class TableRefused(IsrwatchError):
    """A Delta table cannot be written: wrong schema, newer schema, or another writer."""


class Quarantined(IsrwatchError):
    """Bytes that are not a valid observation; the text is the reason that quarantine keeps."""
