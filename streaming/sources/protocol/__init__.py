"""Kafka's protocol, asked directly where librdkafka has no call: one blocking socket to one node.

- ``connection``    one blocking socket: correlation, timeouts, TLS, SASL
- ``security``      the librdkafka properties that concern a connection
- ``configs``       DescribeConfigs
- ``raw``           requests and responses whose bytes we write and read
- ``quorum_messages``  DescribeQuorum: the request, and what is read from its responses
- ``primitives``    wire types: varints, compact strings and arrays, tagged fields
- ``tokens``        tokens for OAUTHBEARER: of OpenID Connect, or of a command
- ``tls``           the librdkafka properties of TLS, read for each connection
- ``certificates``  until when a certificate is valid (pure)
- ``peers``         what connections saw of each address
"""
