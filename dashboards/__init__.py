"""One Grafana dashboard and the alert rules, as code.

In the order in which each is built from the one before:

- ``promql``                a signal and the PromQL expressions rendered from it
- ``signals``               every metric that a panel or a rule uses: name, meaning, unit, type; a module per subject
- ``style``                 the panel types, over grafanalib
- ``panel_queries``         the queries that panels are made of
- ``panels``                one entry per panel
- ``rows``                  panels with their sizes, under a question
- ``replication_overview``  the dashboard: rows, variables, annotations
- ``alerts``                the alert rules over the same signals, by subject; ``runbook.md`` explains each
- ``normalise``             converts what grafanalib writes into the JSON that current Grafana versions read
- ``rule_formats``          the rules for the Prometheus operator, Grafana's provisioning and jsonnet
- ``render``                writes everything as files, committed under ``generated/``
- ``command``               ``isrwatch dashboards``

This package knows the names of metrics, not how they are computed. It needs neither Grafana nor Prometheus.
"""
