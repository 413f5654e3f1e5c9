"""``isrwatch alerts``: a test notification on the way that real ones take, from Alertmanager to the receiver."""

from __future__ import annotations

import base64
import json
import re
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from datetime import UTC, datetime
from http.client import HTTPException
from pathlib import Path
from typing import Annotated, Final

import typer

from streaming.alert_settings import shown_severity
from streaming.configuration_file import OPTION_HELP
from streaming.durations import duration_text, seconds_of
from streaming.errors import ConfigurationError, ConnectionRefused, reason_of
from streaming.escapes import printable
from streaming.settings import NO_LINKS, load
from streaming.terminal import Terminal

NAME: Final = "IsrwatchTest"
SECONDS: Final = 5.0
_LONGEST: Final = 3_600

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Send a test notification through Alertmanager.")


@app.callback()
def _alerts() -> None:
    """Keep the name of the command ``test``: typer drops the name of a single command."""


@app.command("test")
def send_test(
    *,
    alertmanager: Annotated[
        list[str],
        typer.Option(metavar="URL", help="Address of an Alertmanager, with a login if it needs one. May be repeated."),
    ],
    severity: Annotated[str, typer.Option(help="Label severity, by which your routes choose a receiver.")] = "critical",
    cluster: Annotated[str, typer.Option(help="Label cluster.")] = "test",
    lasting: Annotated[
        str, typer.Option("--for", metavar="DURATION", help="It ends by itself after this time, 1h at most.")
    ] = "5m",
    resolve: Annotated[bool, typer.Option("--resolve", help="End an earlier test now.")] = False,
    config: Annotated[Path | None, typer.Option(help=OPTION_HELP)] = None,
) -> None:
    """Send one alert, IsrwatchTest, to Alertmanager as Prometheus would: does the notification arrive, with its links?

    Examples:
    isrwatch alerts test --alertmanager http://alertmanager:9093 --severity critical

    isrwatch alerts test --alertmanager http://alertmanager:9093 --severity critical --resolve
    """
    now, seconds = time.time(), seconds_of("--for", lasting)
    if not 0 < seconds <= _LONGEST:
        raise ConfigurationError(f"--for is {lasting}; write at most 1h, such as 5m")
    settings = load(config)
    exporter, severity = settings.export.url, shown_severity(settings.alerts, severity)
    alert = alert_of(severity, cluster, began=now, ends=now if resolve else now + seconds, exporter=exporter)
    for url in alertmanager:
        address = send(url, alert)
        if resolve:
            Terminal().row(f"{address} has ended {NAME} of cluster {cluster}, severity {severity}")
        else:
            Terminal().row(
                f"{address} has accepted {NAME} of cluster {cluster}, severity {severity}: it notifies the receiver of "
                f"its route after group_wait, and again when the alert ends, in {duration_text(seconds)}"
            )
            Terminal().row(f"which receiver that is: amtool --alertmanager.url={address} alert query -o json {NAME}")
    if not resolve:
        Terminal().row(f"it links to {exporter.rstrip('/')}/: do they show it?" if exporter else NO_LINKS)


def alert_of(severity: str, cluster: str, *, began: float, ends: float, exporter: str = "") -> dict[str, object]:
    """Return an alert as ``POST /api/v2/alerts`` takes it; with the address of the exporter, it has links as others."""
    links = {"page_url": f"{exporter.rstrip('/')}/", "runbook_url": f"{exporter.rstrip('/')}/runbook"}
    return {
        "labels": {"alertname": NAME, "severity": severity, "cluster": cluster},
        "annotations": {
            "summary": f"Test of the notifications of {cluster}",
            "description": "Sent by isrwatch alerts test. Nothing is wrong.",
            **(links if exporter else {}),
        },
        "startsAt": _moment(began),
        "endsAt": _moment(ends),
    }


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()


def send(url: str, alert: dict[str, object]) -> str:
    """Post an alert to an Alertmanager; return its address without the login.

    Raises:
        ConfigurationError: the URL is none, or what answers refuses the alert.
        ConnectionRefused: nothing answers.
    """
    address, headers = address_and_login(url, "--alertmanager", "http://alertmanager:9093")
    request = urllib.request.Request(  # noqa: S310 - address_and_login has checked the scheme
        f"{address}/api/v2/alerts",
        data=json.dumps([alert]).encode(),
        headers={"Content-Type": "application/json", **headers},
    )
    try:
        with _STRAIGHT.open(request, timeout=SECONDS) as response:
            refused = "answers with a page" if "html" in response.headers.get("Content-Type", "") else ""
    except urllib.error.HTTPError as refusal:
        refused = f"answers {refusal.code} {refusal.reason}"
        if to := refusal.headers.get("Location"):
            raise ConfigurationError(
                f"--alertmanager {address} leads to {printable(to)}: give the address of Alertmanager itself"
            ) from None
        if refusal.code in {401, 403}:
            raise ConfigurationError(
                f"--alertmanager {address} {refused}: name a login in it, as in http://user:password@host:9093"
            ) from None
    except (OSError, ValueError, HTTPException) as error:
        raise ConnectionRefused(f"--alertmanager {address} does not answer: {why_silent(error)}") from None
    if refused:
        raise ConfigurationError(f"--alertmanager {address} {refused}: is it the address of an Alertmanager?")
    return address


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Follows none: the page of a login would answer what is meant for Alertmanager, and accept nothing."""

    def redirect_request(self, *_: object) -> None:
        """Leave the answer as it is."""


_STRAIGHT: Final = urllib.request.build_opener(_NoRedirects)


def why_silent(error: Exception) -> str:
    """Return why a server gives no answer, and what to look at."""
    reason = getattr(error, "reason", error)
    if isinstance(reason, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted ({reason.verify_message}); name its authority in SSL_CERT_FILE"
    said = reason_of(reason) if isinstance(reason, OSError) else str(reason).strip()
    return f"{printable(said)}; is it running?"


def address_and_login(url: str, option: str, example: str) -> tuple[str, dict[str, str]]:
    """Split a URL into its address and the header of the login in it, if there is one.

    >>> address_and_login("http://me:secret@prometheus:9090/", "--prometheus", "http://prometheus:9090")
    ('http://prometheus:9090', {'Authorization': 'Basic bWU6c2VjcmV0'})

    Raises:
        ConfigurationError: it is no URL; names the option and an example.
    """
    try:
        parts = urllib.parse.urlsplit(url)
        is_url = parts.scheme in {"http", "https"} and parts.hostname and (parts.port is None or parts.port > 0)
    except ValueError:
        is_url = False
    if not is_url or re.search(r"\s", url):
        raise ConfigurationError(f"{option}: write a URL, such as {example}")
    login, _, host = parts.netloc.rpartition("@")
    address = urllib.parse.urlunsplit((parts.scheme, host, parts.path.rstrip("/"), "", ""))
    if not login:
        return address, {}
    return address, {"Authorization": f"Basic {base64.b64encode(urllib.parse.unquote(login).encode()).decode()}"}
