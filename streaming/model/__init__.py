"""A Kafka cluster as values and tables. No clock, no randomness, no IO.

Two laws. Time is a whole number of milliseconds that the caller passes in; nothing here reads a clock or draws a
random number. A message goes in, messages and timers come out: who carries them, and how long that takes, is decided
by the caller.
"""
