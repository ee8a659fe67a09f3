"""Sets NO_PROXY while fakes are mounted, so that proxy settings do not divert their requests."""

from __future__ import annotations

import os
import threading

HOST = "127.0.0.1"
_VARIABLES = ("NO_PROXY", "no_proxy")


class _NoProxy:
    """The NO_PROXY variables, with a count of users. The first user sets them, the last restores
    them.
    """

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
        # Check only one of the two variables, because other tools restore both.
        name = _VARIABLES[1]
        if os.environ.get(name) != self._set.get(name, ""):
            with self._lock:
                if self._users:
                    self._apply()

    def _apply(self) -> None:
        # Set the variables even if there is no proxy, because a test may set one while its fakes
        # are open.
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
                # Do not restore a variable that other code has set since.
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
