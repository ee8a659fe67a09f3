"""What the official client's ``Receiver`` was given when it refused a delivery.

Its ``verify()`` is watched for the time of one delivery and is its own again afterwards. An application
that verifies signatures in another way is not seen. Source: decided here.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FunctionType
from typing import Any

from ..core.lazy import dataclass

__all__ = ["Refusal", "refusals"]


@dataclass(frozen=True, slots=True)
class Refusal:
    """The arguments of a ``verify()`` that raised, None where it had none, and its receiver's keys."""

    url: str | None
    body: str | bytes | None
    keys: tuple[str, ...]


@contextmanager
def refusals(found: list[Refusal]) -> Iterator[None]:
    """Add to ``found`` what ``Receiver.verify()`` refuses until the end of the block."""
    receiver = getattr(sys.modules.get("qstash.receiver"), "Receiver", None)
    original = vars(receiver).get("verify") if isinstance(receiver, type) else None
    if not isinstance(original, FunctionType):
        yield
        return

    @functools.wraps(original)
    def verify(self: Any, *given: Any, **named: Any) -> Any:
        try:
            return original(self, *given, **named)
        except Exception:
            found.append(_refusal(self, named))
            raise

    receiver.verify = verify  # type: ignore[union-attr]
    try:
        yield
    finally:
        # What the application put in its place meanwhile stays.
        if vars(receiver).get("verify") is verify:
            receiver.verify = original  # type: ignore[union-attr]


def _refusal(receiver: object, named: dict[str, Any]) -> Refusal:
    url, body = named.get("url"), named.get("body")
    return Refusal(
        url if isinstance(url, str) else None,
        body if isinstance(body, str | bytes) else None,
        tuple(one for one in vars(receiver).values() if isinstance(one, str)),
    )
