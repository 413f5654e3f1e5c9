"""Derives changes from observations. Pure: values in, values out; no clock, no IO, no Spark.

``fold(state, observations)`` is the only place where the rule of a transition is written. It never guesses a cause:
sources prove causes, because only they see the order of records.
"""
