"""Details of delivery attempts for reports, such as the request, the response and logged
exceptions.

Details are kept for callbacks and for attempts that did not end in a 2xx. Source: decided here.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections import deque
from collections.abc import Awaitable, Callable
from functools import cached_property
from typing import Any
from urllib.parse import urlsplit

from ..core.errors import report_failure
from ..core.journal import Recorder
from .model import MESSAGE, Delivery, HeaderList, Outcome, SigningKeys, first
from .refusals import Refusal, Refusals
from .timeline import raised_text
from .wire.signing import body_hash, explain, published_text

LONGEST = 2_000
"""Maximum number of characters of a body that are kept."""
_MOST = 1_000
_SETTING = "QSTASH_CURRENT_SIGNING_KEY"
_Taken = tuple[int, Delivery, list[BaseException], list[Refusal]]
"""Journal number, delivery, exceptions logged during it, and signature checks that rejected it."""


class AttemptDetails:
    """Collects the details of one queue's attempts.

    ``recorder`` writes the queue's journal, ``keys`` are its signing keys, and ``now`` returns the
    Unix time in seconds that its signatures use. ``alone`` is True if deliveries are made one at a
    time. Only then can an exception that is logged during a delivery be attributed to this
    delivery.
    """

    recorder: Recorder

    def __init__(
        self,
        keys: SigningKeys,
        now: Callable[[], float],
        *,
        alone: bool,
    ) -> None:
        self._keys = keys
        self._now = now
        self._alone = alone
        self._sent: dict[tuple[str, str, int], _Taken] = {}
        self.made: deque[tuple[int, Delivery, Outcome]] = deque()
        """The most recent deliveries, each with its journal number and its outcome."""
        self._made_bytes = 0

    def watched(self, send: Callable[[Delivery], Outcome]) -> Callable[[Delivery], Outcome]:
        """Return ``send`` wrapped so that each delivery is recorded."""

        def watching(delivery: Delivery) -> Outcome:
            delivery_log = self._start_recording(delivery)
            if delivery_log is None:
                return send(delivery)
            with delivery_log:
                return send(delivery)

        return watching

    def awatched(
        self, send: Callable[[Delivery], Awaitable[Outcome]]
    ) -> Callable[[Delivery], Awaitable[Outcome]]:
        """Return the coroutine function ``send`` wrapped so that each delivery is recorded."""

        async def watching(delivery: Delivery) -> Outcome:
            delivery_log = self._start_recording(delivery)
            if delivery_log is None:
                return await send(delivery)
            with delivery_log:
                return await send(delivery)

        return watching

    def _start_recording(self, delivery: Delivery) -> _DeliveryLog | None:
        """Record a delivery, and return a context manager that collects exceptions logged during
        it.

        Returns None if such exceptions cannot be attributed to the delivery.
        """
        about = delivery.message_id, delivery.url, delivery.attempt
        earlier = self._sent.get(about)
        number = earlier[0] if earlier else self.recorder.reserve()
        logged: list[BaseException] = []
        refused: list[Refusal] = []
        self._sent[about] = number, delivery, logged, refused
        return _DeliveryLog(self._collector, logged, refused) if self._alone else None

    @cached_property
    def _collector(self) -> _LogCollector:
        return _LogCollector()

    def of(self, delivery: Delivery, outcome: Outcome) -> dict[str, Any]:
        """Return the fields of the ``attempt`` event that describe a finished attempt.

        ``began`` is the journal number at which the attempt started. ``alone`` is True if the
        attempt caused everything recorded since. Callbacks also have ``sent`` and ``sent_type``,
        because their body reports the result. Attempts that failed or logged an exception have
        these fields and ``sent_headers``, ``answer``, ``answer_type`` and ``logged`` (the
        exceptions as text). A 401 or 403 has ``signature`` (what was signed, and what the
        application compared it with), a 3xx has ``location``.
        """
        recorded = self._sent.pop((delivery.message_id, delivery.url, delivery.attempt), None)
        if recorded is None:
            return {}
        number, sent, logged, refused = recorded
        self._keep((number, sent, outcome))
        data: dict[str, Any] = {"began": number, "alone": self._alone, "where": outcome.where}
        quiet = outcome.delivered and not logged
        if quiet and sent.kind is MESSAGE:
            return data
        problems: list[str] = []
        # Record an error while collecting details, because it must not fail the delivery.
        with report_failure("the request and the response cannot be described", problems.append):
            data["sent"] = _text(sent.body)
            data["sent_type"] = first(sent.headers, "Content-Type") or ""
            if not quiet:
                data |= self._exchanged(sent, logged, refused, outcome)
        return {**data, "logged": problems} if problems else data

    def _keep(self, made: tuple[int, Delivery, Outcome]) -> None:
        """Keep a delivery for reports, and forget old ones until the journal's limit is met."""
        self.made.append(made)
        self._made_bytes += _size(made)
        while len(self.made) > _MOST or self._made_bytes > self.recorder.most_bytes:
            self._made_bytes -= _size(self.made.popleft())

    def _exchanged(
        self,
        sent: Delivery,
        logged: list[BaseException],
        refused: list[Refusal],
        outcome: Outcome,
    ) -> dict[str, Any]:
        data: dict[str, Any] = {"sent_headers": _decisive(sent.headers)}
        if outcome.status is not None:
            data["answer"] = _text(outcome.body)
            data["answer_type"] = first(outcome.headers, "Content-Type") or ""
        data["logged"] = [
            raised_text(error, "the handler logged")
            for error in logged
            if error is not outcome.exception
        ]
        if outcome.status in (401, 403):
            data["signature"] = self._signature(sent, refused)
        if outcome.status is not None and 300 <= outcome.status < 400:
            data["location"] = first(outcome.headers, "Location")
        return data

    def forget(self) -> None:
        self._sent.clear()
        self.made.clear()
        self._made_bytes = 0

    def _signature(self, sent: Delivery, refused: list[Refusal]) -> dict[str, Any]:
        signature = first(sent.headers, "Upstash-Signature") or next(
            (value for name, value in sent.headers if name.lower().endswith("-signature")), None
        )
        signed = published_text(sent.sub or sent.url)
        data: dict[str, Any] = {
            "missing": signature is None,
            "url": signed,
            "called": _as_served(sent.url),
            "size": len(sent.body),
            "hash": body_hash(sent.body),
            "invalid": None,
            "compared": False,
            "verified_url": None,
            "verified_body": None,
            "verified_key": None,
            "former_key": False,
            "next_key_missing": False,
            "claim": "",
            "ahead_s": time.time() - self._now(),
            "environment": _environment(self._keys),
            "rewritten_differs": _reserialized(sent.body) not in (None, sent.body),
        }
        if signature is None:
            return data
        data["invalid"] = explain(
            signature, body=sent.body, keys=self._keys, at=self._now(), url=signed
        )
        if refused and data["invalid"] is None:
            # If several checks rejected the delivery, explain one that used the queue's own key.
            own = [one for one in refused if self._keys.current in one.keys]
            check = [*refused, *own][-1]
            data |= _compared(check, sent, signed, self._keys)
            data |= self._rotation(set(check.keys))
        return data

    def _rotation(self, tried: set[str]) -> dict[str, bool]:
        """Return whether a check used a key from before a rotation, and whether it lacked the next
        key.
        """
        former = self._keys.former
        return {
            "former_key": not tried.isdisjoint(former),
            "next_key_missing": bool(former)
            and former[-1] in tried
            and self._keys.current not in tried,
        }


def _size(made: tuple[int, Delivery, Outcome]) -> int:
    _, sent, outcome = made
    return len(sent.body) + len(outcome.body)


def _environment(keys: SigningKeys) -> str:
    """Return whether ``QSTASH_CURRENT_SIGNING_KEY`` is unset, the current key, the next, or
    another.
    """
    key = os.environ.get(_SETTING)
    if key is None:
        return "unset"
    return {keys.current: "current", keys.next: "next"}.get(key, "other")


def _compared(refused: Refusal, sent: Delivery, signed: str, keys: SigningKeys) -> dict[str, Any]:
    """Return the arguments of the application's signature check that differ from what was signed."""
    body = refused.body.encode() if isinstance(refused.body, str) else refused.body
    data: dict[str, Any] = {}
    if refused.url is not None and refused.url != signed:
        data["verified_url"] = refused.url
    if body is not None and body != sent.body:
        data["verified_body"] = _text(body)
        data["verified_size"] = len(body)
        data["verified_body_same_json"] = (
            _reserialized(body) == _reserialized(sent.body) is not None
        )
    if refused.keys and keys.current not in refused.keys:
        data["verified_key"] = False
    elif refused.claim not in ("", "key"):
        data["claim"] = refused.claim
    return {**data, "compared": bool(data)}


class _LogCollector:
    """Collects the exceptions that are logged during deliveries.

    A queue uses one collector for all its deliveries, because creating a logging handler takes
    longer than a delivery.
    """

    def __init__(self) -> None:
        self._root = logging.getLogger()
        self._handler = logging.Handler()
        self._handler.addFilter(self._collect)
        self._open: dict[int, list[BaseException]] = {}

    def listen(self, logged: list[BaseException]) -> None:
        """Start to add logged exceptions to a list."""
        self._open[id(logged)] = logged
        self._root.addHandler(self._handler)

    def leave(self, logged: list[BaseException]) -> None:
        """Stop adding logged exceptions to a list."""
        del self._open[id(logged)]
        if not self._open:
            self._root.removeHandler(self._handler)

    def _collect(self, record: logging.LogRecord) -> bool:
        """Collect the exception of a log record, and suppress the record."""

        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            for logged in tuple(self._open.values()):
                if error not in logged and len(logged) < 3:
                    logged.append(error)
        return False


class _DeliveryLog:
    """Context manager that collects what one delivery logs. Deliveries may overlap."""

    __slots__ = ("_collector", "_logged", "_refusals")

    def __init__(
        self, collector: _LogCollector, logged: list[BaseException], refused: list[Refusal]
    ) -> None:
        self._collector, self._logged, self._refusals = collector, logged, Refusals(refused)

    def __enter__(self) -> None:
        self._refusals.__enter__()
        self._collector.listen(self._logged)

    def __exit__(self, *error: object) -> None:
        self._collector.leave(self._logged)
        self._refusals.__exit__(*error)


def _text(body: bytes) -> str:
    return body[: LONGEST * 4].decode("utf-8", "replace")[:LONGEST]


def _decisive(headers: HeaderList) -> list[list[str]]:
    ours = ("upstash-", "user-agent", "content-type", "host", "content-length")
    return [
        [name, value]
        for name, value in headers
        if not (known := name.lower()).startswith(ours) and not known.endswith("-signature")
    ]


def _as_served(url: str) -> str:
    """Return the URL as a web framework reconstructs it from ``Host`` and the path."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return published_text(url)
    host = parts.netloc.rpartition("@")[2]
    query = f"?{parts.query}" if parts.query else ""
    return published_text(f"{parts.scheme}://{host}{parts.path or '/'}{query}")


def _reserialized(body: bytes) -> bytes | None:
    try:
        return json.dumps(json.loads(body)).encode()
    except (ValueError, RecursionError):
        return None
