"""DataFrame in, DataFrame out; Column in, Column out. No session, no IO, no clock.

- ``decode``            payloads of the bus to typed columns and a reason
- ``faults``            what is wrong with a payload, field by field
- ``partition_health``  ``contracts.health`` as Columns
"""
