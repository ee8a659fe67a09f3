"""Verification of callbacks with the signing keys of a cloud's queues."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any

from ..delivery.clocks import signature_clock
from ..wire.signing import explain


def why_not_signed_by(
    queues: Sequence[Any],
    now_us: Callable[[], int],
    signature: str | None,
    *,
    body: bytes,
    url: str,
) -> str | None:
    """Return why a callback does not verify with the keys of any of these queues, or None if it
    does.

    ``now_us`` is the cloud's clock, which some queues use for their signatures.
    """
    if not queues:
        return (
            "this cloud has no queue; pass the signing keys of the queue outside it, such as "
            "keys={'current': ...}"
        )
    keys: dict[str, str] = {}
    for queue in queues:
        whose = f"{queue.name} " if len(queues) > 1 else ""
        keys[f"{whose}current"] = queue.current_signing_key
        keys[f"{whose}next"] = queue.next_signing_key
    # Queues may sign with different clocks. Use the clock of the queue whose key signed the request.
    signers = [queue for queue in queues[1:] if _signed_with(signature, _keys_of(queue))]
    clock = signature_clock((signers or queues)[0].signature_clock, now_us)
    return explain(signature, body=body, keys=keys, at=clock(), url=url)


def _keys_of(queue: Any) -> tuple[str, str]:
    return queue.current_signing_key, queue.next_signing_key


def _signed_with(signature: str | None, keys: Iterable[str]) -> bool:
    """Return whether a token was signed with one of the keys. Its claims are not checked."""
    import jwt

    for key in keys:
        with suppress(jwt.InvalidTokenError):
            jwt.PyJWS().decode(signature or "", key, algorithms=["HS256"])
            return True
    return False
