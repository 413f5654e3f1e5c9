"""What you see, and what wakes you: one dashboard and five alerts, as code.

A staircase, read from the bottom:

- ``signals``               a metric of ours: name, meaning, unit, type, and its PromQL. Written once
- ``panels``                one entry a panel: signals and a form from ``style``
- ``rows``                  panels with sizes, under a question
- ``replication_overview``  the dashboard: rows, variables, annotations
- ``alerts``                rules over the same signals; ``runbook.md`` explains each
- ``normalise``             what grafanalib writes, made into what Grafana reads today
- ``render``                all of it as files, committed under ``generated/``

This package knows names of metrics and nothing of how they come to be. It needs neither Grafana nor Prometheus.
"""
