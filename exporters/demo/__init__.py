"""``isrwatch demo``: the whole pipeline on a simulated cluster, one process per part, watched live.

- ``command``   the order in which the parts start
- ``parts``     the child processes of a demo
- ``attached``  runs one command in a child process, which ends with the demo
- ``location``  the folder and the port
- ``stages``    the progress of the start
- ``live``      the live view, and what it was shown
- ``view``      what it shows of a snapshot
- ``risk``      the partitions at risk over the last minutes
- ``summary``   the report printed at the end
"""
