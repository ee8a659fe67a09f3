"""Clocks of signatures, and signature checks that rejected a delivery.

The details of a rejected signature contain what was signed and what the application compared.
``Receiver.verify()`` of the official client and PyJWT's ``decode()`` are wrapped during a delivery
and restored afterwards. Checks that use neither function are not recorded. Source: decided here.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FunctionType
from typing import Any, NamedTuple, TypedDict
from urllib.parse import urlsplit

from .model import Delivery, SigningKeys, first
from .settings import SignatureClock
from .wire.signing import body_hash, explain
from .wire.text import as_text

_Wrap = Callable[[FunctionType], Callable[..., Any]]
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
_CLOCK_REALTIME_COARSE = 5
"""Linux's number of a clock (resolution 4 ms) that no time-freezing tool replaces."""
MAX_BODY = 2_000
"""Maximum number of characters of a body that are kept."""


def signature_clock(kind: SignatureClock, now_us: Callable[[], int]) -> Callable[[], float]:
    """Return a function that returns the Unix time for signatures, in seconds.

    ``"receiver"`` is this process's ``time.time()``, frozen or not, which a receiver in this
    process uses. ``"real"`` is the wall-clock time even if freezegun or time-machine changes the
    process's time, for receivers in other processes. ``"virtual"`` is the queue's clock
    (``now_us``, microseconds).
    """
    if kind == "receiver":
        # Look up time.time at each call, because time-freezing tools replace it.
        return lambda: time.time()
    if kind == "real":
        return real_time
    return lambda: now_us() / 1_000_000


def real_time(_read: Callable[[], float] = time.time) -> float:
    """Return the real Unix time in seconds, even if freezegun or time-machine is active."""
    if sys.platform.startswith("linux"):
        return time.clock_gettime(_CLOCK_REALTIME_COARSE)
    machine = sys.modules.get("time_machine")
    if machine is not None:
        return float(machine.escape_hatch.time.time())
    # freezegun replaces module attributes, but not default arguments.
    return _read()


class Refusal(NamedTuple):
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
        self._open: dict[int, list[Refusal]] = {}
        self._wrapped: list[tuple[type, str, FunctionType, Callable[..., Any]]] = []

    @contextmanager
    def collecting(self, found: list[Refusal]) -> Iterator[None]:
        """Add the rejections of signature checks in the block to ``found``.

        Blocks may overlap in several threads. A rejection then cannot be attributed and is dropped.
        """
        with self._lock:
            self._open[id(found)] = found
            self._wrap(sys.modules.get("qstash.receiver"), "Receiver", "verify", _verifying)
            self._wrap(sys.modules.get("jwt.api_jwt"), "PyJWT", "decode_complete", _decoding)
        try:
            yield
        finally:
            with self._lock:
                del self._open[id(found)]
                while self._wrapped and not self._open:
                    self._unwrap(*self._wrapped.pop())

    def found(self) -> list[Refusal]:
        """Return the list for the delivery in progress, or a new list if several are in progress."""
        with self._lock:
            return next(iter(self._open.values())) if len(self._open) == 1 else []

    def _wrap(self, module: object, class_name: str, name: str, wrap: _Wrap) -> None:
        """Wrap a method unless it is wrapped already or its module has not been imported."""
        owner = getattr(module, class_name, None)
        original = vars(owner).get(name) if isinstance(owner, type) else None
        if not isinstance(owner, type) or not isinstance(original, FunctionType):
            return
        if all(original is not wrapper for *_, wrapper in self._wrapped):
            wrapper = wrap(original)
            setattr(owner, name, wrapper)
            self._wrapped.append((owner, name, original, wrapper))

    def _unwrap(
        self, owner: type, name: str, original: FunctionType, wrapper: Callable[..., Any]
    ) -> None:
        # Keep a replacement that the application itself has made since.
        if vars(owner).get(name) is wrapper:
            setattr(owner, name, original)


WATCHER = SignatureWatcher()


def _verifying(original: FunctionType) -> Callable[..., Any]:
    def verify(self: Any, *given: Any, **named: Any) -> Any:
        found = WATCHER.found()
        before = len(found)
        try:
            result = original(self, *given, **named)
        except Exception:
            # Replace PyJWT's rejections, one for each key, with a single one.
            found[before:] = [_refusal(self, named)]
            raise
        del found[before:]
        return result

    return verify


def _decoding(original: FunctionType) -> Callable[..., Any]:
    def decode_complete(self: Any, jwt: Any, key: Any = "", *given: Any, **named: Any) -> Any:
        found = WATCHER.found()
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


def _refusal(receiver: object, named: dict[str, Any]) -> Refusal:
    url, body = named.get("url"), named.get("body")
    # The keys are private attributes of the receiver, which has no other strings.
    keys = tuple(one for one in vars(receiver).values() if isinstance(one, str))
    return Refusal(
        url if isinstance(url, str) else None, body if isinstance(body, str | bytes) else None, keys
    )


class _Compared(TypedDict, total=False):
    """The arguments of a signature check that differ from what was signed."""

    verified_url: str | None
    verified_body: str | None
    verified_size: int
    verified_body_same_json: bool
    verified_key: bool | None
    """False if the check did not use the current key."""
    former_key: bool
    """Whether the check used a key from before a rotation."""
    next_key_missing: bool
    """Whether the check used the key before the last rotation, but not the one after it."""
    claim: str
    """The claim of the token that the check rejected."""


class SignatureDetails(_Compared):
    """The signature of a delivery that the application answered with 401 or 403.

    The inherited fields describe the application's signature check, if it is known: the arguments
    that differ from what was signed.
    """

    missing: bool
    url: str
    """The URL that was signed."""
    called: str
    """The URL as a web framework reconstructs it."""
    size: int
    hash: str
    invalid: str | None
    """Why the signature does not verify with the queue's keys, or None if it does."""
    ahead_s: float
    """The seconds by which the process's clock is ahead of the clock of signatures."""
    environment: str
    """``unset``, or whether the environment variable is the ``current``, ``next`` or ``other`` key."""
    rewritten_differs: bool
    """Whether JSON in the body changes if it is parsed and written again."""
    compared: bool
    """Whether any argument differs."""


def signature_details(
    sent: Delivery, refused: Sequence[Refusal], keys: SigningKeys, now: float
) -> SignatureDetails:
    """Describe the signature of a delivery.

    ``refused`` are the application's signature checks that failed, and ``now`` is the Unix time in
    seconds on the clock of signatures.
    """
    signature = first(sent.headers, "Upstash-Signature") or next(
        (value for name, value in sent.headers if name.lower().endswith("-signature")), None
    )
    signed = as_text(sent.sub or sent.url)
    details: SignatureDetails = {
        "missing": signature is None,
        "url": signed,
        "called": _as_served(sent.url),
        "size": len(sent.body),
        "hash": body_hash(sent.body),
        "invalid": None,
        "ahead_s": time.time() - now,
        "environment": _environment(keys),
        "rewritten_differs": _reserialized(sent.body) not in (None, sent.body),
        "compared": False,
        "verified_url": None,
        "verified_body": None,
        "verified_key": None,
        "former_key": False,
        "next_key_missing": False,
        "claim": "",
    }
    if signature is None:
        return details
    details["invalid"] = explain(signature, body=sent.body, keys=keys, at=now, url=signed)
    if refused and details["invalid"] is None:
        # If several checks rejected the delivery, explain one that used the queue's own key.
        own = [check for check in refused if keys.current in check.keys]
        differences = _differences([*refused, *own][-1], sent, signed, keys)
        return {**details, **differences, "compared": bool(differences)}
    return details


def shortened_body(body: bytes) -> str:
    """Return the beginning of a body as text."""
    return body[: MAX_BODY * 4].decode("utf-8", "replace")[:MAX_BODY]


def _differences(check: Refusal, sent: Delivery, signed_url: str, keys: SigningKeys) -> _Compared:
    """Return the arguments of a signature check that differ from what was signed."""
    found: _Compared = {}
    body = check.body
    if isinstance(body, str):
        body = body.encode("utf-8", "surrogatepass")
    if check.url is not None and check.url != signed_url:
        found["verified_url"] = check.url
    if body is not None and body != sent.body:
        rewritten = _reserialized(body)
        found["verified_body"] = shortened_body(body)
        found["verified_size"] = len(body)
        found["verified_body_same_json"] = rewritten is not None and rewritten == _reserialized(
            sent.body
        )
    if check.keys and keys.current not in check.keys:
        found["verified_key"] = False
        found["former_key"] = any(key in keys.former for key in check.keys)
        found["next_key_missing"] = bool(keys.former) and keys.former[-1] in check.keys
    elif check.claim not in ("", "key"):
        found["claim"] = check.claim
    return found


def _environment(keys: SigningKeys) -> str:
    names = {None: "unset", keys.current: "current", keys.next: "next"}
    return names.get(os.environ.get("QSTASH_CURRENT_SIGNING_KEY"), "other")


def _as_served(url: str) -> str:
    """Return the URL as a web framework reconstructs it from ``Host`` and the path."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return as_text(url)
    host = parts.netloc.rpartition("@")[2]
    query = f"?{parts.query}" if parts.query else ""
    return as_text(f"{parts.scheme}://{host}{parts.path or '/'}{query}")


def _reserialized(body: bytes) -> bytes | None:
    """Return a JSON body as Python's ``json`` writes it, or None if it is not JSON."""
    try:
        return json.dumps(json.loads(body)).encode()
    except (ValueError, RecursionError):
        return None
