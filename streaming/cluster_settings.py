"""A configuration of several clusters: each ``[[cluster]]`` gives settings of its own, as if it stood alone.

Besides the keys of ``[cluster]``, a ``[[cluster]]`` may have a table ``[cluster.collect]``, which wins over that of
``[collect]``. The sources of a cluster are named by the collector and the cluster, as ``admin:collector-1@prod``, so a
bus and tables that several clusters share never mix two of them.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from streaming.errors import ConfigurationError
from streaming.secret_values import with_secrets
from streaming.settings import document_of, settings_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from streaming.settings import Settings

_NAME: Final = re.compile(r"[A-Za-z0-9._-]+")
_OF_ALL: Final = ("collector", "listen")
_OF_ONE: Final = {"broker_metrics": "those brokers", "spark_checkpoints": "those topics"}


def each_cluster(path: Path | None, only: str | None = None) -> list[Settings]:
    """Read a configuration, and return the settings of each of its clusters, or of one; of ``[cluster]``, one.

    Raises:
        ConfigurationError: as of :func:`streaming.settings.load`; two clusters have one name, or none has this one.
    """
    document = document_of(path)
    clusters = document.get("cluster")
    every = [settings_of(document)] if not isinstance(clusters, list) else _each(document, clusters)
    chosen = [settings for settings in every if only in (None, settings.cluster.name)]
    if not chosen:
        names = ", ".join(settings.cluster.name for settings in every)
        raise ConfigurationError(f"no cluster of the configuration is called {only!r}; it has: {names}")
    return chosen


def filled(every: Sequence[Settings]) -> list[Settings]:
    """Return the settings with their secrets; see :func:`streaming.secret_values.with_secrets`.

    Raises:
        ConfigurationError: a secret cannot be read; of several clusters it names the one.
    """
    if len(every) == 1:
        return [with_secrets(every[0])]
    ready = []
    for settings in every:
        try:
            ready.append(with_secrets(settings))
        except ConfigurationError as refusal:
            raise ConfigurationError(f"[[cluster]] {settings.cluster.name}: {refusal}") from None
    return ready


def _each(document: dict[str, Any], clusters: list[Any]) -> list[Settings]:
    if not clusters:
        raise ConfigurationError("cluster is an empty list: write [cluster], or [[cluster]] for each of several")
    common = settings_of({key: value for key, value in document.items() if key != "cluster"})
    for key, whose in _OF_ONE.items():
        if getattr(common.collect, key):
            raise ConfigurationError(
                f"collect.{key} is of one cluster, and there are several: write it as [cluster.collect.{key}], "
                f"below the [[cluster]] of {whose}"
            )
    every = [_one(document, cluster, number) for number, cluster in enumerate(clusters, start=1)]
    names = [settings.cluster.name for settings in every]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ConfigurationError(f"two [[cluster]] are called {twice!r}; each needs a name of its own")
    return every


def _one(document: dict[str, Any], cluster: Any, number: int) -> Settings:  # noqa: ANN401 - any value of a TOML file
    if not isinstance(cluster, dict):
        raise ConfigurationError("cluster must be a table: write [cluster], or [[cluster]] for each of several")
    name = cluster.get("name")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ConfigurationError(
            f"[[cluster]] number {number} needs a name of letters, digits, '.', '_' and '-', because its sources are "
            'called by it: name = "prod"'
        )
    own = cluster.get("collect", {})
    try:
        if isinstance(own, dict):
            _refuse_of_all(own)
            own = {**document.get("collect", {}), **own}
        alone = {key: value for key, value in cluster.items() if key != "collect"}
        settings = settings_of({**document, "cluster": alone, "collect": own})
    except ConfigurationError as refusal:
        raise ConfigurationError(f"[[cluster]] {name}: {refusal}") from None
    collector = f"{settings.collect.collector_name}@{name}"
    return replace(settings, collect=replace(settings.collect, collector=collector))


def _refuse_of_all(own: dict[str, Any]) -> None:
    wrong = next((key for key in own if key in _OF_ALL), None)
    if wrong is not None:
        raise ConfigurationError(f"{wrong} is of the collector, not of a cluster: write it in [collect]")
