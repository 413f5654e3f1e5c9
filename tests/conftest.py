"""Fixtures that several rooms use, each kind in its own plugin."""

pytest_plugins = [
    "tests.plugins.golden",
    "tests.plugins.laboratory",
    "tests.plugins.pipeline",
    "tests.plugins.played",
    "tests.plugins.prometheus",
    "tests.plugins.recordings",
    "tests.plugins.sandbox",
    "tests.plugins.spark",
    "tests.plugins.spark_cluster",
    "tests.plugins.transcript",
    "tests.plugins.transcript_commands",
    "tests.plugins.transcript_groups",
    "tests.plugins.transcript_operators",
    "tests.plugins.transcript_producers",
    "tests.plugins.transcript_quorum",
    "tests.plugins.transcript_storage",
    "tests.plugins.transcript_vectors",
]
