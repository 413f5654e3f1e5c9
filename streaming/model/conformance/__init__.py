"""Checks whether a metadata log is one that the model's controller could have written. Pure: records in, actions out.

Trace validation as TLA+ knows it: every step of a real trace must be a step of the specification. The specification
is ``streaming.model.controller``; the trace is the log of a real cluster, of the model itself, or of a recording.

- ``replay``   the controller's state, replayed from its log
- ``actions``  the result: actions of the model, and deviations with what each action would have written instead
- ``quirks``   what Kafka does and the model does not
- ``steps``    the table of actions that may change a partition, and what the model would write for each
- ``changes``  partition changes, explained by the registration records around them
- ``records``  every other record: its preconditions
- ``checker``  the interface: a batch in, actions and deviations out
"""
