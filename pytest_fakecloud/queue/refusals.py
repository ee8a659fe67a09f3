"""Records the arguments of signature checks that rejected a delivery.

``Receiver.verify()`` of the official client and PyJWT's ``decode()`` are wrapped during a delivery
and restored afterwards. Checks that use neither function are not recorded. Source: decided here.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from types import FunctionType
from typing import Any, NamedTuple


class Refusal(NamedTuple):
    """The arguments of a signature check that raised an exception.

    ``url`` and ``body`` are None if the check did not use them. ``claim`` is the rejected claim of
    the token, ``key`` if the signature itself was wrong, and empty for a check by the receiver.
    """

    url: str | None
    body: str | bytes | None
    keys: tuple[str, ...]
    claim: str = ""


class Refusals:
    """Context manager that adds the rejections of signature checks in its block to ``found``.

    Blocks may overlap in several threads. A rejection then cannot be attributed and is dropped.
    """

    __slots__ = ("found",)

    def __init__(self, found: list[Refusal]) -> None:
        self.found = found

    def __enter__(self) -> None:
        with _lock:
            _watching.append(self)
            _watch()

    def __exit__(self, *error: object) -> None:
        with _lock:
            _watching.remove(self)
            if _watched and not _watching:
                _unwatch()


_RECEIVER, _PYJWT = "qstash.receiver", "jwt.api_jwt"
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
_lock = threading.Lock()
_watching: list[Refusals] = []
_watched: list[tuple[Any, str, Any, Any]] = []
"""Each wrapped class and method name, with the original function and its wrapper."""


def _watch() -> None:
    _replace(getattr(sys.modules.get(_RECEIVER), "Receiver", None), "verify", _verifying)
    _replace(getattr(sys.modules.get(_PYJWT), "PyJWT", None), "decode_complete", _decoding)


def _replace(owner: Any, name: str, wrap: Callable[[FunctionType], Callable[..., Any]]) -> None:
    original = vars(owner).get(name) if isinstance(owner, type) else None
    if isinstance(original, FunctionType) and all(original is not one[-1] for one in _watched):
        wrapped = wrap(original)
        setattr(owner, name, wrapped)
        _watched.append((owner, name, original, wrapped))


def _verifying(original: FunctionType) -> Callable[..., Any]:
    def verify(self: Any, *given: Any, **named: Any) -> Any:
        found = _found()
        before = len(found)
        try:
            result = original(self, *given, **named)
        except Exception:
            # Replace PyJWT's rejections, one for each key, with the single rejection of the
            # receiver.
            found[before:] = [_refusal(self, named)]
            raise
        del found[before:]
        return result

    return verify


def _decoding(original: FunctionType) -> Callable[..., Any]:
    def decode_complete(self: Any, jwt: Any, key: Any = "", *given: Any, **named: Any) -> Any:
        found = _found()
        try:
            result = original(self, jwt, key, *given, **named)
        except Exception as error:
            kind = type(error).__name__
            claim = str(getattr(error, "claim", "") or _CLAIMS.get(kind, ""))
            if claim:
                found.append(Refusal(None, None, (key,) if isinstance(key, str) else (), claim))
            raise
        # Drop errors about wrong keys, because another key has verified the signature.
        found[:] = [one for one in found if one.claim != "key"]
        return result

    return decode_complete


def _found() -> list[Refusal]:
    """Return the list for the delivery in progress, or a new list if several are in progress."""
    with _lock:
        return _watching[0].found if len(_watching) == 1 else []


def _unwatch() -> None:
    while _watched:
        owner, name, original, now = _watched.pop()
        # Keep a replacement that the application itself has made since.
        if vars(owner).get(name) is now:
            setattr(owner, name, original)


def _refusal(receiver: object, named: dict[str, Any]) -> Refusal:
    url, body = named.get("url"), named.get("body")
    return Refusal(
        url if isinstance(url, str) else None,
        body if isinstance(body, str | bytes) else None,
        tuple(one for one in vars(receiver).values() if isinstance(one, str)),
    )
