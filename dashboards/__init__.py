"""Nine Grafana boards and the alert rules, as code.

In the order in which each is built from the one before:

- ``promql``     a signal and the PromQL expressions rendered from it
- ``signals``    every metric that a panel or a rule uses: name, meaning, unit, type; a module per subject
- ``style``      the panel types, over grafanalib
- ``links``      the boards' addresses, and links between them
- ``tables``     tables: columns with widths, words, colours and links
- ``queries``    the queries that panels are made of
- ``layout``     panels with their sizes, under a question
- ``normalise``  converts what grafanalib writes into the JSON that current Grafana versions read
- ``board``      a board: rows, variables, annotations, menu
- ``boards``     the boards, a module each
- ``alerts``     the alert rules over the same signals, by subject; ``runbook.md`` explains each
- ``rule_formats``  the rules for the Prometheus operator, Grafana and jsonnet
- ``render``     writes everything as files, committed under ``generated/``
- ``command``    ``isrwatch dashboards``

This package knows the names of metrics, not how they are computed. It needs neither Grafana nor Prometheus.
"""
