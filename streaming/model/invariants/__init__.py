"""What must hold after every step, and the observer that checks it. The protocol knows nothing of this room.

The names are those of the specifications they come from: hachikuji's and Vanlightly's TLA+ of Kafka's replication; a
few cheap ones are ours. Read in this order:

- ``records``   sets of records as ranges
- ``ghost``     what was written, acknowledged, read; what excuses a loss
- ``sight``     one partition: the truth, everybody's view, the ghost's memory
- ``metadata``  the controller's state
- ``leaders``   a leader's view beside the truth
- ``logs``      logs beside what was promised
- ``settled``   what comes true once faults stop
- ``watch``     the registry of names, and the observer: after a step it looks at what the step touched
"""
