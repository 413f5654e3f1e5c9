"""Commands that query the tables. No Spark and no Java.

From the bottom of the import order to the top (``lint-imports`` checks it):

- ``time_parsing``       parses and formats times
- ``unreadable``         the tables that a command could not read
- ``broker_columns``     what the job derives of brokers
- ``event_filter``       selects events: one rule for a row in memory and, equally, in SQL
- ``versions``           the version of ``partition_changes`` that ``--as-of`` selects
- ``event_text``         an event in words
- ``event_groups``       events of one moment in as few lines as say what happened
- ``live_view``          a snapshot as text; also used by the demo
- ``reference``          the documentation of the tables
- ``table_layout``       which columns of a table stand beside each other, and which below
- ``output``             rows as a table, lines, JSON or CSV
- ``events``             the recorded events
- ``event_view``         the columns of an event
- ``event_rows``         one row per event, or one for what happened at one moment
- ``follow``             new events as they are committed
- ``quantities``         amounts, durations and lists of names
- ``state_as_of``        the state at an earlier version
- ``state_view``         the columns of a state
- ``broker_speeds``      which brokers are slow
- ``groups``             groups, their state and their lag
- ``settings``           what is wrong with settings
- ``consequences``       what fails while a partition of an internal topic does
- ``sample_rows``        log directories, the metadata quorum, transactions
- ``incidents``          rows of incidents
- ``state_selection``    what the options of ``isrwatch state`` select
- ``silent_brokers``     what samples leave out, because a broker does not answer
- ``state_samples``      what it shows of the newest samples
- ``reassignments``      what it shows of reassignments in progress
- ``recovery``           what it shows of brokers that recover, and of replicas that catch up
- ``broker_fields``      the columns of brokers, in a table and in a line
- ``options``            the options that several commands share
- ``health_gate``        waits until clusters are healthy
- ``events_command``     ``isrwatch events``
- ``state_command``      ``isrwatch state``
- ``health_command``     ``isrwatch health``
- ``incidents_command``  ``isrwatch incidents``
- ``tables_command``     ``isrwatch tables``
"""
