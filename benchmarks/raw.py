"""A server that does nothing else, as the minimum for all other servers."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def raw_server(serve: Callable[[socket.socket], None]) -> Iterator[int]:
    """Listen on a port of loopback; ``serve`` receives each connection in a thread of its own."""
    listener = socket.create_server(("127.0.0.1", 0))

    def attend(sock: socket.socket) -> None:
        with sock:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            serve(sock)

    def accept() -> None:
        while True:
            try:
                sock, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=attend, args=(sock,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    with listener:
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
