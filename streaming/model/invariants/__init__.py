"""What must hold after every step, and the observer that checks it. The protocol does not know this package.

The names are those of the specifications they come from: hachikuji's and Vanlightly's TLA+ of Kafka's replication; a
few cheap ones are ours. Read in this order:

- ``ghost``      ghost state: what was written, acknowledged, read; what excuses a loss
- ``view``       one partition as the observer sees it: ground truth, each node's view, ghost state
- ``metadata``   the controller's state
- ``leaders``    a leader's view compared with the ground truth
- ``logs``       logs compared with what was promised
- ``producers``  writers, and readers of committed transactions
- ``groups``     consumer groups
- ``watch``      the registry, and the observer: after a step it checks what the step touched
"""
