"""HTTP as every program of isrwatch serves it: the exporter, the collector and the job.

From the bottom of the import order to the top (``lint-imports`` checks it):

- ``markup``       HTML with one style, which the default policy allows by its hash
- ``http_counts``  what is counted of requests and connections
- ``config_file``  the web configuration file of Prometheus' exporter-toolkit
- ``tls``          its TLS
- ``logins``       its users
- ``protection``   what it says now, although it may change
- ``middleware``   what every request and response gets: a count, a login, security headers, a body in parts
- ``connections``  one connection, how long it may wait for its client, and how many there may be
- ``occurrences``  log lines that clients can cause, once a minute
- ``server``       accepts connections within these limits
- ``status``       metrics and health of a program beside its work
"""
