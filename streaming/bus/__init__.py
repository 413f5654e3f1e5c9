"""Transports observations: framed, ordered, replayable. No Spark.

A *log* is one source's stream on one channel. A *position* is the number of bytes before a frame in that stream, so it
only grows, and ``[start, end)`` always names the same frames. Each opening of a log for writing has a random *log id*:
a log that was replaced, or restored from a copy and written on, has others than before.

- ``publisher``        the interface that sources write to
- ``reader``           the interface that jobs read from
- ``frames``           one record on disk: magic, length, CRC-32
- ``segments``         the files of one log
- ``segment_reading``  the segments of a log, read
- ``log``              one log that is open for writing
- ``capacity``         how much the bus may hold, and what goes first
- ``directory``        ``<bus>/<channel>/<source>/<base position>-<log id>.log``: the default, no broker needed
- ``memory``           the same in memory: the test double
"""
