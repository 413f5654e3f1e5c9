"""Polled clusters in the judge: the model answers every question as real brokers do."""
