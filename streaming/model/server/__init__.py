"""A broker process: its parts, the coordinators on top of them, and the requests it answers.

- ``apis``    the requests of clients and other brokers, one by one (``KafkaApis``)
- ``broker``  the process: life cycle, metadata, leader and follower
"""
