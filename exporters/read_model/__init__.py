"""Follows the tables without a JVM: each refresh gives an immutable snapshot of their content."""
