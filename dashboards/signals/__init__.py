"""Every metric that a panel or a rule uses, with its title, meaning, unit and type, written once.

Knows the names and labels of the exporter's catalogue (a test compares them), not Grafana. By subject:

- ``labels``          the labels that identify one series of each subject
- ``clusters``        partitions in each state of health, brokers, data age
- ``changes``         changes of ISRs and leaders
- ``incidents``       open and closed ones
- ``brokers``         registration, replicas, restart safety, suspects
- ``topics``          partitions in each state of health
- ``partitions``      single partitions and replicas
- ``unavailability``  seconds in which partitions were not as they should be
- ``disks``           log directories and their volumes
- ``groups``          members and lag of groups
- ``transactions``    open, late and hanging ones
- ``quorum``          controllers and members of the metadata quorum
- ``configuration``   settings of topics, throttles, versions
- ``agents``          what brokers say of themselves
- ``monitor``         the monitor itself: sources, queries of the job, tables, certificates
"""
