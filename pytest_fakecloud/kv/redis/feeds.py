"""Threads that receive messages from a real server, each over a connection of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from redis.exceptions import AuthenticationError, NoPermissionError, RedisError

from .connection import Unreachable

if TYPE_CHECKING:
    from .connection import Link, Login

RECONNECT = 0.2
"""Seconds between attempts to reconnect."""


class Feed:
    """A thread that sends a command and passes all replies to ``take`` until ``stop()``.

    A lost connection is opened again. ``rejected`` is called once, and the thread ends, if the
    login or the command is rejected; without ``rejected``, the thread tries again. ``opened`` is set
    after the first reply.
    """

    def __init__(
        self,
        link: Link,
        login: Login | None,
        opening: list[bytes],
        take: Callable[[Any], None],
        name: str,
        rejected: Callable[[], None] | None = None,
    ) -> None:
        self._link = link
        self._login = login
        self._opening = opening
        self._take = take
        self._rejected = rejected
        self._stopped = threading.Event()
        self._connection: Any = None
        self.opened = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"fakecloud {name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                self._read()
            except (AuthenticationError, NoPermissionError):
                if self._rejected is None:
                    self._stopped.wait(RECONNECT)
                else:
                    self._rejected()
                    return
            except (RedisError, OSError, Unreachable):
                # The connection was lost or rejected, or the server is not running: retry.
                self._stopped.wait(RECONNECT)
            except Exception:
                # `stop()` closes the connection under a client that is reading, which may then raise
                # any error.
                if not self._stopped.is_set():
                    raise

    def _read(self) -> None:
        connection = self._link.dedicated(self._login)
        self._connection = connection
        try:
            connection.send_command(*self._opening, check_health=False)
            while not self._stopped.is_set():
                self._take(connection.read_response(disable_decoding=True))
                self.opened.set()
        finally:
            connection.disconnect()

    def stop(self) -> None:
        self._stopped.set()
        if self._connection is not None:
            self._connection.disconnect()
