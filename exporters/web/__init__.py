"""HTTP: ``/metrics``, health checks, an index for people, and the same data as JSON."""
