"""Answers: what is asked of clusters and incidents, answered in rows that every output shows alike."""
