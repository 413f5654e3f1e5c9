"""Fixtures that several rooms use, each kind in its own plugin."""

pytest_plugins = [
    "tests.plugins.pipeline",
    "tests.plugins.prometheus",
    "tests.plugins.sandbox",
]
