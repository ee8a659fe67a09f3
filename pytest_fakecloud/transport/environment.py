"""Proxy settings must not send requests for a fake to a proxy: NO_PROXY while fakes are mounted."""

from __future__ import annotations

import os
import threading

HOST = "127.0.0.1"
_VARIABLES = ("NO_PROXY", "no_proxy")


class _NoProxy:
    """Counts who is in; the first sets the variables, the last gives them back."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._before: dict[str, str | None] = {}
        self._set: dict[str, str] = {}

    def enter(self) -> None:
        with self._lock:
            self._users += 1
            if self._users == 1:
                self._apply()

    def refresh(self) -> None:
        # A look at one of the two is enough to see that somebody has put the environment back.
        name = _VARIABLES[1]
        if os.environ.get(name) != self._set.get(name, ""):
            with self._lock:
                if self._users:
                    self._apply()

    def _apply(self) -> None:
        # Whether there is a proxy or not: a test may well name one while its fakes are open.
        for name in _VARIABLES:
            before = os.environ.get(name)
            hosts = [part.strip() for part in (before or "").split(",") if part.strip()]
            if HOST in hosts or "*" in hosts:
                continue
            self._before[name] = before
            self._set[name] = ",".join([*hosts, HOST])
            os.environ[name] = self._set[name]

    def leave(self) -> None:
        with self._lock:
            self._users -= 1
            if self._users:
                return
            for name, before in self._before.items():
                # Somebody who changed it since then wants it that way.
                if os.environ.get(name) != self._set[name]:
                    continue
                if before is None:
                    del os.environ[name]
                else:
                    os.environ[name] = before
            self._before.clear()
            self._set.clear()


_no_proxy = _NoProxy()
enter = _no_proxy.enter
refresh = _no_proxy.refresh
leave = _no_proxy.leave
