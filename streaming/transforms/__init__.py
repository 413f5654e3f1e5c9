"""DataFrame in, DataFrame out; Column in, Column out. No session, no IO, no clock.

- ``decode``            payloads of the bus to typed columns and a reason
- ``partition_health``  ``contracts.health`` as Columns
"""
