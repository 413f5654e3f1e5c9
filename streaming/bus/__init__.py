"""Transports observations: framed, ordered, replayable. No Spark.

A *log* is one source's stream on one channel. A *position* is the number of bytes before a frame in that stream, so it
only grows, and ``[start, end)`` always names the same frames. Each opening of a log for writing has a random *log id*:
a log that was replaced, or restored from a copy and written on, has others than before.
"""
