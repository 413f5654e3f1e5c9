"""Dashboards of isrwatch: six Grafana boards and the alert rules, as code.

This package knows the names of metrics, not how they are computed. It needs neither Grafana nor Prometheus.
"""
