"""Checks of ``isrwatch doctor`` of the brokers' agents: does each respond, and is it that of its broker?"""

from __future__ import annotations

from http.client import HTTPException
from typing import TYPE_CHECKING

from streaming.commands.doctor_cluster import view_of
from streaming.commands.doctor_machine import SECONDS, Status
from streaming.errors import ConnectionRefused
from streaming.sources.agents import agents_from, contradiction, doubt_of, hosted_in, sharing, without_login
from streaming.sources.broker_metrics import NO_METRIC, client_from, no_response, scrape

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from streaming.contracts.identifiers import BrokerId
    from streaming.settings import ClusterSettings, Settings
    from streaming.sources.agents import Agents, Hosted
    from streaming.sources.polling.view import ClusterView


def broker_metrics(settings: Settings) -> Iterator[tuple[Status, str]]:
    """Scrape every agent once, and compare what it says of itself with what the cluster says."""
    agents = agents_from(settings.collect.broker_metrics)
    if not agents.are_any:
        yield Status.SKIPPED, "no metrics endpoint is configured in collect.broker_metrics"
        return
    view = _seen(settings.cluster)
    hosts = {} if view is None else {broker: host for broker, (host, _) in view.brokers.items()}
    if missing := agents.without(hosts):
        yield Status.WARNING, missing
    yield from _agents(settings, agents, hosts, {} if view is None else hosted_in(view))


def _seen(cluster: ClusterSettings) -> ClusterView | None:
    try:
        return view_of(cluster)
    except ConnectionRefused:  # of which other checks say why
        return None


def _agents(
    settings: Settings, agents: Agents, hosts: Mapping[BrokerId, str], listed: Mapping[BrokerId, Hosted]
) -> Iterator[tuple[Status, str]]:
    urls, client = agents.urls(hosts), client_from(settings.collect.broker_metrics_client)
    shared = sharing(urls)
    for broker, url in urls.items():
        where = f"{without_login(url)} of broker {broker}"
        try:
            exposition = scrape(url, SECONDS, client)
        except (OSError, ValueError, HTTPException) as failure:
            yield Status.WARNING, f"{where} {no_response(failure)}"
            continue
        if not exposition.own:
            yield Status.WARNING, f"{where} {NO_METRIC}"
            continue
        says = exposition.figures
        doubt = doubt_of(broker, url, shared.get(broker, ()), says)
        if doubt is None and not says.node_ids and says.hosted is not None:
            doubt = contradiction(broker, url, says.hosted, listed)
        if doubt is not None and doubt.is_proven:
            yield Status.WARNING, doubt.sentence
        else:
            yield Status.OK, f"{where} gives {len(exposition.own)} metrics that are used"
