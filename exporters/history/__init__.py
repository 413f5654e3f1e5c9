"""History for people: what happened, how it was and how it is, from the tables. No Spark and no Java.

- ``moments``   times as people write and read them
- ``versions``  which version of a table was true at a moment
- ``wanted``    which events somebody wants
- ``events``    the events that were recorded; ``follow`` those that come
- ``output``    rows as a table, lines, JSON or CSV; ``event_view`` how an event looks
- ``rebuilt``   the state as of a version; ``state_view`` and ``groups`` how a state looks
- ``incidents`` what went wrong; ``incidents_command`` ``isrwatch incidents``
- ``reference`` what the tables mean
- ``command``   ``isrwatch events``; ``state_command`` ``isrwatch state``; ``tables_command`` ``isrwatch tables``
"""
