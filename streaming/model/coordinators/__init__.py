"""Coordinators on the leader of an internal topic's partition: groups and transactions."""
