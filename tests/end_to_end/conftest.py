"""Fixtures of the tests of whole programs."""

from tests.plugins.pipeline import pipeline
from tests.plugins.spark_cluster import package, spark_cluster

__all__ = ["package", "pipeline", "spark_cluster"]
