"""Whether a metadata log is one that the model's controller could have written. Pure: records in, actions out.

Trace validation as TLA+ knows it: every step of a real trace must be a step of the specification. The specification
is ``streaming.model.controller``; the trace is the log of a real cluster, of the model itself, or of a recording.

- ``replay``   the controller's state as its log tells it
- ``actions``  what is found: actions, or a departure with what each action would have written instead
- ``known``    what Kafka does and the model does not
- ``steps``    the table of what may change a partition, and what the model would make of it
- ``changes``  partition changes, told by the registration records around them
- ``records``  every other record: what it presupposes
- ``checker``  the interface: a batch in, actions and departures out
"""
