"""librdkafka's own mock cluster: a few sockets on 127.0.0.1 that speak Kafka's protocol, moved by its C functions."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import confluent_kafka

LIST_OFFSETS = 2
DESCRIBE_CONFIGS = 32
TOPIC_AUTHORIZATION_FAILED = 29


class MockKafka:
    """A cluster of fake brokers 1, 2, 3, ... whose ISR always equals its replicas."""

    def __init__(self, brokers: int) -> None:
        self._lib = ctypes.CDLL(str(_library()))
        for name in ("rd_kafka_conf_new", "rd_kafka_new", "rd_kafka_mock_cluster_new"):
            getattr(self._lib, name).restype = ctypes.c_void_p
        self._lib.rd_kafka_mock_cluster_bootstraps.restype = ctypes.c_char_p
        problem = ctypes.create_string_buffer(512)
        conf = ctypes.c_void_p(self._lib.rd_kafka_conf_new())
        self._lib.rd_kafka_conf_set(conf, b"log_level", b"0", problem, 512)
        self._handle = ctypes.c_void_p(self._lib.rd_kafka_new(0, conf, problem, 512))
        self._cluster = ctypes.c_void_p(self._lib.rd_kafka_mock_cluster_new(self._handle, brokers))
        self._call("set_controller_id", 1)

    @property
    def bootstrap_servers(self) -> str:
        servers: bytes = self._lib.rd_kafka_mock_cluster_bootstraps(self._cluster)
        return servers.decode()

    def create_topic(self, topic: str, *, partitions: int, replicas: int) -> None:
        self._call("topic_create", topic.encode(), partitions, replicas)

    def delete_topic(self, topic: str) -> None:
        self._call("topic_delete", topic.encode())

    def set_leader(self, topic: str, partition: int, broker: int) -> None:
        self._call("partition_set_leader", topic.encode(), partition, broker)

    def hang(self, broker: int, milliseconds: int) -> None:
        """Let a broker answer that late."""
        self._call("broker_set_rtt", broker, milliseconds)

    def take_down(self, broker: int) -> None:
        self._call("broker_set_down", broker)

    def bring_up(self, broker: int) -> None:
        self._call("broker_set_up", broker)

    def fail(self, api_key: int, *errors: int) -> None:
        """Answer the next requests of one kind with these errors."""
        array = (ctypes.c_int * len(errors))(*errors)
        self._lib.rd_kafka_mock_push_request_errors_array(
            self._cluster, ctypes.c_int16(api_key), ctypes.c_size_t(len(errors)), array
        )

    def close(self) -> None:
        self._lib.rd_kafka_mock_cluster_destroy(self._cluster)
        self._lib.rd_kafka_destroy(self._handle)

    def _call(self, function: str, *arguments: Any) -> None:
        failed = getattr(self._lib, f"rd_kafka_mock_{function}")(self._cluster, *arguments)
        assert failed == 0, f"{function}{arguments} answers {failed}"


def _library() -> Path:
    folder = Path(confluent_kafka.__file__).parent.parent / "confluent_kafka.libs"
    return next(folder.glob("librdkafka*"))
