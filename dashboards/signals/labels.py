"""The labels that identify one series, by what it is about."""

from __future__ import annotations

from typing import Final

CLUSTER: Final = ("cluster",)
BROKER: Final = ("cluster", "broker")
TOPIC: Final = ("cluster", "topic")
PARTITION: Final = ("cluster", "topic", "partition")
REPLICA: Final = (*PARTITION, "broker")
INCIDENT: Final = ("cluster", "class")
SOURCE: Final = ("cluster", "channel", "source")
REASON: Final = ("cluster", "reason")
LOG_DIRECTORY: Final = ("cluster", "broker", "log_dir")
GROUP: Final = ("cluster", "group")
NODE: Final = ("cluster", "node")
TABLE: Final = ("table",)
