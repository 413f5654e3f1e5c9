"""Delta in, answers out: what the tables say, to Prometheus and to people. No Spark and no Java.

- ``columns``      Arrow columns as Python values
- ``snapshot``     what the tables say at one version, as values that never change
- ``draft``        the next snapshot, made from the last
- ``changes``      rows of the truth, applied to a draft
- ``reader``       the tables, followed: ``Reader(tables).refresh()``
- ``advice``       what the job adds up of brokers and clusters; ``incidents`` what it makes of the changes
- ``metric``       what a metric is; ``partitions``, ``clusters``, ``drop_in`` and ``own_health`` define them
- ``catalogue``    every metric, in the order of the page
- ``exposition``   the page: rendered where something changed, put together on a scrape
- ``compression``  a page of which only the changed parts are compressed again
- ``refresher``    reads in the background; a scrape never waits for a table
- ``api``          the same as JSON
- ``server``       HTTP: the answers; ``serving`` runs it
- ``command``      ``isrwatch export``
- ``history``      what people ask of the tables: ``isrwatch events``
"""
