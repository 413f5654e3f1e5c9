"""Fixtures of the tests of commands that read tables."""

from tests.plugins.played import played_tables

__all__ = ["played_tables"]
