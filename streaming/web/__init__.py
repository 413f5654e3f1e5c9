"""HTTP as every program of isrwatch serves it: the exporter, the collector and the job.

From the bottom of the import order to the top (``lint-imports`` checks it):

- ``markup``      HTML with one style, which the default policy allows by its hash
- ``middleware``  what every response gets: security headers
"""
