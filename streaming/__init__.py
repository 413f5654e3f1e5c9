"""Observations in, Delta tables out.

    real cluster ── sources ─┐
                             ├─► observations ─► bus ─► jobs ─► Delta tables ─► exporters
    model ── simulated source┘   (contracts)           (changes, delta)

Packages in the order of the data. Each depends only on the contract of the one before it:

- ``contracts``         shared definitions: identifiers, records, observations, events, health, tables
- ``model``             a Kafka cluster as a pure, deterministic state machine
- ``sources``           produce observations: KRaft metadata log, polling, broker metrics, the simulated cluster
- ``bus``               transports observations
- ``changes``           derives changes from observations: ``fold(state, observations) -> (state, changes)``
- ``delta``             reads and writes the tables
- ``jobs``              the Spark queries: bus in, one commit per batch out
- ``commands``          the command line; each command is loaded only when it is called
- ``web``               HTTP as every program serves it
- ``runtime``           Java and jars, found or fetched
- ``settings``          the configuration; every key is checked
- ``cluster_settings``  the same of several clusters, each as if it stood alone
- ``setting_values``    what single values of the configuration must be
- ``secret_values``     values of the configuration that stand elsewhere: in the environment, in files
- ``resources``         where the files of ``conf/`` lie, in a checkout and in an installed package
- ``errors``            the errors that a user may see
- ``word_wrap``         lines for people, broken between words where a terminal is narrower
"""
