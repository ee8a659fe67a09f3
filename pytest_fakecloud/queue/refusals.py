"""What the official client's ``Receiver`` was given when it refused a delivery.

Its ``verify()`` is watched for the time of one delivery and is its own again afterwards. An application
that verifies signatures in another way is not seen. Source: decided here.
"""

from __future__ import annotations

import sys
import threading
from dataclasses import dataclass
from types import FunctionType
from typing import Any


@dataclass(frozen=True, slots=True)
class Refusal:
    """The arguments of a ``verify()`` that raised, None where it had none, and its receiver's keys."""

    url: str | None
    body: str | bytes | None
    keys: tuple[str, ...]


class Refusals:
    """Add to ``found`` what ``Receiver.verify()`` refuses until the end of the block.

    Blocks of several threads may overlap. Nobody knows then whose refusal it is, and none has it.
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
"""Each class that is watched, its own function and what stands in its place."""


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
        # What the application put in its place meanwhile stays.
        if vars(receiver).get("verify") is now:
            receiver.verify = original


def _refusal(receiver: object, named: dict[str, Any]) -> Refusal:
    url, body = named.get("url"), named.get("body")
    return Refusal(
        url if isinstance(url, str) else None,
        body if isinstance(body, str | bytes) else None,
        tuple(one for one in vars(receiver).values() if isinstance(one, str)),
    )
