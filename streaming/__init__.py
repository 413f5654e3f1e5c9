"""Observations in, Delta out: the data's way, room by room.

    real cluster ── sources ─┐
                             ├─► observations ─► bus ─► jobs ─► Delta tables ─► exporters
    model ── simulated source┘   (contracts)           (changes, transforms, delta)

Rooms, in the order of the data's way. Each knows only the contract of the room before it:

- ``contracts``   what we talk about: identifiers, records, observations, events, health, tables
- ``model``       how replication behaves: pure and deterministic
- ``sources``     how we learn: the simulated cluster, the KRaft metadata log, polling, broker metrics
- ``bus``         how observations travel
- ``changes``     what follows from them: ``fold(state, observations) -> (state, changes)``
- ``transforms``  DataFrame in, DataFrame out
- ``delta``       the only writers of the tables
- ``jobs``        the Spark queries: bus in, batches applied to the tables by the driver
- ``commands``    the command line, each command loaded only when it is called
- ``runtime``     Java and jars, found or fetched; beside the way

Single files: ``resources`` (where the files of conf/ lie), ``settings`` (the configuration, every key checked),
``schemas`` (the bus and the tables in Spark's words), ``errors``.
"""
