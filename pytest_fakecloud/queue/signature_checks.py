"""Watch the application's signature checks during a delivery, and record those that fail.

``Receiver.verify()`` of the official client and PyJWT's ``decode()`` are wrapped during a delivery
and restored afterwards. Checks that use neither function are not recorded. Source: decided here.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FunctionType
from typing import Any, NamedTuple, TypeAlias

_Method: TypeAlias = Callable[..., Any]


class FailedCheck(NamedTuple):
    """The arguments of a signature check that raised an exception.

    ``url`` and ``body`` are None if the check did not use them. ``claim`` is the rejected claim of
    the token, ``key`` if the signature itself was wrong, and empty for a check by the receiver.
    """

    url: str | None
    body: str | bytes | None
    keys: tuple[str, ...]
    claim: str = ""


class SignatureWatcher:
    """Wraps the methods that check signatures while a delivery is in progress."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: dict[int, list[FailedCheck]] = {}
        self._wrapped: list[tuple[type, str, FunctionType, _Method]] = []

    @contextmanager
    def collecting(self, found: list[FailedCheck]) -> Iterator[None]:
        """Add the signature checks that fail in the block to ``found``.

        Blocks may overlap in several threads. A failed check then cannot be attributed and is dropped.
        """
        with self._lock:
            if not self._open:
                for library in _LIBRARIES:
                    self._wrap(*library)
            self._open[id(found)] = found
        try:
            yield
        finally:
            with self._lock:
                del self._open[id(found)]
                while self._wrapped and not self._open:
                    self._unwrap(*self._wrapped.pop())

    def found(self) -> list[FailedCheck]:
        """Return the list for the delivery in progress, or a new list if several are in progress."""
        with self._lock:
            return next(iter(self._open.values())) if len(self._open) == 1 else []

    def _wrap(
        self, module: str, class_name: str, name: str, watched: Callable[[_Method], _Method]
    ) -> None:
        """Wrap a method if its module has been imported."""
        owner: Any = getattr(sys.modules.get(module), class_name, None)
        original = getattr(owner, "__dict__", {}).get(name)
        if isinstance(original, FunctionType):
            wrapper = watched(original)
            setattr(owner, name, wrapper)
            self._wrapped.append((owner, name, original, wrapper))

    def _unwrap(self, owner: type, name: str, original: FunctionType, wrapper: _Method) -> None:
        # Keep a replacement that the application itself has made since.
        if vars(owner).get(name) is wrapper:
            setattr(owner, name, original)


WATCHER = SignatureWatcher()


# -- the official client -----------------------------------------------------------------------


def _watched_verify(original: _Method) -> _Method:
    """Return ``Receiver.verify()`` of the official client, wrapped so that it records a failure."""

    def verify(self: Any, *given: Any, **named: Any) -> Any:
        found = WATCHER.found()
        before = len(found)
        failed_checks: list[FailedCheck] = []
        try:
            return original(self, *given, **named)
        except Exception:
            failed_checks = [_failed_check(self, named)]
            raise
        finally:
            # The receiver calls PyJWT for each of its keys. Replace the failed checks of PyJWT.
            found[before:] = failed_checks

    return verify


def _failed_check(receiver: object, named: dict[str, Any]) -> FailedCheck:
    url, body = named.get("url"), named.get("body")
    # The keys are private attributes of the receiver, which has no other strings.
    keys = tuple(value for value in vars(receiver).values() if isinstance(value, str))
    return FailedCheck(
        url if isinstance(url, str) else None, body if isinstance(body, str | bytes) else None, keys
    )


# -- PyJWT -------------------------------------------------------------------------------------

_CLAIMS = {
    "ExpiredSignatureError": "exp",
    "ImmatureSignatureError": "nbf",
    "InvalidAudienceError": "aud",
    "InvalidIssuedAtError": "iat",
    "InvalidIssuerError": "iss",
    "InvalidSignatureError": "key",
    "InvalidSubjectError": "sub",
}
"""The claim that each PyJWT error refers to."""


def _watched_decode(original: _Method) -> _Method:
    """Return PyJWT's ``decode_complete()``, which ``decode()`` calls, wrapped in the same way."""

    def decode_complete(self: Any, jwt: Any, key: Any = "", *given: Any, **named: Any) -> Any:
        found = WATCHER.found()
        try:
            result = original(self, jwt, key, *given, **named)
        except Exception as error:
            claim = getattr(error, "claim", "") or _CLAIMS.get(type(error).__name__, "")
            if claim:
                keys = (key,) if isinstance(key, str) else ()
                found.append(FailedCheck(None, None, keys, str(claim)))
            raise
        # Drop errors about wrong keys, because another key has verified the signature.
        found[:] = [check for check in found if check.claim != "key"]
        return result

    return decode_complete


_LIBRARIES = (
    ("qstash.receiver", "Receiver", "verify", _watched_verify),
    ("jwt.api_jwt", "PyJWT", "decode_complete", _watched_decode),
)
"""The module, class and name of each method to watch, and the function that wraps it."""
