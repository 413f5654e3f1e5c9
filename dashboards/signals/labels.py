"""The labels that identify one series, by what it is about: for sums of a board or a rule that no signal makes."""

from __future__ import annotations

from typing import Final

CLUSTER: Final = ("cluster",)
BROKER: Final = ("cluster", "broker")
TOPIC: Final = ("cluster", "topic")
INCIDENT: Final = ("cluster", "class")
SOURCE: Final = ("cluster", "channel", "source")
GROUP: Final = ("cluster", "group")
