"""HTTP: ``/metrics``, health checks, an index for people, and the same data as JSON.

From the bottom of the import order to the top (``lint-imports`` checks it):

- ``parameters``  query parameters, each declared once
- ``paging``      pages of ordered rows, and their cursors
- ``row_schemas``  JSON Schema from the columns of the tables
- ``api_resource``  what a resource of the JSON API is
- ``cluster_resources``    clusters, brokers, announced maintenance
- ``partition_resources``  topics and partitions
- ``group_resources``      groups and their offsets
- ``history_resources``    the newest events, open incidents
- ``health_response``      health as JSON
- ``api``         the JSON responses about a snapshot
- ``endpoints``   every path of the JSON API, declared once
- ``openapi``     the OpenAPI document, made of these declarations
- ``negotiation``  the format and the coding that a client accepts
- ``api_routes``  the routes of the JSON API
- ``landing``     the index
- ``scrape_bodies``  one body for all scrapers that ask in the same moment
- ``logs``        levels and formats of the log
- ``scrapes_first``  requests before what is prepared for later ones
- ``server``      all routes
- ``app``         the running exporter: refresher and HTTP server
- ``command``     ``isrwatch export``
"""
