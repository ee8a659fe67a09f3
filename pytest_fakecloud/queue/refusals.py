"""Records the arguments with which the official client's ``Receiver`` rejected a delivery.

``verify()`` is replaced during one delivery and restored afterwards. An application that verifies
signatures in another way is not observed. Source: decided here.
"""

from __future__ import annotations

import sys
import threading
from dataclasses import dataclass
from types import FunctionType
from typing import Any


@dataclass(frozen=True, slots=True)
class Refusal:
    """The arguments of a ``verify()`` that raised (None if not given), and the keys of its
    receiver."""

    url: str | None
    body: str | bytes | None
    keys: tuple[str, ...]


class Refusals:
    """Context manager that appends the rejections of ``Receiver.verify()`` to ``found``.

    Blocks of several threads may overlap. A rejection cannot be attributed then and is dropped.
    """

    __slots__ = ("found",)

    def __init__(self, found: list[Refusal]) -> None:
        self.found = found

    def __enter__(self) -> None:
        with _lock:
            _watching.append(self)
            if _RECEIVER in sys.modules:
                _watch()

    def __exit__(self, *error: object) -> None:
        with _lock:
            _watching.remove(self)
            if _watched and not _watching:
                _unwatch()


_RECEIVER = "qstash.receiver"
_lock = threading.Lock()
_watching: list[Refusals] = []
_watched: list[tuple[Any, Any, Any]] = []
"""Each patched class with its original method and the replacement."""


def _watch() -> None:
    receiver: Any = getattr(sys.modules.get(_RECEIVER), "Receiver", None)
    original = vars(receiver).get("verify") if isinstance(receiver, type) else None
    if not isinstance(original, FunctionType) or any(original is now for *_, now in _watched):
        return

    def verify(self: Any, *given: Any, **named: Any) -> Any:
        try:
            return original(self, *given, **named)
        except Exception:
            with _lock:
                if len(_watching) == 1:
                    _watching[0].found.append(_refusal(self, named))
            raise

    receiver.verify = verify
    _watched.append((receiver, original, verify))


def _unwatch() -> None:
    while _watched:
        receiver, original, now = _watched.pop()
        # Keep a method that the application itself has put there during the delivery.
        if vars(receiver).get("verify") is now:
            receiver.verify = original


def _refusal(receiver: object, named: dict[str, Any]) -> Refusal:
    url, body = named.get("url"), named.get("body")
    return Refusal(
        url if isinstance(url, str) else None,
        body if isinstance(body, str | bytes) else None,
        tuple(one for one in vars(receiver).values() if isinstance(one, str)),
    )
