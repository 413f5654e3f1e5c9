"""Transports observations: framed, ordered, replayable. No Spark.

A *log* is one source's stream on one channel. A *position* is the number of bytes before a frame in that stream, so it
only grows, and ``[start, end)`` always names the same frames. Opening a log for writing gives it a random *log id*, so
a log that was replaced, or restored from a copy and continued, is recognised.
"""
