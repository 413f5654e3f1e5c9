"""Which format a client gets for its ``Accept`` header."""

from __future__ import annotations

import pytest

from exporters.web.negotiation import prefers_openmetrics

OPENMETRICS = "application/openmetrics-text"
# What Prometheus sends: 2.55, in short 3.0, and 3.0 with scrape_protocols that begin with the text format.
PROMETHEUS = [
    f"{OPENMETRICS};version=1.0.0;q=0.5,{OPENMETRICS};version=0.0.1;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2",
    f"{OPENMETRICS};version=1.0.0;escaping=allow-utf-8;q=0.6,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,*/*",
    f"text/plain;version=0.0.4;q=0.6,{OPENMETRICS};version=1.0.0;q=0.5,*/*;q=0.2",
]


@pytest.mark.parametrize(
    "header", [*PROMETHEUS[:2], OPENMETRICS, f'{OPENMETRICS}; Version="1.0.0"', f"x, {OPENMETRICS}"]
)
def test_who_prefers_openmetrics_gets_it(header: str) -> None:
    assert prefers_openmetrics([header])
    assert prefers_openmetrics(["image/png", header])


@pytest.mark.parametrize(
    "header",
    [
        PROMETHEUS[2],
        f"{OPENMETRICS};q=0",
        f"{OPENMETRICS};version=2.0.0",
        f"{OPENMETRICS};version=next",
        f"{OPENMETRICS};q=much",
        "text/plain;version=abc",
        'text/plain;version="1.0.0"',
        "*/*",
        ";;=,;q",
        "",
    ],
)
def test_everybody_else_gets_text(header: str) -> None:
    assert not prefers_openmetrics([header])
