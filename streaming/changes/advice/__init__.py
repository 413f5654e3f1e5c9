"""Conclusions about brokers: which may stop, which are slow or suspect, and whether every change was recorded."""
