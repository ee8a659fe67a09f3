"""Signatures of deliveries (HS256 JSON web tokens), and explanations of rejected signatures.

Source of the claims: the vendor's documentation and both official receivers. A receiver tries the
current key, then the next one, and reports only the error of the second. From that error, a test
cannot tell whether the token was expired, or made for another URL or another body. ``explain()``
reports all reasons. The caller chooses the clock of a token (``signature_clock()``), because a
receiver compares the token with *its own* clock.

During a delivery, ``Receiver.verify()`` of the official client and PyJWT's ``decode()`` are wrapped
to record the checks that fail, and restored afterwards. Checks that use neither function are not
recorded. Source: decided here.
"""

from __future__ import annotations

import base64
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from itertools import product
from types import FunctionType
from typing import Any, NamedTuple, TypedDict
from urllib.parse import urlsplit

from ..core.errors import chain_of
from ..core.ids import RandomStream
from ..core.timers import process_seconds
from ..process.replace import Function, Replacement, replace
from .delivery.applications import Address
from .model import (
    Deliver,
    Delivery,
    DeliveryInterceptor,
    Exchange,
    HeaderList,
    Outcome,
    SigningKeys,
    first,
)
from .settings import SignatureClock
from .wire.values import as_text, shortened_body

LIFETIME = 300
"""Seconds between a token's ``iat`` and its ``exp``."""
_EXPIRED_AGE = 3600
"""Age in seconds of the token that the fault ``expired`` sends."""

ISSUER = "Upstash"
_MAX_TIME = 2**53
"""Maximum number of seconds in a time claim. NaN, infinity and huge integers are not times."""
_REQUIRED = ("iss", "sub", "exp", "nbf", "body")
_UNCHECKED = {
    f"verify_{claim}": False for claim in ("exp", "nbf", "iat", "aud", "iss", "sub", "jti")
}


def body_hash(body: bytes) -> str:
    """Return the ``body`` claim: padded base64url of the SHA-256 of the raw body, even if empty."""
    return base64.urlsafe_b64encode(sha256(body).digest()).decode("ascii")


class Signer(DeliveryInterceptor):
    """Signs deliveries with the current key of ``keys``, or as faults demand.

    ``now`` returns the Unix time in seconds and is called for each signature. ``ids`` supplies the
    token ids. The claims are ``iss``, ``sub`` (the full destination URL), ``iat``, ``exp`` (``iat`` +
    300), ``nbf`` 0, ``jti`` (a string, because PyJWT rejects other types) and ``body``.
    """

    def __init__(
        self,
        keys: SigningKeys,
        now: Callable[[], float],
        ids: RandomStream,
        header: str = "Upstash-Signature",
    ) -> None:
        self.keys = keys
        self.now = now
        self.ids = ids
        self.header = header

    async def deliver(self, exchange: Exchange, proceed: Deliver) -> Outcome:
        """Sign a delivery and send it, with the faults about signatures, bodies and duplicates."""
        delivery, faults = exchange.delivery, exchange.attempt.faults
        signature: HeaderList = []
        if "unsigned" not in faults:
            key: str | None = None
            if "wrong_key" in faults:
                key = self.keys.new_key()
            elif "next_key" in faults:
                key = self.keys.next
            age = _EXPIRED_AGE if "expired" in faults else 0
            token = self.sign(exchange.attempt.url, delivery.body, key=key, age=age)
            signature = [(self.header, token)]
        exchange.delivery = delivery._replace(
            headers=delivery.headers + signature,
            body=delivery.body + b"tampered" if "tamper" in faults else delivery.body,
        )
        if "duplicate" in faults:
            await proceed(exchange)
        return await proceed(exchange)

    def sign(self, url: str, body: bytes, *, key: str | None = None, age: float = 0.0) -> str:
        """Return a token for a request to ``url``, as published, issued ``age`` seconds ago."""
        issued, hashed = int(self.now() - age), body_hash(body)
        import jwt  # Imported here, because the import loads all of cryptography.

        claims = {
            "iss": ISSUER,
            "sub": url,
            "exp": issued + LIFETIME,
            # The claim must be present. The service has sent 0 since September 2024.
            "nbf": 0,
            "iat": issued,
            "jti": "jwt_" + self.ids.base58(27),
            "body": hashed,
        }
        return jwt.encode(claims, self.keys.current if key is None else key, algorithm="HS256")


def explain(
    signature: str | None,
    *,
    body: bytes,
    keys: SigningKeys | Mapping[str, str],
    at: float,
    url: str | None = None,
) -> str | None:
    """Return all reasons why a signature does not verify, or None if it does.

    ``keys`` are the receiver's keys by name, ``at`` is the receiver's Unix time in seconds, ``url``
    is the address at which the receiver was called (None: not compared, as in both receivers).
    """
    if not signature:
        return "the request has no Upstash-Signature header"
    named = {"current": keys.current, "next": keys.next} if isinstance(keys, SigningKeys) else keys
    claims = verified_claims(signature, named.values())
    if claims is None:
        return _unsigned(signature, named)
    reasons = list(_wrong_claims(claims, at))
    if url is not None and isinstance(claims.get("sub"), str) and claims["sub"] != url:
        reasons.append(_url_differs(str(claims["sub"]), url))
    if isinstance(claims.get("body"), str):
        reasons.extend(_body_differs(str(claims["body"]), body))
    return "; ".join(reasons) or None


def _unsigned(signature: str, keys: Mapping[str, str]) -> str:
    """Return why a token is malformed or not signed with one of the keys."""
    import jwt

    try:
        header = jwt.get_unverified_header(signature)
        unverified = _decode(signature, None)
    except (jwt.InvalidTokenError, UnicodeEncodeError) as error:
        return f"the signature is not a JSON web token: {error}"
    if header.get("alg") != "HS256":
        return f"the token is signed with {header.get('alg')!r}, expected 'HS256'"
    tried = " nor ".join(f"the {name} key" for name in keys)
    failed = "was signed with neither" if len(keys) > 1 else "was not signed with"
    claimed = f" (it claims to be for {unverified['sub']})" if "sub" in unverified else ""
    return f"the token {failed} {tried}{claimed}"


def verified_claims(signature: str, keys: Iterable[str]) -> dict[str, Any] | None:
    """Return the claims of a token that is signed with one of these keys, otherwise None."""
    import jwt

    for key in keys:
        with suppress(jwt.InvalidTokenError, UnicodeEncodeError):
            return _decode(signature, key)
    return None


def _decode(signature: str, key: str | None) -> dict[str, Any]:
    import jwt

    # Check only the signature. PyJWT would stop at the first invalid claim.
    checks: Any = _UNCHECKED | {"verify_signature": key is not None}
    claims: dict[str, Any] = jwt.decode(signature, key or "", algorithms=["HS256"], options=checks)
    return claims


def _wrong_claims(claims: Mapping[str, Any], at: float) -> Iterator[str]:
    missing = [name for name in _REQUIRED if name not in claims]
    if missing:
        yield f"the token has no {', '.join(missing)} claim"
    if claims.get("iss", ISSUER) != ISSUER:
        yield f"the token was issued by {claims['iss']!r}, expected {ISSUER!r}"
    if "jti" in claims and not isinstance(claims["jti"], str):
        yield f"the jti claim is {claims['jti']!r}, expected text"
    for name in ("exp", "nbf", "iat"):
        value = claims.get(name)
        if value is None:
            continue
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not (is_number and abs(value) <= _MAX_TIME):
            yield f"the {name} claim is {value!r}, expected a number of seconds"
        elif name == "exp" and value <= at:
            yield (
                f"the token has expired {_span(at - value)} ago on the receiver's clock"
                f" (exp {value}, now {int(at)})"
            )
        elif name != "exp" and value > at:
            yield (
                f"the token is from the future: {name} is {_span(value - at)} ahead of the"
                f" receiver's clock ({name} {value}, now {int(at)}); set signature_clock= to the"
                " clock that the receiver uses"
            )


def _span(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def _url_differs(signed: str, url: str) -> str:
    text = f"the token is for {signed}, the receiver compared {url}"
    try:
        left, right = urlsplit(signed), urlsplit(url)
    except ValueError as error:
        return f"{text}, and one of them is not a URL: {error}"
    parts = [
        name
        for name in ("scheme", "netloc", "path", "query", "fragment")
        if getattr(left, name) != getattr(right, name)
    ]
    # Parts may be equal if only one URL has an empty part, as in https://a.test/?.
    names = ["host" if part == "netloc" else part for part in parts] or ["empty parts"]
    text += f": they differ in the {' and '.join(names)}"
    if parts and {*parts} <= {"scheme", "netloc"}:
        text += " (behind a proxy, compare with the published URL)"
    return text


def _body_differs(claim: str, body: bytes) -> Iterator[str]:
    if claim.rstrip("=") == body_hash(body).rstrip("="):
        return
    text = f"the token was issued for another body than these {len(body)} bytes (body hash {claim})"
    for name, variant in _rewritten(body):
        if body_hash(variant).rstrip("=") == claim.rstrip("="):
            text += f": the signed bytes are {name}, so verify the raw body before parsing it"
            break
    yield text


def _rewritten(body: bytes) -> Iterator[tuple[str, bytes]]:
    yield "the same without surrounding white space", body.strip()
    yield "the same with a line end", body + b"\n"
    # Stop at JSON that is nested too deeply, or that has a lone surrogate, which UTF-8 cannot encode.
    with suppress(ValueError, RecursionError):
        value = json.loads(body)
        layouts = product((True, False), ((",", ":"), (", ", ": ")), (None, 2))
        for ascii_only, separators, indent in layouts:
            text = json.dumps(value, ensure_ascii=ascii_only, separators=separators, indent=indent)
            yield "the same JSON in another layout", text.encode()


_CLOCK_REALTIME_COARSE = 5
"""Linux's number of a clock (resolution 4 ms) that no time-freezing tool replaces."""


def signature_clock(kind: SignatureClock, now_us: Callable[[], int]) -> Callable[[], float]:
    """Return a function that returns the Unix time for signatures, in seconds.

    ``"receiver"`` is this process's ``time.time()``, frozen or not, which a receiver in this
    process uses. ``"real"`` is the wall-clock time even if freezegun or time-machine changes the
    process's time, for receivers in other processes. ``"virtual"`` is the queue's clock
    (``now_us``, microseconds).
    """
    if kind == "receiver":
        return process_seconds
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


class FailedCheck(NamedTuple):
    """The arguments of a signature check that raised an exception.

    ``url`` and ``body`` are None if the check did not use them. ``claim`` is the rejected claim of
    the token, ``key`` if the signature itself was wrong, and empty for a check by the receiver. A check
    by PyJWT has its ``token``, which can be another one than the delivery's.
    """

    url: str | None
    body: str | bytes | None
    keys: tuple[str, ...]
    claim: str = ""
    token: str | None = None


class SignatureWatcher:
    """Wraps the methods that check signatures while a delivery is in progress."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: dict[int, list[FailedCheck]] = {}
        self._wrapped: list[Replacement] = []

    def begin(self, failed_checks: list[FailedCheck]) -> None:
        """Add the signature checks that fail until ``end()`` to a list, unless deliveries overlap."""
        with self._lock:
            is_first = not self._open
            self._open[id(failed_checks)] = failed_checks
            if is_first:
                for module, class_name, name, watched in _LIBRARIES:
                    # Wrap a method only if its module has been imported.
                    owner: Any = getattr(sys.modules.get(module), class_name, None)
                    original = getattr(owner, "__dict__", {}).get(name)
                    if isinstance(original, FunctionType):
                        self._wrapped.append(replace(owner, name, watched(original)))

    def end(self, failed_checks: list[FailedCheck]) -> None:
        with self._lock:
            self._open.pop(id(failed_checks), None)
            while self._wrapped and not self._open:
                self._wrapped.pop().restore()

    def found(self) -> list[FailedCheck]:
        """Return the list for the delivery in progress, or a new list if several are in progress."""
        with self._lock:
            return next(iter(self._open.values())) if len(self._open) == 1 else []


WATCHER = SignatureWatcher()


def _watched_verify(original: Function) -> Function:
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


def _watched_decode(original: Function) -> Function:
    """Return PyJWT's ``decode_complete()``, which ``decode()`` calls, wrapped in the same way."""

    def decode_complete(self: Any, jwt: Any, key: Any = "", *given: Any, **named: Any) -> Any:
        found = WATCHER.found()
        try:
            result = original(self, jwt, key, *given, **named)
        except Exception as error:
            claim = getattr(error, "claim", "") or _CLAIMS.get(type(error).__name__, "")
            if claim:
                keys = (key,) if isinstance(key, str) else ()
                token = jwt.decode("ascii", "replace") if isinstance(jwt, bytes) else str(jwt)
                found.append(FailedCheck(None, None, keys, str(claim), token))
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


_NO_CHECK = FailedCheck(None, None, ())


class SignatureDetails(TypedDict):
    """The signature of a delivery that the application rejected: it answered with 401 or 403, or did
    not handle the error of its check.

    ``compared`` and the fields below it are the arguments of the application's check that differ
    from what was signed. All of them are None, False, 0 or empty if none differs or the check is
    not known.
    """

    missing: bool
    url: str
    """The URL that the token was issued for; empty if it has none."""
    called: str
    """The URL as a web framework reconstructs it from ``Host`` and the path."""
    size: int
    """The number of bytes of the sent body."""
    hash: str
    """The hash of the sent body."""
    signed_hash: str
    """The hash of the body that the token was issued for; empty if it has none."""
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
    verified_url: str | None
    verified_body: str | None
    """The beginning of the body that the application checked."""
    verified_size: int
    """The number of bytes of that body."""
    verified_body_same_json: bool
    verified_key: bool | None
    """False if the check did not use the current key."""
    former_key: bool
    """Whether the check used a key from before a rotation."""
    next_key_missing: bool
    """Whether the check used the key before the last rotation, but not the one after it."""
    claim: str
    """The claim of the token that the check rejected."""


def is_signature_error(
    error: BaseException | None, sent: Delivery, failed_checks: Sequence[FailedCheck]
) -> bool:
    """Return whether a check of a delivery's signature raised an error, or one that led to it."""
    checks_token = any(check.token == _signature_of(sent) for check in failed_checks)
    names = {
        (kind.__module__, kind.__name__) for link in chain_of(error) for kind in type(link).__mro__
    }
    return _RECEIVERS_ERROR in names or (checks_token and _TOKEN_ERROR in names)


_RECEIVERS_ERROR = ("qstash.errors", "SignatureError")
_TOKEN_ERROR = ("jwt.exceptions", "InvalidTokenError")


def _signature_of(sent: Delivery) -> str | None:
    return first(sent.headers, "Upstash-Signature") or next(
        (value for name, value in sent.headers if name.lower().endswith("-signature")), None
    )


def signature_details(
    sent: Delivery, failed_checks: Sequence[FailedCheck], keys: SigningKeys, now: float
) -> SignatureDetails:
    """Describe the signature of a delivery. ``now`` is the Unix time on the clock of signatures."""
    signature = _signature_of(sent)
    failed_checks = [check for check in failed_checks if check.token in (None, signature)]
    url, address = as_text(sent.url), Address.of(sent.url)
    invalid, check = None, _NO_CHECK
    claims: dict[str, Any] = {}
    if signature is not None:
        claims = _unverified_claims(signature)
        invalid = explain(signature, body=sent.body, keys=keys, at=now, url=url)
        if invalid is None:
            # If several checks rejected the delivery, explain one that used the queue's own key.
            own = [check for check in failed_checks if keys.current in check.keys]
            check = (own or failed_checks or [_NO_CHECK])[-1]
    checked = check.body
    if isinstance(checked, str):
        checked = checked.encode("utf-8", "surrogatepass")
    other_url = check.url if check.url != url else None
    other_body = checked if checked != sent.body else None
    rewritten = None if other_body is None else _reserialized(other_body)
    other_key = bool(check.keys) and keys.current not in check.keys
    claim = "" if check.claim == "key" else check.claim
    names = {None: "unset", keys.current: "current", keys.next: "next"}
    return {
        "missing": signature is None,
        "url": _text_claim(claims, "sub"),
        "called": as_text(f"{address.scheme}://{address.netloc}{address.target}"),
        "size": len(sent.body),
        "hash": body_hash(sent.body),
        "signed_hash": _text_claim(claims, "body"),
        "invalid": invalid,
        "ahead_s": process_seconds() - now,
        "environment": names.get(os.environ.get("QSTASH_CURRENT_SIGNING_KEY"), "other"),
        "rewritten_differs": _reserialized(sent.body) not in (None, sent.body),
        "compared": other_url is not None or other_body is not None or other_key or claim != "",
        "verified_url": other_url,
        "verified_body": None if other_body is None else shortened_body(other_body),
        "verified_size": 0 if other_body is None else len(other_body),
        "verified_body_same_json": rewritten is not None and rewritten == _reserialized(sent.body),
        "verified_key": False if other_key else None,
        "former_key": other_key and any(key in keys.former for key in check.keys),
        "next_key_missing": other_key and bool(keys.former) and keys.former[-1] in check.keys,
        "claim": claim,
    }


def _unverified_claims(signature: str) -> dict[str, Any]:
    """Return the claims of a token whoever signed it; empty if it is none."""
    import jwt

    with suppress(jwt.InvalidTokenError, UnicodeEncodeError):
        return _decode(signature, None)
    return {}


def _text_claim(claims: Mapping[str, Any], name: str) -> str:
    value = claims.get(name)
    return value if isinstance(value, str) else ""


def _reserialized(body: bytes) -> bytes | None:
    """Return a JSON body as Python's ``json`` writes it, or None if it is not JSON."""
    try:
        return json.dumps(json.loads(body)).encode()
    except (ValueError, RecursionError):
        return None
