"""Signatures of deliveries (HS256 JSON web tokens), and explanations of invalid signatures.

Source of the claims: the vendor's documentation and both official receivers. A receiver tries the
current key, then the next one, and reports only the error of the second. From that error, a test
cannot tell whether the token was expired, or made for another URL or another body. ``explain()``
reports all reasons.

The caller chooses the clock of a token (a function that returns the Unix time in seconds), because
a receiver compares the token with *its own* clock; see
``pytest_fakecloud.queue.signature_clock.signature_clock``.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import product
from typing import Any, TypeGuard
from urllib.parse import urlsplit

from ...core.ids import RandomStream
from ..model import Delivery, Exchange, HeaderList, Interceptor, Proceed, Sending, SigningKeys
from .values import as_text

LIFETIME = 300
"""Seconds between a token's ``iat`` and its ``exp``."""
_EXPIRED_AGE = 3600
"""Age in seconds of the token that the fault ``expired`` sends."""

ISSUER = "Upstash"
_MAX_TIME = 2**53
"""Maximum number of seconds in a time claim. NaN, infinity and huge integers are not times."""
_REQUIRED = ("iss", "sub", "exp", "nbf", "body")


def body_hash(body: bytes) -> str:
    """Return the ``body`` claim: padded base64url of the SHA-256 of the raw body, even if empty."""
    return base64.urlsafe_b64encode(hashlib.sha256(body).digest()).decode("ascii")


@dataclass(eq=False, slots=True)
class Signer(Interceptor):
    """Signs deliveries with the current key of ``keys``, or as faults demand.

    ``now`` returns the Unix time in seconds and is called for each signature. ``ids`` supplies the
    token ids. The claims are ``iss``, ``sub``
    (the full destination URL), ``iat``, ``exp`` (``iat`` + 300), ``nbf`` 0, ``jti`` (a string,
    because PyJWT rejects other types) and ``body``.
    """

    keys: SigningKeys
    now: Callable[[], float]
    ids: RandomStream
    header: str = "Upstash-Signature"

    def deliver(self, exchange: Exchange, proceed: Proceed) -> Sending:
        """Sign a delivery, and send it twice if a fault demands that."""
        faults = exchange.attempt.faults
        exchange.delivery = self.signed(exchange.delivery, faults)
        return _twice(exchange, proceed) if "duplicate" in faults else proceed(exchange)

    def signed(self, delivery: Delivery, faults: Collection[str] = ()) -> Delivery:
        """Return a delivery with its signature, after applying the faults about signatures."""
        signature: HeaderList = []
        if "unsigned" not in faults:
            key: str | None = None
            if "wrong_key" in faults:
                key = self.keys.new_key()
            elif "next_key" in faults:
                key = self.keys.next
            age = _EXPIRED_AGE if "expired" in faults else 0
            token = self.sign(delivery.url, delivery.body, key=key, age=age)
            signature = [(self.header, token)]
        return delivery._replace(
            headers=delivery.headers + signature,
            body=delivery.body + b"tampered" if "tamper" in faults else delivery.body,
        )

    def sign(self, url: str, body: bytes, *, key: str | None = None, age: float = 0.0) -> str:
        """Return a token for a request to ``url`` with the given body, issued ``age`` seconds ago."""
        issued = int(self.now() - age)
        import jwt  # Imported here, because the import loads all of cryptography.

        claims = {
            "iss": ISSUER,
            "sub": as_text(url),
            "exp": issued + LIFETIME,
            # The claim must be present. The service has sent 0 since September 2024.
            "nbf": 0,
            "iat": issued,
            "jti": "jwt_" + self.ids.base58(27),
            "body": body_hash(body),
        }
        return jwt.encode(claims, self.keys.current if key is None else key, algorithm="HS256")


def _twice(exchange: Exchange, proceed: Proceed) -> Sending:
    yield from proceed(exchange)
    return (yield from proceed(exchange))


def explain(
    signature: str | None,
    *,
    body: bytes,
    keys: SigningKeys | Mapping[str, str],
    at: float,
    url: str | None = None,
    tolerance: float = 0.0,
) -> str | None:
    """Return all reasons why a signature does not verify, or None if it does.

    ``keys`` are the receiver's keys by name, ``at`` is the receiver's Unix time in seconds, ``url``
    is the address at which the receiver was called (None: not compared, as in both receivers).
    ``tolerance`` is in seconds and applies to the times in the token.
    """
    if not signature:
        return "the request has no Upstash-Signature header"
    named = {"current": keys.current, "next": keys.next} if isinstance(keys, SigningKeys) else keys
    claims = _signed_claims(signature, named)
    if isinstance(claims, str):
        return claims
    reasons = list(_wrong_claims(claims, at, tolerance))
    if url is not None and isinstance(claims.get("sub"), str) and claims["sub"] != url:
        reasons.append(_url_differs(str(claims["sub"]), url))
    if isinstance(claims.get("body"), str):
        reasons.extend(_body_differs(str(claims["body"]), body))
    return "; ".join(reasons) or None


def _signed_claims(signature: str, keys: Mapping[str, str]) -> dict[str, Any] | str:
    """Return the claims of a token, or why it is malformed or not signed with one of the keys."""
    import jwt

    claims = verified_claims(signature, keys.values())
    if claims is not None:
        return claims
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
    checks: dict[str, Any] = {
        f"verify_{claim}": False for claim in ("exp", "nbf", "iat", "aud", "iss", "sub", "jti")
    }
    checks["verify_signature"] = key is not None
    claims: dict[str, Any] = jwt.decode(
        signature,
        key or "",
        algorithms=["HS256"],
        options=checks,  # type: ignore[arg-type, unused-ignore]
    )
    return claims


def _wrong_claims(claims: Mapping[str, Any], at: float, tolerance: float) -> Iterator[str]:
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
        if not _is_unix_time(value):
            yield f"the {name} claim is {value!r}, expected a number of seconds"
        elif name == "exp" and value <= at - tolerance:
            yield (
                f"the token has expired {_span(at - value)} ago on the receiver's clock"
                f" (exp {value}, now {int(at)})"
            )
        elif name != "exp" and value > at + tolerance:
            yield (
                f"the token is from the future: {name} is {_span(value - at)} ahead of the"
                f" receiver's clock ({name} {value}, now {int(at)}); set signature_clock= to the"
                " clock that the receiver uses"
            )


def _is_unix_time(value: object) -> TypeGuard[float]:
    return (
        isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= _MAX_TIME
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
