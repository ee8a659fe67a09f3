"""Details of a signature that the application rejected: what was signed, and what it compared."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from typing import TypedDict

from .delivery.applications import Address
from .model import Delivery, SigningKeys, first
from .signature_checks import FailedCheck
from .wire.signing import body_hash, explain
from .wire.values import as_text, shortened_body

_NO_CHECK = FailedCheck(None, None, ())


class Comparison(TypedDict):
    """The arguments of the application's signature check that differ from what was signed.

    All of them are None, False, 0 or empty if none differs or the check is not known.
    """

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


class SignatureDetails(Comparison):
    """The signature of a delivery that the application answered with 401 or 403."""

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


def signature_details(
    sent: Delivery, failed_checks: Sequence[FailedCheck], keys: SigningKeys, now: float
) -> SignatureDetails:
    """Describe the signature of a delivery.

    ``failed_checks`` are those of the application, and ``now`` is the Unix time in seconds on the
    clock of signatures.
    """
    signature = first(sent.headers, "Upstash-Signature") or next(
        (value for name, value in sent.headers if name.lower().endswith("-signature")), None
    )
    url = as_text(sent.url)
    invalid, check = None, _NO_CHECK
    if signature is not None:
        invalid = explain(signature, body=sent.body, keys=keys, at=now, url=url)
        if invalid is None:
            # If several checks rejected the delivery, explain one that used the queue's own key.
            own = [one for one in failed_checks if keys.current in one.keys]
            check = (own or failed_checks or [_NO_CHECK])[-1]
    return {
        "missing": signature is None,
        "url": url,
        "called": _as_served(sent.url),
        "size": len(sent.body),
        "hash": body_hash(sent.body),
        "invalid": invalid,
        "ahead_s": time.time() - now,
        "environment": _environment(keys),
        "rewritten_differs": _reserialized(sent.body) not in (None, sent.body),
        **_compared(check, url, sent.body, keys),
    }


def _compared(check: FailedCheck, url: str, body: bytes, keys: SigningKeys) -> Comparison:
    checked = check.body
    if isinstance(checked, str):
        checked = checked.encode("utf-8", "surrogatepass")
    other_url = check.url if check.url != url else None
    other_body = checked if checked != body else None
    rewritten = None if other_body is None else _reserialized(other_body)
    other_key = bool(check.keys) and keys.current not in check.keys
    claim = "" if check.claim == "key" else check.claim
    return {
        "compared": other_url is not None or other_body is not None or other_key or claim != "",
        "verified_url": other_url,
        "verified_body": None if other_body is None else shortened_body(other_body),
        "verified_size": 0 if other_body is None else len(other_body),
        "verified_body_same_json": rewritten is not None and rewritten == _reserialized(body),
        "verified_key": False if other_key else None,
        "former_key": other_key and any(key in keys.former for key in check.keys),
        "next_key_missing": other_key and bool(keys.former) and keys.former[-1] in check.keys,
        "claim": claim,
    }


def _environment(keys: SigningKeys) -> str:
    names = {None: "unset", keys.current: "current", keys.next: "next"}
    return names.get(os.environ.get("QSTASH_CURRENT_SIGNING_KEY"), "other")


def _as_served(url: str) -> str:
    """Return the URL as a web framework reconstructs it from ``Host`` and the path."""
    try:
        address = Address.of(url)
    except ValueError:
        return as_text(url)
    return as_text(f"{address.scheme}://{address.netloc}{address.target}")


def _reserialized(body: bytes) -> bytes | None:
    """Return a JSON body as Python's ``json`` writes it, or None if it is not JSON."""
    try:
        return json.dumps(json.loads(body)).encode()
    except (ValueError, RecursionError):
        return None
