"""HTTP: ``/metrics``, health checks, and the same data as JSON.

From the bottom of the import order to the top (``lint-imports`` checks it):

- ``api``      the JSON answers about a snapshot
- ``server``   the routes
- ``app``      the running exporter: refresher and HTTP server
- ``command``  ``isrwatch export``
"""
