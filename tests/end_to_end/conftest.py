"""Fixtures of the tests of whole programs."""

from tests.plugins.package import bare_python, package
from tests.plugins.pipeline import pipeline

__all__ = ["bare_python", "package", "pipeline"]
