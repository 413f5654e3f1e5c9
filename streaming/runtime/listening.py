"""The listening sockets of a server. Depends on addresses only, not on HTTP."""

from __future__ import annotations

import socket
from typing import Final

from streaming.errors import ConfigurationError

BACKLOG: Final = 2048
"""Clients that may wait in the kernel's queue, which has a limit of its own (net.core.somaxconn)."""

SILENT_SECONDS: Final = 3
"""For how long the kernel keeps a client that has sent nothing to itself."""


def listen_all(addresses: str, option: str) -> list[socket.socket]:
    """Open a listening socket for each address of a list with commas.

    Raises:
        ConfigurationError: one of them is invalid or in use; none stays open then.
    """
    opened: list[socket.socket] = []
    try:
        for address in addresses.split(","):
            opened.append(listen(address.strip(), option))  # noqa: PERF401 - those before a refused one are closed
    except ConfigurationError:
        for each in opened:
            each.close()
        raise
    return opened


def listen(address: str, option: str) -> socket.socket:
    """Open a listening socket: ``host:port``, ``[ipv6]:port`` or ``:port`` (every interface); errors name the option.

    Raises:
        ConfigurationError: the address is invalid or in use.
    """
    host, colon, port = address.rpartition(":")
    if not colon or not (port.isascii() and port.isdecimal()) or int(port) > 65535:  # noqa: PLR2004 - TCP's own
        raise ConfigurationError(
            f"cannot listen on {address!r}; write host:port, for example 127.0.0.1:9308 ({option})"
        )
    host = host.removeprefix("[").removesuffix("]")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    opened = socket.socket(family, socket.SOCK_STREAM)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if hasattr(socket, "TCP_DEFER_ACCEPT"):  # Linux: a client that sends nothing takes no descriptor
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, SILENT_SECONDS)
    try:
        opened.bind((host, int(port)))
        opened.listen(BACKLOG)
    except OSError as error:
        opened.close()
        raise ConfigurationError(
            f"cannot listen on {address}: {error.strerror}; choose another address with {option}"
        ) from None
    return opened


def address_of(opened: socket.socket) -> str:
    """Return the address of a socket, as in a URL."""
    host, port = opened.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
