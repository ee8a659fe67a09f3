"""What the attempts of a queue leave for a report: what was sent, what came back, what was logged.

Taken down only of attempts that did not end in a 2xx, and of callbacks. Source: decided here.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Awaitable, Callable, Iterator
from functools import cached_property
from typing import Any
from urllib.parse import urlsplit

from ..core.errors import telling
from ..core.journal import Recorder
from .model import MESSAGE, Delivery, HeaderList, Outcome, SigningKeys, first
from .refusals import Refusal, Refusals
from .timeline import raised_text
from .wire.signing import body_hash, explain, published_text

LONGEST = 2_000
"""The most characters that are kept of a body."""
_SETTING = "QSTASH_CURRENT_SIGNING_KEY"
_Taken = tuple[int, Delivery, list[BaseException], list[Refusal]]
"""A number of the journal, what was sent, what was logged and what a receiver refused."""


class AttemptDetails:
    """Watches the deliveries of one queue.

    ``recorder`` writes the queue's journal, ``keys`` are its signing keys, ``now`` the Unix seconds that
    signatures are made on, ``alone`` whether one delivery at a time is made and nothing else runs
    meanwhile: only then what is logged during a delivery belongs to it.
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

    def watched(self, send: Callable[[Delivery], Outcome]) -> Callable[[Delivery], Outcome]:
        """Return ``send``, with what it sends taken down."""

        def watching(delivery: Delivery) -> Outcome:
            listening = self._take_down(delivery)
            if listening is None:
                return send(delivery)
            with listening:
                return send(delivery)

        return watching

    def awatched(
        self, send: Callable[[Delivery], Awaitable[Outcome]]
    ) -> Callable[[Delivery], Awaitable[Outcome]]:
        """Return the awaitable ``send``, with what it sends taken down."""

        async def watching(delivery: Delivery) -> Outcome:
            listening = self._take_down(delivery)
            if listening is None:
                return await send(delivery)
            with listening:
                return await send(delivery)

        return watching

    def _take_down(self, delivery: Delivery) -> _Listening | None:
        """Take a delivery down; returns what listens meanwhile, where what it hears is of it."""
        about = delivery.message_id, delivery.url, delivery.attempt
        earlier = self._sent.get(about)
        number = earlier[0] if earlier else self.recorder.reserve()
        logged: list[BaseException] = []
        refused: list[Refusal] = []
        self._sent[about] = number, delivery, logged, refused
        return _Listening(self._ear, logged, refused) if self._alone else None

    @cached_property
    def _ear(self) -> _Ear:
        return _Ear()

    def of(self, delivery: Delivery, outcome: Outcome) -> dict[str, Any]:
        """Return what the event of an attempt has beyond its outcome.

        ``began`` is the journal's number when it began, ``alone`` whether all that was recorded
        since was caused by it. Of a callback also ``sent`` and ``sent_type``: what it tells decides.
        Of an attempt that failed, or logged an exception, these and ``sent_headers``, ``answer`` and
        ``answer_type``, ``logged`` (exceptions in words) and, of a 401 or 403, ``signature`` (what
        was signed and what of it differs, a line each) or, of a 3xx, ``location``.
        """
        found = self._sent.pop((delivery.message_id, delivery.url, delivery.attempt), None)
        if found is None:
            return {}
        number, sent, logged, refused = found
        told: dict[str, Any] = {"began": number, "alone": self._alone, "where": outcome.where}
        quiet = outcome.delivered and not logged
        if quiet and sent.kind is MESSAGE:
            return told
        untold: list[str] = []
        # An explanation can fail, the delivery cannot.
        with telling("what was sent and answered cannot be told", untold.append):
            told["sent"] = _text(sent.body)
            told["sent_type"] = first(sent.headers, "Content-Type") or ""
            if not quiet:
                told |= self._exchanged(sent, logged, refused, outcome)
        return {**told, "logged": untold} if untold else told

    def _exchanged(
        self,
        sent: Delivery,
        logged: list[BaseException],
        refused: list[Refusal],
        outcome: Outcome,
    ) -> dict[str, Any]:
        told: dict[str, Any] = {"sent_headers": _decisive(sent.headers)}
        if outcome.status is not None:
            told["answer"] = _text(outcome.body)
            told["answer_type"] = first(outcome.headers, "Content-Type") or ""
        told["logged"] = [
            raised_text(error, "logged") for error in logged if error is not outcome.exception
        ]
        if outcome.status in (401, 403):
            told["signature"] = list(self._signature(sent, refused))
        if outcome.status is not None and 300 <= outcome.status < 400:
            told["location"] = first(outcome.headers, "Location")
        return told

    def forget(self) -> None:
        """Drop what is under way."""
        self._sent.clear()

    def _signature(self, sent: Delivery, refused: list[Refusal]) -> Iterator[str]:
        signature = first(sent.headers, "Upstash-Signature") or next(
            (value for name, value in sent.headers if name.lower().endswith("-signature")), None
        )
        signed, seen = published_text(sent.sub or sent.url), _as_served(sent.url)
        if signature is None:
            yield "the delivery was sent without a signature"
            return
        why = explain(signature, body=sent.body, keys=self._keys, at=self._now(), url=signed)
        yield f"signed for {signed}"
        yield f"signed body: {len(sent.body)} bytes, hash {body_hash(sent.body)[:12]}…"
        if seen != signed:
            yield f"the application was called at {seen}: another text than the signed URL"
        if why is not None:
            yield f"differs: {why}"
            return
        compared = list(_compared(refused[-1], sent, signed, self._keys)) if refused else []
        if compared:
            yield from compared
            return
        yield "it verifies with this queue's keys; what the application compared is not known"
        real = time.time() - self._now()
        if abs(real) > 1:
            yield f"time.time() of this process is {real:+.0f} s from the clock of the signature"
        key = os.environ.get(_SETTING)
        if key is None:
            yield f"{_SETTING} is not set in this process (fakecloud_env sets it)"
        elif key == self._keys.next:
            yield f"{_SETTING} of this process is the queue's next key"
        elif key != self._keys.current:
            yield f"{_SETTING} of this process is another key than this queue's"
        if _written_again(sent.body) not in (None, sent.body):
            yield "read as JSON and written by json.dumps() again, the body has another hash"
        elif key in (None, self._keys.current):
            others = ["with http://"] if signed.startswith("https://") else ["with https://"]
            others += [f"without ?{signed.partition('?')[2]}"] if "?" in signed else []
            fits = "QSTASH_CURRENT_SIGNING_KEY is right; " if key is not None else ""
            yield f"{fits}the URL counts to the letter: {' and '.join(others)} it does not verify"


def _compared(refused: Refusal, sent: Delivery, signed: str, keys: SigningKeys) -> Iterator[str]:
    """What the application gave its receiver, where it is not what was signed."""
    body = refused.body.encode() if isinstance(refused.body, str) else refused.body
    if refused.url is not None and refused.url != signed:
        yield f"but Receiver.verify() was given the URL {refused.url}"
    if body is not None and body != sent.body:
        yield f"but Receiver.verify() was given another body, of {len(body)} bytes: {_text(body)}"
    if keys.current not in refused.keys:
        yield "but the Receiver has another key than this queue's"


class _Ear:
    """Hears the exceptions that are logged while deliveries are under way.

    A queue has one for all of its deliveries: to make a handler takes longer than a delivery may.
    """

    def __init__(self) -> None:
        self._root = logging.getLogger()
        self._handler = logging.Handler()
        self._handler.addFilter(self._collect)
        self._open: dict[int, list[BaseException]] = {}

    def listen(self, logged: list[BaseException]) -> None:
        """Begin to add what is logged to a list."""
        self._open[id(logged)] = logged
        self._root.addHandler(self._handler)

    def leave(self, logged: list[BaseException]) -> None:
        """Add no more to that list."""
        del self._open[id(logged)]
        if not self._open:
            self._root.removeHandler(self._handler)

    def _collect(self, record: logging.LogRecord) -> bool:
        """Collect the exception of a record, as a filter that lets nothing through."""

        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            for logged in tuple(self._open.values()):
                if error not in logged and len(logged) < 3:
                    logged.append(error)
        return False


class _Listening:
    """The block of one delivery; within it others may begin, and end before or after it."""

    __slots__ = ("_ear", "_logged", "_refusals")

    def __init__(self, ear: _Ear, logged: list[BaseException], refused: list[Refusal]) -> None:
        self._ear, self._logged, self._refusals = ear, logged, Refusals(refused)

    def __enter__(self) -> None:
        self._refusals.__enter__()
        self._ear.listen(self._logged)

    def __exit__(self, *error: object) -> None:
        self._ear.leave(self._logged)
        self._refusals.__exit__(*error)


def _text(body: bytes) -> str:
    return body[: LONGEST * 4].decode("utf-8", "replace")[:LONGEST]


def _decisive(headers: HeaderList) -> list[list[str]]:
    """The headers that the publisher chose."""
    ours = ("upstash-", "user-agent", "content-type", "host", "content-length")
    return [
        [name, value]
        for name, value in headers
        if not (known := name.lower()).startswith(ours) and not known.endswith("-signature")
    ]


def _as_served(url: str) -> str:
    """The URL as a framework puts it together from ``Host`` and the path."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return published_text(url)
    host = parts.netloc.rpartition("@")[2]
    query = f"?{parts.query}" if parts.query else ""
    return published_text(f"{parts.scheme}://{host}{parts.path or '/'}{query}")


def _written_again(body: bytes) -> bytes | None:
    try:
        return json.dumps(json.loads(body)).encode()
    except (ValueError, RecursionError):
        return None
