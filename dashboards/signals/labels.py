"""The labels that identify one series, by what it is about."""

from __future__ import annotations

from typing import Final

CLUSTER: Final = ("cluster",)
BROKER: Final = ("cluster", "broker")
TOPIC: Final = ("cluster", "topic")
PARTITION: Final = ("cluster", "topic", "partition")
INCIDENT: Final = ("cluster", "class")
SOURCE: Final = ("cluster", "channel", "source")
GROUP: Final = ("cluster", "group")
GROUP_TOPIC: Final = ("cluster", "group", "topic")
LOG_DIRECTORY: Final = ("cluster", "broker", "log_dir")
QUORUM_MEMBER: Final = ("cluster", "node")
