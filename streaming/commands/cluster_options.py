"""Options of commands that connect to the clusters of a configuration."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from streaming.errors import ConfigurationError

if TYPE_CHECKING:
    from streaming.settings import Settings

ClusterOption = Annotated[
    str | None, typer.Option(metavar="NAME", help="Only this cluster, where there are several; default: all.")
]
BootstrapServersOption = Annotated[
    str | None,
    typer.Option(
        "--bootstrap-server",
        "--bootstrap-servers",
        help="Brokers as host:port,host:port; default: cluster.bootstrap_servers.",
    ),
]


def with_bootstrap_servers(every: list[Settings], bootstrap_servers: str | None) -> list[Settings]:
    """Apply ``--bootstrap-server``, which overrides the configuration file.

    Raises:
        ConfigurationError: there are several clusters.
    """
    if bootstrap_servers is None:
        return every
    if len(every) > 1:
        raise ConfigurationError("--bootstrap-server is of one of several clusters: say of which with --cluster")
    return [replace(every[0], cluster=replace(every[0].cluster, bootstrap_servers=bootstrap_servers))]
