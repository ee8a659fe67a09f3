"""Callbacks that were received: one of them decoded, and the lists they are kept in."""

from __future__ import annotations

import base64
import binascii
import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, SupportsIndex, TypeAlias, overload

from ...core.errors import ContractError
from ...core.journal import Found
from ...core.timeparse import to_datetime
from ...core.wording import check_times
from ..arguments import text
from ..asking import asked_text
from ..model import NON_RETRYABLE, first
from .faults import ScopedFaults
from .fields import check_fields, differences

if TYPE_CHECKING:
    from werkzeug import Request as WerkzeugRequest

    from ..views import PublishedMessage
    from .handle import CallbackCapture

__all__ = ["DEFAULT_TIMEOUT", "Callback", "Captured"]

DEFAULT_TIMEOUT = 5.0
#: How many items a failed assertion or wait tells of.
_SHOWN = 5

Predicate: TypeAlias = "Callable[[Callback], object]"


@dataclass(frozen=True, eq=False)
class Callback:
    """One callback or failure callback, decoded.

    `raw` is the whole body as JSON, under the service's names; `body` and `source_body` are bytes
    (what the destination answered, and what was published).  `problem` says why the signature does
    not verify, None when it does.  A body that is no callback leaves the fields None.
    """

    raw: dict[str, Any]
    headers: list[tuple[str, str]]
    problem: str | None
    at_us: int
    failure: bool
    request: WerkzeugRequest

    @property
    def status(self) -> int | None:
        """The status the destination answered; 0 when no answer came."""
        return _number(self.raw.get("status"))

    @property
    def body(self) -> bytes:
        """The body the destination answered."""
        return _decoded(self.raw.get("body"))

    def json(self) -> Any:
        """Return the destination's answer read as JSON; `ValueError` when it is none."""
        return json.loads(self.body)

    @property
    def source_body(self) -> bytes:
        """The body that was published."""
        return _decoded(self.raw.get("sourceBody"))

    def source_json(self) -> Any:
        """Return the published body read as JSON."""
        return json.loads(self.source_body)

    @property
    def source_message_id(self) -> str | None:
        """The id of the message this is about."""
        found = self.raw.get("sourceMessageId", self.raw.get("sourceMessasgeId"))
        return found if isinstance(found, str) else None

    @property
    def retried(self) -> int | None:
        """How many attempts the message had before this one."""
        return _number(self.raw.get("retried"))

    @property
    def max_retries(self) -> int | None:
        """How many retries the message may have."""
        return _number(self.raw.get("maxRetries"))

    @property
    def dlq_id(self) -> str | None:
        """The dead letter's id, in a failure callback."""
        found = self.raw.get("dlqId")
        return found if isinstance(found, str) else None

    @property
    def url(self) -> str | None:
        """The destination of the message this is about."""
        found = self.raw.get("url")
        return found if isinstance(found, str) else None

    @property
    def is_final(self) -> bool:
        """Whether no further attempt follows: delivered, given up, or a failure callback."""
        if self.failure or (self.status is not None and 200 <= self.status <= 299):
            return True
        if self.status == NON_RETRYABLE and self._refuses_retries:
            return True
        return self.retried is not None and self.retried == self.max_retries

    @property
    def _refuses_retries(self) -> bool:
        header = self.raw.get("header")
        names = header if isinstance(header, dict) else {}
        return any(
            name.lower().endswith("-nonretryable-error") and "true" in str(values).lower()
            for name, values in names.items()
        )

    @property
    def verified(self) -> bool:
        """Whether the signature is that of a queue of this cloud, for this URL and this body."""
        return self.problem is None

    @property
    def at(self) -> datetime:
        """When it came, on the cloud's clock: an aware UTC datetime."""
        return to_datetime(self.at_us)

    def header(self, name: str) -> str | None:
        """Return the first request header of that name, in any spelling, or None."""
        return first(self.headers, text("name", name))

    def __repr__(self) -> str:
        kind = "failure callback" if self.failure else "callback"
        signature = "verified" if self.verified else f"not verified: {self.problem}"
        final = ", final" if self.is_final else ""
        return (
            f"<{kind} of {self.source_message_id} at {self.at.isoformat()}: status {self.status}, "
            f"retried {self.retried} of {self.max_retries}{final}, {signature}>"
        )


def _number(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _decoded(value: object) -> bytes:
    try:
        return base64.b64decode(value) if isinstance(value, str) else b""
    except (binascii.Error, ValueError):
        return b""


class Callbacks(Found[Callback]):
    """Callbacks that were found; `where()` knows the fields that assertions and waits know."""

    def where(self, predicate: Predicate | None = None, /, **fields: object) -> Callbacks:
        """The items the predicate holds for and whose fields agree.

        A field is a property of `Callback`, or `json` and `source_json` for the parsed bodies; a
        callable as value is a predicate on the field.  `headers` is a dict of those asked for.
        """
        if predicate is not None and not callable(predicate):
            raise ContractError(
                f"where({predicate!r}): give a predicate on a callback, or fields such as status=200"
            )
        check_fields(fields)
        return Callbacks(
            item
            for item in list(self)
            if (predicate is None or predicate(item)) and not differences(item, fields)
        )

    @overload
    def __getitem__(self, index: SupportsIndex, /) -> Callback: ...
    @overload
    def __getitem__(self, index: slice, /) -> Callbacks: ...
    def __getitem__(self, index: SupportsIndex | slice, /) -> Callback | Callbacks:
        if isinstance(index, slice):
            return Callbacks(super().__getitem__(index))
        return super().__getitem__(index)


class Captured(Callbacks):
    """What came to one URL of a capture, oldest first: a list with `.url` and `.wait_for()`."""

    def __init__(self, capture: CallbackCapture, path: str, failure: bool) -> None:
        super().__init__()
        self._capture = capture
        self._path = path
        self._failure = failure
        self._returned: set[Callback] = set()
        self._turn = threading.Lock()
        self.faults = ScopedFaults(capture, path.strip("/"))

    @property
    def url(self) -> str:
        """The URL to publish with."""
        return self._capture.url + self._path

    @property
    def kind(self) -> str:
        """What the items are called."""
        return "failure callback" if self._failure else "callback"

    @property
    def aio(self) -> Any:
        """The waiting call, awaitable: `await captured.aio.wait_for(...)`."""
        return _Aio(self._capture, self)

    def wait_for(
        self,
        wanted: int | Predicate = 1,
        *,
        timeout: float = DEFAULT_TIMEOUT,
        **fields: object,
    ) -> Callbacks:
        """Return the items once there are `wanted` of them, or one the predicate holds for.

        `fields` narrow both to items with these values (`status=200`, `json={...}`; a callable is a
        predicate on the field).  Where the queue is driven, this drives it, moving time to whatever
        falls due next, until the condition holds or nothing is left to deliver.  Where it delivers
        in the background, this waits at most `timeout` real seconds.  Raises `AssertionError` with
        the timelines of the messages and what differed in the nearest items.
        """
        condition = _Condition(self, wanted, fields)
        self._capture._drive_until(condition, timeout)
        return condition.result()

    def assert_received(self, *, times: int | None = None, **fields: object) -> Callbacks:
        """Return the items with these values; fails unless there is one, or exactly `times`.

        Never drives.  The failure shows the nearest items and what differed in each.
        """
        check_times(times)
        check_fields(fields)
        found = self.where(**fields)
        if (times is None and found) or (times is not None and len(found) == times):
            return found
        expected = "at least one" if times is None else f"exactly {times}" if times else "no"
        asked = _with(fields)
        head = f"expected {expected} {self.kind}(s){asked} at {self.url}, found {len(found)}"
        missing = times is None or len(found) < times
        raise AssertionError("\n".join([head, *self._capture.account(self, fields, missing)]))

    def reset(self) -> None:
        """Forget what came."""
        self.clear()

    # -- for the capture -------------------------------------------------------------------------

    def concerns(self, message: PublishedMessage) -> bool:
        """Whether a message goes to this URL, or asked for what goes there."""
        asked = message.record.settings
        wanted = asked.failure_callback if self._failure else asked.callback
        return any(one.startswith(self.url) for one in (message.url, wanted or ""))

    def has_next(self) -> bool:
        """Whether something is here that `take()` has not returned yet."""
        return any(item not in self._returned for item in list(self))

    def take(self) -> Callback | None:
        """Return the oldest item that was not returned yet, or None; each is returned once."""
        with self._turn:
            item = next((one for one in list(self) if one not in self._returned), None)
            if item is not None:
                self._returned.add(item)
        return item

    def not_come(self) -> AssertionError:
        """Return the failure of a wait for one more than there are."""
        return _Condition(self, len(self) + 1, {}).failure()

    def saved(self) -> Any:
        """Return what came and what of it was returned, for `restore`."""
        with self._turn:
            return list(self), set(self._returned)

    def restore(self, saved: Any) -> None:
        """Return to a `saved()`."""
        with self._turn:
            self[:], self._returned = list(saved[0]), set(saved[1])


class _Condition:
    """What a wait is for, and how to say that it did not come."""

    def __init__(
        self, captured: Captured, wanted: int | Predicate, fields: Mapping[str, object]
    ) -> None:
        if isinstance(wanted, bool) or not (callable(wanted) or isinstance(wanted, int)):
            raise ContractError(f"wait_for() takes a number or a predicate, got {wanted!r}")
        if isinstance(wanted, int) and wanted < 1:
            raise ContractError(f"wait_for({wanted}) waits for nothing: give 1 or more")
        check_fields(fields)
        self._captured = captured
        self._wanted = wanted
        self._fields = fields

    def found(self) -> Callbacks:
        """The items so far."""
        predicate = self._wanted if callable(self._wanted) else None
        return self._captured.where(predicate, **self._fields)

    def __call__(self) -> bool:
        return len(self.found()) >= (self._wanted if isinstance(self._wanted, int) else 1)

    def result(self) -> Callbacks:
        """Return the items, or fail with the account of what happened instead."""
        if self():
            return self.found()
        raise self.failure()

    def failure(self) -> AssertionError:
        """Return the failure, with the account of what happened instead."""
        captured, asked = self._captured, _with(self._fields)
        if callable(self._wanted):
            name = getattr(self._wanted, "__name__", repr(self._wanted))
            head = f"no {captured.kind}{asked} for which {name} holds; "
        else:
            head = f"expected {self._wanted} {captured.kind}(s){asked}; "
        head += f"{len(captured)} came to {captured.url}"
        return AssertionError("\n".join([head, *captured._capture.account(captured, self._fields)]))


class _Aio:
    def __init__(self, capture: CallbackCapture, captured: Captured) -> None:
        self._capture = capture
        self._captured = captured

    async def wait_for(
        self,
        wanted: int | Predicate = 1,
        *,
        timeout: float = DEFAULT_TIMEOUT,
        **fields: object,
    ) -> Callbacks:
        """`Captured.wait_for`, awaitable."""
        condition = _Condition(self._captured, wanted, fields)
        await self._capture._adrive_until(condition, timeout)
        return condition.result()


def _with(fields: Mapping[str, object]) -> str:
    return f" with {asked_text(fields)}" if fields else ""


def nearest(captured: Captured, fields: Mapping[str, object]) -> list[str]:
    """Return the items most like the wanted one, each with what differs."""
    rows = [(item, differences(item, fields)) for item in captured]
    rows.sort(key=lambda row: len(row[1]))
    lines: list[str] = []
    for item, differing in rows[:_SHOWN]:
        lines.append(f"  {item!r}")
        lines += [f"    {difference}" for difference in differing]
    if len(rows) > _SHOWN:
        differ = " that differ" if fields and rows[_SHOWN][1] else ""
        lines.append(f"  and {len(rows) - _SHOWN} more {captured.kind}(s){differ}")
    return lines
