"""Which series are left out by choice: of topics and groups by their names, of families of metrics by the family's.

What is left out has no series; counts of clusters, brokers and incidents include it all the same.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from exporters.metrics.catalogue import FAMILIES
from streaming.settings import ExportSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_GROUP_LABELS: Final = frozenset({"group", "consumergroup"})
_DEFAULTS: Final = ExportSettings()
_FILTERS: Final = {
    f"{subject}.{kind}": f"{subject}_{kind}" for subject in ("topic", "group") for kind in ("filter", "exclude")
}
"""The options of kafka_exporter, and our settings of the same meaning."""


class SeriesFilter:
    """The choice of a user.

    A name is shown if the regular expression of ``filter`` occurs in it and that of ``exclude`` does not, as in
    kafka_exporter.

    Attributes:
        left_out: the names of the metrics of the families that are left out.
        patterns: the regular expressions, by option.
        families: whether each family is exposed.
        shows_topic: whether a topic has series.
        shows_group: the same of a group.
    """

    def __init__(self, settings: ExportSettings = _DEFAULTS) -> None:
        """Take over checked settings."""
        without = frozenset(settings.without)
        self.left_out: Final = frozenset(metric.name for family in without for metric in FAMILIES[family])
        self.patterns: Final = tuple((option, str(getattr(settings, key))) for option, key in _FILTERS.items())
        self.families: Final = tuple((family, family not in without) for family in FAMILIES)
        self.shows_topic: Final = _matching(settings.topic_filter, settings.topic_exclude)
        self.shows_group: Final = _matching(settings.group_filter, settings.group_exclude)

    def of_labels(self, labels: Sequence[str]) -> Callable[[Sequence[str]], bool]:
        """Return what says of the values of some labels whether their series is shown."""
        tests = [
            (place, self.shows_topic if label == "topic" else self.shows_group)
            for place, label in enumerate(labels)
            if label == "topic" or label in _GROUP_LABELS
        ]
        return lambda values: all(shows(values[place]) for place, shows in tests)

    def sentence(self) -> str | None:
        """Say what is left out, for the log; None while nothing is."""
        changed = [
            f"--{option} {pattern!r}"
            for option, pattern in self.patterns
            if pattern != getattr(_DEFAULTS, _FILTERS[option])
        ]
        options = ", ".join([*changed, *(f"--no-collector.{name}" for name, is_shown in self.families if not is_shown)])
        return f"series are left out by {options}; counts of clusters and brokers include them" if options else None


def _matching(included: str, excluded: str) -> Callable[[str], bool]:
    if (included, excluded) == (_DEFAULTS.topic_filter, _DEFAULTS.topic_exclude):
        return lambda _: True
    shown, hidden = re.compile(included), re.compile(excluded)
    return lru_cache(1 << 16)(lambda name: shown.search(name) is not None and hidden.search(name) is None)


EVERYTHING: Final = SeriesFilter()
