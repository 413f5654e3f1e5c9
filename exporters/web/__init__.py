"""HTTP: ``/metrics``, health checks, an index for people, and the same data as JSON.

From the bottom of the import order to the top (``lint-imports`` checks it):

- ``api``      the JSON answers about a snapshot
- ``landing``  the index
- ``server``   the routes
- ``app``      the running exporter: refresher and HTTP server
- ``command``  ``isrwatch export``
"""
