"""Producers and consumers: processes of the event loop that ask brokers and never see the controller."""
