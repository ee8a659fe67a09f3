"""What the official client's ``Receiver`` was given when it refused a delivery.

Its ``verify()`` is watched for the time of one delivery and is its own again afterwards. An application
that verifies signatures in another way is not seen. Source: decided here.
"""

from __future__ import annotations

import sys
from types import FunctionType
from typing import Any

from ..core.lazy import dataclass

__all__ = ["Refusal", "Refusals"]


@dataclass(frozen=True, slots=True)
class Refusal:
    """The arguments of a ``verify()`` that raised, None where it had none, and its receiver's keys."""

    url: str | None
    body: str | bytes | None
    keys: tuple[str, ...]


class Refusals:
    """Add to ``found`` what ``Receiver.verify()`` refuses until the end of the block."""

    __slots__ = ("_found", "_original", "_receiver", "_verify")

    def __init__(self, found: list[Refusal]) -> None:
        self._found = found
        self._receiver: Any = None

    def __enter__(self) -> None:
        receiver: Any = getattr(sys.modules.get("qstash.receiver"), "Receiver", None)
        original = vars(receiver).get("verify") if isinstance(receiver, type) else None
        if not isinstance(original, FunctionType):
            return
        found = self._found

        def verify(self: Any, *given: Any, **named: Any) -> Any:
            try:
                return original(self, *given, **named)
            except Exception:
                found.append(_refusal(self, named))
                raise

        self._receiver, self._original, self._verify = receiver, original, verify
        receiver.verify = verify

    def __exit__(self, *error: object) -> None:
        # What the application put in its place meanwhile stays.
        if self._receiver is not None and vars(self._receiver).get("verify") is self._verify:
            self._receiver.verify = self._original


def _refusal(receiver: object, named: dict[str, Any]) -> Refusal:
    url, body = named.get("url"), named.get("body")
    return Refusal(
        url if isinstance(url, str) else None,
        body if isinstance(body, str | bytes) else None,
        tuple(one for one in vars(receiver).values() if isinstance(one, str)),
    )
